//! Whose turn it is, and servers that say nothing.

mod pools;
mod real;

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::wire::{Failure, Wire, keyword, name};
use super::*;

/// Time for what is there already.
pub const LIMIT: Duration = Duration::from_secs(20);

/// A connection to a server that says this, and then no more.
pub fn server(says: &[u8]) -> OwnedFd {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let says = says.to_vec();
    // More than a socket takes; who has heard enough closes it.
    std::thread::spawn(move || {
        _ = theirs.write_all(&says);
        _ = theirs.shutdown(std::net::Shutdown::Write);
        // What is asked of it is read, or the connection would be reset.
        _ = std::io::copy(&mut theirs, &mut std::io::sink());
    });
    ours.set_nonblocking(true).unwrap();
    ours.into()
}

#[test]
fn a_server_that_never_answers_or_answers_drop_by_drop_is_given_up() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut wire = Wire::new(ours.into(), Duration::from_millis(50));
    let late = Failure::Passing("no answer within the time limit".to_owned());
    assert_eq!(wire.take(1), Err(late.clone()));
    let drops = std::thread::spawn(move || while theirs.write_all(b"a").is_ok() {});
    wire.begin(Duration::from_millis(50)).unwrap();
    let endless = wire.take(usize::MAX).unwrap_err();
    assert!(
        matches!(&endless, Failure::Passing(why) if *why == late.why() || why.contains("bytes")),
        "{endless:?}"
    );
    drop(wire);
    drops.join().unwrap();
}

/// What a server says, the pieces of it damaged in many ways: an error or less of it, and never a secret.
#[test]
fn damaged_answers_are_errors_and_tell_nothing() {
    type Reader = fn(&[u8]) -> String;
    let protocols: [(Vec<u8>, Reader); 5] = [
        (postgres::tests::conversation(), postgres::tests::read),
        (mysql::tests::conversation(), mysql::tests::read),
        (redis::tests::conversation(), redis::tests::read_all),
        (haproxy::tests::conversation(), haproxy::tests::read_all),
        (fpm::tests::conversation(), fpm::tests::read_all),
    ];
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |n: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % n as u64).unwrap()
    };
    for (says, read) in protocols {
        let whole = read(&says);
        assert!(whole.contains("53122") || whole.contains("41") || whole.contains("4242"), "{whole}");
        for _ in 0..400 {
            let mut says = says.clone();
            for _ in 0..=below(3) {
                let at = below(says.len());
                match below(4) {
                    0 => says[at] = below(256) as u8,
                    1 => says.truncate(at.max(1)),
                    2 => drop(says.remove(at)),
                    _ => {
                        let piece = says[at..].to_vec();
                        says.splice(at..at, piece.into_iter().take(40));
                    }
                }
                says.push(0);
            }
            let text = read(&says);
            assert!(!text.contains("hunter2"), "{says:?}: {text}");
        }
    }
}

#[test]
fn texts_are_clean() {
    assert_eq!(name(b"table metadata lock"), Some("table metadata lock"));
    for text in [&b""[..], b"\x1b[31m", "\u{202e}".as_bytes(), b"a'b", &[b'a'; 65]] {
        assert_eq!(name(text), None);
    }
    assert_eq!(keyword(b"select(1)"), Some("SELECT"));
    assert_eq!(keyword(b"selection"), None);
    assert_eq!(keyword(b""), None);
}

#[test]
fn only_a_service_with_a_client_that_waits_all_the_time_is_suspect() {
    let mut status = Status::new(true);
    let mut strings = Strings::default();
    let id = strings.intern("unix:/run/mysqld/mysqld.sock");
    let mut t = 0;
    let mut suspects = |requests: i64, wait_ms: i64, open: i64| {
        let mut frame = Frame::new();
        t += 1_000_000_000;
        frame.time.mono = t;
        let row = frame.table_mut(Entity::Service).push(Key::named(id));
        set(row, status.columns.requests, requests);
        set(row, status.columns.wait_time, wait_ms * 1_000_000);
        set(row, status.columns.open, open);
        set(row, status.columns.service_pid, 42);
        status.suspects(&frame, &strings)
    };
    let one = |is_certain| vec![Suspect { pid: 42, comm: NA, is_certain }];
    assert_eq!(suspects(100, 5_000, 5), [], "nothing is known of before");
    assert_eq!(suspects(150, 5_700, 1), [], "most of the time nobody waited");
    assert_eq!(suspects(200, 6_600, 1), one(false));
    assert_eq!(suspects(202, 9_600, 3), one(true));
    for second in 1..10 {
        assert_eq!(suspects(202 + 50 * second, 9_600, 0), one(false), "{second} s ago");
    }
    assert_eq!(suspects(800, 9_600, 0), []);
}

#[test]
fn nobody_is_asked_who_is_not_wanted() {
    let mut status = Status::new(false);
    let mut io = Io::new(Root::open("/".as_ref()).unwrap());
    let mut frame = Frame::new();
    frame.table_mut(Entity::Service).push(Key::named(0));
    status.fill(&mut io, &mut frame);
    assert!(status.asker.is_none() && !status.is_asked);
}
