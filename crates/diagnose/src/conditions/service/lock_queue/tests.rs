use super::*;
use crate::locks::tests::{queue, series, text};

fn observed(set: &SeriesSet) -> Finding {
    let none = SeriesSet::default();
    let view = View::new(set, Span::ALL, &none, None);
    match observe(&view) {
        Observation::Active(finding) => *finding,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_holder_at_the_end_of_the_chain_is_named() {
    let mut set = SeriesSet::default();
    queue(&mut set, "fe:00:1", 10.0, "20,21,22");
    queue(&mut set, "fe:00:2", 11.0, "10");
    let finding = observed(&set);
    assert_eq!(finding.culprit.pid, Some(11));
    assert_eq!(finding.loss_s, Some(18.0));
    assert_eq!(are_queued(&set, Span::ALL).iter().map(Signal::total).collect::<Vec<_>>(), [6.0, 0.0]);
}

#[test]
fn a_mutex_is_asked_of_the_threads_and_not_of_the_files() {
    let mut set = SeriesSet::default();
    queue(&mut set, "mutex:9:7f10", 10.0, "11,12");
    let finding = observed(&set);
    assert_eq!(finding.culprit.pid, Some(9));
    assert!(finding.statement.contains("which thread 10 holds"), "{}", finding.statement);
    assert_eq!(remedies(&finding)[0].command, "gdb -p 9 -batch -ex 'thread apply all bt'");
    assert_eq!(next(&finding)[0].command, "mitra capture locks --pid 9");
}

#[test]
fn the_session_that_is_idle_in_a_transaction_is_named_and_not_those_that_wait() {
    let mut set = SeriesSet::default();
    for (pid, activity) in
        [("31", "UPDATE waiting"), ("32", "UPDATE waiting"), ("33", "idle in transaction"), ("34", "idle")]
    {
        series(&mut set, "session.pid", pid, vec![pid.parse().unwrap(); 8]);
        text(&mut set, "session.activity", pid, activity);
    }
    let finding = observed(&set);
    assert_eq!((finding.culprit.process.as_deref(), finding.culprit.pid), (Some("postgres"), Some(33)));
    assert!(finding.statement.contains("which is idle in a transaction"), "{}", finding.statement);
    assert!(remedies(&finding)[0].command.contains("pg_terminate_backend(33)"));
}

#[test]
fn what_no_session_holds_a_prepared_transaction_may() {
    let mut set = SeriesSet::default();
    for (pid, activity) in [("31", "UPDATE waiting"), ("32", "UPDATE waiting"), ("34", "idle")] {
        series(&mut set, "session.pid", pid, vec![pid.parse().unwrap(); 8]);
        text(&mut set, "session.activity", pid, activity);
    }
    let finding = observed(&set);
    assert!(
        finding.statement.ends_with("a prepared transaction (pg_prepared_xacts) may"),
        "{}",
        finding.statement
    );
    assert!(remedies(&finding)[0].command.contains("ROLLBACK PREPARED"));
    // By the word of the server, which numbers it 0.
    for pid in ["31", "32"] {
        text(&mut set, "session.blocked_by", pid, "0");
    }
    let finding = observed(&set);
    assert!(
        finding.statement.contains("that a prepared transaction (pg_prepared_xacts) holds"),
        "{}",
        finding.statement
    );
    // One that works holds it by turns.
    series(&mut set, "session.pid", "35", vec![35.0; 8]);
    text(&mut set, "session.activity", "35", "UPDATE");
    for pid in ["31", "32"] {
        text(&mut set, "session.blocked_by", pid, "35");
    }
    assert!(!observed(&set).statement.contains("prepared"));
}

/// Two sessions that wait for a third one, by the word of the server.
fn blocked(server: Option<&str>, holder: &str, activity: &str) -> SeriesSet {
    let mut set = SeriesSet::default();
    let row = |id: &str| server.map_or_else(|| id.to_owned(), |_| format!("4242:{id}"));
    for (id, activity, blocked_by) in [
        ("41", "UPDATE waiting", Some(holder)),
        ("42", "UPDATE waiting", Some("41")),
        (holder, activity, None),
    ] {
        let row = row(id);
        let pid = if server.is_some() { 4242.0 } else { id.parse().unwrap() };
        series(&mut set, "session.pid", &row, vec![pid; 8]);
        series(&mut set, "session.state_time", &row, vec![13.0; 8]);
        text(&mut set, "session.activity", &row, activity);
        text(&mut set, "session.server", &row, server.unwrap_or("postgres"));
        if let Some(blocked_by) = blocked_by {
            text(&mut set, "session.blocked_by", &row, blocked_by);
            text(&mut set, "session.waits_for", &row, "row lock");
        }
    }
    set
}

/// The rows of a thread, or of a process, that waits for another process.
fn wait_for(set: &mut SeriesSet, row: &str, tid: u32, (pid, comm): (u32, &str)) {
    series(set, waits::WAITS, row, vec![1.0; 8]);
    series(set, waits::STUCK, row, vec![1.0; 8]);
    series(set, "wait.pid", row, vec![f64::from(pid); 8]);
    text(set, "wait.comm", row, comm);
    text(set, "wait.tids", row, &tid.to_string());
}

#[test]
fn whoever_a_session_that_works_waits_for_keeps_the_lock() {
    // A dump holds a lock of all tables, and its reader is stopped.
    let dump = |activity: &str, client: Option<f64>| {
        let mut set = blocked(Some("mariadbd"), "43", activity);
        wait_for(&mut set, "4242>unix:60", 4250, (60, "mysqldump"));
        series(&mut set, waits::WAITS, "4242>futex", vec![12.0; 8]);
        wait_for(&mut set, "60>pipe:70", 60, (70, "s3-put"));
        series(&mut set, waits::WAITS, "70>stopped", vec![1.0; 8]);
        if let Some(client) = client {
            series(&mut set, "session.client_pid", "4242:43", vec![client; 8]);
        }
        set
    };
    for client in [None, Some(60.0)] {
        let finding = observed(&dump("SELECT", client));
        assert_eq!((finding.culprit.process.as_deref(), finding.culprit.pid), (Some("s3-put"), Some(70)));
        let words =
            "a Unix socket of mysqldump (60), which waits for a pipe of s3-put (70), which is stopped";
        assert!(finding.statement.contains(words), "{}", finding.statement);
        let commands: Vec<String> = remedies(&finding).into_iter().map(|remedy| remedy.command).collect();
        assert_eq!(commands[0], "kill -CONT 70");
        assert_eq!(commands[1], "mariadb -e 'KILL 43'");
    }
    // A program whose name only begins like that of a server.
    let dumped =
        Finding { statement: "it waits for a lock of mysqldump (60)".to_owned(), ..Finding::default() };
    assert!(!remedies(&dumped)[0].command.starts_with("mysql"));
    // Another client waits, or the session does nothing.
    assert_eq!(observed(&dump("SELECT", Some(61.0))).culprit.pid, Some(4242));
    assert_eq!(observed(&dump("idle in transaction", None)).culprit.pid, Some(4242));
    // Each session of PostgreSQL is a process.
    let mut set = blocked(None, "43", "COPY");
    wait_for(&mut set, "43>unix:60", 43, (60, "pg_dump"));
    series(&mut set, waits::WAITS, "60>timer", vec![1.0; 8]);
    let finding = observed(&set);
    assert_eq!((finding.culprit.process.as_deref(), finding.culprit.pid), (Some("pg_dump"), Some(60)));
    assert_eq!(remedies(&finding)[0].command, "psql -c 'SELECT pg_terminate_backend(43)'");
    // It was not looked at, and its client was: it waits for somebody else, or for what the session says.
    for (activity, other, culprit) in [("COPY", 70, 70), ("idle in transaction", 70, 70), ("COPY", 43, 43)] {
        let mut set = blocked(None, "43", activity);
        series(&mut set, "session.client_pid", "43", vec![60.0; 8]);
        wait_for(&mut set, &format!("60>tcp:{other}"), 60, (other, "tape-gw"));
        assert_eq!(observed(&set).culprit.pid, Some(culprit), "{activity}");
    }
}

#[test]
fn a_client_whose_commands_nobody_types_keeps_its_lock_itself() {
    for (writer, culprit) in [("timer", 43), ("disk", 70)] {
        let mut set = blocked(None, "43", "idle in transaction");
        series(&mut set, "session.client_pid", "43", vec![60.0; 8]);
        wait_for(&mut set, "60>pipe:70", 60, (70, "feed"));
        series(&mut set, waits::WAITS, &format!("70>{writer}"), vec![1.0; 8]);
        assert_eq!(observed(&set).culprit.pid, Some(culprit), "{writer}");
    }
}

#[test]
fn a_client_that_sleeps_between_two_transactions_waits_for_somebody_inside_of_them() {
    let holds = |slept: &str, waited: f64| {
        let mut set = blocked(None, "43", "idle in transaction");
        series(&mut set, "session.client_pid", "43", vec![60.0; 8]);
        wait_for(&mut set, "60>tcp:70", 60, (70, "psp"));
        series(&mut set, waits::WAITS, "60>tcp:70", vec![waited; 8]);
        series(&mut set, waits::WAITS, &format!("60>{slept}"), vec![1.0 - waited; 8]);
        series(&mut set, waits::WAITS, "70>timer", vec![1.0; 8]);
        observed(&set)
    };
    let finding = holds("timer", 0.8);
    assert_eq!(finding.culprit.pid, Some(70));
    assert!(
        finding.statement.contains("a connection with psp (70), which sleeps on a timer"),
        "{}",
        finding.statement
    );
    // It goes on again and again, and its transaction is long.
    for (idle_s, culprit) in [(0.3, 43), (7.5, 70)] {
        let mut set = blocked(None, "43", "idle in transaction");
        series(&mut set, "session.client_pid", "43", vec![60.0; 8]);
        series(&mut set, STATE_TIME, "43", vec![idle_s; 8]);
        wait_for(&mut set, "60>tcp:70", 60, (70, "mail-relay"));
        let finding = observed(&set);
        assert_eq!(finding.culprit.pid, Some(culprit), "{idle_s}");
        let says = finding.remarks.iter().any(|remark| remark.contains("goes on again and again"));
        assert_eq!(says, culprit == 43);
    }
    // Who is idle in a transaction waits for its client.
    let mut set = blocked(None, "43", "idle in transaction");
    series(&mut set, "session.client_pid", "43", vec![60.0; 8]);
    series(&mut set, "task.tgid", "60@1", vec![60.0; 8]);
    text(&mut set, "task.comm", "60@1", "dunning-run");
    let finding = observed(&set);
    assert_eq!((finding.culprit.process.as_deref(), finding.culprit.pid), (Some("dunning-run"), Some(60)));
    assert_eq!(remedies(&finding)[0].command, "psql -c 'SELECT pg_terminate_backend(43)'");
    assert_eq!(holds("timer", 0.3).culprit.pid, Some(43), "it sleeps for most of the time");
    assert_eq!(holds("disk", 0.8).culprit.pid, Some(43), "it waits for something else, too");
}

fn is_queued(set: &SeriesSet) -> bool {
    let none = SeriesSet::default();
    matches!(observe(&View::new(set, Span::ALL, &none, None)), Observation::Active(_))
}

#[test]
fn who_waits_alone_keeps_nobody_waiting_unless_it_serves() {
    let mut set = SeriesSet::default();
    queue(&mut set, "fe:00:1", 10.0, "20");
    series(&mut set, "task.tgid", "20@1", vec![20.0; 8]);
    text(&mut set, "task.comm", "20@1", "appd");
    assert!(!is_queued(&set));
    series(&mut set, "service.requests", "127.0.0.1:80", vec![10.0; 8]);
    series(&mut set, "service.pid", "127.0.0.1:80", vec![20.0; 8]);
    assert!(is_queued(&set));
}

#[test]
fn who_waits_since_it_began_has_queued_on_purpose() {
    let mut set = SeriesSet::default();
    queue(&mut set, "fe:00:1", 10.0, "20,21,22");
    series(&mut set, LOCKS, "fe:00:1", vec![3.0; 8]);
    for pid in ["20", "21", "22"] {
        series(&mut set, "task.tgid", &format!("{pid}@1"), vec![pid.parse().unwrap(); 8]);
        text(&mut set, "task.comm", &format!("{pid}@1"), "flock");
    }
    assert!(observed(&set).is_harmless);
    // They did something else for half of the time, until somebody took the lock.
    series(&mut set, LOCKS, "fe:00:1", [0.0, 3.0].map(|n| [n; 4]).concat());
    assert!(!observed(&set).is_harmless);
}

#[test]
fn sessions_that_wait_for_each_other_s_disk_are_a_convoy() {
    let mut set = SeriesSet::default();
    for (pid, activity) in [("31", "UPDATE waiting"), ("32", "UPDATE waiting"), ("33", "COMMIT")] {
        series(&mut set, "session.pid", pid, vec![pid.parse().unwrap(); 8]);
        text(&mut set, "session.activity", pid, activity);
    }
    series(&mut set, "service.open", "127.0.0.1:5432", vec![3.0; 8]);
    series(&mut set, "service.pid", "127.0.0.1:5432", vec![33.0; 8]);
    text(&mut set, "service.comm", "127.0.0.1:5432", "postgres");
    series(&mut set, "task.tgid", "33@1", vec![33.0; 8]);
    series(&mut set, "task.state", "33@1", vec![f64::from(b'S'); 8]);
    text(&mut set, "task.comm", "33@1", "postgres");
    assert!(is_queued(&set));
    series(&mut set, "task.blkio_delay", "33@1", vec![0.8; 8]);
    assert!(!is_queued(&set));
    // Who idles in a transaction waits for no disk, whatever the others do.
    text(&mut set, "session.activity", "33", "idle in transaction");
    assert!(is_queued(&set));
}

#[test]
fn a_holder_that_waits_for_a_cpu_is_held_up_itself() {
    let mut set = blocked(None, "37", "COMMIT");
    series(&mut set, "task.tgid", "37@1", vec![37.0; 8]);
    text(&mut set, "task.comm", "37@1", "postgres");
    series(&mut set, "task.run_delay", "37@1", vec![0.1; 8]);
    assert!(observed(&set).despite.contains(&"cpu-quota-throttled"));
    series(&mut set, "task.run_delay", "37@1", vec![0.9; 8]);
    assert!(!observed(&set).despite.contains(&"cpu-quota-throttled"));
}

#[test]
fn a_holder_that_waits_for_the_disk_is_held_up_itself() {
    let mut set = blocked(None, "37", "COMMIT");
    series(&mut set, "task.tgid", "37@1", vec![37.0; 8]);
    text(&mut set, "task.comm", "37@1", "postgres");
    let is_the_cause = |set: &SeriesSet| DISK.iter().all(|disk| observed(set).despite.contains(disk));
    series(&mut set, "task.state", "37@1", vec![f64::from(b'S'); 8]);
    assert!(is_the_cause(&set));
    series(&mut set, "task.state", "37@1", vec![f64::from(b'D'); 8]);
    assert!(!is_the_cause(&set));
}

#[test]
fn mariadb_names_the_session_and_it_is_ended_in_its_words() {
    let mut set = blocked(Some("mariadbd"), "37", "idle in transaction");
    text(&mut set, "session.client", "4242:37", "127.0.0.1:4000");
    let finding = observed(&set);
    assert_eq!((finding.culprit.process.as_deref(), finding.culprit.pid), (Some("mariadbd"), Some(4242)));
    assert_eq!(
        finding.statement,
        "up to 2 sessions of mariadbd (4242) wait for row locks that session 37 holds, which is idle in a transaction \
         for 13.0 s, and its client is at 127.0.0.1:4000"
    );
    let commands: Vec<String> = remedies(&finding).into_iter().map(|remedy| remedy.command).collect();
    assert_eq!(commands[0], "mariadb -e 'KILL 37'");
    assert!(commands[1].contains("innodb_lock_wait_timeout"), "{}", commands[1]);
    assert!(next(&finding)[0].command.contains("innodb_lock_waits"));
    let old = blocked(Some("mysqld"), "37", "UPDATE");
    let finding = observed(&old);
    assert!(finding.statement.contains("session 37 holds, which runs UPDATE"), "{}", finding.statement);
    assert!(!remedies(&finding)[1].command.contains("idle_transaction_timeout"));
}

#[test]
fn the_word_of_postgresql_counts_more_than_titles() {
    // By its title the other one would hold them: it is idle in a transaction for as long.
    let mut set = blocked(None, "33", "SELECT");
    series(&mut set, "session.pid", "34", vec![34.0; 8]);
    text(&mut set, "session.activity", "34", "idle in transaction");
    let finding = observed(&set);
    assert_eq!((finding.culprit.process.as_deref(), finding.culprit.pid), (Some("postgres"), Some(33)));
    assert_eq!(
        finding.statement,
        "up to 2 sessions of PostgreSQL wait for row locks that session 33 holds, which runs SELECT for 13.0 s"
    );
    assert!(remedies(&finding)[0].command.contains("pg_terminate_backend(33)"));
}
