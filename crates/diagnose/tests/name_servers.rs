//! Name servers that are slow or do not answer, and their look-alikes.

#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use support::network::{culprit, is_silent, qdisc, serving, text};
use support::{HEALTHY, INCIDENT, Machine, each, is_on, root};

/// A name server that takes a second and a half for some questions.
fn resolver(m: &mut Machine, wait: f64, answers: f64, unanswered: f64) {
    let row = "10.9.0.1:53@web";
    m.row("resolver.queries", row, 70.0, answers + unanswered).row("resolver.answers", row, 70.0, answers);
    m.row("resolver.unanswered", row, 0.0, unanswered).row("resolver.wait_time", row, 0.07, wait);
    m.values("resolver.pid", row, HEALTHY, vec![50.0; INCIDENT]);
    text(m, "resolver.comm", row, "orderd");
}

#[test]
fn a_name_server_that_got_slow_is_named_by_its_address() {
    // Late answers; and questions that nobody answers.
    for (wait, answers, unanswered) in [(9.0, 6.0, 0.0), (1.5, 0.0, 1.0)] {
        let mut m = serving();
        resolver(&mut m, wait, answers, unanswered);
        let report = m.explain();
        assert_eq!(root(&report).0, "resolver-slow");
        assert_eq!(culprit(&report).address.as_deref(), Some("10.9.0.1:53"));
        assert_eq!(culprit(&report).process, None, "who waits is a victim");
        assert!(report.incidents[0].root_cause.remarks.join(" ").contains("orderd (50)"));
    }
    // It is a program of this machine.
    let mut m = serving();
    resolver(&mut m, 9.0, 6.0, 0.0);
    m.values("listener.pid", "10.9.0.1:53@dns", 0, vec![70.0; HEALTHY + INCIDENT + 20]);
    text(&mut m, "listener.comm", "10.9.0.1:53@dns", "named");
    let report = m.explain();
    assert_eq!((culprit(&report).process.as_deref(), culprit(&report).pid), (Some("named"), Some(70)));
}

#[test]
fn the_server_that_a_forwarder_asks_in_turn_is_named_where_that_got_slow() {
    let forwarded = |wait: f64, asked: f64| {
        let mut m = serving();
        resolver(&mut m, 9.0, 6.0, 0.0);
        let next = "10.9.0.2:53";
        m.row("resolver.queries", next, asked, 5.0).row("resolver.answers", next, asked, 5.0);
        m.row("resolver.unanswered", next, 0.0, 0.0).row("resolver.wait_time", next, 0.06, wait);
        m.values("resolver.pid", next, HEALTHY, vec![90.0; INCIDENT]);
        text(&mut m, "resolver.comm", next, "dnsmasq");
        m.explain()
    };
    let report = forwarded(6.0, 60.0);
    assert_eq!(root(&report).0, "resolver-slow");
    assert_eq!(culprit(&report).address.as_deref(), Some("10.9.0.2:53"));
    let statement = &report.incidents[0].root_cause.statement;
    assert!(
        statement.contains("dnsmasq (90), which most likely answers there, waits for 10.9.0.2:53 in turn"),
        "{statement}"
    );
    // It is as quick as ever; or it is hardly asked, for somebody else.
    assert_eq!(culprit(&forwarded(0.005, 60.0)).address.as_deref(), Some("10.9.0.1:53"));
    assert_eq!(culprit(&forwarded(6.0, 4.0)).address.as_deref(), Some("10.9.0.1:53"));
}

#[test]
fn a_program_that_was_stopped_when_a_name_server_of_this_machine_got_slow_is_named() {
    let stopped = |address: &str, stopped_from: usize| {
        let mut m = serving();
        m.row("resolver.queries", address, 70.0, 6.0).row("resolver.answers", address, 70.0, 6.0);
        m.row("resolver.unanswered", address, 0.0, 0.0).row("resolver.wait_time", address, 0.07, 9.0);
        let state = |i: usize| f64::from(if i >= stopped_from { b'T' } else { b'S' });
        m.task(90, "dnsmasq", 0).values("task.state", &support::row(90), 0, each(state));
        let report = m.explain();
        assert_eq!(root(&report).0, "resolver-slow");
        culprit(&report).process.clone()
    };
    assert_eq!(stopped("127.0.0.53:53", HEALTHY).as_deref(), Some("dnsmasq"));
    assert_eq!(stopped("127.0.0.53:53", 3), None, "it was stopped long before");
    assert_eq!(stopped("10.9.0.1:53", HEALTHY), None, "that is another machine");
}

#[test]
fn questions_that_are_answered_only_when_they_are_asked_again_were_lost() {
    // One in twelve, a second later: on average each takes less than a tenth of a second.
    let lossy = |before: f64| {
        let mut m = serving();
        resolver(&mut m, 0.85, 10.0, 0.0);
        m.row("resolver.latency_le_1s", "10.9.0.1:53@web", before, 0.85);
        m
    };
    let report = lossy(0.0).explain();
    assert_eq!(root(&report).0, "resolver-slow");
    let statement = &report.incidents[0].root_cause.statement;
    assert!(statement.contains("had one after half a second or more"), "{statement}");
    // As many took as long before: the server asks others for them.
    is_silent(&lossy(6.0));
}

#[test]
fn more_questions_for_the_same_work_are_a_search_list_and_no_slow_server() {
    let told = |calls: f64, asker: f64| {
        let mut m = serving();
        let row = "10.9.0.1:53@web";
        m.row("resolver.queries", row, 12.0, 60.0).row("resolver.answers", row, 12.0, 60.0);
        m.row("resolver.unanswered", row, 0.0, 0.0).row("resolver.wait_time", row, 0.2, 1.05);
        m.row("dependency.requests", "50>10.9.0.7:80@web", 12.0, calls);
        m.values("resolver.pid", row, 0, each(|i| if is_on(i) { asker } else { 50.0 }));
        text(&mut m, "resolver.comm", row, "cart-api");
        text(&mut m, "dependency.comm", "50>10.9.0.7:80@web", "cart-api");
        m
    };
    let report = told(12.0, 50.0).explain();
    assert_eq!(root(&report), ("dns-query-growth", Some("cart-api"), Some(50)));
    let statement = &report.incidents[0].root_cause.statement;
    assert!(
        statement.contains("60 questions a second instead of 12.0") && statement.contains("5.0 times"),
        "{statement}"
    );
    // It does five times as much; another program asks now.
    is_silent(&told(60.0, 50.0));
    is_silent(&told(12.0, 51.0));
    // What is asked in addition is asked elsewhere: 42 ms each. At 120 ms one in ten may take so long that it is asked again.
    let late = |waits: f64| {
        let mut late = told(12.0, 50.0);
        late.row("resolver.wait_time", "10.9.0.1:53@web", 0.2, waits);
        late.explain()
    };
    let report = late(2.5);
    assert_eq!(root(&report), ("dns-query-growth", Some("cart-api"), Some(50)));
    let said =
        |words: &str| report.incidents[0].root_cause.remarks.iter().any(|remark| remark.contains(words));
    assert!(
        said("an answer takes 41.7 ms instead of 16.7 ms"),
        "{:?}",
        report.incidents[0].root_cause.remarks
    );
    assert!(late(7.2).incidents.iter().all(|incident| incident.root_cause.condition != "dns-query-growth"));
}

#[test]
fn one_lost_datagram_and_servers_that_hardly_anybody_asked_are_no_slow_server() {
    // Two questions of five seconds each.
    let mut m = serving();
    let row = "10.9.0.1:53@web";
    resolver(&mut m, 0.0, 2.0, 0.0);
    let once = |n: f64| {
        (0..HEALTHY + INCIDENT + 20)
            .map(|i| if i == HEALTHY + 6 || i == HEALTHY + 12 { n } else { 0.0 })
            .collect::<Vec<f64>>()
    };
    m.values("resolver.unanswered", row, 0, once(1.0)).values("resolver.wait_time", row, 0, once(5.0));
    m.row("resolver.latency_le_256ms", row, 0.0, 0.0);
    is_silent(&m);
    // One of the many servers that a resolver asks.
    let mut m = serving();
    resolver(&mut m, 9.0, 6.0, 0.0);
    m.row("resolver.queries", row, 0.1, 6.0).row("resolver.answers", row, 0.1, 6.0);
    m.row("resolver.wait_time", row, 0.001, 9.0);
    m.row("resolver.queries", "10.9.0.7:53@web", 300.0, 300.0);
    is_silent(&m);
    // A program that answers others itself asks it.
    let mut m = serving();
    resolver(&mut m, 9.0, 6.0, 0.0);
    m.values("listener.pid", "0.0.0.0:53/udp@web", HEALTHY, vec![50.0; INCIDENT]);
    is_silent(&m);
}

#[test]
fn a_server_that_answers_nothing_any_more_is_named_while_programs_still_wait() {
    let silent = |seconds: usize| {
        let mut m = serving();
        resolver(&mut m, 0.0, 70.0, 0.0);
        let row = "10.9.0.1:53@web";
        let lasting = |healthy: f64, silent: f64| {
            (0..HEALTHY + INCIDENT + 20)
                .map(|i| if (HEALTHY..HEALTHY + seconds).contains(&i) { silent } else { healthy })
                .collect::<Vec<f64>>()
        };
        m.values("resolver.wait_time", row, 0, lasting(0.07, 1.0));
        m.values("resolver.answers", row, 0, lasting(70.0, 0.0));
        m.values("resolver.queries", row, 0, lasting(70.0, 0.0));
        m.explain()
    };
    let report = silent(9);
    assert_eq!(report.incidents.len(), 1, "{:#?}", report.incidents);
    let found = &report.incidents[0].root_cause;
    assert_eq!(found.condition, "resolver-slow");
    assert!(found.statement.contains("no answer has come"), "{}", found.statement);
    // The second question, after five seconds, was answered.
    assert!(silent(5).incidents.is_empty());
}

#[test]
fn a_server_that_answers_nothing_any_more_is_named_by_a_single_question() {
    let row = "10.9.0.1:53@web";
    let given_up = |n: f64| {
        (0..HEALTHY + INCIDENT + 20).map(|i| if i == HEALTHY + 8 { n } else { 0.0 }).collect::<Vec<f64>>()
    };
    for (answers, is_silenced) in [(0.0, true), (2.0, false)] {
        let mut m = serving();
        resolver(&mut m, 0.0, answers, 0.0);
        m.values("resolver.unanswered", row, 0, given_up(1.0));
        m.values("resolver.wait_time", row, 0, given_up(8.0));
        m.row("resolver.latency_le_256ms", row, 0.0, 0.0);
        if is_silenced {
            let report = m.explain();
            assert_eq!(report.incidents.len(), 1, "{:#?}", report.incidents);
            assert_eq!(report.incidents[0].root_cause.condition, "resolver-slow");
            assert_eq!(culprit(&report).address.as_deref(), Some("10.9.0.1:53"));
        } else {
            // Others were answered meanwhile: it was lost on the way.
            is_silent(&m);
        }
    }
}

#[test]
fn many_quick_answers_are_no_slow_server() {
    let mut m = serving();
    resolver(&mut m, 1.2, 900.0, 0.0);
    is_silent(&m);
}

#[test]
fn questions_that_the_own_queue_drops_are_not_the_servers_fault() {
    let mut m = serving();
    qdisc(&mut m);
    resolver(&mut m, 5.0, 1.0, 3.0);
    let report = m.explain();
    assert_eq!(root(&report).0, "qdisc-drops");
    assert!(report.incidents[0].chain.iter().any(|l| l.condition == "resolver-slow"));
}
