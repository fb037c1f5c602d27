//! df, mount, lsblk and numastat.

use crate::support::{bytes, fixture, import, is_clean, is_empty, one, output, text_of};

#[test]
fn filesystems() {
    for text in [
        bytes(output("snapshots/df.C.txt")),
        bytes(output("snapshots/df.de_DE.UTF-8.txt")),
        bytes(output("snapshots/df.fr_FR.UTF-8.txt")),
    ] {
        let read = import("x", text);
        is_clean(&read);
        assert_eq!(one(&read.set, "fs.total_bytes", "/"), (264_212_084.0 * 1024.0, 4));
        assert!(one(&read.set, "fs.avail_bytes", "/").0 > 72_909_000.0 * 1024.0);
        assert_eq!(text_of(&read.set, "fs.device", "/"), Some("/dev/vda"));
    }
    assert_eq!(
        one(&import("x", bytes(output("snapshots/df.C.txt"))).set, "fs.free_bytes", "/").0,
        (264_212_084.0 - 22_592_216.0) * 1024.0
    );
    for text in [
        bytes(output("snapshots/df-h.C.txt")),
        bytes(output("snapshots/df-h.de_DE.UTF-8.txt")),
        bytes(output("snapshots/df-h.fr_FR.UTF-8.txt")),
    ] {
        let read = import("x", text);
        is_clean(&read);
        assert_eq!(one(&read.set, "fs.avail_bytes", "/").0, 70.0 * 1024_f64.powi(3));
        assert!(read.set.get("fs.free_bytes", "/").is_none());
    }
    for text in [
        bytes(output("snapshots/df-i.C.txt")),
        bytes(output("snapshots/df-i.de_DE.UTF-8.txt")),
        bytes(output("snapshots/df-i.fr_FR.UTF-8.txt")),
    ] {
        let read = import("x", text);
        is_clean(&read);
        assert_eq!(one(&read.set, "fs.inodes", "/").0, 16_777_216.0);
        assert!(read.set.get("fs.total_bytes", "/").is_none());
    }
    for text in [
        bytes(output("snapshots/df-T.C.txt")),
        bytes(output("snapshots/df-T.de_DE.UTF-8.txt")),
        bytes(output("snapshots/df-T.fr_FR.UTF-8.txt")),
    ] {
        let read = import("x", text);
        is_clean(&read);
        assert_eq!(text_of(&read.set, "fs.type", "/"), Some("ext4"));
        assert_eq!(one(&read.set, "fs.total_bytes", "/").0, 264_212_084.0 * 1024.0);
    }
    let read = import("x", bytes(output("snapshots/df-B1M.txt")));
    is_clean(&read);
    assert_eq!(one(&read.set, "fs.total_bytes", "/").0, 258_020.0 * 1_048_576.0);
    let old = b"Filesystem           1K-blocks      Used Available Use% Mounted on\n/dev/mapper/a-very-long-name\n                       1000       900        50  95% /var/a b\n";
    let read = import("x", old);
    is_clean(&read);
    assert_eq!(one(&read.set, "fs.free_bytes", "/var/a b"), (100.0 * 1024.0, 3));
    assert_eq!(text_of(&read.set, "fs.device", "/var/a b"), Some("/dev/mapper/a-very-long-name"));
}

/// A cell may be empty, so that a word belongs to the title below whose end it ends, however wide the tree is drawn.
#[test]
fn disks_with_empty_cells() {
    let text = "NAME          TRAN ROTA RM TYPE\n\
                sda           sata    1  0 disk\n\
                ├─sda1                1  0 part\n\
                │ └─luks-x            0  1 crypt\n";
    let free = "              total        used        free      shared  buff/cache   available\n\
                Mem:           7.7G        4.8G        576M        9.0M        2.3G        2.6G\n\
                Swap:          2.0G          0B        2.0G\n";
    let read = import("x", format!("{text}{free}"));
    assert_eq!(
        (read.files[0].unread, &read.files[0].formats[..]),
        (0, &["lsblk".to_owned(), "free".to_owned()][..])
    );
    let mut disks: Vec<&str> = read.set.each("disk.rotational").map(|(row, _)| row).collect();
    disks.sort_unstable();
    assert_eq!(disks, ["luks-x", "sda", "sda1"]);
    assert_eq!(one(&read.set, "disk.rotational", "sda1").0, 1.0);
    assert_eq!(one(&read.set, "disk.rotational", "luks-x").0, 0.0);
}

#[test]
fn mounts_and_disks() {
    let read = import("x", bytes(output("snapshots/mount.txt")));
    is_clean(&read);
    assert_eq!(text_of(&read.set, "fs.type", "/"), Some("ext4"));
    let read = import("x", bytes(fixture("6.18/proc/self/mounts")));
    is_clean(&read);
    assert_eq!(text_of(&read.set, "fs.device", "/"), Some("/dev/vda"));
    let read = import("x", bytes(output("snapshots/lsblk-o.txt")));
    is_clean(&read);
    assert_eq!(one(&read.set, "disk.rotational", "vda"), (1.0, 3));
    assert_eq!(text_of(&read.set, "disk.queue_scheduler", "vda"), Some("mq-deadline"));
    assert_eq!(text_of(&read.set, "disk.queue_scheduler", "zram0"), None);
    // Names and places are no numbers.
    assert!(import("x", bytes(output("snapshots/lsblk.txt"))).files[0].unread > 0);
}

#[test]
fn tables_of_nodes() {
    let read = import("x", bytes(output("snapshots/numastat.txt")));
    is_clean(&read);
    assert_eq!(one(&read.set, "node.numa_hit", "0"), (273_607_755.0, 2));
    let two = b"                           node0           node1\nnuma_hit                1000000         2000000\nnuma_foreign                  7               8\n";
    let read = import("x", two);
    is_clean(&read);
    assert_eq!(one(&read.set, "node.numa_foreign", "1"), (8.0, 3));
    let read = import("x", bytes(output("snapshots/numastat-m.txt")));
    is_clean(&read);
    assert_eq!(one(&read.set, "node.mem_free", "0").0, 20_612.80 * 1_048_576.0);
    let read = import("x", bytes(output("snapshots/numastat-n.txt")));
    assert!(read.files[0].unread > 0);
    assert!(read.set.total("node.numa_hit", "0").is_none());
}

#[test]
fn an_array_that_is_rebuilt() {
    let text = "Personalities : [raid1] [raid6]\nmd0 : active raid1 sdb1[2] sda1[0]\n      1046528 blocks super 1.2 [2/1] [U_]\n\
        \x20     [==>..................]  recovery = 12.6% (132096/1046528) finish=0.4min speed=33440K/sec\n      \n\
        md1 : active raid6 sdd1[1] sdc1[0]\n      2046528 blocks level 6, 64k chunk\n      \tresync=DELAYED\n\nunused devices: <none>\n";
    let read = import("mdstat", text);
    assert_eq!(read.files[0].notes, ["md0: recovery is at 12.6 %, with 32.7 MiB/s"]);
    assert_eq!(text_of(&read.set, "disk.mirror", "sda1"), Some("md0"));
    assert_eq!(text_of(&read.set, "disk.array", "sdc1"), Some("md1"));
    assert_eq!(text_of(&read.set, "disk.sync_action", "md0"), Some("recover"));
    assert_eq!(one(&read.set, "disk.sync_speed", "md0"), (33_440.0 * 1024.0, 4));
    assert_eq!(one(&read.set, "disk.sync_left", "md0"), ((1_046_528.0 - 132_096.0) * 1024.0, 4));
    assert_eq!(text_of(&read.set, "disk.sync_action", "md1"), None, "it waits");
    assert_eq!(read.files[0].unread, 0, "{:?}", read.files[0]);
}

#[test]
fn an_array_is_idle_before_and_after_its_check() {
    let block = |second: u32, progress: &str| {
        format!(
            "zzz ***Sat Sep 10 10:53:{second} CEST 2016\nPersonalities : [raid1] [raid0]\nmd0 : active raid1 sdb1[1] sda1[0]\n      \
             1046528 blocks super 1.2 [2/2] [UU]\n{progress}\nmd1 : active raid0 sdd1[1] sdc1[0]\n      2046528 blocks 64k \
             chunks\n\nunused devices: <none>\n\n"
        )
    };
    let check =
        "      [==>..................]  check = 12.6% (132096/1046528) finish=0.4min speed=33440K/sec\n";
    let read = import("mdstat", [block(10, ""), block(20, check), block(30, "")].concat());
    let changes = &read.set.text("disk.sync_action", "md0").unwrap().changes;
    let actions: Vec<Option<&str>> = changes.iter().map(|(_, action)| action.as_deref()).collect();
    assert_eq!(actions, [Some("idle"), Some("check"), Some("idle")]);
    assert_eq!(changes[2].0 - changes[0].0, 20 * mitra_model::time::SECOND);
    assert_eq!(text_of(&read.set, "disk.sync_action", "md1"), None, "nothing to check");
}

#[test]
fn near_misses_of_tables() {
    for text in [
        "Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/vda x y z 24% /",
        "/dev/vda 264212084 22592216 72909048 24% /",
        "vda on / type ext4",
        "a b c d 0 0",
        "node0 node1\nnuma_hit",
        "NAME SIZE",
    ] {
        let read = import("x", format!("a line\n{text}\n"));
        assert!(is_empty(&read), "{text}");
    }
}
