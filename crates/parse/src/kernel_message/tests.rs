use mitra_model::EventKind;
use proptest::prelude::*;

use super::{is_only_in_the_log, meaning};

/// Name, process, address, instruction, error code, file, base, place in the file.
type Crash = (String, u32, u64, u64, u32, Option<String>, Option<u64>, Option<u64>);

fn crash(line: &str) -> Crash {
    match meaning(line) {
        Some(EventKind::Crash { pid, comm, address, ip, error, object, base, file_offset }) => {
            (comm, pid, address, ip, error, object, base, file_offset)
        }
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn segfaults_of_all_kernels() {
    let libc = "hbase_regionser[32760]: segfault at 8 ip 00007f26cabd608b sp 00007fffb0798270 error 4 in libc-2.9.so[7f26cab66000+168000]";
    let (name, object) = ("hbase_regionser".to_owned(), Some("libc-2.9.so".to_owned()));
    let base = Some(0x7f26_cab6_6000);
    assert_eq!(crash(libc), (name, 32760, 8, 0x7f26_cabd_608b, 4, object, base, None));
    // The old words, before 2.6.27.
    let old = "a b[c][9]: segfault at 0000000000000010 rip 0000000000400536 rsp 00007fff5c1d6f50 error 6";
    assert_eq!(crash(old), ("a b[c]".to_owned(), 9, 0x10, 0x40_0536, 6, None, None, None));
    let offset = "orderd[22553]: segfault at 10 ip 00005648dc8451a0 sp 00007ffd4df000b0 error 6 in my orderd.so[11a0,5648dc845000+1000] likely on CPU 0 (core 0, socket 0)";
    let object = Some("my orderd.so".to_owned());
    let expected =
        ("orderd".to_owned(), 22553, 16, 0x5648_dc84_51a0, 6, object, Some(0x5648_dc84_5000), Some(0x11a0));
    assert_eq!(crash(offset), expected);
    // A jump to nowhere lies in no file, and the error code is hexadecimal.
    let jump = "orderd[22559]: segfault at 1000 ip 0000000000001000 sp 00007ffec9db6a58 error 14 likely on CPU 0 (core 0, socket 0)";
    assert_eq!(crash(jump), ("orderd".to_owned(), 22559, 0x1000, 0x1000, 0x14, None, None, None));
    let null = "x[1]: segfault at 0 ip           (null) sp 00007ffec9db6a58 error 14 in x[400000+1000]";
    assert_eq!(crash(null), ("x".to_owned(), 1, 0, 0, 0x14, Some("x".to_owned()), Some(0x40_0000), None));
}

#[test]
fn traps_have_the_address_of_the_instruction() {
    for line in [
        "traps: orderd[22561] general protection fault ip:560d6ff2c1ca sp:7fffea780450 error:0 in orderd[560d6ff2c000+1000]",
        "orderd[22561] general protection ip:560d6ff2c1ca sp:7fffea780450 error:0 in orderd[560d6ff2c000+1000]",
        "traps: orderd[22561] trap invalid opcode ip:560d6ff2c1ca sp:7fffea780450 error:0 in orderd[560d6ff2c000+1000]",
    ] {
        let at = 0x560d_6ff2_c1ca;
        let object = Some("orderd".to_owned());
        let expected = ("orderd".to_owned(), 22561, at, at, 0, object, Some(0x560d_6ff2_c000), None);
        assert_eq!(crash(line), expected, "{line}");
    }
}

#[test]
fn arm64_has_a_syndrome() {
    let read = "orderd[77]: unhandled level 2 translation fault (11) at 0x00000008, esr 0x92000006, in orderd[aaaae0000000+1000]";
    let object = Some("orderd".to_owned());
    let base = Some(0xaaaa_e000_0000);
    assert_eq!(crash(read), ("orderd".to_owned(), 77, 8, 0, 4, object.clone(), base, None));
    let write = "orderd[77]: unhandled exception: DABT (lower EL), ESR 0x000000009200004f, level 3 permission fault in orderd[aaaae0000000+1000]";
    assert_eq!(crash(write), ("orderd".to_owned(), 77, 0, 0, 4 | 2 | 1, object, base, None));
}

#[test]
fn kills_for_lack_of_memory() {
    let kill = |pid, comm: &str, cgroup: Option<&str>, anon_bytes| {
        let (comm, cgroup) = (comm.to_owned(), cgroup.map(str::to_owned));
        Some(EventKind::OomKill { pid, comm, cgroup, anon_bytes })
    };
    for (line, expected) in [
        (
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/app,task_memcg=/app/a,task=my,hog,pid=812,uid=0",
            kill(812, "my,hog", Some("/app"), None),
        ),
        (
            "Memory cgroup out of memory: Killed process 812 (a (b)) total-vm:35372kB, anon-rss:32384kB, file-rss:968kB, shmem-rss:0kB, UID:0",
            kill(812, "a (b)", None, Some(32_384 * 1024)),
        ),
        (
            "Out of memory: Kill process 812 (java) score 901 or sacrifice child",
            kill(812, "java", None, None),
        ),
        (
            "Killed process 812 (java) total-vm:300kB, anon-rss:12kB, file-rss:0kB",
            kill(812, "java", None, Some(12_288)),
        ),
        (
            "Killed process 812, UID 0, (java) total-vm:3kB, anon-rss:12kB",
            kill(812, "java", None, Some(12_288)),
        ),
    ] {
        assert_eq!(meaning(line), expected, "{line}");
        assert!(!is_only_in_the_log(&expected.unwrap()));
    }
    for none in [
        "Kill process 812 (java) sharing same memory",
        "Out of memory: Kill process 812 (java) sharing same memory",
        "oom_reaper: reaped process 812 (java), now anon-rss:0kB",
        "java invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "Killed process x (java) total-vm:300kB",
        "Killed process 812",
        "oom-kill:constraint=CONSTRAINT_MEMCG",
    ] {
        assert_eq!(meaning(none), None, "{none}");
    }
}

#[test]
fn tasks_that_stand_still() {
    let stuck = |what: &str, pid, comm: &str, seconds| {
        Some(EventKind::Stuck { what: what.to_owned(), pid, comm: comm.to_owned(), seconds })
    };
    for (line, expected) in [
        (
            "INFO: task kworker/0:1:123 blocked for more than 120 seconds.",
            stuck("hung-task", 123, "kworker/0:1", 120.0),
        ),
        (
            "INFO: task java:9 blocked in I/O wait for more than 241 seconds.",
            stuck("hung-task", 9, "java", 241.0),
        ),
        (
            "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [qemu:x:123]",
            stuck("soft-lockup", 123, "qemu:x", 22.0),
        ),
        ("NMI watchdog: BUG: soft lockup - CPU#0 stuck for 23s! [a:1]", stuck("soft-lockup", 1, "a", 23.0)),
        ("rcu: INFO: rcu_sched self-detected stall on CPU", stuck("rcu-stall", 0, "", 0.0)),
        (
            "INFO: rcu_preempt detected stalls on CPUs/tasks: { 3} (detected by 0, t=5252 jiffies)",
            stuck("rcu-stall", 0, "", 0.0),
        ),
    ] {
        assert_eq!(meaning(line), expected, "{line}");
    }
    assert_eq!(meaning("INFO: task x blocked for more than 120 seconds."), None);
    assert_eq!(meaning("rcu: Hierarchical RCU implementation."), None);
}

#[test]
fn tcp_and_pages() {
    for (line, expected) in [
        ("Out of socket memory", "unnamed"),
        ("TCP: Out of socket memory", "unnamed"),
        ("TCP: out of memory -- consider tuning tcp_mem", "memory"),
        ("TCP: too many orphaned sockets", "orphans"),
        ("TCP: too many of orphaned sockets", "orphans"),
    ] {
        let expected = EventKind::TcpPressure { what: expected.to_owned(), text: line.to_owned() };
        assert_eq!(meaning(line), Some(expected));
    }
    let failure = |order, comm: &str| Some(EventKind::AllocationFailure { order, comm: comm.to_owned() });
    let line = "my java: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL|__GFP_COMP)";
    assert_eq!(meaning(line), failure(4, "my java"));
    assert_eq!(meaning("x: page allocation failure. order:1, mode:0x20"), failure(1, "x"));
    let line = "x: page allocation stalls for 10004ms, order:0, mode:0x2400840(GFP_NOFS)";
    assert_eq!(meaning(line), failure(0, "x"));
    for none in [
        "TCP: request_sock_TCP: Possible SYN flooding on port 80. Dropping request.",
        "nf_conntrack: nf_conntrack: table full, dropping packet",
    ] {
        assert_eq!(meaning(none), None);
    }
}

#[test]
fn errors_of_devices() {
    for (line, what, device) in [
        ("blk_update_request: I/O error, dev sdq, sector 1953 op 0x0:(READ) flags 0x0", "io-error", "sdq"),
        ("I/O error, dev nvme3n1, sector 7 op 0x1:(WRITE) flags 0x8800", "io-error", "nvme3n1"),
        ("end_request: I/O error, dev hda, sector 1", "io-error", "hda"),
        ("critical medium error, dev sdb, sector 14 op 0x0:(READ)", "io-error", "sdb"),
        ("Buffer I/O error on dev dm-4, logical block 0, async page read", "io-error", "dm-4"),
        ("Buffer I/O error on device sdb1, logical block 0", "io-error", "sdb1"),
        ("ata1.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x6 frozen", "io-error", "ata1.00"),
        ("ata12: hard resetting link", "io-error", "ata12"),
        ("ata1.00: disabled", "device-lost", "ata1.00"),
        ("ata3: COMRESET failed (errno=-16)", "io-error", "ata3"),
        ("ata3: limiting SATA link speed to 1.5 Gbps", "io-error", "ata3"),
        ("ata3.00: limiting speed to UDMA/100:PIO4", "io-error", "ata3.00"),
        ("sd 0:0:1:0: [sdb] tag#7 Add. Sense: Failure prediction threshold exceeded", "disk-failing", "sdb"),
        (
            "sd 0:0:1:0: [sdb] Add. Sense: Hardware impending failure general hard drive failure",
            "disk-failing",
            "sdb",
        ),
        ("device-mapper: multipath: 253:3: Failing path 8:32.", "path-failed", "sdc"),
        ("device-mapper: multipath: Failing path 65:160.", "path-failed", "sdaa"),
        ("device-mapper: multipath: 253:3: Failing path 135:240.", "path-failed", "sdiv"),
        ("device-mapper: multipath: 253:3: Failing path 8:256.", "path-failed", "sdiw"),
        ("device-mapper: multipath: 253:3: Failing path 259:1.", "path-failed", "259:1"),
        (
            "device-mapper: thin: 253:4: switching pool to out-of-data-space (queue IO) mode",
            "pool-full",
            "dm-4",
        ),
        ("device-mapper: thin: 253:4: switching pool to read-only mode", "io-error", "dm-4"),
        ("device-mapper: thin: 253:4: switching pool to fail mode", "io-error", "dm-4"),
        ("device-mapper: thin: vg-pool: no free data space available.", "pool-full", "vg-pool"),
        ("nvme nvme0: I/O 123 QID 4 timeout, aborting", "io-error", "nvme0"),
        (
            "nvme nvme1: I/O tag 12 (100c) opcode 0x2 (I/O Cmd) QID 4 timeout, aborting req_op:READ(0) size:4096",
            "io-error",
            "nvme1",
        ),
        ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", "io-error", "nvme0"),
        ("nvme nvme0: Device not ready; aborting reset, CSTS=0x1", "device-lost", "nvme0"),
        ("nvme nvme0: Removing after probe failure status: -19", "device-lost", "nvme0"),
        (
            "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading",
            "filesystem-error",
            "sda1",
        ),
        (
            "EXT4-fs error (device sda1) in ext4_reserve_inode_write:5829: Journal has aborted",
            "filesystem-error",
            "sda1",
        ),
        ("EXT4-fs (vdb): Remounting filesystem read-only", "filesystem-error", "vdb"),
        (
            "XFS (dm-0): Metadata corruption detected at xfs_agi_verify, xfs_agi block 0x2",
            "filesystem-error",
            "dm-0",
        ),
        (
            "XFS (dm-0): Corruption of in-memory data detected.  Shutting down filesystem",
            "filesystem-error",
            "dm-0",
        ),
        ("BTRFS error (device vdc): bdev /dev/vdc errs: wr 1, rd 0, flush 0", "filesystem-error", "vdc"),
        ("sd 2:0:0:0: Device offlined - not ready after error recovery", "device-lost", "2:0:0:0"),
        ("sd 2:0:0:0: [sdb] rejecting I/O to offline device", "device-lost", "sdb"),
        ("sd 2:0:0:0: rejecting I/O to dead device", "device-lost", "2:0:0:0"),
        ("md/raid1:md0: Disk failure on sdb1, disabling device.", "device-lost", "sdb1"),
        ("md: kicking non-fresh sdb1 from array!", "device-lost", "sdb1"),
        ("e1000e: eth0 NIC Link is Down", "link-down", "eth0"),
        ("ixgbe 0000:01:00.0 enp1s0f0: NIC Link is Down", "link-down", "enp1s0f0"),
        ("bnx2 0000:01:00.0: em1: NIC Copper Link is Down", "link-down", "em1"),
        ("tg3 0000:02:00.0: eth0: Link is down", "link-down", "eth0"),
        ("r8169: eth3: link down", "link-down", "eth3"),
        ("mlx5_core 0000:3b:00.0 eth2: Link down", "link-down", "eth2"),
        ("virtio_net virtio0 ens3: Link is Down", "link-down", "ens3"),
        ("bond0: (slave eth1): link status definitely down, disabling slave", "link-down", "eth1"),
        ("bonding: bond0: link status definitely down for interface eth1, disabling it", "link-down", "eth1"),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: be00000000800400", "machine-check", "CPU 3"),
        (
            "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 7: 8c00004000010091",
            "corrected-error",
            "CPU 0",
        ),
        ("mce: [Hardware Error]: Machine check events logged", "corrected-error", ""),
        ("[Hardware Error]: Corrected error, no action required.", "corrected-error", ""),
        ("[Hardware Error]: Uncorrected, software restartable error.", "machine-check", ""),
        ("{1}[Hardware Error]: event severity: corrected", "corrected-error", ""),
        ("{1}[Hardware Error]: event severity: recoverable", "machine-check", ""),
        (
            "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0)",
            "corrected-error",
            "MC0",
        ),
        (
            "pcieport 0000:00:1c.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            "corrected-error",
            "0000:00:1c.0",
        ),
        (
            "pcieport 0000:00:1c.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)",
            "corrected-error",
            "0000:00:1c.0",
        ),
        (
            "nvme 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)",
            "machine-check",
            "0000:01:00.0",
        ),
        (
            "EDAC MC1: 2 UE memory scrubbing error on any memory ( page:0x0 offset:0x0)",
            "machine-check",
            "MC1",
        ),
    ] {
        let (what, device, text) = (what.to_owned(), device.to_owned(), line.to_owned());
        assert_eq!(meaning(line), Some(EventKind::DeviceError { what, device, text }));
    }
}

#[test]
fn links_that_are_up() {
    for (line, device) in [
        ("e1000e: eth0 NIC Link is Up 1000 Mbps Full Duplex, Flow Control: Rx/Tx", "eth0"),
        ("igb 0000:01:00.0 enp1s0: igb: enp1s0 NIC Link is Up 1000 Mbps Full Duplex", "enp1s0"),
        ("r8169 0000:02:00.0 enp2s0: Link is Up - 1Gbps/Full - flow control off", "enp2s0"),
        ("mlx5_core 0000:3b:00.0 eth2: Link up", "eth2"),
        ("IPv6: ADDRCONF(NETDEV_CHANGE): veth0: link becomes ready", "veth0"),
        ("bond0: (slave eth1): link status definitely up, 1000 Mbps full duplex", "eth1"),
    ] {
        let [what, device, state] = ["interface", device, "up"].map(str::to_owned);
        assert_eq!(meaning(line), Some(EventKind::Device { what, device, state }), "{line}");
    }
}

#[test]
fn what_is_ordinary_means_nothing() {
    for line in [
        "",
        "ata3: SATA link down (SStatus 0 SControl 300)",
        "ata1: SATA link up 6.0 Gbps (SStatus 133 SControl 300)",
        "pcieport 0000:00:1c.0: pciehp: Slot(3): Link Up",
        "dwc-pcie: PCIe Gen.2 x1 link up",
        "EXT4-fs (sda1): mounted filesystem with ordered data mode. Opts: errors=remount-ro",
        "XFS (dm-0): Mounting V5 Filesystem",
        "XFS (dm-0): Unmounting Filesystem",
        "EDAC MC0: Giving out device to module sb_edac controller",
        "mce: CPU supports 20 MCE banks",
        "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0",
        "blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
        "Buffer I/O error on dev sr0, logical block 0, async page read",
        "nvme nvme0: 8/0/0 default/read/poll queues",
        "sd 2:0:0:0: [sdb] Attached SCSI disk",
        "sd 2:0:0:0: [sdb] Add. Sense: Failure prediction threshold exceeded (false)",
        "sd 2:0:0:0: [sdb] Add. Sense: Unrecovered read error",
        "device-mapper: multipath: 253:3: Reinstating path 8:32.",
        "device-mapper: thin: 253:4: switching pool to write mode",
        "device-mapper: thin: 253:4: reached low water mark for data device: sending event.",
        "device-mapper: uevent: version 1.0.3",
        "ata1: limiting SATA link",
        "IPv6: ADDRCONF(NETDEV_UP): eth0: link is not ready",
        "orderd[1]: segfault at 8",
        "orderd[1]: segfault at zz ip 1 sp 2 error 4 in x[1+1]",
        "orderd[x]: segfault at 8 ip 1 sp 2 error 4",
        "a name that is far too long[1]: segfault at 8 ip 1 sp 2 error 4",
        "traps: orderd[1] something else ip:1 sp:2 error:0",
        "blk_update_request: operation not supported error, dev loop0, sector 0 op 0x9:(WRITE_ZEROES)",
        "systemd[1]: Started Session 7 of user root.",
    ] {
        assert_eq!(meaning(line), None, "{line}");
    }
}

proptest! {
    #[test]
    fn no_text_is_too_strange(text in "\\PC*", cut in 0_usize..200) {
        let _ = meaning(&text);
        for line in [
            "orderd[2]: segfault at 8 ip 00005648dc8451a0 sp 00 error 4 in orderd[11a0,5648dc845000+1000] likely on CPU 0",
            "oom-kill:constraint=C,task_memcg=/a,task=eater,pid=23059,uid=0",
            "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: be00000000800400",
            "bond0: (slave eth1): link status definitely down, disabling slave",
        ] {
            let cut = line.floor_char_boundary(cut.min(line.len()));
            let _ = meaning(&format!("{}{text}{}", &line[..cut], &line[cut..]));
            let _ = meaning(&line[..cut]);
        }
    }
}
