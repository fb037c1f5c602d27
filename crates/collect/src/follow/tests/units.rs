//! What a unit says to a real journald.

use super::pattern;
use crate::file::Root;
use crate::follow::{Follower, LogSource};
use crate::journal::tests::{Journald, program, tell, until};

#[test]
#[ignore = "needs root: make test-kernel"]
fn what_a_unit_says_counts_once_through_rotations_and_restarts() {
    let Some(journald) = Journald::start("follow") else { return };
    let unit = format!("mitra-follow-{}.service", std::process::id());
    let field = format!("_SYSTEMD_UNIT={unit}");
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("logs.state");
    // A child says it, and ends.
    let script = "while read -r line; do (echo \"$line\"; exit 0); done";
    let (mut app, _) = program(dir.path(), "app", script, journald.stdout_of(&unit));
    let (mut other, _) = program(dir.path(), "other", script, journald.stdout_of("other.service"));
    let open = || {
        let root = Root::open("/".as_ref()).unwrap();
        Follower::open(root, &[pattern(LogSource::Unit(unit.clone()), "timeout")], Some(&state)).0
    };
    let look = |follower: &mut Follower| {
        follower.look(1_000_000_000, &mut |_| {});
        let counts = follower.counts().next().unwrap().1;
        (counts.lines, counts.matches)
    };
    let mut said = 0;
    let mut say = |lines: u64| {
        for _ in 0..lines {
            said += 1;
            tell(&mut other, "timeout of another unit");
            tell(&mut app, &format!("{} {said}", if said % 3 == 0 { "timeout" } else { "fine" }));
        }
        until("messages", || (journald.has(&field, "") == said).then_some(()));
    };
    say(3);
    let mut follower = open();
    assert_eq!(look(&mut follower), (0, 0), "what was said before");
    say(3);
    assert_eq!(look(&mut follower), (3, 1));
    say(3);
    for (is_killed, rotations) in [(false, 1), (false, 2), (true, 1), (true, 3)] {
        for _ in 0..rotations {
            let before = finished(&journald);
            journald.rotate();
            until("another file", || (finished(&journald) > before).then_some(()));
            say(3);
        }
        if is_killed {
            follower = open();
        }
        look(&mut follower);
    }
    assert_eq!(look(&mut follower), (27, 9));
}

/// Files that it has finished.
fn finished(journald: &Journald) -> usize {
    journald.files().into_iter().filter(|name| name.contains('@')).count()
}
