//! What the system says of disks, their paths and volumes, of rings of network cards and of the machine: multipath, lvs,
//! dmsetup, nvme, ethtool -g, dmidecode.

use mitra_model::{EventKind, Span};
use mitra_parse::text::Imported;
use proptest::prelude::*;

use crate::support::{
    bytes, damaged, import, import_file, is_empty, output, outputs_of, string_of, survive, tries, whole,
};

/// Devices that were lost, each with the line that says so.
fn lost(read: &Imported) -> Vec<(&str, u32)> {
    let of = |event: &mitra_model::Event| event.place.map_or(0, |place| place.line);
    let events = read.set.events.iter().filter_map(|event| match &event.kind {
        EventKind::DeviceError { what, device, .. } if what == "device-lost" || what == "path-failed" => {
            Some((device.as_str(), of(event)))
        }
        _ => None,
    });
    events.collect()
}

#[track_caller]
fn notes(path: &str, format: &str) -> Vec<String> {
    let mut read = whole(output(path));
    assert_eq!(read.files[0].formats, [format], "{path}");
    read.files.remove(0).notes
}

#[test]
fn paths_to_disks() {
    let read = whole(output("multipath/ll.txt"));
    assert_eq!(lost(&read), [("dm-4", 9)], "the others have another path");
    let EventKind::DeviceError { text, .. } = &read.set.events[0].kind else { panic!() };
    assert_eq!(text, "no path to mpathb works: requests wait until one comes back");
    assert_eq!(
        notes("multipath/ll.txt", "multipath -ll"),
        [
            "multipath: 1 of 4 paths to mpatha failed, 3 work",
            "multipath: no path to mpathb works: requests wait until one comes back",
            "multipath: 1 of 2 paths to uuid.fedcba98-3579-4567-8765-123456789abc failed, 1 work",
        ]
    );
    let read = whole(output("multipath/ll-old.txt"));
    assert_eq!(lost(&read), [("dm-2", 2)]);
    assert_eq!(
        notes("multipath/ll-old.txt", "multipath -ll"),
        ["multipath: no path to mpath1 works: requests fail"]
    );
    let read = whole(output("multipath/ll-well.txt"));
    assert!(read.set.events.is_empty() && read.files[0].notes.is_empty(), "{:?}", read.files[0]);
    assert_eq!(read.files[0].formats, ["multipath -ll"]);
}

#[test]
fn a_state_that_nobody_knows_is_no_failure() {
    let text =
        string_of(output("multipath/ll-well.txt")).replace("active ready  running", "undef undef unknown");
    let read = import("x", &text);
    assert!(read.set.events.is_empty() && read.files[0].notes.is_empty(), "{:?}", read.files[0]);
    // What is known of a path counts, what is not does not add to those that work.
    let text = text.replacen("undef undef unknown", "failed faulty running", 1);
    let read = import("x", &text);
    assert!(lost(&read).is_empty(), "nobody knows of the other path");
    assert_eq!(
        read.files[0].notes,
        ["multipath: 1 of 2 paths to 3600d0230000000000e13955cc3757800 failed, 0 work"]
    );
    // What follows is somebody else's.
    let after = format!("{}MemTotal:       16384 kB\n", string_of(output("multipath/ll-well.txt")));
    let read = import("x", after);
    assert_eq!((read.files[0].unread, read.set.get("mem.total", "").is_some()), (0, true));
}

#[test]
fn volumes_of_lvm() {
    let read = whole(output("lvm/lvs.txt"));
    assert!(lost(&read).is_empty(), "nobody knows which device it is");
    let text = "  LV   VG     Attr       LSize  KMaj KMin\n  swap system -wi-ao----  8.00g  253    0\n  root system rwi-aor-p- 20.00g  253    7\n";
    assert_eq!(lost(&import("x", text)), [("dm-7", 3)]);
    assert_eq!(
        notes("lvm/lvs.txt", "lvs"),
        [
            "lvs: the thin pool data/pool0 is 100.0 % full, its metadata 37.0 %",
            "lvs: the thin pool data/pool0 has no room for data: writes wait or fail",
            "lvs: the thin pool data/pool1 is 12.5 % full, its metadata 81.2 %",
            "lvs: the volume system/root lacks a disk",
            "lvs: the snapshot system/snap is 100.0 % full",
            "lvs: the snapshot system/snap is no longer valid",
        ]
    );
    assert_eq!(notes("lvm/lvs-old.txt", "lvs"), ["lvs: the snapshot new_vg/newvgsnap1 is 91.2 % full"]);
    assert!(notes("lvm/lvs-well.txt", "lvs").is_empty());
    // A row without attributes is damage where another one follows.
    let text = string_of(output("lvm/lvs-well.txt")).replacen("-wi-ao----", "??????????", 1);
    assert_eq!(import("x", text).files[0].first_unread.as_ref().map(|first| first.0), Some(3));
}

#[test]
fn devices_of_the_mapper() {
    assert_eq!(
        notes("lvm/dmsetup-status.txt", "dmsetup status"),
        [
            "dmsetup: the snapshot rootvg-ssnap is 89.1 % full",
            "dmsetup: the snapshot rootvg-varvol is no longer valid",
            "dmsetup: the thin pool pve-data-tpool is 100.0 % full, its metadata 4.3 %",
            "dmsetup: the thin pool pve-data-tpool has no room for data: writes fail",
            "dmsetup: 1 of 2 paths to mpatha failed",
            "dmsetup: 1 of 2 disks of vg-mirror failed",
        ]
    );
    assert_eq!(
        notes("lvm/dmsetup-status-one.txt", "dmsetup status"),
        ["dmsetup: the thin pool appsvg-pool is 20.2 % full, its metadata 82.9 %"]
    );
    // Tables of devices say nothing of how they are.
    let table = "vg-root: 0 104857600 linear 8:2 2048\nvg-pool: 0 209715200 thin-pool 253:1 253:2 128 0 1 skip_block_zeroing\n";
    let read = import("x", table);
    assert_eq!((read.files[0].unread, read.files[0].formats.is_empty()), (2, true));
    assert!(read.files[0].notes.is_empty());
    let failed = import("x", "vg-pool-tpool: 0 209715200 thin-pool Fail\nvg-thin: 0 1000 thin Fail\n");
    assert_eq!(
        failed.files[0].notes,
        ["dmsetup: the thin pool vg-pool-tpool has failed", "dmsetup: the thin volume vg-thin has failed"]
    );
}

#[test]
fn health_of_nvme_disks() {
    assert_eq!(
        notes("nvme/smart-log-H.txt", "nvme smart-log"),
        [
            "nvme: nvme0n1 warns: it runs out of spare blocks, it takes no more writes",
            "nvme: nvme0n1 has 0 % of its spare blocks left; its threshold is 5 %",
            "nvme: nvme0n1 says of itself that it fails",
            "nvme: of nvme0n1, in its life: 1012 errors of its medium, 17 minutes above its warning temperature, \
             3 times slowed down much for its heat",
        ]
    );
    assert!(notes("nvme/smart-log-1.txt", "nvme smart-log").is_empty());
    assert_eq!(
        notes("nvme/smart-log.json", "nvme smart-log -o json"),
        [
            "nvme: nvme1n1 warns: it is too hot or too cold",
            "nvme: of nvme1n1, in its life: 104 percent of its life are used, 230 minutes above its warning temperature, \
             12 minutes above its critical temperature, 44 times slowed down for its heat",
        ]
    );
    assert_eq!(
        notes("nvme/smart-log-v.json", "nvme smart-log -o json"),
        ["nvme: of a disk, in its life: 2 errors of its medium"]
    );
    // A number that is missing is not zero.
    let cut = "Smart Log for NVME device:nvme0n1 namespace-id:ffffffff\navailable_spare_threshold : 5%\n";
    let read = import("x", cut);
    assert!(read.files[0].notes.is_empty() && read.files[0].unread == 2, "{:?}", read.files[0]);
}

#[test]
fn rings_of_network_cards() {
    let read = whole(output("net/ethtool-g.txt"));
    let of = |metric: &str| read.set.get(metric, "eth0").and_then(|s| s.last(Span::ALL));
    assert_eq!((of("nic.rx_ring"), of("nic.rx_ring_max")), (Some(512.0), Some(4096.0)));
    let old = whole(output("net/ethtool-g-old.txt"));
    assert!(old.set.get("nic.rx_ring", "em1").is_some());
}

#[test]
fn machines_and_their_memory() {
    assert_eq!(
        notes("dmidecode/server.txt", "dmidecode"),
        [
            "dmidecode: Dell Inc. PowerEdge R740, BIOS 2.10.2 of 02/24/2021",
            "dmidecode: 80 GB of memory in 3 modules, 1 slots are empty: 2 × 32 GB DDR4 at 2666 MT/s (made for 2933), \
             1 × 16 GB DDR4 at 2666 MT/s",
        ]
    );
    assert_eq!(
        notes("dmidecode/memory-old.txt", "dmidecode"),
        [
            "dmidecode: 16 GB of memory in 2 modules, 0 slots are empty: 2 × 8 GB DDR3 at 1067 MT/s (made for 1333)"
        ]
    );
    // A virtual machine does not say how fast its memory is.
    let virtual_one =
        "Handle 0x1100, DMI type 17, 40 bytes\nMemory Device\n\tSize: 16 GB\n\tType: RAM\n\tSpeed: Unknown\n";
    let read = import("x", virtual_one);
    assert_eq!(
        read.files[0].notes,
        ["dmidecode: 16 GB of memory in 1 modules, 0 slots are empty: 1 × 16 GB RAM"]
    );
    let chassis = "Handle 0x0300, DMI type 3, 22 bytes\nChassis Information\n\tType: Rack Mount Chassis\n";
    assert_eq!(import("x", chassis).files[0].unread, 3);
}

#[test]
fn near_misses() {
    for text in [
        "mpatha (broken) since dm-3\n",
        "mpatha (3600508b4) dm-3 HP\nhello\n",
        "LV VG and others\nroot system\n",
        "LV Attr\nroot system\n",
        "a: 0 12 linearly\nb: x 12 linear\n",
        "worker: 3 17 error\n",
        "L2: 0 512 cache\n",
        "Smart Log for everybody\n",
        "{\"critical_warning\": 3}\n",
        "Ring parameters for all\n",
        "Handle 0x0300 with care\n",
        "SMBIOS is present\n",
        "/dev/md0:\nfaulty\n",
    ] {
        let read = import("x", text);
        let only_log = read.files[0].formats.iter().all(|format| format == "log");
        assert!(is_empty(&read) && only_log && read.files[0].notes.is_empty(), "{text}: {:?}", read.files[0]);
    }
}

#[test]
fn outputs_one_after_the_other() {
    let paths = ["multipath/ll.txt", "lvm/lvs.txt", "lvm/dmsetup-status.txt", "nvme/smart-log-1.txt"];
    let all = paths.map(|path| bytes(output(path))).concat();
    let read = import("x", all);
    assert_eq!(read.files[0].formats, ["multipath -ll", "lvs", "dmsetup status", "nvme smart-log"]);
    assert_eq!(read.files[0].unread, 0);
    assert_eq!(import_file(output("dmidecode/server.txt")).files[0].unread, 0);
}

proptest! {
    #![proptest_config(tries(300))]

    #[test]
    fn changed_outputs_are_survived(
        content in damaged(
            outputs_of(&["multipath", "lvm", "dmidecode", "nvme"])
                .into_iter()
                .chain(["ethtool-g.txt", "ethtool-g-old.txt"].map(|name| bytes(output(format!("net/{name}")))))
                .collect(),
        ),
    ) {
        survive("x", content);
    }
}
