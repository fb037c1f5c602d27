//! The incidents, one file per area. Each file has a list of its own; a new file is one line here.

mod cpu;
mod disk;
mod growth;
mod host;
mod locks;
mod memory;
mod names;
mod network;
mod process;
mod storage;

pub use cpu::redis_server;
pub use network::cable;

use crate::incident::Incident;

/// By area.
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
    storage::INCIDENTS,
];

/// All incidents.
pub fn all() -> impl Iterator<Item = &'static Incident> {
    AREAS.iter().copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::controls;

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
