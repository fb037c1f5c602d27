//! A running indexer: changes reported by inotify, and the periodic pass.

use super::*;

/// Runs an indexer with inotify on a thread for the duration of a test.
fn running(tmp: &Path, files: &[&str], test: impl FnOnce(&Fake)) {
    let (sink, stop) = (Fake::default(), AtomicBool::new(false));
    let mut c = config(files);
    c.frequency_s = 86_400;
    c.log.file = Some(tmp.join("log"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut indexer = Indexer::below(tmp, c, Box::new(sink.clone()), Clock::Real).unwrap();
            indexer.settle_ns = SECOND_NS / 20;
            indexer.settling = Settling::new(SECOND_NS / 20);
            indexer.rest_times = 0;
            indexer.run(&stop);
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("the first look", || sink.lock().batches > 0);
            test(&sink);
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn changes_are_seen_within_moments() {
    let tmp = tempfile::tempdir().unwrap();
    write(tmp.path(), "etc/hosts", "1\n");
    let at = |path: &str| tmp.path().join(path);
    let files = ["/etc/hosts", "/etc/conf.d", "/srv/app/*/app.conf", "/opt/x/y/z.conf"];
    running(tmp.path(), &files, |sink| {
        let says = |name: &str, text: &str| {
            until(&format!("{name} says {text:?}"), || {
                sink.document(name).is_some_and(|d| d.content.as_deref() == Some(text))
            });
        };
        let gone =
            |name: &str| until(&format!("{name} is gone"), || sink.lock().gone.iter().any(|n| n == name));
        says("/etc/hosts", "1\n");
        fs::write(at("etc/hosts.new"), "renamed over\n").unwrap();
        fs::rename(at("etc/hosts.new"), at("etc/hosts")).unwrap();
        says("/etc/hosts", "renamed over\n");
        fs::write(at("etc/hosts"), "truncated and written\n").unwrap();
        says("/etc/hosts", "truncated and written\n");
        write(tmp.path(), "etc/conf.d/a", "a directory that appears later\n");
        says("/etc/conf.d/a", "a directory that appears later\n");
        write(tmp.path(), "etc/conf.d/deep/er/b", "b\n");
        says("/etc/conf.d/deep/er/b", "b\n");
        write(tmp.path(), "srv/app/one/app.conf", "found by a pattern\n");
        says("/srv/app/one/app.conf", "found by a pattern\n");
        write(tmp.path(), "opt/x/y/z.conf", "three directories later\n");
        says("/opt/x/y/z.conf", "three directories later\n");
        fs::remove_file(at("etc/hosts")).unwrap();
        gone("/etc/hosts");
        fs::write(at("etc/hosts"), "created again\n").unwrap();
        says("/etc/hosts", "created again\n");
        fs::remove_dir_all(at("etc/conf.d")).unwrap();
        gone("/etc/conf.d/a");
        gone("/etc/conf.d/deep/er/b");
        write(tmp.path(), "etc/conf.d/a", "in a directory that was made again\n");
        says("/etc/conf.d/a", "in a directory that was made again\n");
        write(tmp.path(), "etc/next/a", "moved in\n");
        fs::rename(at("etc/conf.d"), at("etc/old.d")).unwrap();
        fs::rename(at("etc/next"), at("etc/conf.d")).unwrap();
        says("/etc/conf.d/a", "moved in\n");
        fs::write(at("etc/conf.d/a"), "and changed\n").unwrap();
        says("/etc/conf.d/a", "and changed\n");
        assert!(sink.document("/etc/hosts.new").is_none(), "nobody asked for it");
    });
}

#[test]
fn the_target_of_a_link_is_watched() {
    let tmp = tempfile::tempdir().unwrap();
    write(tmp.path(), "etc/v1/app.conf", "1\n");
    symlink("v1/app.conf", tmp.path().join("etc/app.conf")).unwrap();
    running(tmp.path(), &["/etc/app.conf", "/etc/v*/app.conf"], |sink| {
        let says = |text: &str| {
            until(text, || {
                sink.document("/etc/app.conf").is_some_and(|d| d.content.as_deref() == Some(text))
            });
        };
        says("1\n");
        fs::write(tmp.path().join("etc/v1/app.conf"), "2\n").unwrap();
        says("2\n");
        write(tmp.path(), "etc/v2/app.conf", "3\n");
        symlink("v2/app.conf", tmp.path().join("etc/app.next")).unwrap();
        fs::rename(tmp.path().join("etc/app.next"), tmp.path().join("etc/app.conf")).unwrap();
        says("3\n");
    });
}

#[test]
fn it_looks_at_the_frequency() {
    let tmp = tempfile::tempdir().unwrap();
    let mut c = config(&["/etc/hosts"]);
    c.frequency_s = 300;
    c.log.file = Some(tmp.path().join("log"));
    let clock = FakeClock::new(Clock::Real.now_ns());
    let sink = Fake::default();
    let mut indexer =
        Indexer::below(tmp.path(), c, Box::new(sink.clone()), Clock::Fake(clock.clone())).unwrap();
    let schedule = Schedule::new("web1", 300, 0);
    let now = clock.now_ns();
    let mut due = Deadlines { look_ns: now, quick_ns: i64::MAX, drain_ns: now, rest_ns: now };
    let mut turns = 0;
    while clock.now_ns() < now + 3_600 * SECOND_NS {
        let wait = indexer.turn(&schedule, &mut due).min(SLEEP_NS_MAX);
        clock.advance(wait);
        turns += 1;
    }
    let looks = sink.lock().batches;
    assert!((13..=14).contains(&looks), "{looks} looks in an hour");
    assert!(turns < 4_000, "{turns} times awake in an hour");
    // After a failure the cluster is tried again sooner than the period.
    sink.lock().fails_after = Some(0);
    clock.advance(due.look_ns - clock.now_ns());
    indexer.turn(&schedule, &mut due);
    assert!(due.look_ns - clock.now_ns() <= RETRY_NS);
    // If the clock is set back, the indexer runs a pass instead of waiting.
    sink.lock().fails_after = None;
    clock.set(-86_400 * SECOND_NS);
    let before = sink.lock().batches;
    indexer.turn(&schedule, &mut due);
    assert_eq!(sink.lock().batches, before + 1);
}

#[test]
fn changes_that_cost_much_wait_longer() {
    let tmp = tempfile::tempdir().unwrap();
    write(tmp.path(), "etc/busy", "x\n".repeat(20_000));
    let mut c = config(&["/etc"]);
    c.frequency_s = 3_600;
    c.log.file = Some(tmp.path().join("log"));
    let clock = FakeClock::new(Clock::Real.now_ns());
    let sink = Fake::default();
    let mut indexer =
        Indexer::below(tmp.path(), c, Box::new(sink.clone()), Clock::Fake(clock.clone())).unwrap();
    indexer.rest_times = 1_000_000;
    let schedule = Schedule::new("web1", 3_600, 0);
    let now = schedule.next(clock.now_ns());
    clock.advance(now - clock.now_ns());
    let mut due = Deadlines { look_ns: now, quick_ns: i64::MAX, drain_ns: now, rest_ns: now };
    indexer.turn(&schedule, &mut due);
    let (mut early, mut before) = (0, 1);
    for second in 0..600 {
        write(tmp.path(), "etc/busy", format!("{second}\n").repeat(20_000));
        indexer.settling.name("/etc/busy", clock.now_ns());
        indexer.turn(&schedule, &mut due);
        early += sink.lock().batches - before;
        before = sink.lock().batches;
        clock.advance(SECOND_NS);
    }
    // Without the rest it would be read every ten seconds.
    assert!((1..30).contains(&early), "{early} times");
}

/// The CPU time of a pass over 500 unchanged files.
#[test]
fn a_look_at_what_did_not_change_costs_next_to_nothing() {
    const LOOKS: i64 = 10;
    let tmp = tempfile::tempdir().unwrap();
    for i in 0..500 {
        write(tmp.path(), &format!("etc/{}/{i}.conf", i / 20), format!("key{i} = value\n").repeat(100));
    }
    let mut c = config(&[tmp.path().join("etc").to_str().unwrap()]);
    c.host = None;
    c.log.file = Some(tmp.path().join("log"));
    for collectors in [Some(Vec::new()), None] {
        let what = if collectors.is_some() { "500 files" } else { "500 files and all collectors" };
        c.collectors = collectors;
        let clock = FakeClock::new(Clock::Real.now_ns() + 10 * SECOND_NS);
        let sink = Box::new(Fake::default());
        let mut indexer = Indexer::new(c.clone(), sink, Clock::Fake(clock.clone())).unwrap();
        for _ in 0..2 {
            clock.advance(SECOND_NS);
            indexer.pass().unwrap();
        }
        let begin = cpu_ns();
        let mut report = PassReport::default();
        for _ in 0..LOOKS {
            clock.advance(SECOND_NS);
            report = indexer.pass().unwrap();
        }
        let each = (cpu_ns() - begin) / LOOKS;
        let mut quick = 0;
        if indexer.config.collectors.is_none() {
            let begin = cpu_ns();
            for _ in 0..LOOKS {
                clock.advance(SECOND_NS);
                indexer.look(&PassScope::Quick).unwrap();
            }
            quick = (cpu_ns() - begin) / LOOKS;
        }
        // One full and four quick passes in 300 s.
        let share = (each + 4 * quick) as f64 / (300 * SECOND_NS) as f64;
        println!(
            "{what}: {:.2} ms for a look, {:.2} ms for a quick one, {:.4} % of a core at 300 s, {} documents",
            each as f64 / 1e6,
            quick as f64 / 1e6,
            share * 100.0,
            report.files + report.collected
        );
        assert_eq!(report.files, 500);
        assert_eq!(report.read, 0);
        assert!(share < 0.001, "{what}: {:.3} % of a core", share * 100.0);
    }
}
