//! What the changes that may have done harm have in common, and those that are no settings of the kernel: weights of cgroups and
//! options of mounts. `config-drift` tells of all of them.

pub mod mounts;
pub mod weights;

use mitra_model::time::SECOND;

/// A change may need so long until its effect is seen: a limit is reached, a cache is shrunk.
pub const SOON_S: f64 = 60.0;

/// Where a setting is read more seldom than this, its change cannot be put in order with what it may have done.
pub const READ_EVERY_MAX_NS: i64 = 10 * SECOND;

/// What was changed, in words from which [`old_value`] has the old value again: a remedy sees nothing but the finding, and a
/// number of its evidence is not all of a setting.
pub fn change_in_words(name: &str, from: &str, to: &str) -> String {
    format!("{name} was changed from {from} to {to}")
}

/// The old value out of a statement that begins with the words of a change.
pub fn old_value<'a>(name: &str, statement: &'a str) -> Option<&'a str> {
    let rest = statement.strip_prefix(name)?.strip_prefix(" was changed from ")?;
    rest.split_once(" to ").map(|(from, _)| from)
}
