//! `mitra serve`: what it takes is bounded by what it is asked, whatever the length of the recording.

use std::path::Path;
use std::time::Duration;

use mitra_archive::simulate::Machine;
use mitra_archive::{Options, Writer};
use tempfile::TempDir;

use crate::serve::Server;

const HOUR_S: usize = 3600;
/// A thirtieth of the usual length: ten hours have as many segments as twelve days.
const SEGMENT_FRAMES: u32 = 20;
/// What two servers that are asked the same differ by.
const NOISE_KB: i64 = 3 << 10;
/// Where the blocks of a segment are: some 60, of forty bytes each. If each segment had a description of its own machine and its own
/// lists of columns it would be 9.
const SEGMENT_KB: i64 = 3;
/// An hour that is looked through takes 29 kB for each series whose value is another each second; of the 140 that are
/// looked through, a third moves in the simulated machine. The times of the samples are three quarters of a megabyte. If all of them
/// were kept one by one it would be 5 MB.
const HOUR_KB: i64 = 3 << 10;

fn recorded(dir: &Path, hours: usize) {
    let mut machine = Machine::new(20, 5, 1);
    let options = Options {
        segment_frames: SEGMENT_FRAMES,
        sync_every: Duration::from_secs(24 * HOUR_S as u64),
        ..Options::default()
    };
    let mut writer = Writer::open(dir, &Machine::host(), options).unwrap();
    for _ in 0..hours * HOUR_S {
        machine.tick();
        writer.append(machine.frame(), machine.strings()).unwrap();
    }
    writer.finish().unwrap();
}

fn peak_kb(server: &Server) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The peak after the questions of a page that shows the last hour, and after all of the recording was explained.
fn peaks(hours: usize) -> (i64, i64) {
    let dir = TempDir::new().unwrap();
    recorded(dir.path(), hours);
    let server = Server::start(&["--archive", dir.path().to_str().unwrap()]);
    let recording = server.json("/api/v1/recording");
    let (since, until) = (recording["since"].as_str().unwrap(), recording["until"].as_str().unwrap());
    for path in ["status", "incidents", "processes", "rows?metric=task.cpu_time", "rows?metric=disk.io_time"]
    {
        server.json(&format!("/api/v1/{path}"));
    }
    // All that is recorded, on one screen.
    let metrics = ["sys.ctxt", "tasks.run_delay", "mem.available", "vm.pgfault"];
    let metrics: String = metrics.iter().map(|metric| format!("metric={metric}&")).collect();
    let drawn = server.get(&format!("/api/v1/series?{metrics}columns=1000&since={since}&until={until}"));
    assert_eq!(drawn.status, 200);
    let of_hour = peak_kb(&server);
    server.json(&format!("/api/v1/incidents?since={since}&until={until}"));
    (of_hour, peak_kb(&server))
}

#[test]
fn a_longer_recording_takes_no_more_memory() {
    const HOURS: i64 = 10;
    let (short, long) = (peaks(1), peaks(HOURS as usize));
    println!("an hour: {short:?} kB, {HOURS} hours: {long:?} kB");
    let segments = (HOURS - 1) * HOUR_S as i64 / i64::from(SEGMENT_FRAMES);
    let more = NOISE_KB + segments * SEGMENT_KB;
    assert!(long.0 - short.0 < more, "the same questions: {short:?} and {long:?}");
    assert!(long.1 - short.1 < more + (HOURS - 1) * HOUR_KB, "all of it: {short:?} and {long:?}");
}
