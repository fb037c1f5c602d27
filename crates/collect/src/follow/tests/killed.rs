//! A real writer, a log that is rotated, and a follower that is killed and started again.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Case, pattern};
use crate::follow::{LogSource, Thread};

const LOGROTATE: &str = "/usr/sbin/logrotate";

/// The process that is killed.
#[test]
fn follower_of_another_test() {
    let Ok(dir) = std::env::var("MITRA_FOLLOW") else { return };
    let dir = Path::new(&dir);
    let log = LogSource::File(dir.join("log/app.log"));
    let thread =
        Thread::start("/".into(), &[pattern(log, "timeout")], Some(&dir.join("state/logs.state"))).unwrap();
    loop {
        thread.ask();
        std::thread::sleep(Duration::from_millis(40));
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn follow(dir: &Path) -> Killed {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "follow::tests::killed::follower_of_another_test", "--nocapture"])
        .env("MITRA_FOLLOW", dir);
    Killed(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// How a log is rotated.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    ByHand,
    Create,
    Compress,
    CopyTruncate,
}

/// What a writer and whoever rotates its log have in common.
struct Daemon {
    log: PathBuf,
    /// While this file is there the daemon has to open its log anew. It removes it then.
    told: PathBuf,
    is_over: AtomicBool,
    /// It must not write.
    is_stopped: AtomicBool,
    stands_still: AtomicBool,
}

impl Daemon {
    /// Writes lines one by one until it has written all. Each third one matches.
    fn write(&self, lines: u64, per_second: u64) {
        let open = || OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        let (mut file, began) = (open(), Instant::now());
        for line in 1..=lines {
            while self.is_stopped.load(Ordering::SeqCst) {
                self.stands_still.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(1));
            }
            self.stands_still.store(false, Ordering::SeqCst);
            if self.told.exists() {
                file = open();
                fs::remove_file(&self.told).unwrap();
            }
            let what = if line % 3 == 0 { "timeout" } else { "served" };
            let text = format!("2026-11-27T23:00:00 {what} request {line} of somebody\n");
            file.write_all(text.as_bytes()).unwrap();
            if line % 100 == 0 {
                let due = Duration::from_secs_f64(line as f64 / per_second as f64);
                std::thread::sleep(due.saturating_sub(began.elapsed()));
            }
        }
        self.is_over.store(true, Ordering::SeqCst);
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        while !self.stands_still.load(Ordering::SeqCst) && !self.is_over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn by_hand(dir: &Path, daemon: &Daemon) {
    let path = |nth: u32| match nth {
        0 => dir.join("log/app.log"),
        nth => dir.join(format!("log/app.log.{nth}")),
    };
    for nth in (0..400).rev().filter(|nth| path(*nth).exists()) {
        fs::rename(path(nth), path(nth + 1)).unwrap();
    }
    fs::write(&daemon.told, "").unwrap();
}

fn rotate(dir: &Path, way: Way, daemon: &Daemon) {
    if way == Way::ByHand {
        return by_hand(dir, daemon);
    }
    let told = daemon.told.display();
    // Waits until the daemon has opened its new log, but not for one that has ended.
    let reload = format!(
        "postrotate\n touch {told}\n for i in $(seq 100); do [ -e {told} ] || break; sleep 0.02; done\n endscript"
    );
    let words = match way {
        Way::CopyTruncate => "copytruncate".to_owned(),
        Way::Compress => format!("create 0644\n compress\n {reload}"),
        _ => format!("create 0644\n {reload}"),
    };
    let conf = dir.join("state/logrotate.conf");
    fs::write(&conf, format!("{} {{\n rotate 400\n {words}\n}}\n", daemon.log.display())).unwrap();
    // The tool loses what is written between its copy and its cut.
    if way == Way::CopyTruncate {
        daemon.stop();
    }
    let mut command = Command::new(LOGROTATE);
    let status = command.arg("-f").arg("-s").arg(dir.join("state/logrotate.status")).arg(&conf).status();
    daemon.is_stopped.store(false, Ordering::SeqCst);
    assert!(status.unwrap().success());
}

/// How many rotations and kills there were.
fn killed_and_rotated(way: Way, lines: u64, per_second: u64, every: Duration) -> Option<(u64, u64)> {
    if way != Way::ByHand && !Path::new(LOGROTATE).exists() {
        println!("skipped: logrotate is not installed");
        return None;
    }
    let mut case = Case::begun();
    case.restart();
    let dir = case.dir.path().to_owned();
    let daemon = Daemon {
        log: case.path("app.log"),
        told: dir.join("state/told"),
        is_over: AtomicBool::new(false),
        is_stopped: AtomicBool::new(false),
        stands_still: AtomicBool::new(false),
    };
    let (mut rotations, mut kills) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| daemon.write(lines, per_second));
        let mut follower = follow(&dir);
        while !daemon.is_over.load(Ordering::SeqCst) {
            std::thread::sleep(every);
            rotate(&dir, way, &daemon);
            rotations += 1;
            if rotations % 3 != 0 {
                continue;
            }
            drop(follower);
            kills += 1;
            if rotations % 2 == 0 {
                // Rotated while nobody looks.
                std::thread::sleep(every / 2);
                rotate(&dir, way, &daemon);
                rotations += 1;
                std::thread::sleep(every / 4);
            }
            follower = follow(&dir);
        }
    });
    for _ in 0..30 {
        case.look();
    }
    let found = case.look();
    assert_eq!(found, (lines, lines / 3), "{way:?}, {rotations} rotations, {kills} kills; {:?}", case.lost);
    assert_eq!(case.skipped(), 0);
    Some((rotations, kills))
}

#[test]
fn every_line_of_a_rotated_log_counts_once_although_the_follower_is_killed() {
    for way in [Way::ByHand, Way::Create, Way::Compress, Way::CopyTruncate] {
        killed_and_rotated(way, 30_000, 20_000, Duration::from_millis(150));
    }
}

#[test]
#[ignore = "takes minutes"]
fn a_million_lines_by_hand() {
    for way in [Way::ByHand, Way::Create, Way::Compress, Way::CopyTruncate] {
        let began = Instant::now();
        let done = killed_and_rotated(way, 1_000_000, 50_000, Duration::from_secs(1));
        println!("{way:?}: {done:?} rotations and kills, {:?}", began.elapsed());
    }
}
