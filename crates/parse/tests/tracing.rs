//! Traces: strace, the BPF tools, stacks. Every number here stands in the file that is read.

use mitra_model::EventKind;
use mitra_model::time::SECOND;
use mitra_parse::text::{self, Import, Imported};

fn read(name: &str, bytes: &[u8]) -> Imported {
    let mut import = Import::new(None);
    text::read(&mut &*bytes, name, &mut import).unwrap();
    import.finish()
}

macro_rules! case {
    ($path:literal) => {
        read($path, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../app/tests/cases/", $path)))
    };
}

fn total(read: &Imported, metric: &str, row: &str) -> Option<f64> {
    let series = read.set.total(metric, row)?;
    assert_eq!(series.values.len(), 1);
    series.values.first().copied()
}

fn total_line(read: &Imported, metric: &str, row: &str) -> Option<u32> {
    Some(read.set.total(metric, row)?.axis.places.first()?.line)
}

fn level(read: &Imported, metric: &str, row: &str) -> Option<f64> {
    read.set.get(metric, row)?.values.last().copied()
}

fn unread(read: &Imported) -> u64 {
    read.files.iter().map(|f| f.unread).sum()
}

fn formats(read: &Imported) -> Vec<&str> {
    read.files.iter().flat_map(|f| f.formats.iter().map(String::as_str)).collect()
}

#[test]
fn a_pause_of_half_a_second_in_a_log_with_cut_lines() {
    let read = case!("lb-session-drop/strace.txt");
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
    assert_eq!(event.real, mitra_model::Era::Day.zero() + 45_681 * SECOND + 913_199_000);
    let sends = read.set.get("call.calls", "sendto").unwrap();
    assert_eq!(sends.values, [2.0, 1.0]);
    assert_eq!(sends.axis.t[0], mitra_model::Era::Day.zero() + 45_682 * SECOND);
    assert_eq!((sends.axis.places[0].line, sends.axis.places[1].line), (3, 6));
    assert_eq!(sends.axis.dt, [1.0, 1.0]);
}

#[test]
fn lookups_of_names_that_do_not_exist() {
    let read = case!("lb-session-drop/strace-access.txt");
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
    let read = case!("lb-session-drop/strace-c-access.txt");
    assert_eq!((formats(&read), unread(&read)), (vec!["strace -c"], 0));
    assert_eq!(total(&read, "call.calls", "access"), Some(6647.0));
    assert_eq!(total(&read, "call.errors", "access"), Some(6643.0));
    assert_eq!(total(&read, "call.time", "access"), Some(0.003_18));
    assert_eq!(total_line(&read, "call.calls", "access"), Some(3));
    assert_eq!(total(&read, "call.calls", "total"), None);
    let read = case!("lb-session-drop/after-fix/strace-c-access.txt");
    assert_eq!(total(&read, "call.calls", "access"), Some(32.0));
    assert_eq!(total(&read, "call.errors", "access"), Some(30.0));
}

const MIB: f64 = 1024.0 * 1024.0;

#[test]
fn cachestat_of_perf_tools() {
    let read = case!("upload-100g/incident/cachestat.txt");
    assert_eq!((formats(&read), unread(&read)), (vec!["cachestat"], 0));
    let system = |metric| read.set.system(metric).unwrap();
    assert_eq!(system("cache.hits").values, [1811.0, 1630.0, 1634.0, 1851.0, 1941.0, 1733.0, 1195.0]);
    assert_eq!(system("cache.misses").values[1..3], [15_132.0, 23_341.0]);
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
    assert_eq!(axis.t[0], mitra_model::Era::Sequence.zero());
    assert_eq!(axis.places.iter().map(|p| p.line).collect::<Vec<_>>(), [4, 5, 6, 7, 8, 9, 10]);
    let base = case!("upload-100g/baseline-32g/cachestat.txt");
    assert_eq!(unread(&base), 0);
    assert_eq!(base.set.system("cache.hit_ratio").unwrap().values, [1.0; 8]);
    assert_eq!(base.set.system("cache.misses").unwrap().values, [0.0; 8]);
    assert_eq!(base.set.system("mem.cached").unwrap().values[7], 33_681.0 * MIB);
}

#[test]
fn block_latencies_in_milliseconds() {
    let read = case!("upload-100g/incident/biolatency.txt");
    assert_eq!((formats(&read), unread(&read)), (vec!["biolatency"], 0));
    assert_eq!(total(&read, "block.requests", ""), Some(10_328.0));
    assert_eq!(total_line(&read, "block.requests", ""), Some(5));
    assert_eq!(level(&read, "block.latency_p50", ""), Some(0.063));
    assert_eq!(level(&read, "block.latency_p99", ""), Some(0.511));
}

#[test]
fn a_histogram_that_is_cut_says_nothing() {
    let read = case!("upload-100g/incident/bitesize.txt");
    assert_eq!((formats(&read), unread(&read)), (vec!["bitesize"], 0));
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
    let read = read("trace.txt", sample.as_bytes());
    assert_eq!(formats(&read), ["ftrace"]);
    assert_eq!(total(&read, "call.calls", "trace:sched_switch"), Some(2.0), "{:?}", read.files);
    let rates = read.set.get("call.calls", "trace:sched_switch").unwrap();
    assert_eq!(rates.values, [2.0, 0.0, 0.0]);
    assert_eq!(rates.axis.t[0], mitra_model::Era::Boot.zero() + 1235 * SECOND);
    assert_eq!(total(&read, "call.calls", "trace:irq_handler_entry"), Some(1.0));
}
