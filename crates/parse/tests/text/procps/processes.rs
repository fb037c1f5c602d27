//! top and ps.

use mitra_model::time::SECOND;

use super::{level, values};
use crate::support::{import, lines, near, output, series, whole};

#[test]
fn top_of_every_locale() {
    for locale in ["C", "de_DE", "fr_FR"] {
        let out = whole(output(format!("procps/top.{locale}.txt")));
        assert_eq!(values(&out.set, "sys.load5", "").len(), 3, "{locale}");
        // The first screen's shares are left out.
        let idle = values(&out.set, "sys.cpu_idle", "");
        assert_eq!(idle.len(), 2, "{locale}");
        assert!(near(values(&out.set, "mem.total", "")[0], 24_105.6 * 1_048_576.0));
        let available = values(&out.set, "mem.available", "")[0];
        assert!(available > 2e10 && available < 2.6e10 && values(&out.set, "mem.free", "")[0] < available);
        assert!(values(&out.set, "mem.buff_cache", "")[2] > 1e9);
        let pid = "1@0";
        assert_eq!(out.set.text("task.comm", pid).unwrap().last(), Some("supervisord"));
        assert_eq!(values(&out.set, "task.state", pid)[0], f64::from(b'S'));
        assert_eq!(values(&out.set, "task.nice", pid)[0], -10.0);
        assert!(out.set.total("task.cpu_time", pid).unwrap().values[0] > 60.0);
    }
}

/// What containers of Alpine have: its memory says first what is used.
#[test]
fn top_of_busybox() {
    let text = "Mem: 1234560K used, 567800K free, 900K shrd, 1200K buff, 34500K cached\n\
                CPU:   5% usr   2% sys   0% nic  92% idle   1% io   0% irq   0% sirq\n\
                Load average: 0.26 0.47 0.52 1/725 12311\n\x20 PID  PPID USER     STAT   VSZ %VSZ CPU %CPU COMMAND\n\x20 42     1 root     S     9999  12%   0   5% foo\n";
    let out = import("file", text);
    for (metric, kib) in [
        ("mem.total", 1_802_360.0),
        ("mem.free", 567_800.0),
        ("mem.shmem", 900.0),
        ("mem.buffers", 1200.0),
        ("mem.cached", 34_500.0),
    ] {
        assert_eq!(level(&out.set, metric, ""), kib * 1024.0, "{metric}");
    }
    assert_eq!(level(&out.set, "sys.load5", ""), 0.47);
    assert!(near(level(&out.set, "sys.cpu_iowait", ""), 0.01));
    assert!(out.set.get("mem.used", "").is_none());
    // And toybox, of Android.
    let out = import(
        "file",
        "Tasks: 400 total,   1 running\n  Mem:  3800000K total, 3600000K used, 200000K free, 10000K buffers\n",
    );
    assert_eq!(level(&out.set, "mem.free", ""), 200_000.0 * 1024.0);
    let out = import("file", text);
    assert_eq!((&out.files[0].formats[..], out.files[0].unread), (&["top".to_owned()][..], 2));
}

#[test]
fn top_says_what_each_process_used() {
    let used = |locale: &str, pid: &str| {
        let out = whole(output(format!("procps/top.{locale}.txt")));
        values(&out.set, "task.cpu_time", pid).iter().map(|v| (v * 1000.0).round()).collect::<Vec<f64>>()
    };
    assert_eq!(used("C", "30409@0"), [1099.0, 1250.0]);
    assert_eq!(used("fr_FR", "30989@0"), [990.0, 1510.0]);
}

#[test]
fn top_of_threads_and_single_cpus() {
    let out = whole(output("procps/top-H-1.txt"));
    assert_eq!(level(&out.set, "tasks.total", ""), 130.0);
    assert_eq!(level(&out.set, "tasks.running", ""), 5.0);
    assert_eq!(level(&out.set, "cpu.user", "1"), 1.0);
    assert_eq!(level(&out.set, "cpu.idle", "0"), 1.0);
    assert_eq!(level(&out.set, "mem.swap_total", ""), 0.0);
    assert!(near(level(&out.set, "mem.available", ""), 23_039.8 * 1_048_576.0));
    assert_eq!(out.set.text("task.comm", "31319@0").unwrap().last(), Some("lto 7tngn3uandv"));
    assert!(values(&out.set, "task.rss", "31319@0").is_empty());
    assert_eq!(out.set.host.cpus, 2);
}

pub(super) const OLD_TOP: &str =
    "top - 23:59:58 up 200 days,  1:02,  3 users,  load average: 104.21, 98.70, 80.11
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
    let out = import("file", OLD_TOP);
    assert_eq!(out.files[0].unread, 0);
    assert!(near(level(&out.set, "sys.cpu_iowait", ""), 0.588));
    assert!(near(level(&out.set, "sys.cpu_softirq", ""), 0.012));
    assert_eq!(values(&out.set, "mem.buffers", ""), [200_000.0 * 1024.0; 2]);
    assert_eq!(values(&out.set, "mem.cached", ""), [9_000_000.0 * 1024.0; 2]);
    assert_eq!(values(&out.set, "mem.swap_free", ""), [2_096_124.0 * 1024.0; 2]);
    assert_eq!(values(&out.set, "task.rss", "4242@0"), [12.0 * 1_073_741_824.0; 2]);
    assert_eq!(level(&out.set, "task.cpu_time", "4243@0"), 0.02);
    assert_eq!(out.set.total("task.cpu_time", "4242@0").unwrap().values, [6045.67, 6046.67]);
    assert_eq!(values(&out.set, "tasks.uninterruptible", ""), [1.0, 2.0]);
    assert_eq!(values(&out.set, "task.kthread", "4243@0"), [1.0, 1.0]);
    let axis = &out.set.get("sys.load1", "").unwrap().axis;
    assert_eq!(axis.t[1] - axis.t[0], 5 * SECOND);
    // Of one screen the shares stay, with a word of warning.
    let (first, _) = OLD_TOP.split_once("\n\n\n").unwrap();
    let out = import("file", first);
    assert!(near(level(&out.set, "sys.cpu_idle", ""), 0.996));
    assert!(near(level(&out.set, "task.cpu_time", "4242@0"), 0.987));
    assert!(out.files[0].notes[0].contains("since boot"));
}

#[test]
fn ps_with_any_columns() {
    for locale in ["C", "de_DE", "fr_FR"] {
        let out = whole(output(format!("procps/ps-aux.{locale}.txt")));
        assert_eq!(out.set.text("task.comm", "1@0").unwrap().last(), Some("init"));
        assert_eq!(out.set.text("task.comm", "2@0").unwrap().last(), Some("kthreadd"));
        assert_eq!(
            (level(&out.set, "task.kthread", "2@0"), level(&out.set, "task.kthread", "1@0")),
            (1.0, 0.0)
        );
        assert!(level(&out.set, "task.rss", "1@0") > 1e7);
        assert!(out.set.total("task.cpu_time", "1@0").unwrap().values[0] >= 77.0);
        assert_eq!(level(&out.set, "tasks.uninterruptible", ""), 0.0);
    }
    let out = whole(output("procps/ps-eo.txt"));
    assert_eq!(level(&out.set, "task.threads", "1@0"), 13.0);
    assert_eq!(out.set.total("task.minflt", "1@0").unwrap().values, [103_991.0]);
    assert_eq!(level(&out.set, "task.rss", "1@0"), 22_032.0 * 1024.0);
    assert_eq!(level(&out.set, "task.ppid", "3@0"), 2.0);
    assert_eq!(out.set.text("task.comm", "3@0").unwrap().last(), Some("pool_workqueue_"));
    let out = whole(output("procps/ps-start.txt"));
    assert_eq!(level(&out.set, "task.nice", "1@0"), -10.0);
    assert_eq!(out.set.text("task.comm", "1@0").unwrap().last(), Some("supervisord"));
    let out = whole(output("procps/ps-eLf.txt"));
    let leaders = out.set.get("task.threads", "1@0").unwrap();
    assert_eq!(leaders.values, [13.0]);
    assert!(
        out.set.each("task.tgid").any(|(row, s)| row != "1@0" && s.values.iter().next_back() == Some(&1.0))
    );
    assert_eq!(whole(output("procps/ps-ef.txt")).files[0].formats, ["ps"]);
}

#[test]
fn ps_names_what_a_task_in_d_state_waits_in() {
    let out = import(
        "file",
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
    assert_eq!(level(&out.set, "task.state", "4243@0"), f64::from(b'D'));
    assert_eq!(level(&out.set, "task.rss", "4242@0"), 37_241_856.0 * 1024.0);
    assert!(out.set.text("task.kstack", "4244@0").is_none());
    // A filtered list says nothing of how many there are.
    assert!(values(&out.set, "tasks.uninterruptible", "").is_empty());
    assert_eq!(lines(series(&out.set, "task.state", "4244@0")), [5]);
}
