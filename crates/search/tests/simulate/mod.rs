//! A fleet that does not exist, for tests and benchmarks: machines that are alike and change a little every day.
//!
//! A machine is a handful of traits (its release, its packages, how often each file was edited); its documents follow from
//! them, so what a question should find can be told from the traits without a search. Two runs with the same seed are the
//! same.
//!
//! ```text
//! day 0  web-001  02:00:17  30 documents        what the first look of a day sees
//!        web-001  15:00:17   1 document         what changed until the second
//! day 1  web-001  02:00:17  30 documents, of which 28 are as they were
//! ```

pub mod machine;
pub mod noise;

use mitra_search::{Day, Document};

use machine::{Machine, documents};
use noise::Noise;

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3_600 * SECOND;
/// The looks of a day, in hours.
const LOOKS: [i64; 2] = [2, 15];
/// Of the documents of the fleet so many in a thousand change between one look and the next: 3 % a day.
const CHANGES: u64 = 15;
/// One host in so many is away on a day.
const AWAY: u64 = 400;

/// How large a fleet is, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// What chance begins with.
    pub seed: u64,
    /// Machines.
    pub hosts: u32,
    /// The first day.
    pub first: Day,
    /// Days.
    pub days: i32,
}

impl Default for Shape {
    fn default() -> Self {
        // 2026-11-08
        Self { seed: 1, hosts: 200, first: Day(20_765), days: 14 }
    }
}

/// One look at a machine.
#[derive(Debug)]
pub struct Look<'a> {
    /// When, in nanoseconds since 1970.
    pub at_ns: i64,
    /// The machine as it is now.
    pub machine: &'a Machine,
    /// Everything that it says of itself.
    pub all: &'a [Document],
    /// What of that is new or different since the look before.
    pub changed: &'a [Document],
    /// The names of what is not there any more.
    pub gone: &'a [String],
    /// It is the first of the day.
    pub first: bool,
}

struct FleetHost {
    machine: Machine,
    all: Vec<Document>,
}

/// Lets a fleet live, and tells every look at it in the order of time.
pub fn live<E>(shape: Shape, mut tell: impl FnMut(&Look<'_>) -> Result<(), E>) -> Result<(), E> {
    let mut noise = Noise::new(shape.seed);
    let mut fleet: Vec<FleetHost> = (0..shape.hosts)
        .map(|number| FleetHost { machine: Machine::new(number, &mut noise), all: Vec::new() })
        .collect();
    for day in shape.first.through(Day(shape.first.0 + shape.days - 1)) {
        let away: Vec<bool> = fleet.iter().map(|_| day != shape.first && noise.one_in(AWAY)).collect();
        for (nth, hour) in LOOKS.into_iter().enumerate() {
            for (number, (known, _)) in (0..).zip(fleet.iter_mut().zip(&away).filter(|(_, away)| !**away)) {
                // Hosts take turns, as jitter has them.
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
