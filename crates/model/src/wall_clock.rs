//! The wall clock, for programs that remember when they told what: it may be set, and then all times of a recording move.

use serde::{Deserialize, Serialize};

use crate::time::SECOND;

/// What was told so long ago is told again.
pub const REMEMBERED_NS: i64 = 24 * 3600 * SECOND;
/// What was told further ahead was noted before the clock was set back.
const AHEAD_NS: i64 = 3600 * SECOND;

/// The clock that remembered times are of. Keeps its keys, because states on the disk have them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WallClock {
    boot_id: String,
    /// Nanoseconds from the boot time to the wall clock.
    offset_ns: i64,
}

impl WallClock {
    /// The boot that times are of.
    #[must_use]
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// From now on times are of this boot, to whose boot time so much is added. Returns by how much times of before move: the offset
    /// of another boot says nothing of them.
    pub fn set(&mut self, boot_id: &str, offset_ns: i64) -> i64 {
        let moved = if self.boot_id == boot_id { offset_ns.saturating_sub(self.offset_ns) } else { 0 };
        boot_id.clone_into(&mut self.boot_id);
        self.offset_ns = offset_ns;
        moved
    }
}

/// Whether what was told at a time is no news yet.
#[must_use]
pub fn is_remembered(at_ns: i64, now_ns: i64) -> bool {
    at_ns > now_ns.saturating_sub(REMEMBERED_NS) && at_ns <= now_ns.saturating_add(AHEAD_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_move_with_the_clock_of_their_boot() {
        let mut clock = WallClock::default();
        assert_eq!(clock.set("boot", 100), 0);
        assert_eq!((clock.set("boot", 40), clock.set("boot", 40)), (-60, 0));
        assert_eq!((clock.set("other", 7), clock.boot_id()), (0, "other"));
    }

    #[test]
    fn what_was_told_is_remembered_for_a_day_and_not_when_it_lies_ahead() {
        let now = 10 * REMEMBERED_NS;
        assert!(is_remembered(now, now) && is_remembered(now + AHEAD_NS, now));
        assert!(!is_remembered(now + AHEAD_NS + 1, now) && !is_remembered(now - REMEMBERED_NS, now));
    }
}
