//! Layouts that other versions, options and tools have, written from their documents: each was once read wrongly.

use mitra_parse::text::Imported;

use crate::support::{check, check_row, clocks, import, is_clean, is_empty, one, series, text_of};

#[track_caller]
fn whole(name: &str, text: &str) -> Imported {
    let read = import(name, text);
    is_clean(&read);
    read
}

#[track_caller]
fn formats(read: &Imported) -> Vec<&str> {
    read.files[0].formats.iter().map(String::as_str).collect()
}

#[test]
fn a_day_of_sar_that_begins_with_a_boot_or_a_comment() {
    let section = "00:00:02        CPU     %user     %nice   %system   %iowait    %steal     %idle\n\
                   00:10:01        all     10.00      0.00      5.00      1.00      0.00     84.00\n\
                   00:20:01        all     20.00      0.00      5.00      1.00      0.00     74.00\n";
    for mark in ["00:00:01     LINUX RESTART\t(2 CPU)", "00:00:01  COM before the change"] {
        for header in ["", "Linux 6.1.0 (host) \t11/21/26 \t_x86_64_\t(2 CPU)\n\n"] {
            let text = format!("{header}{mark}\n\n{section}{mark}\n{section}");
            let read = whole("sar.txt", &text);
            assert!(formats(&read).iter().all(|format| format.starts_with("sar")), "{text}");
            let user = series(&read.set, "sys.cpu_user", "");
            // Of a share of two CPUs, where the header says that there are two.
            let wanted = if header.is_empty() { 0.2 } else { 0.4 };
            assert_eq!(user.values.iter().next_back(), Some(&wanted), "{text}");
        }
    }
    // A log that speaks of the same.
    let read = import("x.log", "00:00:01 COM port 3 opened\n00:00:02 COM port 4 opened\n");
    assert!(!formats(&read).contains(&"sar"));
}

#[test]
fn posix_and_chosen_columns_of_df() {
    let posix = "Filesystem     1024-blocks    Used Available Capacity Mounted on\n/dev/vda1          1000     900        50      95% /var/a b\n";
    let with_type = "Filesystem     Type 1024-blocks    Used Available Capacity Mounted on\n/dev/vda1      ext4          1000     900        50      95% /var/a b\n";
    let chosen = "Filesystem     Type  Inodes IUsed IFree IUse% 1K-blocks  Used Avail Use% File Mounted on\n/dev/vda1      ext4     640    40   600    7%      1000   900    50  95% -    /var/a b\n";
    for text in [posix, with_type, chosen] {
        let read = whole("df", text);
        assert_eq!(formats(&read), ["df"]);
        check_row(
            &read.set,
            "/var/a b",
            &[("fs.total_bytes", 1_024_000.0, 2), ("fs.avail_bytes", 51_200.0, 2)],
        );
        assert_eq!(text_of(&read.set, "fs.device", "/var/a b"), Some("/dev/vda1"));
    }
    let read = whole("df", chosen);
    check_row(&read.set, "/var/a b", &[("fs.inodes", 640.0, 2), ("fs.inodes_free", 600.0, 2)]);
    assert_eq!(text_of(&read.set, "fs.type", "/var/a b"), Some("ext4"));
    let read = whole("df", "Mounted on  Avail Use%\n/            1.5G  95%\n");
    check_row(&read.set, "/", &[("fs.avail_bytes", 1.5 * 1024.0 * 1024.0 * 1024.0, 2)]);
    assert!(is_empty(&import("x", "Filesystem 1024-blocks Used Available Capacity Mounted on\nx y z\n")));
}

#[test]
fn lines_of_atop_that_are_new() {
    let text = "ATOP - 2026/11/21  13:30:20      -----------------      10s elapsed\n\
        WWW | reqs  0.0/s | totKB    0/s | byt/rq   0 | iwork    0 | bwork    1 |\n\
        CPU | sys      14% | user     62% | irq       0% | idle    121% | wait      3% |\n\
        MEM | tot    23.5G | free   21.1G | cache   2.0G | buff   64.1M | slab  208.3M |\n\n\
        \x20 PID POLI NICE RTPR  CPU CMD         1/1\n\
        \x20   7 norm    5    0   1% user_daemon\n\
        \x20 PID PPID RUID     RGID     STDATE     STTIME   CMD  1/1\n\
        \x20   7    1 root     root     2026/11/21 09:52:31 user_daemon\n";
    let read = whole("atop", text);
    assert_eq!(one(&read.set, "mem.free", "").1, 4);
    check_row(&read.set, "7@0", &[("task.nice", 5.0, 7), ("task.ppid", 1.0, 9)]);
}

#[test]
fn top_with_columns_of_any_number() {
    let text = "top - 13:30:10 up  3:37,  1 user,  load average: 0.17, 0.11, 0.27\n\n\
        \x20   PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND   PPID  UID LXC  CGROUPS  nMaj ENVIRON\n\
        \x20 21943 root      20   0   27856  23552   1976 R  20.0   0.1   0:00.03 localedef    1    0 -    0::/      7    HOME=/root A=b c\n";
    let read = whole("top", text);
    assert_eq!(formats(&read), ["top"]);
    check_row(&read.set, "21943@0", &[("task.rss", 23_552.0 * 1024.0, 4), ("task.cpu_time", 0.03, 4)]);
    assert_eq!(text_of(&read.set, "task.comm", "21943@0"), Some("localedef"));
}

#[test]
fn files_that_look_like_others() {
    let neighbours = "entries  allocs destroys hash_grows  lookups hits  res_failed  rcv_probes_mcast rcv_probes_ucast\n\
        00000008  0000000b 00000003 00000000  00000a7d 00000a5b  00000000  00000000 00000000\n";
    let read = import("arp_cache", neighbours);
    assert!(is_empty(&read) && read.files[0].unread == 2);
    let blocks = "Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic      Isolate\n\
        Node 0, zone      DMA            3            5            0            0            0\n";
    assert!(is_empty(&import("pagetypeinfo", blocks)));
    let wireless = "Inter-| sta-|   Quality        |   Discarded packets               | Missed | WE\n\
        \x20face | tus | link level noise |  nwid  crypt   frag  retry   misc | beacon | 22\n\
        wlan0: 0000   54.  -56.  -256        0      0      0      0     12        0\n";
    assert!(is_empty(&import("wireless", wireless)));
    let schedstat = "version 15\ntimestamp 4295032784\ncpu0 0 0 0 0 0 0 102 33 44\ndomain0 3 1 2 3 4\ncpu1 0 0 0 0 0 0 102 33 44\n";
    let read = import("schedstat", schedstat);
    assert!(is_empty(&read) && read.files[0].unread == 5);
    assert!(is_empty(&import(
        "swapon",
        "NAME      TYPE      SIZE USED PRIO\n/dev/vda2 partition   2G   0B   -2\n"
    )));
    let exec =
        "Tracing exec()s. Ctrl-C to end.\n   PID   PPID ARGS\n  4243   4242 ls -l\n  4244   4242 cat x\n";
    let read = import("x", exec);
    assert_eq!(formats(&read), ["execsnoop"]);
    assert_eq!(one(&read.set, "call.calls", "execve").0, 2.0);
}

#[test]
fn files_of_a_process() {
    let stat = "4242 (a b) c) S 1 4242 4242 0 -1 4194560 120 0 3 0 250 130 0 0 20 5 7 0 8123 123456 100 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 3 0 0 40 0 0 0 0 0 0 0 0 0 0\n";
    let read = whole("x", stat);
    check_row(
        &read.set,
        "4242@0",
        &[
            ("task.user_time", 2.5, 1),
            ("task.system_time", 1.3, 1),
            ("task.majflt", 3.0, 1),
            ("task.threads", 7.0, 1),
            ("task.nice", 5.0, 1),
            ("task.rss", 409_600.0, 1),
            ("task.blkio_delay", 0.4, 1),
        ],
    );
    assert_eq!(text_of(&read.set, "task.comm", "4242@0"), Some("a b) c"));
    let all = "==> /proc/4242/io <==\nrchar: 100\nwchar: 200\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n\n\
        ==> /proc/4242/schedstat <==\n2500000000 130000000 99\n\n==> /proc/4242/statm <==\n30 20 10 1 0 5 0\n\n\
        ==> /proc/4242/limits <==\nLimit                     Soft Limit           Hard Limit           Units     \nMax open files            1024                 524288               files     \n\n\
        ==> /proc/4242/cgroup <==\n0::/system.slice/a.service\n";
    let read = whole("all.txt", all);
    check_row(
        &read.set,
        "4242@0",
        &[
            ("task.write_bytes", 8192.0, 7),
            ("task.cpu_time", 2.5, 11),
            ("task.run_delay", 0.13, 11),
            ("task.rss", 20.0 * 4096.0, 14),
            ("task.fd_limit", 1024.0, 18),
        ],
    );
    assert_eq!(text_of(&read.set, "task.cgroup", "4242@0"), Some("/system.slice/a.service"));
    // Nobody says of which process.
    assert!(is_empty(&import("io", "rchar: 100\nwchar: 200\n")));
}

#[test]
fn files_of_groups_under_their_path() {
    let v2 = "==> /sys/fs/cgroup/system.slice/a.service/cpu.stat <==\nusage_usec 5000000\nuser_usec 3000000\nnr_periods 7\nnr_throttled 2\nthrottled_usec 1500000\n\n\
        ==> /sys/fs/cgroup/system.slice/a.service/memory.stat <==\nanon 1048576\nfile 4096\npgmajfault 9\n\n\
        ==> /sys/fs/cgroup/system.slice/a.service/memory.max <==\n2097152\n\n\
        ==> /sys/fs/cgroup/system.slice/a.service/io.stat <==\n254:0 rbytes=1024 wbytes=2048 rios=3 wios=4 dbytes=0 dios=0\n253:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n\n\
        ==> /sys/fs/cgroup/system.slice/a.service/memory.pressure <==\nsome avg10=5.00 avg60=0.00 avg300=0.00 total=100\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=50\n";
    let read = whole("all.txt", v2);
    let row = "/system.slice/a.service";
    check_row(
        &read.set,
        row,
        &[
            ("cgroup.cpu_usage", 5.0, 2),
            ("cgroup.throttled_time", 1.5, 6),
            ("cgroup.anon", 1_048_576.0, 9),
            ("cgroup.pgmajfault", 9.0, 11),
            ("cgroup.memory_max", 2_097_152.0, 14),
            ("cgroup.io_read_bytes", 1025.0, 17),
            ("cgroup.psi_memory_some", 100e-6, 21),
            ("cgroup.psi_memory_full", 50e-6, 22),
        ],
    );
    check(&read.set, "cgroup.psi_memory_some", row, &[0.05]);
    let v1 = "/sys/fs/cgroup/memory/docker/ab/memory.oom_control:oom_kill_disable 0\n\
        /sys/fs/cgroup/memory/docker/ab/memory.oom_control:under_oom 0\n\
        /sys/fs/cgroup/memory/docker/ab/memory.oom_control:oom_kill 3\n\
        /sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.stat:nr_periods 7\n\
        /sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.stat:nr_throttled 2\n\
        /sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.stat:throttled_time 1500000000\n";
    let read = whole("grep.txt", v1);
    check_row(&read.set, "/docker/ab", &[("cgroup.oom_kill", 3.0, 3), ("cgroup.throttled_time", 1.5, 6)]);
    // `max` has no number, and counts as nothing that was read.
    let read = import("case/app/memory.max", "max\n");
    assert!(is_empty(&read) && read.files[0].unread == 1);
}

#[test]
fn tables_of_the_machine() {
    let interrupts = "           CPU0       CPU1       \n 36:          1          2 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\nLOC:         10         20   Local timer interrupts\nERR:          0\n";
    let read = whole("x", interrupts);
    assert_eq!(one(&read.set, "irq.count", "36"), (3.0, 2));
    assert_eq!(one(&read.set, "irq.count", "LOC"), (30.0, 3));
    let softirqs = "                    CPU0       CPU1       \n          HI:          1          0\n      NET_RX:         40         50\n";
    let read = whole("x", softirqs);
    assert_eq!(one(&read.set, "softirq.net_rx", "1"), (50.0, 3));
    let conntrack = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart\n\
        0000002b  00000000 00000001 00000000 00000012 00000000 00000000 00000000 00000000 00000000 00000003 00000000 00000000  00000000 00000000 00000000 00000000\n\
        0000002b  00000000 00000001 00000000 00000012 00000000 00000000 00000000 00000000 00000000 00000003 00000000 00000000  00000000 00000000 00000000 00000000\n";
    let read = whole("nf_conntrack", conntrack);
    assert_eq!(one(&read.set, "conntrack.count", "").0, 43.0);
    assert_eq!(one(&read.set, "conntrack.drop", ""), (6.0, 2));
    let swaps = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/vda2                               partition\t2097148\t\t1024\t\t-2\n";
    let read = whole("swaps", swaps);
    assert_eq!(one(&read.set, "mem.swap_free", "").0, (2_097_148.0 - 1024.0) * 1024.0);
    let locks = "1: POSIX  ADVISORY  WRITE 708 fe:00:12345 0 EOF\n1: -> POSIX  ADVISORY  WRITE 709 fe:00:12345 0 EOF\n";
    let read = whole("locks", locks);
    assert_eq!(one(&read.set, "lock.waiters", "fe:00:12345"), (1.0, 2));
    let tcp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: 00000000:1F90 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 4242 1 0000000000000000 100 0 0 10 0\n";
    let read = whole("net/tcp", tcp);
    assert_eq!(one(&read.set, "sock.listen_queue_max", ""), (3.0, 2));
    let cpus = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vme\n\nprocessor\t: 1\nvendor_id\t: GenuineIntel\n\n";
    assert_eq!(whole("cpuinfo", cpus).set.host.cpus, 2);
    // Seven times, as kernels before 2.6.11 have them.
    let read = whole("stat", "cpu  1 2 3 400 5 6 7\ncpu0 1 2 3 400 5 6 7\n");
    assert_eq!(one(&read.set, "sys.cpu_idle", ""), (4.0, 1));
}

#[test]
fn arrays_of_disks() {
    let text = "Personalities : [raid1] [raid6]\nmd0 : active raid1 sdb1[1](F) sda1[0]\n      1046528 blocks super 1.2 [2/1] [U_]\n      bitmap: 0/1 pages [0KB], 65536KB chunk\n\nunused devices: <none>\n";
    let read = whole("mdstat", text);
    assert_eq!(text_of(&read.set, "disk.mirror", "sda1"), Some("md0"));
    let lost = |e: &mitra_model::Event| matches!(&e.kind, mitra_model::EventKind::DeviceError { device, .. } if device == "sdb1");
    assert!(read.set.events.iter().any(lost) && read.set.events.len() == 1);
    assert!(is_empty(&import("x", "md0 : active with nobody\n")));
}

#[test]
fn traces_of_other_versions() {
    let script = "java  3244 cpu-clock:\n\tffffffff8104a6b6 native_write_msr+0x6 ([kernel.kallsyms])\n\t    7f26cabd608b main (/usr/bin/java)\n\njava  3244 cpu-clock:\n\tffffffff8104a6b6 native_write_msr+0x6 ([kernel.kallsyms])\n\t    7f26cabd608b main (/usr/bin/java)\n\n";
    let read = whole("x", script);
    assert_eq!(formats(&read), ["perf script"]);
    assert_eq!(one(&read.set, "path.samples", "java;main;native_write_msr").0, 2.0);
    let flat = script.replace("\t    ", "").replace('\t', "");
    assert_eq!(one(&whole("x", &flat).set, "path.samples", "java;main;native_write_msr").0, 2.0);
    let old = "PCOMM            PID    RET ARGS\nls               4243     0 /bin/ls -l\ncat              4244    -2 /bin/cat x\n";
    let read = whole("x", old);
    assert_eq!(
        (one(&read.set, "call.calls", "execve").0, one(&read.set, "call.errors", "execve").0),
        (2.0, 1.0)
    );
    let bpftrace = "Attaching 2 probes...\nTIME(ms)     PID   ARGS\n10           4243  ls -l\n20           4244  cat x\n";
    assert_eq!(one(&import("x", bpftrace).set, "call.calls", "execve").0, 2.0);
    let bio = "Attaching 4 probes...\nTIME(ms)     DISK    COMM             PID    LAT(ms)\n611          vda     bash             4179         10\n611          vda     cksum            4179          0\n";
    let read = import("x", bio);
    assert_eq!(one(&read.set, "disk.traced_latency_p99", "vda").0, 0.01);
    assert!(read.set.get("disk.reads", "vda").is_none());
    let open = "Tracing open()s. Ctrl-C to end.\nCOMM             PID      FD FILE\npostgres         1234    0x8 global/pg_internal.init\ncurl             4242     -1 /nowhere\n";
    let read = import("x", open);
    assert_eq!((one(&read.set, "call.calls", "open").0, one(&read.set, "call.errors", "open").0), (2.0, 1.0));
    let functions = "            bash-4242  [001] .... 1234.567890: vfs_read <-ksys_read\n            bash-4242  [001] .... 1234.567990: vfs_read <-ksys_read\n";
    assert_eq!(one(&whole("x", functions).set, "call.calls", "trace:vfs_read").0, 2.0);
    // Words that are like them.
    for no in ["java 3244 hello:\nworld\n", "COMM PID RET ARGS of the meeting\n1 2\n"] {
        assert!(is_empty(&import("x", no)), "{no}");
    }
}

#[test]
fn processes_and_disks_of_other_options() {
    let threads = "USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\n\
        root           1  0.5  0.0  51760 20080 ?        -    09:52   1:13 /sbin/init splash\n\
        root           -  0.5    -      -     - -        Ss   09:52   1:13 -\n\
        root           7  0.0  0.0      0     0 ?        -    09:52   0:00 [kthreadd]\n";
    let read = whole("ps", threads);
    assert_eq!(one(&read.set, "task.rss", "1@0").0, 20_080.0 * 1024.0);
    assert_eq!(text_of(&read.set, "task.comm", "7@0"), Some("kthreadd"));
    let pairs = "NAME=\"vda\" MAJ:MIN=\"254:0\" SIZE=\"256G\" ROTA=\"1\" SCHED=\"mq-deadline\" MOUNTPOINT=\"\"\nNAME=\"vda1\" MAJ:MIN=\"254:1\" SIZE=\"256G\" ROTA=\"1\" SCHED=\"\" MOUNTPOINT=\"/a b\"\n";
    let read = whole("lsblk", pairs);
    assert_eq!(one(&read.set, "disk.rotational", "vda1"), (1.0, 2));
    assert_eq!(text_of(&read.set, "disk.queue_scheduler", "vda"), Some("mq-deadline"));
    let topology = "13:30:36     CPU  CORE  SOCK  NODE    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle\n\
        13:30:37       0     0     0     0   85.00    0.00   13.00    0.00    0.00    0.00    2.00    0.00    0.00    0.00\n";
    let read = whole("mpstat", topology);
    check(&read.set, "cpu.user", "0", &[0.85]);
    assert_eq!(clocks(series(&read.set, "cpu.user", "0")), [48_637]);
}

#[test]
fn collections_of_which_ages_are_printed() {
    let text = "2026-11-21T10:53:32.123+0000: 12.345: #7: [GC (Allocation Failure)\n\
        Desired survivor size 1048576 bytes, new threshold 7 (max 15)\n\
        - age   1:     262144 bytes,     262144 total\n\
        [PSYoungGen: 3K->1K(9K)] 9K->7K(99K), 0.2500000 secs] [Times: user=0.1 sys=0.0, real=0.25 secs]\n";
    let read = whole("gc.log", text);
    let pauses: Vec<f64> = read
        .set
        .events
        .iter()
        .filter_map(|e| match &e.kind {
            mitra_model::EventKind::Pause { seconds, .. } => Some(*seconds),
            _ => None,
        })
        .collect();
    assert_eq!(pauses, [0.25]);
}

#[test]
fn colours_and_prompts_of_programs() {
    let coloured = "\x1b[34;1m12:00:01        CPU     %user     %nice   %system   %iowait    %steal     %idle\x1b[0m\n\
        12:00:02        all     \x1b[32;22m10.00\x1b[0m      0.00      5.00      1.00      0.00     84.00\n";
    check(&whole("sar", coloured).set, "sys.cpu_user", "", &[0.1]);
    let prompt = "$ sudo ./funcount.py\nMemTotal: 5 kB\n";
    assert_eq!(one(&whole("x", prompt).set, "mem.total", "").0, 5.0 * 1024.0);
}
