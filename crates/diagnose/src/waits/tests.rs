use mitra_model::SeriesSet;

use super::*;
use crate::condition::Finding;
use crate::locks::tests::{series, text};

const SERVICE: &str = "127.0.0.1:80";
const SECONDS: usize = 8;

/// A row: so many threads, all of which stand still.
fn wait(set: &mut SeriesSet, row: &str, threads: f64) -> f64 {
    series(set, WAITS, row, vec![threads; SECONDS]);
    let kind = row.split(['>', ':']).nth(1).unwrap_or_default();
    if BETWEEN.contains(&kind) {
        series(set, STUCK, row, vec![threads; SECONDS]);
    }
    threads
}

/// The same for a process that can end the wait.
fn wait_for(set: &mut SeriesSet, row: &str, (pid, comm): (u32, &str), threads: f64) {
    wait(set, row, threads);
    series(set, "wait.pid", row, vec![f64::from(pid); SECONDS]);
    text(set, "wait.comm", row, comm);
}

/// A service of one process, of whose requests so many are open.
fn service(open: f64) -> SeriesSet {
    let mut set = SeriesSet::default();
    series(&mut set, "service.open", SERVICE, vec![open; SECONDS]);
    series(&mut set, "service.pid", SERVICE, vec![50.0; SECONDS]);
    series(&mut set, "task.tgid", "50@1", vec![50.0; SECONDS]);
    text(&mut set, "task.comm", "50@1", "appd");
    set
}

/// What is said of the service, and who is the culprit.
fn followed(set: &SeriesSet) -> (String, Option<u32>) {
    let none = SeriesSet::default();
    let view = View::new(set, Span::ALL, &none, None);
    let mut finding = Finding { confidence: 0.95, ..Finding::default() };
    let is_known = follow(&view, &mut finding, &Servers::of(&view, SERVICE), SERVICE, Span::ALL);
    assert_eq!(is_known, finding.culprit.pid.is_some());
    // What is inferred is said not to be sure.
    let is_inferred = finding.culprit.how == Some(mitra_model::report::How::Inferred);
    assert_eq!(is_inferred, finding.confidence < 0.9);
    (finding.remarks.join("; "), finding.culprit.pid)
}

#[test]
fn the_walk_ends_at_whoever_waits_for_nobody() {
    let mut set = service(9.0);
    wait_for(&mut set, "50>pipe:60", (60, "worker"), 3.0);
    wait(&mut set, "50>accept", 1.0);
    wait_for(&mut set, "60>unix:70", (70, "helper"), 1.0);
    wait(&mut set, "70>timer", 1.0);
    let (said, culprit) = followed(&set);
    assert_eq!(culprit, Some(70));
    let words = "of its 4 threads 3 wait for a pipe of worker (60), which waits for a Unix socket of helper (70), which sleeps \
                 on a timer";
    assert_eq!(said, words);
}

#[test]
fn whoever_of_a_program_on_the_way_waits_to_be_asked_holds_nothing() {
    // A daemon of FUSE: as many of its threads wait for a store as threads of the service wait for it, or fewer.
    let daemon = |waits: f64, idle: &str| {
        let mut set = service(4.0);
        wait_for(&mut set, "50>fuse:60", (60, "blobfs"), 4.0);
        wait_for(&mut set, "60>tcp:70", (70, "blobstore"), waits);
        wait(&mut set, idle, 1.0);
        wait(&mut set, "60>futex", 1.0);
        wait(&mut set, "70>frozen", 1.0);
        followed(&set).1
    };
    assert_eq!(daemon(4.0, "60>client"), Some(70));
    assert_eq!(daemon(1.0, "60>client"), Some(60), "what the others wait for is not known");
    assert_eq!(daemon(4.0, "60>timer"), Some(60), "nor what this one does");
}

#[test]
fn whoever_certainly_stands_still_at_the_end_of_waits_is_named_past_threads_that_do_something_else() {
    // A service with an acceptor logs to a daemon with a timer, which writes to one that waits for a lock.
    let log = |holder: &str| {
        let mut set = service(4.0);
        wait_for(&mut set, "50>unix:60", (60, "rsyslogd"), 1.0);
        wait(&mut set, "50>futex", 3.0);
        wait(&mut set, "50>accept", 1.0);
        wait_for(&mut set, "60>pipe:70", (70, "forward"), 1.0);
        wait(&mut set, "60>timer", 1.0);
        if holder == "lock" {
            wait_for(&mut set, "70>lock:80", (80, "seal-keys"), 1.0);
            wait(&mut set, "80>pipe", 1.0);
        } else {
            wait(&mut set, &format!("70>{holder}"), 1.0);
        }
        set
    };
    let (said, culprit) = followed(&log("lock"));
    assert_eq!(culprit, Some(80), "{said}");
    assert!(said.contains("a lock of a file that seal-keys (80) holds"), "{said}");
    assert_eq!(followed(&log("stopped")).1, Some(70));
    // Whoever is idle may have nothing to do with it.
    assert_eq!(followed(&log("poll")).1, None);
    assert_eq!(followed(&log("timer")).1, None);
    // So may be one of two that are waited for.
    let mut set = log("lock");
    wait_for(&mut set, "60>tcp:90", (90, "mirror"), 1.0);
    assert_eq!(followed(&set).1, None);
}

#[test]
fn who_tries_for_a_lock_again_and_again_waits_for_its_holder_most_likely() {
    let mut set = service(3.0);
    wait_for(&mut set, "50>tries:60", (60, "rates-import"), 3.0);
    wait(&mut set, "60>timer", 1.0);
    let (said, culprit) = followed(&set);
    assert_eq!(culprit, Some(60), "{said}");
    assert!(
        said.contains("a lock of a file that rates-import (60) holds, by trying again and again"),
        "{said}"
    );
}

#[test]
fn whoever_does_not_read_what_a_service_sends_is_followed() {
    // A runtime whose requests are not its threads.
    let sends = |open: f64| {
        let mut set = service(open);
        wait(&mut set, "50>accept", 1.0);
        wait(&mut set, "50>futex", 4.0);
        wait_for(&mut set, "50>unread:60", (60, "mobile-sync"), 1.0);
        wait_for(&mut set, "60>pipe:70", (70, "import-worker"), 1.0);
        wait(&mut set, "70>timer", 1.0);
        set
    };
    let words = "mobile-sync (60) does not read what it is sent, which waits for a pipe of import-worker (70), which sleeps on a \
                 timer";
    assert_eq!(followed(&sends(3.0)), (words.to_owned(), Some(70)));
    assert_eq!(followed(&sends(20.0)).1, None, "others wait for something else");
    let mut set = sends(3.0);
    wait_for(&mut set, "50>unread:61", (61, "web-sync"), 1.0);
    assert_eq!(followed(&set).1, None, "two do not read");
}

#[test]
fn workers_are_followed_through_a_proxy_to_the_client_that_does_not_read() {
    let kept = |second: &str| {
        let mut set = service(50.0);
        series(&mut set, "listener.queue", SERVICE, vec![46.0; SECONDS]);
        wait_for(&mut set, "50>tcp:60", (60, "nginx"), 2.0);
        wait_for(&mut set, "50>tcp:61", (61, second), 2.0);
        wait(&mut set, "50>accept", 1.0);
        for proxy in [60, 61] {
            wait(&mut set, &format!("{proxy}>accept"), 1.0);
            wait_for(&mut set, &format!("{proxy}>unread:70"), (70, "mirror"), 2.0);
        }
        // It reads from one of them at times.
        wait_for(&mut set, "70>tcp:60", (60, "nginx"), 2.0);
        wait(&mut set, "70>timer", 4.0);
        set
    };
    let (said, culprit) = followed(&kept("nginx"));
    assert_eq!(culprit, Some(70), "{said}");
    assert!(
        said.contains("mirror (70) does not read what it is sent") && said.ends_with("sleeps on a timer"),
        "{said}"
    );
    assert_eq!(followed(&kept("haproxy")).1, None, "two programs");
}

#[test]
fn a_thread_that_writes_into_a_full_pipe_holds_up_all_of_a_runtime() {
    let writes = |other: &str| {
        let mut set = service(40.0);
        wait_for(&mut set, "50>full:60", (60, "log-shipper"), 1.0);
        wait(&mut set, "50>futex", 4.0);
        wait(&mut set, &format!("50>{other}"), 1.0);
        wait_for(&mut set, "60>tcp:70", (70, "collector"), 1.0);
        wait(&mut set, "70>timer", 1.0);
        set
    };
    let (said, culprit) = followed(&writes("poll"));
    assert_eq!(culprit, Some(70), "{said}");
    assert!(said.contains("a full pipe that log-shipper (60) does not read from"), "{said}");
    assert_eq!(followed(&writes("disk")).1, None, "one waits for something else");
}

#[test]
fn the_master_of_a_pool_that_waits_for_a_word_of_its_worker_is_in_no_ones_way() {
    let pool = |parent: f64| {
        let mut set = service(8.0);
        for (pid, ppid) in [(50, 1.0), (51, parent)] {
            let row = format!("{pid}@1");
            series(&mut set, "task.tgid", &row, vec![f64::from(pid); SECONDS]);
            series(&mut set, "task.ppid", &row, vec![ppid; SECONDS]);
            text(&mut set, "task.comm", &row, "appd");
        }
        wait_for(&mut set, "50>pipe:51", (51, "appd"), 1.0);
        wait(&mut set, "51>accept", 1.0);
        wait(&mut set, "51>futex", 7.0);
        wait_for(&mut set, "51>full:60", (60, "log-shipper"), 1.0);
        wait(&mut set, "60>timer", 1.0);
        followed(&set).1
    };
    assert_eq!(pool(50.0), Some(60));
    assert_eq!(pool(1.0), None, "another process that it waits for");
}

#[test]
fn one_of_several_that_listen_and_accepts_nothing_is_named() {
    let old = |others: &str, queued: f64| {
        let mut set = service(8.0);
        series(&mut set, "listener.queue", SERVICE, vec![queued; SECONDS]);
        series(&mut set, "listener.pid", SERVICE, vec![51.0; SECONDS]);
        series(&mut set, "task.tgid", "51@1", vec![51.0; SECONDS]);
        text(&mut set, "task.comm", "51@1", "appd");
        wait(&mut set, "50>timer", 2.0);
        wait(&mut set, &format!("51>{others}"), 1.0);
        set
    };
    let (said, culprit) = followed(&old("accept", 24.0));
    assert_eq!(culprit, Some(50), "{said}");
    assert!(
        said.contains("of its 2 processes appd (50) sleeps on a timer and accepts no connection"),
        "{said}"
    );
    assert_eq!(followed(&old("timer", 24.0)).1, None, "they all work so");
    assert_eq!(followed(&old("accept", 0.0)).1, None, "it works for a request");
}

#[test]
fn requests_that_come_and_go_between_two_samples_are_counted_by_how_long_they_wait() {
    let held = |waited_s: f64| {
        let mut set = service(0.0);
        series(&mut set, "service.wait_time", SERVICE, vec![waited_s; SECONDS]);
        wait_for(&mut set, "50>lock:60", (60, "taxer"), 1.25);
        wait(&mut set, "50>cpu", 0.1);
        wait(&mut set, "50>accept", 5.0);
        wait(&mut set, "60>timer", 0.5);
        followed(&set).1
    };
    assert_eq!(held(1.4), Some(60));
    assert_eq!(held(3.0), None, "most requests wait for something else");
}

#[test]
fn children_of_one_name_are_one_wait_and_are_followed_together() {
    let mut set = service(8.0);
    for child in [60, 61, 62, 63] {
        wait_for(&mut set, &format!("50>child:{child}"), (child, "convert"), 1.0);
        wait_for(&mut set, &format!("{child}>pipe:90"), (90, "spooler"), 1.0);
    }
    wait(&mut set, "90>timer", 1.0);
    let words = "of its 4 threads 4 wait for its 4 children convert to end, of whose 4 threads 4 wait for a pipe of spooler \
                 (90), which sleeps on a timer";
    assert_eq!(followed(&set), (words.to_owned(), Some(90)));
    // None of which has most of the requests, and of two names neither has.
    let mut set = service(8.0);
    for child in [60, 61, 62, 63] {
        let comm = if child % 2 == 0 { "convert" } else { "resize" };
        wait_for(&mut set, &format!("50>child:{child}"), (child, comm), 1.0);
        wait(&mut set, &format!("{child}>timer"), 1.0);
    }
    assert_eq!(followed(&set).1, None);
}

#[test]
fn few_threads_that_wait_while_others_have_nothing_to_do_are_not_why_requests_wait() {
    let mut set = service(9.0);
    wait_for(&mut set, "50>pipe:60", (60, "logger"), 1.0);
    wait(&mut set, "50>accept", 7.0);
    wait(&mut set, "60>timer", 1.0);
    let (said, culprit) = followed(&set);
    assert_eq!((said.as_str(), culprit), ("of its 8 threads 1 waits for a pipe of logger (60)", None));
    // Of eight workers six wait for something to do, and two sleep with a request each.
    let mut set = service(2.0);
    wait_for(&mut set, "50>unix:60", (60, "master"), 6.0);
    wait(&mut set, "50>timer", 2.0);
    assert_eq!(followed(&set).1, None);
    // Those that sleep by themselves are in the way of requests too.
    let mut set = service(2.0);
    wait_for(&mut set, "50>pipe:60", (60, "logger"), 1.0);
    wait(&mut set, "50>timer", 7.0);
    assert_eq!(followed(&set).1, None);
}

#[test]
fn threads_that_wait_for_others_of_their_process_wait_for_whom_these_wait() {
    let mut set = service(9.0);
    wait_for(&mut set, "50>pipe:60", (60, "helper"), 1.0);
    wait(&mut set, "50>futex", 4.0);
    wait(&mut set, "60>timer", 1.0);
    let words = "of its 5 threads 1 waits (and 4 for others of these) for a pipe of helper (60), which sleeps on a timer";
    assert_eq!(followed(&set), (words.to_owned(), Some(60)));
    wait(&mut set, "50>client", 0.09);
    assert_eq!(followed(&set).1, Some(60), "between two requests");
    wait(&mut set, "50>client", 1.0);
    assert_eq!(followed(&set).1, None, "one has nothing to do");
}

#[test]
fn a_thread_that_fetches_the_answers_for_all_others_waits_for_who_gives_them() {
    let client = |waits: f64, answers: f64| {
        let mut set = service(9.0);
        wait_for(&mut set, "50>answer:60", (60, "python3"), 1.0);
        wait(&mut set, "50>futex", 9.0);
        wait(&mut set, "50>accept", 20.0);
        wait(&mut set, "50>cpu", 0.2);
        wait(&mut set, "60>timer", 1.0);
        series(&mut set, "service.requests", "127.0.0.1:81", vec![answers; 4]);
        series(&mut set, "service.pid", "127.0.0.1:81", vec![60.0; 4]);
        series(&mut set, "dependency.requests", "50>127.0.0.1:81", vec![answers; 4]);
        series(&mut set, "dependency.wait_time", "50>127.0.0.1:81", vec![waits; 4]);
        set
    };
    assert_eq!(followed(&client(0.5, 7.0)).1, Some(60));
    assert_eq!(followed(&client(0.0, 0.0)).1, None, "nothing was asked");
}

#[test]
fn nobody_is_named_where_several_could_end_the_wait_or_it_is_elsewhere() {
    for (row, words) in [
        ("50>pipe", "its only thread waits for a pipe, and who is at its other end is not certain"),
        ("50>tcp:10.0.0.7:5432", "its only thread waits for a connection with 10.0.0.7:5432"),
    ] {
        let mut set = service(9.0);
        wait(&mut set, row, 1.0);
        assert_eq!(followed(&set), (words.to_owned(), None));
    }
    assert_eq!(followed(&service(9.0)), (String::new(), None), "it was not looked at");
}

#[test]
fn the_thread_that_holds_a_mutex_is_followed() {
    let mut set = service(9.0);
    wait(&mut set, "50>mutex:7f10", 3.0);
    text(&mut set, "wait.tids", "50>mutex:7f10", "51,52,53");
    series(&mut set, "lock.pid", "mutex:50:7f10", vec![54.0; SECONDS]);
    wait_for(&mut set, "50>pipe:60", (60, "worker"), 1.0);
    text(&mut set, "wait.tids", "50>pipe:60", "54");
    wait(&mut set, "60>stopped", 1.0);
    let words = "of its 4 threads 3 wait for a mutex that its thread 54 holds, which waits for a pipe of worker (60), which is \
                 stopped by a signal or a debugger";
    assert_eq!(followed(&set), (words.to_owned(), Some(60)));
}

/// Who waits to be asked holds nothing: the other thread does.
#[test]
fn the_thread_that_works_holds_the_lock_of_a_file() {
    let mut set = SeriesSet::default();
    wait(&mut set, "60>accept", 1.0);
    wait_for(&mut set, "60>sends:70", (70, "display"), 1.0);
    wait(&mut set, "70>stopped", 1.0);
    let none = SeriesSet::default();
    let holder = |set: &SeriesSet| {
        let walk = of_holder(&View::new(set, Span::ALL, &none, None), 60, None, Span::ALL)?;
        Some((walk.culprit()?.0, walk.words()))
    };
    let (pid, words) = holder(&set).unwrap();
    assert!(pid == 70 && words.ends_with("which is stopped by a signal or a debugger"), "{words}");
    wait(&mut set, "60>timer", 1.0);
    assert_eq!(holder(&set), None, "the one that sleeps may hold it");
}

#[test]
fn a_process_that_does_something_else_too_is_where_the_walk_ends() {
    for (row, words) in [
        ("60>timer", ", of whose 2 threads 1 waits for a pipe of logger (70)"),
        ("60>pipe", ", of whose 2 threads 1 waits for a pipe, and who is at its other end is not certain"),
    ] {
        let mut set = service(9.0);
        wait_for(&mut set, "50>pipe:60", (60, "worker"), 3.0);
        wait(&mut set, row, 1.0);
        if row == "60>timer" {
            wait_for(&mut set, "60>pipe:70", (70, "logger"), 1.0);
        } else {
            wait(&mut set, "60>timer", 1.0);
        }
        wait(&mut set, "70>accept", 1.0);
        let (said, culprit) = followed(&set);
        assert_eq!(culprit, Some(60), "{said}");
        assert!(said.ends_with(words), "{said}");
    }
}

/// Two processes that read from each other; what else the second one does.
fn circle(set: &mut SeriesSet, more: Option<&str>) -> Option<Vec<u32>> {
    wait_for(set, "50>unix:60", (60, "worker"), 1.0);
    wait_for(set, "60>pipe:50", (50, "appd"), 1.0);
    more.map(|row| wait(set, row, 1.0));
    let none = SeriesSet::default();
    knot(&View::new(set, Span::ALL, &none, None)).map(|knot| knot.core)
}

#[test]
fn a_circle_in_which_nothing_moves_has_nobody_at_its_end() {
    let mut set = service(9.0);
    assert_eq!(circle(&mut set, None), Some(vec![50, 60]));
    let (said, culprit) = followed(&set);
    let words = "its only thread waits for a Unix socket of worker (60), which waits for a pipe of appd (50)";
    assert_eq!((said.as_str(), culprit), (words, None));
    assert_eq!(circle(&mut service(9.0), Some("60>futex")), Some(vec![50, 60]), "of its own threads");
}

#[test]
fn who_only_waits_for_a_circle_is_not_its_culprit() {
    let mut set = service(9.0);
    wait_for(&mut set, "40>lock:60", (60, "worker"), 1.0);
    assert_eq!(circle(&mut set, None), Some(vec![50, 60]));
    let none = SeriesSet::default();
    let view = View::new(&set, Span::ALL, &none, None);
    let knot = knot(&view).unwrap();
    assert_eq!(knot.first(&view), (Some(50), Some("appd".to_owned())));
    assert!(knot.rows.contains(&"40>lock:60"));
}

#[test]
fn whoever_may_still_do_something_is_in_no_circle() {
    for more in ["60>timer", "60>accept", "60>cpu", "60>pipe"] {
        assert_eq!(circle(&mut service(9.0), Some(more)), None, "{more}");
    }
    let mut moves = service(9.0);
    series(&mut moves, STUCK, "60>pipe:50", vec![0.5; SECONDS]);
    wait_for(&mut moves, "50>unix:60", (60, "worker"), 1.0);
    series(&mut moves, WAITS, "60>pipe:50", vec![1.0; SECONDS]);
    series(&mut moves, "wait.pid", "60>pipe:50", vec![50.0; SECONDS]);
    let none = SeriesSet::default();
    assert!(knot(&View::new(&moves, Span::ALL, &none, None)).is_none());
}
