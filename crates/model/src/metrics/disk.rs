//! Block devices.

use crate::metric::{Entity, Kernel, Metric, Unit, bucket, counter, gauge, text};

const fn count(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Disk, name, Unit::Count, source, since, help)
}

const fn sectors(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Disk, name, Unit::Sectors, source, since, help)
}

const fn millis(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Disk, name, Unit::Millis, source, since, help)
}

const fn level(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Disk, name, Unit::Count, source, since, help)
}

const fn state(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Disk, name, Unit::None, source, since, help)
}

const fn disk_text(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    text(Entity::Disk, name, source, since, help)
}

const fn micros(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Disk, name, Unit::Micros, source, since, help)
}

const fn disk_bucket(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    bucket(Entity::Disk, name, source, since, help)
}

/// Of each device and partition in `/proc/diskstats`.
pub const DISK: &[Metric] = &[
    count("disk.reads", "/proc/diskstats:1", Kernel(2, 6), "Reads completed. Merged requests count once."),
    count(
        "disk.read_merges",
        "/proc/diskstats:2",
        Kernel(2, 6),
        "Reads merged with a neighbour before they reached the device.",
    ),
    sectors(
        "disk.read_bytes",
        "/proc/diskstats:3",
        Kernel(2, 6),
        "Read, in sectors of 512 bytes whatever the device's own sector size.",
    ),
    millis(
        "disk.read_time",
        "/proc/diskstats:4",
        Kernel(2, 6),
        "Time from start to completion, summed over reads, so parallel reads add up to more than the clock. Divided by disk.reads it is the mean latency.",
    ),
    count("disk.writes", "/proc/diskstats:5", Kernel(2, 6), "Writes completed. Merged requests count once."),
    count(
        "disk.write_merges",
        "/proc/diskstats:6",
        Kernel(2, 6),
        "Writes merged with a neighbour before they reached the device.",
    ),
    sectors(
        "disk.write_bytes",
        "/proc/diskstats:7",
        Kernel(2, 6),
        "Written, in sectors of 512 bytes whatever the device's own sector size.",
    ),
    millis(
        "disk.write_time",
        "/proc/diskstats:8",
        Kernel(2, 6),
        "Time from start to completion, summed over writes.",
    ),
    level(
        "disk.in_flight",
        "/proc/diskstats:9",
        Kernel(2, 6),
        "Requests given to the driver and not completed at the moment of the sample. Requests that a throttle holds back are not in it.",
    ),
    millis(
        "disk.io_time",
        "/proc/diskstats:10",
        Kernel(2, 6),
        "Time in which at least one request was in flight. A device that works in parallel is not saturated at 1 s/s. Since 5.0 counted in whole jiffies as requests start and end, so it is approximate.",
    ),
    millis(
        "disk.weighted_time",
        "/proc/diskstats:11",
        Kernel(2, 6),
        "Time summed over all requests in flight: its rate is the mean number of requests in the device and its queue.",
    ),
    count("disk.discards", "/proc/diskstats:12", Kernel(4, 18), "Discards completed."),
    count("disk.discard_merges", "/proc/diskstats:13", Kernel(4, 18), "Discards merged with a neighbour."),
    sectors("disk.discard_bytes", "/proc/diskstats:14", Kernel(4, 18), "Discarded, in sectors of 512 bytes."),
    millis(
        "disk.discard_time",
        "/proc/diskstats:15",
        Kernel(4, 18),
        "Time from start to completion, summed over discards.",
    ),
    count(
        "disk.flushes",
        "/proc/diskstats:16",
        Kernel(5, 5),
        "Flush requests completed. Not counted for partitions.",
    ),
    millis(
        "disk.flush_time",
        "/proc/diskstats:17",
        Kernel(5, 5),
        "Time from start to completion, summed over flushes.",
    ),
    state(
        "disk.rotational",
        "/sys/block/DEV/queue/rotational",
        Kernel(2, 6),
        "1 if the device says that it has moving parts. Virtual disks often say so without having any.",
    ),
    disk_text(
        "disk.queue_scheduler",
        "/sys/block/DEV/queue/scheduler",
        Kernel(2, 6),
        "The I/O scheduler in use: none, mq-deadline, bfq, kyber, and before 5.0 noop, deadline, cfq.",
    ),
    disk_text(
        "disk.backing",
        "/sys/block/loopN/loop/backing_file",
        Kernel(2, 6),
        "File behind a loop device.",
    ),
    disk_text(
        "disk.mirror",
        "/sys/block/DEV/holders, /sys/fs/btrfs/UUID",
        Kernel(2, 6),
        "Mirror that the device is a member of: the name of the md device, or `btrfs:` and the id of the filesystem. Unavailable for a device that is none.",
    ),
    micros(
        "disk.read_latency_sum",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Time from issue to the device until completion, summed over reads. Waiting in the scheduler or a throttle is not in it.",
    ),
    micros(
        "disk.write_latency_sum",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Time from issue to the device until completion, summed over writes.",
    ),
    disk_bucket(
        "disk.read_latency_le_16us",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took at most 16 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_32us",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 16 us and at most 32 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_64us",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 32 us and at most 64 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_128us",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 64 us and at most 128 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_256us",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 128 us and at most 256 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_512us",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 256 us and at most 512 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_1ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 512 us and at most 1024 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_2ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 1024 us and at most 2048 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_4ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 2048 us and at most 4096 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_8ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 4096 us and at most 8192 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_16ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 8192 us and at most 16384 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_32ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 16384 us and at most 32768 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_64ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 32768 us and at most 65536 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_128ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 65536 us and at most 131072 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_256ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 131072 us and at most 262144 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_512ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 262144 us and at most 524288 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_1s",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 524288 us and at most 1048576 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_2s",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 1048576 us and at most 2097152 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_4s",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 2097152 us and at most 4194304 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_le_8s",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 4194304 us and at most 8388608 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_latency_inf",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads that took more than 8388608 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_16us",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took at most 16 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_32us",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 16 us and at most 32 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_64us",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 32 us and at most 64 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_128us",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 64 us and at most 128 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_256us",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 128 us and at most 256 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_512us",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 256 us and at most 512 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_1ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 512 us and at most 1024 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_2ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 1024 us and at most 2048 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_4ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 2048 us and at most 4096 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_8ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 4096 us and at most 8192 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_16ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 8192 us and at most 16384 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_32ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 16384 us and at most 32768 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_64ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 32768 us and at most 65536 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_128ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 65536 us and at most 131072 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_256ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 131072 us and at most 262144 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_512ms",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 262144 us and at most 524288 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_1s",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 524288 us and at most 1048576 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_2s",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 1048576 us and at most 2097152 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_4s",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 2097152 us and at most 4194304 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_le_8s",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 4194304 us and at most 8388608 us from issue to completion.",
    ),
    disk_bucket(
        "disk.write_latency_inf",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes that took more than 8388608 us from issue to completion.",
    ),
    disk_bucket(
        "disk.read_size_le_4k",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads of at most 4096 bytes.",
    ),
    disk_bucket(
        "disk.read_size_le_8k",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads of more than 4096 and at most 8192 bytes.",
    ),
    disk_bucket(
        "disk.read_size_le_16k",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads of more than 8192 and at most 16384 bytes.",
    ),
    disk_bucket(
        "disk.read_size_le_32k",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads of more than 16384 and at most 32768 bytes.",
    ),
    disk_bucket(
        "disk.read_size_le_64k",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads of more than 32768 and at most 65536 bytes.",
    ),
    disk_bucket(
        "disk.read_size_le_128k",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads of more than 65536 and at most 131072 bytes.",
    ),
    disk_bucket(
        "disk.read_size_le_256k",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads of more than 131072 and at most 262144 bytes.",
    ),
    disk_bucket(
        "disk.read_size_le_512k",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads of more than 262144 and at most 524288 bytes.",
    ),
    disk_bucket(
        "disk.read_size_le_1m",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads of more than 524288 and at most 1048576 bytes.",
    ),
    disk_bucket(
        "disk.read_size_inf",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Reads of more than 1048576 bytes.",
    ),
    disk_bucket(
        "disk.write_size_le_4k",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes of at most 4096 bytes.",
    ),
    disk_bucket(
        "disk.write_size_le_8k",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes of more than 4096 and at most 8192 bytes.",
    ),
    disk_bucket(
        "disk.write_size_le_16k",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes of more than 8192 and at most 16384 bytes.",
    ),
    disk_bucket(
        "disk.write_size_le_32k",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes of more than 16384 and at most 32768 bytes.",
    ),
    disk_bucket(
        "disk.write_size_le_64k",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes of more than 32768 and at most 65536 bytes.",
    ),
    disk_bucket(
        "disk.write_size_le_128k",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes of more than 65536 and at most 131072 bytes.",
    ),
    disk_bucket(
        "disk.write_size_le_256k",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes of more than 131072 and at most 262144 bytes.",
    ),
    disk_bucket(
        "disk.write_size_le_512k",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes of more than 262144 and at most 524288 bytes.",
    ),
    disk_bucket(
        "disk.write_size_le_1m",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes of more than 524288 and at most 1048576 bytes.",
    ),
    disk_bucket(
        "disk.write_size_inf",
        "tp_btf/block_rq_complete",
        Kernel(5, 5),
        "Writes of more than 1048576 bytes.",
    ),
];
