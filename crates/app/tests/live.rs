//! Real software makes real trouble on this machine, and Mitra has to say what it was.
//!
//! Read `live/README.md` first. Needs root; changes the machine while it runs (huge pages, cgroups,
//! swap) and puts everything back. It is not part of a plain `cargo test`: name it,
//! `cargo test -p mitra-app --test live -- [FILTER]`.

#[path = "live/cgroup.rs"]
mod cgroup;
#[path = "live/checker.rs"]
mod checker;
#[path = "live/controls.rs"]
mod controls;
#[path = "live/counters.rs"]
mod counters;
#[path = "live/cpu.rs"]
mod cpu;
#[path = "live/disk.rs"]
mod disk;
#[path = "live/guard.rs"]
mod guard;
#[path = "live/harness.rs"]
mod harness;
#[path = "live/memory.rs"]
mod memory;
#[path = "live/recorder.rs"]
mod recorder;
#[path = "live/report.rs"]
mod report;
#[path = "live/victim.rs"]
mod victim;
#[path = "live/witness.rs"]
mod witness;

fn main() {
    if let Ok(role) = std::env::var(victim::ROLE) {
        if let Err(e) = victim::play(&role) {
            eprintln!("{role}: {e}");
            std::process::exit(1);
        }
        return;
    }
    let lists = [checker::CASES, controls::CASES, cpu::CASES, memory::CASES, disk::CASES];
    let plain: Vec<harness::Case> = lists.into_iter().flatten().copied().collect();
    let witnessed = plain.iter().filter(|c| c.name != "checker").map(harness::Case::with_witnesses);
    let cases: Vec<harness::Case> = plain.iter().cloned().chain(witnessed).collect();
    std::process::exit(harness::main(&cases));
}
