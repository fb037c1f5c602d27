//! Fewer privileges, in two forms.
//!
//! `child` is for programs that are started: limits, no new privileges, an end with whoever started
//! them, and a control group of their own (`groups`), so that one that takes too much memory is
//! ended alone. `give_up` is for this process: it gives up what it does not need before it reads
//! the first byte of what others wrote.
//!
//! Nothing here is a condition for the rest: where a kernel refuses a part, what is missing is told
//! and the others hold.

mod child;
mod give_up;
mod groups;
mod privileges;
mod syscalls;

pub use child::{Child, Privileges, Resource, prepare, reap};
pub use give_up::{Error, Needs, give_up};
pub use groups::{Group, Groups, Limits};
pub use privileges::{has_privileges, has_seccomp, threads};
pub use syscalls::refuse_to_change_the_machine;
