use super::*;

/// A store that a client asks a hundred times a second, and then another one with a command that takes 0.7 s, again and again.
fn kept() -> Traffic {
    let is_kept = |i: usize| i >= 5;
    let each = |usual: f64, kept: f64| (0..16).map(|i| if is_kept(i) { kept } else { usual }).collect();
    Traffic {
        t: (1..=16).map(|i| i * SECOND).collect(),
        dt: vec![1.0; 16],
        answered: vec![0.0; 16],
        requests: each(97.0, 48.0),
        // Now and then more of them wait.
        waiting: (0..16)
            .map(|i| {
                if !is_kept(i) {
                    0.006
                } else if i > 10 {
                    1.4
                } else {
                    1.0
                }
            })
            .collect(),
        kept: Vec::new(),
        opened: Vec::new(),
        p50: each(0.000_06, 0.000_04),
        p90: each(0.000_1, 0.000_1),
        p99: each(0.000_2, 0.7),
    }
}

#[test]
fn what_may_be_late_is_not_what_is_usual() {
    let whole = Span { since: 0, until: 20 * SECOND };
    let usual = kept().before_late(whole).and_then(|before| before.usual()).expect("five good seconds");
    assert!(usual.p99 < 0.001 && usual.rate > 90.0, "{usual:?}");
}

#[test]
fn what_got_dearer_and_is_still_fast_has_a_usual_too() {
    let each = |before: f64, after: f64| (0..18).map(|i| if i < 8 { before } else { after }).collect();
    let all = Traffic {
        t: (1..=18).map(|i| i * SECOND).collect(),
        dt: vec![1.0; 18],
        answered: vec![0.0; 18],
        requests: each(70.0, 58.0),
        waiting: each(0.01, 0.3),
        kept: Vec::new(),
        opened: Vec::new(),
        p50: each(0.000_12, 0.0047),
        p90: each(0.000_2, 0.008),
        p99: each(0.003, 0.011),
    };
    let whole = Span { since: 0, until: 18 * SECOND };
    let usual = all.before_late(whole).and_then(|before| before.usual()).expect("eight good seconds");
    assert!(usual.p50 < 0.001, "{usual:?}");
    assert!(all.dearer(&usual).is_some() && all.slow(&usual).is_err());
}

#[test]
fn more_of_what_always_took_long_is_not_late() {
    // Polls of three seconds: one request in a hundred, and then one in ten, of which several wait.
    let polled = |p99: f64| {
        let each = |usual: f64, more: f64| (0..16).map(|i| if i < 8 { usual } else { more }).collect();
        let all = Traffic {
            t: (1..=16).map(|i| i * SECOND).collect(),
            dt: vec![1.0; 16],
            answered: vec![0.0; 16],
            requests: vec![50.0; 16],
            waiting: each(2.0, 15.0),
            kept: Vec::new(),
            opened: Vec::new(),
            p50: vec![0.001; 16],
            p90: each(0.001, 3.1),
            p99: each(p99, 3.4),
        };
        all.slow(&all.until(8 * SECOND).usual().expect("eight good seconds"))
    };
    assert!(polled(3.3).is_err());
    assert_eq!(polled(0.003).expect("late").late, Late::Tail);
}

#[test]
fn of_what_takes_longer_than_it_was_watched_nobody_knows_whether_it_is_late() {
    // Polls of three seconds, of which the first ones are still open at the end of what is known.
    let begun = |pile: f64| {
        let mut all = Traffic {
            t: (1..=16).map(|i| i * SECOND).collect(),
            dt: vec![1.0; 16],
            answered: vec![0.0; 16],
            requests: vec![50.0; 16],
            waiting: (0..16).map(|i| 1.0 + pile * f64::from(i).min(3.0)).collect(),
            kept: Vec::new(),
            opened: Vec::new(),
            p50: vec![0.001; 16],
            p90: vec![0.001; 16],
            p99: vec![0.002; 16],
        };
        all.p90[3..].fill(3.1);
        all.p99[3..].fill(3.4);
        all.waiting[4..].iter_mut().for_each(|waiting| *waiting += 5.0);
        all.slow(&all.until(3 * SECOND).usual().expect("three good seconds")).is_ok()
    };
    assert!(!begun(7.0));
    assert!(begun(0.1));
}

#[test]
fn what_was_not_looked_at_took_what_it_took_before() {
    let nan = f64::NAN;
    let carried = carried(vec![nan, 2.0, nan, nan, 3.0, nan], &[5.0, 5.0, 5.0, 0.0, 5.0, 5.0]);
    assert!(
        carried[0].is_nan() && carried[3].is_nan(),
        "nothing is known, and nothing was asked: {carried:?}"
    );
    assert_eq!([1, 2, 4, 5].map(|i| carried[i]), [2.0, 2.0, 3.0, 3.0]);
}

#[test]
fn long_polls_of_clients_who_came_together_end_together() {
    // Twelve of them are open all the time, and a second in which several end has one answer in ten late.
    let polled = |waiting: f64, p99: fn(usize) -> f64| {
        let all = Traffic {
            t: (1..=32).map(|i| i * SECOND).collect(),
            dt: vec![1.0; 32],
            answered: vec![0.0; 32],
            requests: vec![50.0; 32],
            waiting: (0..32).map(|i| if i < 16 { waiting } else { waiting + 40.0 }).collect(),
            p50: vec![0.000_4; 32],
            p90: (0..32).map(|i| if i < 16 { 0.000_5 } else { 8.0 }).collect(),
            p99: (0..32).map(|i| if i < 16 { p99(i) } else { 8.0 }).collect(),
            ..Traffic::default()
        };
        all.slow(&all.until(16 * SECOND).usual().expect("sixteen good seconds")).is_ok()
    };
    assert!(polled(0.1, |_| 0.001), "nobody waited for so long before");
    assert!(!polled(12.0, |_| 0.001), "how long those take that wait is not known");
    assert!(!polled(0.1, |i| if i % 4 == 0 { 8.0 } else { 0.001 }), "some always took so long");
}

#[test]
fn whoever_waited_and_was_answered_did_not_stand_all_the_time() {
    let of = |answered: f64| {
        let is_on = |i: usize| i >= 12;
        let each = |before: f64, after: f64| (0..32).map(|i| if is_on(i) { after } else { before }).collect();
        Traffic {
            t: (1..=32).map(|i| i * SECOND).collect(),
            dt: vec![1.0; 32],
            answered: each(0.04, answered),
            requests: each(390.0, 90.0),
            waiting: each(0.04, 7.2),
            kept: Vec::new(),
            opened: Vec::new(),
            p50: each(0.000_08, 0.000_1),
            p90: each(0.000_1, 0.000_2),
            p99: each(0.000_4, 0.65),
        }
    };
    let whole = Span { since: 0, until: 40 * SECOND };
    let words = |all: Traffic| {
        let usual = all.before_late(whole).and_then(|before| before.usual()).expect("twelve good seconds");
        all.slow(&usual).expect("it is slow").words()
    };
    assert_eq!(words(of(7.0)), "answered one request in a hundred in 650 ms or more instead of 400 µs");
    assert_eq!(words(of(0.1)), "answered in 20.0 s or more instead of 80 µs");
}
