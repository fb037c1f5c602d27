//! Processes that race, swap, lie and hide, and every command that looks at processes, as root: nothing is executed, opened, waited
//! for or believed that should not be.
//!
//! `targets.rs` is the table of them; each is a program in `programs/` with an argument. `commands.rs` is what each is asked alone,
//! `together.rs` what is asked of the machine while all of them run. What must hold is in `harness.rs`. All of it needs root and
//! cgroup2, in which everything is ended; programs that are started are seen where `strace` is.

mod apart;
mod commands;
mod harness;
mod targets;
mod together;
