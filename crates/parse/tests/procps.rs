//! vmstat, free, top, ps, uptime, slabtop and atop: what the real tools print, and what old versions printed.

#![expect(clippy::disallowed_methods, reason = "fixtures are read from files")]

use mitra_model::time::SECOND;
use mitra_model::{Era, SeriesSet, lookup};
use mitra_parse::text::{self, Import, Imported};

fn import(name: &str, content: &[u8]) -> Imported {
    let mut import = Import::new(None);
    text::read(&mut &*content, name, &mut import).unwrap();
    import.finish()
}

fn read(content: &str) -> Imported {
    import("file", content.as_bytes())
}

fn fixture(name: &str) -> Imported {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/outputs/procps/{}"), name);
    let out = import(name, &std::fs::read(&path).unwrap());
    assert_eq!(out.files[0].unread, 0, "{name}: {:?}", out.files[0].first_unread);
    out
}

fn case(name: &str) -> Imported {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../app/tests/cases/{}"), name);
    let out = import(name, &std::fs::read(&path).unwrap());
    assert_eq!(out.files[0].unread, 0, "{name}: {:?}", out.files[0].first_unread);
    out
}

fn values<'a>(out: &'a Imported, metric: &str, row: &str) -> &'a [f64] {
    assert!(lookup(metric).is_some(), "{metric}");
    out.set.get(metric, row).map_or(&[], |s| s.values.as_slice())
}

fn one(out: &Imported, metric: &str, row: &str) -> f64 {
    let list = values(out, metric, row);
    assert_eq!(list.len(), 1, "{metric} {row} {list:?}");
    list[0]
}

fn lines(set: &SeriesSet, metric: &str, row: &str) -> Vec<u32> {
    set.get(metric, row).unwrap().axis.places.iter().map(|p| p.line).collect()
}

fn near(got: f64, want: f64) -> bool {
    (got - want).abs() <= 1e-9 * want.abs().max(1.0)
}

#[test]
fn vmstat_of_the_page_fault_case() {
    let out = case("content-page-faults/vmstat.txt");
    assert_eq!(out.files[0].formats, ["vmstat"]);
    assert_eq!(values(&out, "sys.procs_running", ""), [8.0, 9.0, 16.0, 22.0, 6.0, 4.0, 5.0]);
    assert_eq!(values(&out, "sys.procs_blocked", ""), [0.0; 7]);
    assert_eq!(values(&out, "vm.pgpgout", "")[..2], [1492.0 * 1024.0, 0.0]);
    assert_eq!(values(&out, "sys.ctxt", "")[0], 60_876.0);
    assert_eq!(values(&out, "mem.cached", "")[6], 19_213_880.0 * 1024.0);
    let user = values(&out, "sys.cpu_user", "");
    assert!(near(user[0], 0.53) && near(user[6], 0.61), "{user:?}");
    let axis = &out.set.get("sys.ctxt", "").unwrap().axis;
    assert!(axis.t.iter().all(|t| Era::of(*t) == Era::Sequence));
    assert_eq!(axis.t[1] - axis.t[0], SECOND);
    assert_eq!(axis.dt, [1.0; 7]);
    assert_eq!(lines(&out.set, "sys.ctxt", ""), [4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(out.files[0].notes.len(), 1);
}

#[test]
fn free_of_the_upload_case() {
    let mib = 1_048_576.0;
    for (folder, used, free, cache, available) in
        [("baseline-32g", 18421.0, 11218.0, 34773.0, 45407.0), ("incident", 15421.0, 349.0, 48643.0, 48409.0)]
    {
        let out = case(&format!("upload-100g/{folder}/free.txt"));
        assert_eq!(one(&out, "mem.total", ""), 64_414.0 * mib);
        assert_eq!(one(&out, "mem.used", ""), used * mib);
        assert_eq!(one(&out, "mem.free", ""), free * mib);
        assert_eq!(one(&out, "mem.shmem", ""), 5.0 * mib);
        assert_eq!(one(&out, "mem.buff_cache", ""), cache * mib);
        assert_eq!(one(&out, "mem.available", ""), available * mib);
        assert_eq!(one(&out, "mem.swap_total", ""), 0.0);
        assert_eq!(lines(&out.set, "mem.free", ""), [3]);
    }
}

#[test]
fn slabtop_and_atop_of_the_session_drop_case() {
    let out = case("lb-session-drop/slabtop.txt");
    assert_eq!(one(&out, "slab.num_objs", "dentry"), 414_578_178.0);
    assert_eq!(one(&out, "slab.active_objs", "dentry"), 387_795_876.0);
    assert_eq!(one(&out, "slab.bytes", "dentry"), 78_967_272.0 * 1024.0);
    assert_eq!(one(&out, "slab.num_slabs", "dentry"), 19_741_818.0);
    assert_eq!(one(&out, "slab.objperslab", "buffer_head"), 39.0);
    assert_eq!(one(&out, "slabs.active_objs", ""), 388_963_608.0);
    assert_eq!(one(&out, "slabs.num_objs", ""), 415_847_504.0);
    assert!(near(one(&out, "slabs.size", ""), 78_163_097.48 * 1024.0));
    assert_eq!(lines(&out.set, "slab.bytes", "kmalloc-256"), [14]);
    assert_eq!(out.set.each("slab.bytes").count(), 6);

    let out = case("lb-session-drop/atop-mem.txt");
    let gib = 1024.0 * 1024.0 * 1024.0;
    assert!(near(one(&out, "mem.total", ""), 94.3 * gib));
    assert!(near(one(&out, "mem.slab", ""), 75.7 * gib));
    assert!(near(one(&out, "mem.sreclaimable", ""), 75.5 * gib));
    assert!(near(one(&out, "mem.cached", ""), 5.4 * gib));
    assert!(near(one(&out, "mem.dirty", ""), 18.1 * 1_048_576.0));
    assert_eq!(out.set.get("mem.slab", "").unwrap().axis.t.len(), 1);
    assert_eq!(Era::of(out.set.get("mem.slab", "").unwrap().axis.t[0]), Era::Fact);
}

#[test]
fn vmstat_of_every_locale() {
    for locale in ["C", "de_DE", "fr_FR"] {
        let out = fixture(&format!("vmstat-w-t.{locale}.txt"));
        let axis = &out.set.get("sys.cpu_idle", "").unwrap().axis;
        assert_eq!(axis.len(), 3, "{locale}");
        assert!(axis.t.iter().all(|t| Era::of(*t) == Era::Dated) && axis.t[0] / SECOND > 1_795_000_000);
        let shares = ["user", "system", "idle", "iowait", "steal"];
        let sum: f64 = shares.iter().map(|s| values(&out, &format!("sys.cpu_{s}"), "")[1]).sum();
        assert!((0.97..=1.03).contains(&sum), "{locale} {sum}");
        assert!(values(&out, "mem.free", "")[0] > 1e10 && values(&out, "mem.buffers", "")[0] < 1e9);
        let out = fixture(&format!("vmstat-a-SM.{locale}.txt"));
        assert!(values(&out, "mem.inactive", "")[0] > 1e9, "{locale}");
        assert!(values(&out, "mem.buffers", "").is_empty() && values(&out, "mem.cached", "").is_empty());
        assert_eq!(values(&out, "mem.active", "").len(), 2);
    }
    let out = fixture("vmstat-w-t.fr_FR.txt");
    assert_eq!(values(&out, "vm.pgpgout", ""), [2136.0 * 1024.0, 10_692.0 * 1024.0, 12.0 * 1024.0]);
    assert_eq!(values(&out, "sys.ctxt", ""), [736.0, 524.0, 458.0]);
    assert_eq!(lines(&out.set, "sys.ctxt", ""), [5, 6, 7]);
}

#[test]
fn vmstat_rows_since_boot_and_old_versions() {
    let out = fixture("vmstat-one.txt");
    assert_eq!(Era::of(out.set.get("sys.ctxt", "").unwrap().axis.t[0]), Era::Fact);
    assert!(out.files[0].notes[0].contains("averages since boot"));
    assert_eq!(values(&fixture("vmstat-y.txt"), "sys.ctxt", "").len(), 2);
    // Of procps 3.2 with swapping; a header in between, a damaged row, another run.
    let header = "procs -----------memory---------- ---swap-- -----io---- --system-- -----cpu------\n r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n";
    let row = " 1  2 512000  40960  10240 204800  400  800    64   128 1000 2000 10 20 30 40  0\n";
    let many = row.repeat(12);
    let out =
        read(&format!("$ vmstat 5\n{header}{many}{header}{row} 1 x 512000 40960 10240 204800 1 2\n{row}"));
    assert_eq!(values(&out, "vm.pswpin", ""), [100.0; 13]);
    assert_eq!(values(&out, "vm.pswpout", "")[0], 200.0);
    assert_eq!(out.files[0].unread, 1);
    assert_eq!(out.set.get("vm.pswpin", "").unwrap().axis.dt[1], 5.0);
    let out = read(&format!("{header}{row}{row}{row}{header}{row}{row}"));
    assert_eq!(values(&out, "sys.ctxt", "").len(), 3);
    // Without idle and stolen time, and before there was `wa`.
    let out = read(&format!(
        "r b w swpd free buff cache si so bi bo in cs us sy id\n{0}{0}",
        "0 0 0 0 8 4 4 0 0 1 2 3 4 10 20 70\n"
    ));
    assert_eq!(one(&out, "mem.free", ""), 8192.0);
    assert_eq!(one(&out, "sys.ctxt", ""), 4.0);
}

#[test]
fn the_other_tables_of_vmstat() {
    let out = fixture("vmstat-s.txt");
    assert_eq!(out.set.total("vm.pswpout", "").unwrap().values, [6_988_443.0]);
    assert_eq!(out.set.total("sys.forks", "").unwrap().values, [710_571.0]);
    assert_eq!(one(&out, "mem.total", ""), 24_684_084.0 * 1024.0);
    for locale in ["C", "de_DE", "fr_FR"] {
        let out = fixture(&format!("vmstat-d.{locale}.txt"));
        assert_eq!(out.set.total("disk.write_bytes", "loop0").unwrap().values, [2_198_164.0 * 512.0]);
        assert_eq!(out.set.each_total("disk.reads").count(), 10);
    }
    let out = fixture("vmstat-d-1-2.txt");
    let writes = values(&out, "disk.writes", "vda");
    assert!(writes.len() == 2 && writes[1] >= 0.0, "{writes:?}");
    let out = fixture("vmstat-m.txt");
    assert_eq!(one(&out, "slab.objsize", "Acpi-State"), 80.0);
    assert_eq!(fixture("vmstat-D.txt").files[0].formats, ["vmstat -D"]);
    let out = read(
        "vda1          reads   read sectors  writes    requested writes\n               100           800      30        240\n",
    );
    assert_eq!(out.set.total("disk.read_bytes", "vda1").unwrap().values, [409_600.0]);
}

#[test]
fn free_of_every_unit_and_locale() {
    for locale in ["C", "de_DE", "fr_FR"] {
        for (name, tolerance) in [("free", 0.0), ("free-h", 0.05), ("free-wlt", 0.0), ("free-m-v", 0.001)] {
            let out = fixture(&format!("{name}.{locale}.txt"));
            let total = one(&out, "mem.total", "");
            let real = 24_684_084.0 * 1024.0;
            assert!((total - real).abs() <= real * tolerance, "{name} {locale} {total}");
            assert_eq!(one(&out, "mem.swap_total", ""), 0.0);
            let available = one(&out, "mem.available", "");
            assert!(available < total && available > one(&out, "mem.free", ""), "{name} {locale}");
        }
        assert!(one(&fixture(&format!("free-wlt.{locale}.txt")), "mem.cached", "") > 1e9);
    }
    assert_eq!(one(&fixture("free-m-v.C.txt"), "mem.commit_limit", ""), 12_052.0 * 1_048_576.0);
    let out = fixture("free-s.txt");
    let axis = &out.set.get("mem.free", "").unwrap().axis;
    assert_eq!((axis.len(), axis.t[2] - axis.t[0]), (3, 2 * SECOND));
}

#[test]
fn free_of_old_versions_and_without_a_unit() {
    let old = "             total       used       free     shared    buffers     cached\nMem:      16333384   16000000     333384          0     200000    9000000\n-/+ buffers/cache:    6800000    9533384\nSwap:      2097148       1024    2096124\n";
    let out = read(old);
    assert_eq!(one(&out, "mem.cached", ""), 9_000_000.0 * 1024.0);
    assert_eq!(one(&out, "mem.buffers", ""), 200_000.0 * 1024.0);
    assert_eq!(one(&out, "mem.swap_free", ""), 2_096_124.0 * 1024.0);
    assert!(values(&out, "mem.available", "").is_empty() && values(&out, "mem.shmem", "").is_empty());
    assert_eq!(out.files[0].unread, 0);
    let head = "total used free shared buff/cache available\n";
    for (row, total) in [
        ("Mem: 64413 15421 349 5 48643 48409", Some(64_413.0 * 1_048_576.0)),
        ("Mem: 67542319104 16170090496 366116864 5242880 51006046208 50760368128", Some(67_542_319_104.0)),
        ("Mem: 62 15 0 0 47 47", None),
    ] {
        let out = read(&format!("{head}{row}\nSwap: 0 0 0\n"));
        assert_eq!(values(&out, "mem.total", "").first().copied(), total, "{row}");
        assert_eq!(out.files[0].notes.len(), usize::from(total.is_none()));
    }
    assert_eq!(one(&read(&format!("# free --si -g\n{head}Mem: 67 15 0 0 52 52\n")), "mem.total", ""), 67e9);
    let out = read("SwapUse           0 CachUse     2293440  MemUse      611936 MemFree    22120976\n");
    assert_eq!(one(&out, "mem.free", ""), 22_120_976.0 * 1024.0);
}

#[test]
fn uptime_and_w() {
    for name in ["uptime", "w"] {
        for locale in ["C", "de_DE", "fr_FR"] {
            let out = fixture(&format!("{name}.{locale}.txt"));
            let load = one(&out, "sys.load1", "");
            assert!(load > 1.0 && load < 10.0, "{load}");
            let t = out.set.get("sys.load15", "").unwrap().axis.t[0];
            assert_eq!(Era::of(t), Era::Day);
        }
    }
    let out = read(
        " 03:12:09 PM up 210 days, 20:01,  1 user,  load average: 117.45, 98.02, 60.33\nUSER     TTY      FROM             LOGIN@   IDLE   JCPU   PCPU WHAT\nme       pts/0    10.0.0.7         13:02    4.00s  0.05s  0.00s w\n",
    );
    assert_eq!((one(&out, "sys.load1", ""), out.files[0].unread), (117.45, 0));
    let t = out.set.get("sys.load1", "").unwrap().axis.t[0] - Era::Day.zero();
    assert_eq!(t, (15 * 3600 + 12 * 60 + 9) * SECOND);
}

#[test]
fn top_of_every_locale() {
    for locale in ["C", "de_DE", "fr_FR"] {
        let out = fixture(&format!("top.{locale}.txt"));
        assert_eq!(values(&out, "sys.load5", "").len(), 3, "{locale}");
        // The first screen's shares are left out.
        let idle = values(&out, "sys.cpu_idle", "");
        assert_eq!(idle.len(), 2, "{locale}");
        assert!(near(values(&out, "mem.total", "")[0], 24_105.6 * 1_048_576.0));
        let available = values(&out, "mem.available", "")[0];
        assert!(available > 2e10 && available < 2.6e10 && values(&out, "mem.free", "")[0] < available);
        assert!(values(&out, "mem.buff_cache", "")[2] > 1e9);
        let pid = "1@0";
        assert_eq!(out.set.text("task.comm", pid).unwrap().last(), Some("supervisord"));
        assert_eq!(values(&out, "task.state", pid)[0], f64::from(b'S'));
        assert_eq!(values(&out, "task.nice", pid)[0], -10.0);
        assert!(out.set.total("task.cpu_time", pid).unwrap().values[0] > 60.0);
    }
}

#[test]
fn top_says_what_each_process_used() {
    let used = |locale: &str, pid: &str| {
        let out = fixture(&format!("top.{locale}.txt"));
        values(&out, "task.cpu_time", pid).iter().map(|v| (v * 1000.0).round()).collect::<Vec<f64>>()
    };
    assert_eq!(used("C", "30409@0"), [1099.0, 1250.0]);
    assert_eq!(used("fr_FR", "30989@0"), [990.0, 1510.0]);
}

#[test]
fn top_of_threads_and_single_cpus() {
    let out = fixture("top-H-1.txt");
    assert_eq!(one(&out, "tasks.total", ""), 130.0);
    assert_eq!(one(&out, "tasks.running", ""), 5.0);
    assert_eq!(one(&out, "cpu.user", "1"), 1.0);
    assert_eq!(one(&out, "cpu.idle", "0"), 1.0);
    assert_eq!(one(&out, "mem.swap_total", ""), 0.0);
    assert!(near(one(&out, "mem.available", ""), 23_039.8 * 1_048_576.0));
    assert_eq!(out.set.text("task.comm", "31319@0").unwrap().last(), Some("lto 7tngn3uandv"));
    assert!(values(&out, "task.rss", "31319@0").is_empty());
    assert_eq!(out.set.host.cpus, 2);
}

const OLD_TOP: &str = "top - 23:59:58 up 200 days,  1:02,  3 users,  load average: 104.21, 98.70, 80.11
Tasks:   2 total,   1 running,   1 sleeping,   0 stopped,   0 zombie
Cpu(s):  0.3%us,  0.1%sy,  0.0%ni, 99.6%id,  0.0%wa,  0.0%hi,  0.0%si,  0.0%st
Mem:  16333384k total, 16000000k used,   333384k free,   200000k buffers
Swap:  2097148k total,     1024k used,  2096124k free,  9000000k cached

  PID USER      PR  NI  VIRT  RES  SHR S %CPU %MEM    TIME+  COMMAND
 4242 app       20   0 75.3g  12g  20m S 98.7 75.1 100:45.67 java
 4243 root      39  19     0    0    0 D  2.0  0.0   0:01.00 flush-8:0


top - 00:00:03 up 200 days,  1:02,  3 users,  load average: 105.21, 98.80, 80.21
Tasks:   2 total,   1 running,   1 sleeping,   0 stopped,   0 zombie
Cpu(s): 10.0%us, 20.0%sy,  0.0%ni, 10.0%id, 58.8%wa,  0.0%hi,  1.2%si,  0.0%st
Mem:  16333384k total, 16000000k used,   333384k free,   200000k buffers
Swap:  2097148k total,     1024k used,  2096124k free,  9000000k cached

  PID USER      PR  NI  VIRT  RES  SHR S %CPU %MEM    TIME+  COMMAND
 4242 app       20   0 75.3g  12g  20m D 12.5 75.1 100:46.67 java
 4243 root      39  19     0    0    0 D  2.0  0.0   0:01.10 flush-8:0
";

#[test]
fn top_of_old_versions() {
    let out = read(OLD_TOP);
    assert_eq!(out.files[0].unread, 0);
    assert!(near(one(&out, "sys.cpu_iowait", ""), 0.588));
    assert!(near(one(&out, "sys.cpu_softirq", ""), 0.012));
    assert_eq!(values(&out, "mem.buffers", ""), [200_000.0 * 1024.0; 2]);
    assert_eq!(values(&out, "mem.cached", ""), [9_000_000.0 * 1024.0; 2]);
    assert_eq!(values(&out, "mem.swap_free", ""), [2_096_124.0 * 1024.0; 2]);
    assert_eq!(values(&out, "task.rss", "4242@0"), [12.0 * 1_073_741_824.0; 2]);
    assert_eq!(one(&out, "task.cpu_time", "4243@0"), 0.02);
    assert_eq!(out.set.total("task.cpu_time", "4242@0").unwrap().values, [6045.67, 6046.67]);
    assert_eq!(values(&out, "tasks.uninterruptible", ""), [1.0, 2.0]);
    assert_eq!(values(&out, "task.kthread", "4243@0"), [1.0, 1.0]);
    let axis = &out.set.get("sys.load1", "").unwrap().axis;
    assert_eq!(axis.t[1] - axis.t[0], 5 * SECOND);
    // Of one screen the shares stay, with a word of warning.
    let (first, _) = OLD_TOP.split_once("\n\n\n").unwrap();
    let out = read(first);
    assert!(near(one(&out, "sys.cpu_idle", ""), 0.996));
    assert!(near(one(&out, "task.cpu_time", "4242@0"), 0.987));
    assert!(out.files[0].notes[0].contains("since boot"));
}

#[test]
fn ps_with_any_columns() {
    for locale in ["C", "de_DE", "fr_FR"] {
        let out = fixture(&format!("ps-aux.{locale}.txt"));
        assert_eq!(out.set.text("task.comm", "1@0").unwrap().last(), Some("init"));
        assert_eq!(out.set.text("task.comm", "2@0").unwrap().last(), Some("kthreadd"));
        assert_eq!((one(&out, "task.kthread", "2@0"), one(&out, "task.kthread", "1@0")), (1.0, 0.0));
        assert!(one(&out, "task.rss", "1@0") > 1e7);
        assert!(out.set.total("task.cpu_time", "1@0").unwrap().values[0] >= 77.0);
        assert_eq!(one(&out, "tasks.uninterruptible", ""), 0.0);
    }
    let out = fixture("ps-eo.txt");
    assert_eq!(one(&out, "task.threads", "1@0"), 13.0);
    assert_eq!(out.set.total("task.minflt", "1@0").unwrap().values, [103_991.0]);
    assert_eq!(one(&out, "task.rss", "1@0"), 22_032.0 * 1024.0);
    assert_eq!(one(&out, "task.ppid", "3@0"), 2.0);
    assert_eq!(out.set.text("task.comm", "3@0").unwrap().last(), Some("pool_workqueue_"));
    let out = fixture("ps-start.txt");
    assert_eq!(one(&out, "task.nice", "1@0"), -10.0);
    assert_eq!(out.set.text("task.comm", "1@0").unwrap().last(), Some("supervisord"));
    let out = fixture("ps-eLf.txt");
    let leaders = out.set.get("task.threads", "1@0").unwrap();
    assert_eq!(leaders.values, [13.0]);
    assert!(out.set.each("task.tgid").any(|(row, s)| row != "1@0" && s.values.last() == Some(&1.0)));
    assert_eq!(fixture("ps-ef.txt").files[0].formats, ["ps"]);
}

#[test]
fn ps_names_what_a_task_in_d_state_waits_in() {
    let out = read(
        "[root@host ~]# ps -eo pid,stat,wchan:32,start,comm,rss | grep D
  PID STAT WCHAN                             STARTED COMMAND           RSS
 4242 Dl   rwsem_down_write_slowpath          Nov 20 Web Content   37241856
 4243 D+   folio_wait_bit_common            09:52:31 tar               1024
 4244 S    do_poll                          09:52:31 sshd              2048
",
    );
    assert_eq!(out.files[0].unread, 0);
    assert_eq!(out.set.text("task.kstack", "4242@0").unwrap().last(), Some("rwsem_down_write_slowpath"));
    assert_eq!(out.set.text("task.comm", "4242@0").unwrap().last(), Some("Web Content"));
    assert_eq!(one(&out, "task.state", "4243@0"), f64::from(b'D'));
    assert_eq!(one(&out, "task.rss", "4242@0"), 37_241_856.0 * 1024.0);
    assert!(out.set.text("task.kstack", "4244@0").is_none());
    // A filtered list says nothing of how many there are.
    assert!(values(&out, "tasks.uninterruptible", "").is_empty());
    assert_eq!(lines(&out.set, "task.state", "4244@0"), [5]);
}

#[test]
fn slabtop_of_every_locale() {
    for locale in ["C", "de_DE", "fr_FR"] {
        let out = fixture(&format!("slabtop.{locale}.txt"));
        assert!(one(&out, "slab.num_objs", "dentry") > 1e5, "{locale}");
        assert!(one(&out, "slabs.num_objs", "") > one(&out, "slab.num_objs", "dentry"));
        assert!(one(&out, "slabs.size", "") > one(&out, "slabs.active_size", ""));
        assert_eq!(one(&out, "slab.objperslab", "buffer_head"), 39.0);
    }
}

#[test]
fn atop_screens() {
    let out = fixture("atop.txt");
    let t = &out.set.get("mem.slab", "").unwrap().axis;
    assert_eq!((t.len(), t.t[2] - t.t[1]), (3, SECOND));
    assert_eq!(values(&out, "sys.load1", "")[0], 2.51);
    assert!(near(values(&out, "mem.slab", "")[0], 441.9 * 1_048_576.0));
    assert_eq!(out.set.host.cpus, 2);
    // The rates of the first screen are of the time since boot.
    assert_eq!(values(&out, "sys.cpu_idle", "").len(), 2);
    assert_eq!(values(&out, "sys.ctxt", "").len(), 2);
    assert!(values(&out, "cpu.idle", "1").len() <= 2);
    assert!(values(&out, "task.user_time", "1@0").len() < 3);
    let text = "ATOP - lb1   2026/11/21  12:41:31   ------   10s elapsed
CPU | sys     336% | user     12% | irq      20% | idle     32% | wait      0% |
cpu | sys      97% | user      1% | irq       2% | idle      0% | cpu011 w  0% |
PAG | scan   31e5 | stall   1200 | swin      0 | swout    10 |
DSK |     nvme0n1 | busy     12% | read     100 | write   5000 | MBw/s    1.5 |
NET | eth0    12% | pcki  90000 | pcko   8000 | si  80 Mbps | so  800 Kbps |
  PID SYSCPU USRCPU BDELAY  VGROW  RGROW  RDDSK  WRDSK  CPU CMD     1/1
 4242  9.00s  0.50s  0.10s     0K     0K   1.0M     0K  95% curl
";
    let out = read(text);
    assert_eq!(out.files[0].unread, 0);
    assert!(near(one(&out, "sys.cpu_system", ""), 3.36) && near(one(&out, "cpu.system", "11"), 0.97));
    assert!(near(one(&out, "vm.pgscan", ""), 310_000.0) && one(&out, "vm.allocstall", "") == 120.0);
    assert_eq!(one(&out, "disk.writes", "nvme0n1"), 500.0);
    assert!(near(one(&out, "disk.io_time", "nvme0n1"), 0.12));
    assert_eq!((one(&out, "nic.rx_bytes", "eth0"), one(&out, "nic.tx_bytes", "eth0")), (1e7, 1e5));
    assert!(near(one(&out, "task.system_time", "4242@0"), 0.9));
    assert!(near(one(&out, "task.read_bytes", "4242@0"), 104_857.6));
    assert_eq!(out.set.get("vm.pgscan", "").unwrap().axis.dt, [10.0]);
    let t = out.set.get("vm.pgscan", "").unwrap().axis.t[0];
    assert_eq!(t.div_euclid(SECOND).rem_euclid(86_400), 12 * 3600 + 41 * 60 + 31);
}

#[test]
fn atop_lines_for_programs() {
    let out = fixture("atop-P.txt");
    assert_eq!(out.set.host.cpus, 2);
    assert_eq!(values(&out, "sys.load1", "").len(), 3);
    let idle = values(&out, "sys.cpu_idle", "");
    assert!(idle.len() == 2 && idle.iter().all(|v| (0.0..=2.1).contains(v)), "{idle:?}");
    let text = "SEP
CPU vm 1795268105 2026/11/21 13:35:05 10 100 2 470 1510 0 0 0 0 20 10 0 5192 100 0 0
MEM vm 1795268105 2026/11/21 13:35:05 10 4096 6171021 5224639 807823 17835 63443 43491 54242 0 2780 0 0 2097152 0 0 0 0 0 0 0 939
DSK vm 1795268105 2026/11/21 13:35:05 10 vda 4000 5 40 904 1499136 14 655400 0 4.15
PRC vm 1795268105 2026/11/21 13:35:05 10 42 (a (b) c) D 100 50 700 -5 110 0 0 1 0 42 y 6300095 (folio_wait_bit_common) 200 -3 -3
PRD vm 1795268105 2026/11/21 13:35:05 10 42 (a (b) c) D n y 1 80 1 160 0 42 n y
NET vm 1795268105 2026/11/21 13:35:05 10 eth0 100 20000 10 1000 1000 1
PSI vm 1795268105 2026/11/21 13:35:05 10 y 72.5 24.6 14.1 782504 0.0 0.0 0.0 5000000 0 0 0 0 5.8 2.0 1.5 207479 0.0 0.2 0.6 0
DSK vm 1795268105 2026/11/21 13:35:05 10 sdb x
";
    let out = read(text);
    assert_eq!(out.files[0].unread, 1);
    assert!(near(one(&out, "sys.cpu_user", ""), 1.51) && near(one(&out, "sys.cpu_softirq", ""), 0.02));
    assert_eq!(one(&out, "mem.slab", ""), 63_443.0 * 4096.0);
    assert_eq!(one(&out, "mem.page_tables", ""), 939.0 * 4096.0);
    assert!(near(one(&out, "disk.io_time", "vda"), 0.4));
    assert_eq!(one(&out, "disk.write_bytes", "vda"), 149_913.6 * 512.0);
    assert_eq!(out.set.text("task.comm", "42@0").unwrap().last(), Some("a (b) c"));
    assert!(
        near(one(&out, "task.system_time", "42@0"), 0.7) && near(one(&out, "task.blkio_delay", "42@0"), 0.2)
    );
    assert_eq!(one(&out, "task.write_bytes", "42@0"), 16.0 * 512.0);
    assert_eq!(values(&out, "task.state", "42@0"), [f64::from(b'D')]);
    assert_eq!(values(&out, "task.nice", "42@0"), [-5.0]);
    assert!(near(one(&out, "task.run_delay", "42@0"), 0.000_630_009_5));
    assert_eq!(out.set.text("task.kstack", "42@0").unwrap().last(), Some("folio_wait_bit_common"));
    assert!(near(one(&out, "psi.memory_some", ""), 0.5));
    assert_eq!(out.set.get("mem.slab", "").unwrap().axis.t, [1_795_268_105 * SECOND]);
}

#[test]
fn what_only_looks_alike_is_not_read() {
    for text in [
        "r b swpd free\n1 2 3 4\n",
        "procs -----memory----- --swap-- -io- -system- -cpu-\nsome words that are not a header of it at all\n",
        "up for days, load average: high, very, much\n",
        "top - of the list\nTasks: some\n",
        "CPU: 3 PID: 1234 Comm: kworker/0:1 Not tainted 5.15.0-91-generic #101\n",
        "PID COMM FD ERR PATH\n12 cat 3 0 /etc/passwd\n",
        "PCOMM PID PPID RET ARGS\nls 12 1 0 /bin/ls\n",
        "total used free shared buff/cache available\nlo: 1 2 3 4 5 6\n",
        "name total used free cached other\neth0: 1 2 3 4 5\n",
        "Active / Total Objects (% used) : many / more\n",
        "OBJS ACTIVE USE OBJ SIZE SLABS OBJ/SLAB CACHE SIZE NAME\n1 2 3 4 5 6 7 8\n",
        "MEM total 94.3G free 9.2G\n",
        "CPU vm 12 2026/11/21 13:35:05 10 100 2 470\n",
        "12 K total memory in use\n",
        "disk- ---reads--- ---writes---\n total merged\nvda 1 2\n",
    ] {
        let out = read(text);
        // A line with a time in it may well be one of a log.
        let metrics: Vec<&str> =
            out.set.metrics().map(|(name, _)| name).filter(|name| !name.starts_with("log.")).collect();
        assert!(metrics.is_empty(), "{text}: {metrics:?}");
        let file = &out.files[0];
        assert!(file.unread > 0 || file.formats == ["log"], "{text}: {:?}", file.formats);
    }
}

mod never_panics {
    use super::{OLD_TOP, read};
    use proptest::prelude::*;

    fn fixtures() -> Vec<Vec<u8>> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/outputs/procps");
        let mut list: Vec<Vec<u8>> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
            .map(|mut text| {
                text.truncate(4000);
                text
            })
            .collect();
        list.push(OLD_TOP.into());
        list
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn on_mutated_outputs(
            which in any::<prop::sample::Index>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..12),
        ) {
            let list = fixtures();
            let mut text = which.get(&list).clone();
            for (at, byte, kind) in changes {
                if text.is_empty() { break; }
                let at = at.index(text.len());
                match kind {
                    0 => text[at] = byte,
                    1 => { text.remove(at); }
                    2 => text.insert(at, b"0123456789 \n-:./%|()KMG"[usize::from(byte) % 23]),
                    _ => { let end = (at + usize::from(byte)).min(text.len()); text.drain(at..end); }
                }
            }
            super::import("mutated", &text);
        }

        #[test]
        fn on_arbitrary_text(text in "[ -~\n]{0,400}") {
            read(&text);
        }
    }
}
