//! A simulated fleet for tests and benchmarks: machines that are alike and change a little every
//! day.
//!
//! A machine is a handful of traits (its release, its packages, how often each file was edited).
//! Its documents follow from the traits, so the correct answer to a question is known without a
//! search. Two runs with the same seed are identical.
//!
//! ```text
//! day 0  web-001  02:00:17  30 documents        the first pass of a day
//!        web-001  15:00:17   1 document         changes until the second pass
//! day 1  web-001  02:00:17  30 documents, of which 28 are unchanged
//! ```

pub mod machine;
pub mod noise;

use mitra_search::{Day, Document};

use machine::{Machine, documents};
use noise::Noise;

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3_600 * SECOND;
/// The hours of the passes on each day.
const LOOKS: [i64; 2] = [2, 15];
/// How many thousandths of all documents change between two passes: 3 % a day.
const CHANGES: u64 = 15;
/// On each day one in this many hosts is down.
const AWAY: u64 = 400;

/// The size of a fleet, and its time span.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The seed of the random numbers.
    pub seed: u64,
    /// The number of machines.
    pub hosts: u32,
    /// The first day.
    pub first: Day,
    /// The number of days.
    pub days: i32,
}

impl Default for Shape {
    fn default() -> Self {
        // 2026-11-08
        Self { seed: 1, hosts: 200, first: Day(20_765), days: 14 }
    }
}

/// One pass over a machine.
#[derive(Debug)]
pub struct Look<'a> {
    /// The time in nanoseconds since 1970.
    pub at_ns: i64,
    /// The current state of the machine.
    pub machine: &'a Machine,
    /// All of its documents.
    pub all: &'a [Document],
    /// The documents that are new or changed since the pass before.
    pub changed: &'a [Document],
    /// The names of documents that disappeared since the pass before.
    pub gone: &'a [String],
    /// Whether this is the first pass of the day.
    pub first: bool,
}

struct FleetHost {
    machine: Machine,
    all: Vec<Document>,
}

/// Simulates a fleet, and calls `tell` for every pass in chronological order.
pub fn live<E>(shape: Shape, mut tell: impl FnMut(&Look<'_>) -> Result<(), E>) -> Result<(), E> {
    let mut noise = Noise::new(shape.seed);
    let mut fleet: Vec<FleetHost> = (0..shape.hosts)
        .map(|number| FleetHost { machine: Machine::new(number, &mut noise), all: Vec::new() })
        .collect();
    for day in shape.first.through(Day(shape.first.0 + shape.days - 1)) {
        let away: Vec<bool> = fleet.iter().map(|_| day != shape.first && noise.one_in(AWAY)).collect();
        for (nth, hour) in LOOKS.into_iter().enumerate() {
            for (number, (known, _)) in (0..).zip(fleet.iter_mut().zip(&away).filter(|(_, away)| !**away)) {
                // The hosts' passes are spread, like those of real hosts.
                let at_ns = day.start_ns() + hour * HOUR + number * 17 * SECOND + 123_456_789;
                look(known, at_ns, nth == 0, &mut noise, &mut tell)?;
            }
        }
    }
    Ok(())
}

fn look<E>(
    known: &mut FleetHost,
    at_ns: i64,
    first: bool,
    noise: &mut Noise,
    tell: &mut impl FnMut(&Look<'_>) -> Result<(), E>,
) -> Result<(), E> {
    if !known.all.is_empty() {
        known.machine.change(CHANGES, noise);
    }
    if first {
        known.machine.memory_free_kb = 1_000_000 + noise.below(6_000_000);
    }
    let mut all = documents(&known.machine, at_ns);
    let mut changed = Vec::new();
    for document in &mut all {
        match known.all.iter().find(|old| old.filename == document.filename) {
            Some(old) if old.same_state(document) => document.since_ns = old.since_ns,
            _ => changed.push(document.clone()),
        }
    }
    let still = |old: &&Document| !all.iter().any(|new| new.filename == old.filename);
    let gone: Vec<String> = known.all.iter().filter(still).map(|old| old.filename.clone()).collect();
    known.all = all;
    if !first && changed.is_empty() && gone.is_empty() {
        return Ok(());
    }
    let machine = &known.machine;
    tell(&Look { at_ns, machine, all: &known.all, changed: &changed, gone: &gone, first })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn a_fleet_is_as_large_as_it_should_be_and_changes_a_little() {
        let (mut looks, mut documents, mut changed, mut gone) = (0, 0, 0, 0);
        let mut without_zsh = BTreeSet::new();
        let shape = Shape { days: 4, ..Shape::default() };
        let count = |look: &Look<'_>| -> Result<(), Infallible> {
            looks += 1;
            documents += if look.first { look.all.len() } else { 0 };
            let later = Day::of(look.at_ns) != shape.first || !look.first;
            changed +=
                if later { look.changed.iter().filter(|d| d.filename != "/proc/meminfo").count() } else { 0 };
            gone += look.gone.len();
            if look.machine.list && !look.machine.zsh {
                without_zsh.insert(look.machine.host.clone());
            }
            Ok(())
        };
        assert!(live(shape, count).is_ok());
        assert!((800..1_600).contains(&looks), "{looks}");
        assert!((200 * 29 * 4..=200 * 30 * 4).contains(&documents), "{documents}");
        let share = changed as f64 / documents as f64;
        assert!((0.02..0.05).contains(&share), "{share}");
        assert!(gone > 0);
        assert_eq!(without_zsh.len(), machine::WITHOUT_ZSH as usize);
    }

    #[test]
    fn the_same_seed_is_the_same_fleet() {
        let tell = |seed| {
            let mut all = Vec::new();
            let shape = Shape { seed, hosts: 20, days: 3, ..Shape::default() };
            let kept = live(shape, |look| -> Result<(), Infallible> {
                all.extend(look.changed.to_vec());
                Ok(())
            });
            assert!(kept.is_ok());
            all
        };
        assert!(tell(7) == tell(7) && tell(7) != tell(8));
    }
}
