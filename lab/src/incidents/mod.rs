//! All incidents, one file per area. Each file has its own list; a new file needs one line here.

mod common;
mod cpu;
mod disk;
mod drift;
mod growth;
mod host;
mod locks;
mod memory;
mod names;
mod network;
mod process;
mod service;
mod storage;

pub use cpu::redis_server;
pub use drift::CONTROLS as HARMLESS;
pub use network::cable;
pub use service::site;

use crate::incident::Incident;

/// The incidents of a round, by area.
const AREAS: &[&[Incident]] = &[
    cpu::INCIDENTS,
    disk::INCIDENTS,
    growth::INCIDENTS,
    host::INCIDENTS,
    locks::INCIDENTS,
    memory::INCIDENTS,
    names::INCIDENTS,
    network::INCIDENTS,
    process::INCIDENTS,
    service::INCIDENTS,
    storage::INCIDENTS,
];

/// Run by name: they take minutes each and do not fit into a round.
const BESIDES: &[&[Incident]] = &[drift::INCIDENTS];

/// Root conditions that no incident makes, and the reason.
pub const NOT_MADE: &[(&str, &str)] = &[
    (
        "abandoned-work",
        "whether tries outlive what began them hangs on how fast the machine is; retries makes them as an effect",
    ),
    ("array-sync", "the kernel of the round's machine has no driver of md arrays"),
    (
        "cgroup-memory-high",
        "memory.high needs cgroup version 2, and the round's machine has memory in version 1",
    ),
    ("caches-dropped", "not written yet: it needs a reader of files in memory, and a script that drops them"),
    ("clock-step", "the clock is the whole machine's, and results are timed by it"),
    ("cpu-steal", "only the host of a virtual machine can take its CPUs"),
    ("device-lost", "no disk here can be pulled without the machine's own"),
    (
        "memory-fragmentation",
        "memory that has been scattered cannot be put together again by undoing anything",
    ),
    (
        "memory-leak-managed",
        "needs a census of a run time's heap; leak-objects makes what is seen from outside",
    ),
    ("dns-query-growth", "not written yet: it needs a search list in front of a name server of its own"),
    ("memory-leak-native", "needs a census of the mappings; leak-malloc makes what is seen from outside"),
    ("neighbour-table-full", "the table is the whole machine's, and its limits are those of all namespaces"),
    ("numa-imbalance", "needs two memory nodes"),
    ("packet-cost", "not written yet: it needs a packet filter in a network namespace of its own"),
];

/// All incidents.
pub fn all() -> impl Iterator<Item = &'static Incident> {
    of_a_round().chain(BESIDES.iter().copied().flatten())
}

/// The incidents of a round.
pub fn of_a_round() -> impl Iterator<Item = &'static Incident> {
    AREAS.iter().copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::controls;

    #[test]
    fn each_root_is_made_or_has_a_reason_why_not() {
        let roots = mitra_diagnose::conditions().iter().filter(|c| c.role == mitra_diagnose::Role::Root);
        let roots: Vec<&str> = roots.map(|c| c.id).collect();
        let made = |id: &str| all().any(|i| i.condition == id);
        let excused = |id: &str| super::NOT_MADE.iter().any(|(not, _)| *not == id);
        for id in &roots {
            assert!(made(id) != excused(id), "{id}: made {}, excused {}", made(id), excused(id));
        }
        for (id, _) in super::NOT_MADE {
            assert!(roots.contains(id), "{id} is no root");
        }
    }

    #[test]
    fn each_link_of_a_chain_can_come_of_the_root() {
        for i in all() {
            let mut reached = vec![i.condition];
            let mut at = 0;
            while let Some(cause) = reached.get(at).copied() {
                let effects = mitra_diagnose::graph().iter().filter(|e| e.cause == cause).map(|e| e.effect);
                let fresh: Vec<&str> = effects.filter(|effect| !reached.contains(effect)).collect();
                reached.extend(fresh);
                at += 1;
            }
            for link in i.chain {
                assert!(reached.contains(link), "{}: {link} does not come of {}", i.name, i.condition);
            }
        }
    }

    #[test]
    fn names_are_unique_and_ids_are_ids() {
        let mut names: Vec<&str> = all().map(|i| i.name).chain(controls::all().map(|c| c.name)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for i in all() {
            let ids = i.also.iter().chain(i.chain).chain([&i.condition, &i.name, &i.area]);
            for id in ids {
                assert!(
                    id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                    "{id}"
                );
            }
            assert!(!i.what.is_empty(), "{}: one line for the score page", i.name);
        }
    }
}
