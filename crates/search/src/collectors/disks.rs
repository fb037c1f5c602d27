//! The block devices, one document each: size, model, scheduler, queue settings, and the devices
//! they are built from. Devices without a medium and unused loop devices are left out.
//!
//! ```text
//! name = sda
//! size = 960197124096
//! model = SAMSUNG MZ7LH960
//! scheduler = mq-deadline
//! schedulers = [mq-deadline] kyber bfq none
//! nr_requests = 64
//! read_ahead_kb = 128
//! …
//! ```

use super::kernel::chosen;
use super::{Source, line, number, word};
use crate::document::{Document, Facts, Kind};

const FOLDER: &str = "/sys/block";
/// Maximum number of block devices.
const DISKS_MAX: usize = 1_024;
/// Sector size of `/sys/block/*/size`: 512 bytes on every device.
const SECTOR: u64 = 512;

/// Files read from the device's `queue` directory.
const QUEUE: &[&str] = &[
    "nr_requests",
    "read_ahead_kb",
    "rotational",
    "logical_block_size",
    "physical_block_size",
    "minimum_io_size",
    "optimal_io_size",
    "max_sectors_kb",
    "max_hw_sectors_kb",
    "write_cache",
    "fua",
    "wbt_lat_usec",
    "rq_affinity",
    "nomerges",
    "iostats",
    "add_random",
    "discard_granularity",
    "discard_max_bytes",
    "zoned",
];

/// Tunables read from the active scheduler, if it has them.
const SCHEDULER: &[&str] = &[
    "read_expire",
    "write_expire",
    "writes_starved",
    "fifo_batch",
    "front_merges",
    "prio_aging_expire",
    "async_depth",
    "slice_idle",
    "slice_idle_us",
    "low_latency",
    "strict_guarantees",
    "read_lat_nsec",
    "write_lat_nsec",
];

/// Other files read below the device, and their keys in the document.
const OTHERS: &[(&str, &str)] = &[
    ("ro", "read_only"),
    ("removable", "removable"),
    ("device/vendor", "vendor"),
    ("device/model", "model"),
    ("device/rev", "revision"),
    ("device/firmware_rev", "firmware"),
    ("device/transport", "transport"),
    ("device/timeout", "timeout"),
    ("dm/name", "dm.name"),
    ("md/level", "md.level"),
    ("md/raid_disks", "md.disks"),
    ("md/chunk_size", "md.chunk_size"),
    ("md/layout", "md.layout"),
    ("md/stripe_cache_size", "md.stripe_cache_size"),
    ("md/sync_speed_min", "md.sync_speed_min"),
    ("md/sync_speed_max", "md.sync_speed_max"),
    ("loop/backing_file", "loop.file"),
    ("comp_algorithm", "zram.algorithm"),
];

/// The files whose values become numeric fields.
const NUMBERS: &[&str] = &[
    "nr_requests",
    "read_ahead_kb",
    "rotational",
    "logical_block_size",
    "physical_block_size",
    "max_sectors_kb",
];

/// One document for each block device.
pub fn collect(source: &Source<'_>) -> Result<Vec<Document>, String> {
    let names = source.list(FOLDER)?;
    Ok(names.iter().take(DISKS_MAX).filter_map(|entry| disk(source, &entry.name)).collect())
}

fn disk(source: &Source<'_>, name: &str) -> Option<Document> {
    let folder = format!("{FOLDER}/{name}");
    let size = source.count(&format!("{folder}/size")).filter(|sectors| *sectors > 0)?.saturating_mul(SECTOR);
    let value = |file: &str| source.value(&format!("{folder}/{file}")).map(|v| v.trim().to_owned());
    let mut content = String::new();
    let mut facts = Facts::new();
    // sysfs writes `!` for a slash.
    line(&mut content, "name", &name.replace('!', "/"));
    word(&mut facts, "disk.name", name.replace('!', "/"));
    line(&mut content, "size", &size.to_string());
    number(&mut facts, "disk.size", size);
    for (file, key) in OTHERS {
        let Some(value) = value(file).filter(|v| !v.is_empty()) else { continue };
        line(&mut content, key, &value);
        if *key == "model" {
            word(&mut facts, "disk.model", value);
        }
    }
    if let Some(schedulers) = value("queue/scheduler") {
        let scheduler = chosen(&schedulers).to_owned();
        line(&mut content, "scheduler", &scheduler);
        line(&mut content, "schedulers", &schedulers);
        word(&mut facts, "disk.scheduler", scheduler);
    }
    for key in QUEUE {
        let Some(value) = value(&format!("queue/{key}")).filter(|v| !v.is_empty()) else { continue };
        line(&mut content, key, &value);
        if let Some(count) = value.parse::<u64>().ok().filter(|_| NUMBERS.contains(key)) {
            number(&mut facts, &format!("disk.{key}"), count);
        }
        if *key == "write_cache" {
            word(&mut facts, "disk.write_cache", value);
        }
    }
    for name in
        source.names(&format!("{folder}/queue/iosched")).iter().filter(|n| SCHEDULER.contains(&n.as_str()))
    {
        value(&format!("queue/iosched/{name}"))
            .iter()
            .for_each(|v| line(&mut content, &format!("scheduler.{name}"), v));
    }
    let is_partition = |inner: &String| {
        inner.starts_with(name) && source.stat(&format!("{folder}/{inner}/partition")).is_some()
    };
    for partition in source.names(&folder).into_iter().filter(is_partition) {
        let [start, size] =
            ["start", "size"].map(|file| value(&format!("{partition}/{file}")).unwrap_or_default());
        line(&mut content, &format!("partition {partition}"), &format!("{size} sectors at {start}"));
    }
    for slave in source.names(&format!("{folder}/slaves")) {
        content.push_str(&format!("made of {slave}\n"));
    }
    Some(source.document(format!("@disk/{name}"), Kind::Disk, content, facts))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::collectors::Cache;
    use crate::document::Value;

    #[test]
    fn devices_with_a_size_have_a_document() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("sda/size", "2048\n"),
            ("sda/device/model", "DISK 1   \n"),
            ("sda/queue/scheduler", "none [mq-deadline] kyber\n"),
            ("sda/queue/nr_requests", "64\n"),
            ("sda/queue/write_cache", "write back\n"),
            ("sda/queue/iosched/read_expire", "500\n"),
            ("sda/sda1/partition", "1\n"),
            ("sda/sda1/start", "64\n"),
            ("sda/sda1/size", "1024\n"),
            ("sda/slaves/sdb", ""),
            ("loop0/size", "0\n"),
            ("odd/size", "many\n"),
        ] {
            let path = root.path().join("sys/block").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let cache = Cache::default();
        let source = Source { root: root.path(), now_ns: 0, cache: &cache };
        let documents = collect(&source).unwrap();
        assert_eq!(documents.iter().map(|d| d.filename.as_str()).collect::<Vec<_>>(), ["@disk/sda"]);
        assert_eq!(
            documents[0].content.as_deref(),
            Some(
                "name = sda\nsize = 1048576\nmodel = DISK 1\nscheduler = mq-deadline\n\
                 schedulers = none [mq-deadline] kyber\nnr_requests = 64\nwrite_cache = write back\n\
                 scheduler.read_expire = 500\npartition sda1 = 1024 sectors at 64\nmade of sdb\n"
            )
        );
        let value = |name: &str| documents[0].facts.get(name).and_then(|values| values.first().cloned());
        assert_eq!(value("disk.scheduler"), Some(Value::Text("mq-deadline".to_owned())));
        assert_eq!(value("disk.nr_requests"), Some(Value::Number(64.0)));
        assert_eq!(value("disk.size"), Some(Value::Number(1_048_576.0)));
        assert_eq!(value("disk.write_cache"), Some(Value::Text("write back".to_owned())));
    }
}
