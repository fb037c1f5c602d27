//! What a store gets of what was recorded while it or `mitra send` was away, and what it does not get.

use super::*;

#[test]
fn what_is_recorded_meanwhile_follows_once() {
    let (url, got) = tcp();
    let place = Place::new(&format!(
        "[[output]]\nto = \"graphite\"\nurl = \"{url}\"\nevery = \"1s\"\nmetrics = [\"sys.ctxt\"]\n"
    ));
    let mut recorder = Recorder::start(&place.path("archive"), 30);
    let mut sending = place.started(&[]);
    assert!(sending.line().contains("to graphite"));
    wait_until("it knows the end", || place.position("graphite", "/until_ns").is_i64());
    let seconds = || {
        let lines = got.lock().unwrap();
        lines.iter().map(|line| line.rsplit(' ').next().unwrap().parse::<i64>().unwrap()).collect::<Vec<_>>()
    };
    for part in 1..=3 {
        (0..20).for_each(|_| recorder.tick());
        // The last one waits for the next, which ends its interval.
        wait_until("they are sent", || seconds().len() >= part * 20 - 1);
    }
    let (status, err) = sending.end(Signal::TERM);
    assert!(status.success(), "{err}");
    recorder.writer.finish().unwrap();
    let held = Reader::open(&place.path("archive")).unwrap();
    let set = held.read(&Query::new(Span::ALL, vec![lookup("sys.ctxt").unwrap()])).unwrap();
    let times = set.system("sys.ctxt").unwrap().axis.t.iter().map(|t| t / SECOND).collect::<Vec<_>>();
    assert_eq!(seconds(), times[30..89]);
    // It goes on where it was.
    let again = place.send(&["--once"]);
    assert_eq!((again.code, seconds()), (0, times[30..].to_vec()), "{}", again.err);
}

#[test]
fn what_is_refused_is_dropped_and_what_is_not_taken_is_tried_again() {
    let ((strict, refused), (busy, taken)) = (http(&[400]), http(&[503, 429, 204]));
    let table = |name: &str, url: &str| {
        format!("[[output]]\nname = \"{name}\"\nto = \"influx\"\nurl = \"{url}\"\nmetrics = [\"mem.free\"]\n")
    };
    let place = Place::new(&(table("strict", &strict) + &table("busy", &busy))).recorded(25);
    let said = place.send(&["--once"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("output strict: samples are refused and not sent again, "), "{}", said.err);
    assert!(said.err.contains("output busy: HTTP 503; tried again in"), "{}", said.err);
    let count = place.tally("busy", "sent");
    assert_eq!((place.tally("strict", "refused"), place.tally("strict", "sent")), (count, 0));
    assert!((3..=4).contains(&count) && place.tally("busy", "failed") == 2, "{count}");
    assert!(refused.lock().unwrap().iter().all(|body| !body.is_empty()));
    let bodies = taken.lock().unwrap();
    assert!(bodies[0] == bodies[1] && bodies[1] == bodies[2], "another request");
    let line = String::from_utf8(bodies[2].clone()).unwrap();
    assert!(line.starts_with("mitra_mem,host=simulated free_bytes="), "{line}");
}

#[test]
fn what_lies_too_far_back_is_given_up_and_counted() {
    let (url, got) = tcp();
    let table = format!(
        "[[output]]\nto = \"graphite\"\nurl = \"{url}\"\nevery = \"1s\"\nkeep = \"1m\"\nmetrics = [\"sys.ctxt\"]\n"
    );
    let place = Place::new(&table).recorded(200);
    place.has_come("graphite", place.span().since);
    let said = place.send(&["--once"]);
    assert!(said.code == 0 && said.err.contains("more than 60 s back is given up"), "{}", said.err);
    let (lines, dropped_s) = (got.lock().unwrap().len(), place.tally("graphite", "dropped_s"));
    assert!((59..=61).contains(&lines) && (138..=140).contains(&dropped_s), "{lines} lines, {dropped_s} s");
}

#[test]
fn what_the_archive_deleted_before_it_was_sent_is_said_and_counted_once() {
    let (url, got) = tcp();
    let table =
        format!("[[output]]\nto = \"graphite\"\nurl = \"{url}\"\nevery = \"1s\"\nmetrics = [\"sys.ctxt\"]\n");
    let place = Place::new(&table).recorded(30);
    place.has_come("graphite", place.span().since - 50 * SECOND);
    for is_said in [true, false] {
        let said = place.send(&["--once"]);
        assert_eq!(said.code, 0, "{}", said.err);
        let what = "output graphite: the archive deleted 50 s before they were sent";
        assert_eq!(said.err.contains(what), is_said, "{}", said.err);
        let (lines, dropped_s) = (got.lock().unwrap().len(), place.tally("graphite", "dropped_s"));
        assert!((29..=30).contains(&lines) && dropped_s == 50, "{lines} lines, {dropped_s} s");
    }
}
