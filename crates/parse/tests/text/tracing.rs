//! Traces: strace, the BPF tools, stacks. Every number here stands in the file that is read.

use mitra_model::time::SECOND;
use mitra_model::{Era, EventKind};
use mitra_parse::text::Imported;
use proptest::prelude::*;

use crate::support::{bytes, case, damaged, import, import_file, output, survive, tries};

fn total(read: &Imported, metric: &str, row: &str) -> Option<f64> {
    let series = read.set.total(metric, row)?;
    assert_eq!(series.values.len(), 1);
    series.values.get(0).copied()
}

fn total_line(read: &Imported, metric: &str, row: &str) -> Option<u32> {
    Some(read.set.total(metric, row)?.axis.places.first()?.line)
}

fn level(read: &Imported, metric: &str, row: &str) -> Option<f64> {
    read.set.get(metric, row)?.values.iter().next_back().copied()
}

fn unread(read: &Imported) -> u64 {
    read.files.iter().map(|f| f.unread).sum()
}

fn formats(read: &Imported) -> Vec<&str> {
    read.files.iter().flat_map(|f| f.formats.iter().map(String::as_str)).collect()
}

#[test]
fn a_pause_of_half_a_second_in_a_log_with_cut_lines() {
    let read = import_file(case("lb-session-drop/strace.txt"));
    assert_eq!((formats(&read), unread(&read)), (vec!["strace"], 0));
    assert_eq!(total(&read, "call.calls", "sendto"), Some(3.0));
    assert_eq!(total(&read, "call.calls", "read"), Some(2.0));
    assert_eq!(total(&read, "call.errors", "read"), Some(0.0));
    assert_eq!(read.set.events.len(), 1);
    let event = &read.set.events[0];
    let EventKind::Pause { pid: 0, comm, seconds, call, inside } = &event.kind else { panic!("{event:?}") };
    assert_eq!((comm.as_str(), call.as_str(), *inside), ("", "sendto", false));
    assert!((seconds - 0.500_277).abs() < 1e-9, "{seconds}");
    assert_eq!(event.place.unwrap().line, 4);
    assert_eq!(event.real, Era::Day.zero() + 45_681 * SECOND + 913_199_000);
    let sends = read.set.get("call.calls", "sendto").unwrap();
    assert_eq!(sends.values, [2.0, 1.0]);
    assert_eq!(sends.axis.t[0], Era::Day.zero() + 45_682 * SECOND);
    assert_eq!((sends.axis.places[0].line, sends.axis.places[1].line), (3, 6));
    assert_eq!(sends.axis.dt, [1.0, 1.0]);
}

#[test]
fn lookups_of_names_that_do_not_exist() {
    let read = import_file(case("lb-session-drop/strace-access.txt"));
    assert_eq!((formats(&read), unread(&read)), (vec!["strace"], 0));
    assert_eq!(total(&read, "call.calls", "access"), Some(6.0));
    assert_eq!(total(&read, "call.errors", "access"), Some(6.0));
    assert_eq!(read.set.total("call.time", "access").map(|s| s.values.len()), None);
    let dir = "/home/me/.pki/nssdb";
    assert_eq!(total(&read, "lookup.failed", dir), Some(5.0));
    assert_eq!(total_line(&read, "lookup.failed", dir), Some(2));
    assert_eq!(level(&read, "lookup.unique", dir), Some(5.0));
    assert_eq!(read.set.text("lookup.pattern", dir).unwrap().last(), Some(".N_dOeSnotExist_.db"));
    // What exists and may not be touched is no missing name.
    assert_eq!(total(&read, "lookup.failed", "/etc/pki"), None);
}

#[test]
fn tables_of_calls() {
    let read = import_file(case("lb-session-drop/strace-c-access.txt"));
    assert_eq!((formats(&read), unread(&read)), (vec!["strace -c"], 0));
    assert_eq!(total(&read, "call.calls", "access"), Some(6647.0));
    assert_eq!(total(&read, "call.errors", "access"), Some(6643.0));
    assert_eq!(total(&read, "call.time", "access"), Some(0.003_18));
    assert_eq!(total_line(&read, "call.calls", "access"), Some(3));
    assert_eq!(total(&read, "call.calls", "total"), None);
    let read = import_file(case("lb-session-drop/after-fix/strace-c-access.txt"));
    assert_eq!(total(&read, "call.calls", "access"), Some(32.0));
    assert_eq!(total(&read, "call.errors", "access"), Some(30.0));
}

const MIB: f64 = 1024.0 * 1024.0;

#[test]
fn cachestat_of_perf_tools() {
    let read = import_file(case("upload-100g/incident/cachestat.txt"));
    assert_eq!((formats(&read), unread(&read)), (vec!["cachestat"], 0));
    let system = |metric| read.set.system(metric).unwrap();
    assert_eq!(system("cache.hits").values, [1811.0, 1630.0, 1634.0, 1851.0, 1941.0, 1733.0, 1195.0]);
    assert_eq!(system("cache.misses").values.to_vec()[1..3], [15_132.0, 23_341.0]);
    assert_eq!(system("cache.dirties").values[6], 31.0);
    for (ratio, printed) in
        system("cache.hit_ratio").values.iter().zip([74.1, 9.7, 6.5, 12.0, 34.5, 7.0, 11.1])
    {
        assert!((ratio - printed / 100.0).abs() < 1e-12);
    }
    assert_eq!(system("mem.cached").values[0], 48_009.0 * MIB);
    assert_eq!(system("mem.buffers").values[0], 17.0 * MIB);
    let axis = &system("cache.hits").axis;
    assert_eq!(axis.t[1] - axis.t[0], SECOND);
    assert_eq!(axis.t[0], Era::Sequence.zero());
    assert_eq!(axis.places.iter().map(|p| p.line).collect::<Vec<_>>(), [4, 5, 6, 7, 8, 9, 10]);
    let base = import_file(case("upload-100g/baseline-32g/cachestat.txt"));
    assert_eq!(unread(&base), 0);
    assert_eq!(base.set.system("cache.hit_ratio").unwrap().values, [1.0; 8]);
    assert_eq!(base.set.system("cache.misses").unwrap().values, [0.0; 8]);
    assert_eq!(base.set.system("mem.cached").unwrap().values[7], 33_681.0 * MIB);
}

#[test]
fn block_latencies_in_milliseconds() {
    let read = import_file(case("upload-100g/incident/biolatency.txt"));
    assert_eq!((formats(&read), unread(&read)), (vec!["biolatency"], 0));
    assert_eq!(total(&read, "block.requests", ""), Some(10_328.0));
    assert_eq!(total_line(&read, "block.requests", ""), Some(5));
    assert_eq!(level(&read, "block.latency_p50", ""), Some(0.063));
    assert_eq!(level(&read, "block.latency_p99", ""), Some(0.511));
}

#[test]
fn a_histogram_that_is_cut_says_nothing() {
    let read = import_file(case("upload-100g/incident/bitesize.txt"));
    assert_eq!((formats(&read), unread(&read)), (vec![], 11));
    assert_eq!(read.set.metrics().count(), 0);
    assert_eq!(total(&read, "block.requests", ""), None);
    assert!(read.files[0].notes.iter().any(|n| n.contains("cut")), "{:?}", read.files[0].notes);
}

#[test]
fn events_of_ftrace() {
    let sample = "# tracer: nop\n#\n#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n\
        \x20           curl-4242    [001] d..2.  1234.567890: sched_switch: prev_comm=curl prev_pid=4242\n\
        \x20  my app [x]-77    (  77) [000] .....  1234.667890: sched_switch: prev_comm=x\n\
        \x20         <idle>-0       [000] 1236.890123: irq_handler_entry: irq=24 name=virtio\n";
    let read = import("trace.txt", sample);
    assert_eq!(formats(&read), ["ftrace"]);
    assert_eq!(total(&read, "call.calls", "trace:sched_switch"), Some(2.0), "{:?}", read.files);
    let rates = read.set.get("call.calls", "trace:sched_switch").unwrap();
    assert_eq!(rates.values, [2.0, 0.0, 0.0]);
    assert_eq!(rates.axis.t[0], Era::Boot.zero() + 1235 * SECOND);
    assert_eq!(total(&read, "call.calls", "trace:irq_handler_entry"), Some(1.0));
}

fn pauses(read: &Imported) -> Vec<(u32, &str, &str, f64, bool, u32)> {
    let one = |e: &'static str| panic!("{e}");
    read.set
        .events
        .iter()
        .map(|e| match &e.kind {
            EventKind::Pause { pid, comm, seconds, call, inside } => {
                (*pid, comm.as_str(), call.as_str(), *seconds, *inside, e.place.unwrap().line)
            }
            _ => one("no pause"),
        })
        .collect()
}

#[test]
fn logs_of_strace_with_every_kind_of_stamp() {
    let files = [
        (import_file(output("strace/f-tt-T.txt")), 74.0),
        (import_file(output("strace/f-ttt.txt")), 74.0),
        (import_file(output("strace/f-r.txt")), 74.0),
        (import_file(output("strace/t.txt")), 39.0),
        // One of 39 stands behind what `ls` wrote without a newline, and some of its words stand alone.
        (import_file(output("strace/k.txt")), 38.0),
    ];
    for (i, (read, opens)) in files.iter().enumerate() {
        assert_eq!(formats(read), ["strace"]);
        assert_eq!(total(read, "call.calls", "openat"), Some(*opens), "{:?}", read.files);
        assert_eq!(pauses(read), [], "{:?}", read.files);
        assert_eq!(unread(read), if i == 4 { 2 } else { 0 }, "{:?}", read.files);
    }
    let [timed, epoch, relative, coarse, stacks] = files.map(|f| f.0);
    // One missing name of each directory, five of the other.
    for read in [&timed, &epoch, &relative] {
        assert_eq!(total(read, "lookup.failed", "/tmp"), Some(3.0));
        assert_eq!(level(read, "lookup.unique", "/tmp"), Some(3.0));
        assert_eq!(read.set.text("lookup.pattern", "/tmp").unwrap().last(), Some(".N_miss"));
        assert_eq!(total(read, "lookup.failed", "/tmp/nodir-3"), Some(1.0));
        // `newfstatat` of the second child and of its like are of the shell, by its `execve` or its parent's.
        assert_eq!(read.set.text("lookup.program", "/tmp").unwrap().last(), Some("t.sh"));
        assert_eq!(total(read, "call.errors", "access"), Some(4.0));
    }
    assert_eq!(total_line(&timed, "lookup.failed", "/tmp/nodir-1"), Some(54));
    assert_eq!(timed.set.text("lookup.program", "/usr/lib/locale/C.UTF-8").unwrap().last(), Some("ls"));
    // The sleep of 0.3 s is the longest of its kind; its time is known and no pause.
    let slept = level(&timed, "call.time_max", "clock_nanosleep").unwrap();
    assert!((0.3..0.4).contains(&slept), "{slept}");
    assert_eq!(total(&epoch, "call.time", "clock_nanosleep"), None);
    assert_eq!(Era::of(epoch.set.get("call.calls", "openat").unwrap().axis.t[0]), Era::Dated);
    assert_eq!(Era::of(relative.set.get("call.calls", "openat").unwrap().axis.t[0]), Era::Sequence);
    assert_eq!(coarse.set.get("call.calls", "openat").unwrap().values.iter().sum::<f64>(), 39.0);
    assert!(stacks.set.get("call.calls", "openat").is_none());
}

#[test]
fn a_log_that_names_its_programs() {
    let read = import_file(output("strace/f-Y-y-i-n.txt"));
    assert_eq!((formats(&read), unread(&read)), (vec!["strace"], 0), "{:?}", read.files);
    assert_eq!(total(&read, "call.calls", "strace/execve"), Some(1.0));
    assert!(total(&read, "call.calls", "ls/openat").is_some_and(|n| n > 20.0));
    assert_eq!(total(&read, "call.calls", "openat"), None);
    assert_eq!(read.set.text("lookup.program", "/usr/lib/locale/C.UTF-8").unwrap().last(), Some("ls"));
}

#[test]
fn a_log_and_the_table_below_it_count_once() {
    let read = import_file(output("strace/C-tt.txt"));
    assert_eq!(formats(&read), ["strace", "strace -c"]);
    assert_eq!(total(&read, "call.calls", "openat"), Some(34.0));
    assert!(total(&read, "call.time", "openat").is_some());
    assert_eq!(unread(&read), 0, "{:?}", read.files);
}

#[test]
fn tables_of_other_choices_and_locales() {
    let read = import_file(output("strace/c.txt"));
    assert_eq!(total(&read, "call.calls", "wait4"), Some(7.0));
    assert_eq!(total(&read, "call.errors", "openat"), Some(30.0));
    assert_eq!(total(&read, "call.errors", "mmap"), Some(0.0));
    assert_eq!(total(&read, "call.time", "openat"), Some(0.000_308));
    assert_eq!(unread(&read), 0);
    let wide = import_file(output("strace/c-w-U.txt"));
    assert_eq!(level(&wide, "call.time_max", "openat"), Some(0.002_563));
    assert_eq!(total(&wide, "call.calls", "openat"), Some(34.0));
    assert_eq!(unread(&wide), 0);
    let german = import_file(output("strace/c-S-de.txt"));
    assert_eq!(total(&german, "call.calls", "mmap"), Some(18.0));
    assert_eq!(unread(&german), 0, "{:?}", german.files);
}

#[test]
fn threads_midnight_and_words_between() {
    let read = import_file(output("strace/f-stderr.txt"));
    assert_eq!((formats(&read), unread(&read)), (vec!["strace"], 1));
    assert_eq!(read.files[0].first_unread.as_ref().map(|u| u.0), Some(6));
    assert_eq!(total(&read, "call.calls", "sendto"), Some(2.0));
    assert_eq!(total(&read, "call.errors", "close"), Some(1.0));
    let found = pauses(&read);
    assert_eq!(found.len(), 1, "{found:?}");
    let (pid, _, call, seconds, inside, line) = found[0];
    assert_eq!((pid, call, inside, line), (4242, "sendto", false, 7));
    assert!((seconds - 0.8).abs() < 1e-9);
    let axis = &read.set.get("call.calls", "sendto").unwrap().axis;
    assert!(axis.t.windows(2).all(|w| w[1] - w[0] == SECOND), "{:?}", axis.t);
}

/// The pause lies in the call when the call says so.
#[test]
fn a_call_that_took_long_by_itself() {
    let mut text = String::new();
    for i in 0..20 {
        text += &format!("10:00:00.{:06} write(3, \"x\", 1) = 1 <0.000010>\n", i * 100);
    }
    text += "10:00:00.002000 fsync(3) = 0 <0.700000>\n10:00:00.702100 read(4, \"\", 1) = 0 <2.000000>\n";
    text += "10:00:02.702200 close(4) = 0 <0.000001>\n10:00:03.202201 close(5) = 0 <0.000001>\n";
    let read = import("long.txt", text);
    let found: Vec<_> = pauses(&read).into_iter().map(|p| (p.2, (p.3 * 1e6).round(), p.4, p.5)).collect();
    assert_eq!(found, [("fsync", 700_000.0, true, 21), ("close", 500_000.0, false, 23)]);
    assert_eq!(total(&read, "call.time", "fsync"), Some(0.7));
}

#[test]
fn cachestat_of_bcc() {
    let read = import_file(output("bpf/cachestat-T.txt"));
    assert_eq!(unread(&read), 0);
    assert_eq!(read.set.system("cache.hits").unwrap().values, [200.0, 0.0, 10.0]);
    assert_eq!(read.set.system("cache.hit_ratio").unwrap().values, [0.8, 0.0, 1.0]);
    assert_eq!(read.set.system("cache.hits").unwrap().axis.dt, [5.0; 3]);
    let first = read.set.system("cache.hits").unwrap().axis.t[0];
    assert_eq!(first, Era::Day.zero() + (15 * 3600 + 605) * SECOND);
    let old = import_file(output("bpf/cachestat-old.txt"));
    assert_eq!(old.set.system("cache.misses").unwrap().values, [44.0, 170.0]);
    assert_eq!(old.set.system("mem.cached").unwrap().values, [55.0 * MIB; 2]);
}

#[test]
fn histograms_of_disks_processes_and_waits() {
    let read = import_file(output("bpf/biolatency-D-T.txt"));
    assert_eq!((formats(&read), unread(&read)), (vec!["biolatency"], 0), "{:?}", read.files);
    // Per second: 52 requests in five seconds, then 5.
    assert_eq!(read.set.system("block.requests").unwrap().values, [10.4, 1.0]);
    assert_eq!(read.set.system("block.latency_p50").unwrap().values, [0.001_023, 0.002_047]);
    assert_eq!(read.set.get("disk.traced_requests", "xvdb").unwrap().values, [8.4]);
    assert_eq!(read.set.get("disk.traced_latency_p99", "xvda1").unwrap().values, [0.000_511, 0.002_047]);
    let t = &read.set.system("block.requests").unwrap().axis.t;
    assert_eq!(t[1] - t[0], 5 * SECOND);

    let sizes = import_file(output("bpf/bitesize.txt"));
    assert_eq!((formats(&sizes), unread(&sizes)), (vec!["bitesize"], 0), "{:?}", sizes.files);
    assert_eq!(total(&sizes, "block.requests", ""), Some(1803.0));
    assert_eq!(level(&sizes, "block.size_p50", ""), Some(255.0 * 1024.0));

    let waits = import_file(output("bpf/runqlat.txt"));
    assert_eq!((formats(&waits), unread(&waits)), (vec!["runqlat"], 0));
    assert_eq!(total(&waits, "runq.waits", ""), Some(2009.0));
    assert_eq!(level(&waits, "runq.latency_p50", ""), Some(7e-6));
    assert_eq!(level(&waits, "runq.latency_p99", ""), Some(15e-6));
}

#[test]
fn histograms_of_bpftrace() {
    let read = import_file(output("bpf/biolatency.bt.txt"));
    assert_eq!((formats(&read), unread(&read)), (vec!["biolatency"], 0), "{:?}", read.files);
    assert_eq!(total(&read, "block.requests", ""), Some(668.0));
    assert_eq!(level(&read, "block.latency_p50", ""), Some(2048.0 * 1e-6));
    let sizes = import_file(output("bpf/bitesize.bt.txt"));
    assert_eq!((formats(&sizes), unread(&sizes)), (vec!["bitesize"], 0), "{:?}", sizes.files);
    assert_eq!(total(&sizes, "block.requests", ""), Some(4.0));
    assert_eq!(level(&sizes, "block.size_p50", ""), Some(8192.0));
    let unknown = import_file(output("bpf/unknown.bt.txt"));
    assert_eq!(unknown.set.metrics().count(), 0);
    assert!(unknown.files[0].notes.iter().any(|n| n.contains("not known")), "{:?}", unknown.files);
}

#[test]
fn snoops() {
    let opens = import_file(output("bpf/opensnoop.txt"));
    assert_eq!((formats(&opens), unread(&opens)), (vec!["opensnoop"], 0));
    assert_eq!(total(&opens, "lookup.failed", "/home/me/.pki/nssdb"), Some(2.0));
    assert_eq!(opens.set.text("lookup.program", "/home/me/.pki/nssdb").unwrap().last(), Some("curl"));
    assert_eq!(opens.set.text("lookup.program", "/usr/share").unwrap().last(), Some("Web Content 7"));
    assert_eq!(total(&opens, "lookup.failed", "/root"), None);
    assert_eq!(total(&opens, "call.errors", "open"), Some(4.0));

    let execs = import_file(output("bpf/execsnoop.txt"));
    assert_eq!((formats(&execs), unread(&execs)), (vec!["execsnoop"], 0));
    assert_eq!(total(&execs, "call.calls", "execve"), Some(3.0));
    assert_eq!(total(&execs, "call.errors", "execve"), Some(1.0));
    assert_eq!(execs.set.get("call.calls", "execve").unwrap().values, [2.0, 1.0]);

    let tcp = import_file(output("bpf/tcpretrans.txt"));
    assert_eq!(formats(&tcp), ["tcpretrans"]);
    assert_eq!(tcp.set.system("tcp.RetransSegs").unwrap().values, [2.0, 0.0, 1.0]);

    let io = import_file(output("bpf/biosnoop-Q.txt"));
    assert_eq!((formats(&io), unread(&io)), (vec!["biosnoop"], 0));
    assert_eq!(io.set.get("disk.writes", "xvda1").unwrap().values, [1.0]);
    assert_eq!(io.set.get("disk.read_bytes", "nvme0n1").unwrap().values, [131_072.0]);
    assert_eq!(level(&io, "disk.traced_latency_p50", "nvme0n1"), Some(0.0025));
    assert_eq!(level(&io, "block.latency_p50", ""), Some(0.000_74));
}

#[test]
fn stacks() {
    let script = import_file(output("perf/script-g.txt"));
    assert_eq!((formats(&script), unread(&script)), (vec!["perf script"], 0), "{:?}", script.files);
    assert_eq!(total(&script, "path.samples", "sh;[unknown];[unknown];[unknown]"), Some(1.0));
    assert_eq!(total(&script, "path.samples", "sh;__GI_____strtoll_l_internal"), Some(1.0));
    assert_eq!(script.set.each_total("path.samples").map(|(_, s)| s.values[0]).sum::<f64>(), 5.0);
    let flat = import_file(output("perf/script.txt"));
    assert_eq!((formats(&flat), unread(&flat)), (vec!["perf script"], 0));
    assert_eq!(total(&flat, "path.samples", "sh;_int_free"), Some(1.0));
    let folded = import_file(output("perf/folded.txt"));
    assert_eq!((formats(&folded), unread(&folded)), (vec!["folded stacks"], 0));
    assert_eq!(total(&folded, "path.samples", "java;read;vfs_read"), Some(10.0));
    assert_eq!(total_line(&folded, "path.samples", "java;read;vfs_read"), Some(2));
    let off = import_file(output("bpf/offcputime.txt"));
    assert_eq!((formats(&off), unread(&off)), (vec!["BPF stacks"], 0), "{:?}", off.files);
    let slept = total(&off, "path.time", "sleep;[unknown];do_nanosleep;schedule;finish_task_switch");
    assert!(slept.is_some_and(|s| (s - 1.000_123).abs() < 1e-9), "{slept:?}");
    let folded = import_file(output("bpf/offcputime-f.txt"));
    let waited = total(&folded, "path.time", "bash;entry_SYSCALL_64;do_wait;schedule;finish_task_switch");
    assert!(waited.is_some_and(|s| (s - 0.001).abs() < 1e-12), "{:?}", folded.files);
}

/// What looks like a trace and is none.
#[test]
fn near_misses_give_no_numbers() {
    for text in [
        "printf(\"%d\\n\", 3) = 2\nputs(\"hello\") = 6\n",
        "open the door (please) = 3\n",
        "read\nread(\nread(3\n",
        "% time seconds calls\n100.00 0.1 3\n",
        "% of time spent in syscall\n",
        "12:41:21 read the manual\n",
        "HITS MISSES\n1 2\n",
        "HITS MISSES DIRTIES OTHER\n1 2 3 4\n",
        "Tracing the cause...\n1 -> 2 : 3\n",
        "0 -> 1 : 83 |***|\n",
        "@home: 3 people\n",
        "a;b;c\n1;2;3 4\n2026;cpu;7 5\nweb-17;600;5 12\n",
        "PID COMM PATH\n1 init /x\n",
        "[pid 12] hello\n",
        "--- a/file\n+++ b/file\n",
        "Process 12 is here\n",
    ] {
        let read = import("near.txt", text);
        let none = read.set.metrics().count() == 0
            && read.set.total("call.calls", "read").is_none()
            && read.set.each_total("call.calls").count() == 0
            && read.set.each_total("path.samples").count() == 0;
        assert!(none, "{text}");
        // Another reader may know what it is.
        let ours = ["strace", "cachestat", "bio", "bite", "runq", "BPF", "snoop", "ftrace", "perf", "folded"];
        assert!(
            !formats(&read).iter().any(|f| ours.iter().any(|o| f.contains(o))),
            "{text} {:?}",
            formats(&read)
        );
    }
}

/// Files of every kind, to be damaged.
const ALL: &[&str] = &[
    "strace/f-tt-T.txt",
    "strace/f-Y-y-i-n.txt",
    "strace/c-w-U.txt",
    "strace/f-stderr.txt",
    "bpf/cachestat-T.txt",
    "bpf/biolatency-D-T.txt",
    "bpf/bitesize.bt.txt",
    "bpf/opensnoop.txt",
    "bpf/execsnoop.txt",
    "bpf/tcpretrans.txt",
    "bpf/biosnoop-Q.txt",
    "bpf/offcputime.txt",
    "perf/script-g.txt",
    "perf/folded.txt",
];

proptest! {
    #![proptest_config(tries(64))]

    #[test]
    fn damage_never_panics(content in damaged(ALL.iter().map(|path| bytes(output(path))).collect())) {
        survive("damaged", content);
    }

    #[test]
    fn random_bytes_never_panic(content in proptest::collection::vec(any::<u8>(), 0..2000)) {
        survive("random", content);
    }
}
