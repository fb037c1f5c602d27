//! The network beyond the files of the machine: other namespaces, queues, and whom trouble concerns.

pub mod names;
#[cfg(feature = "bpf")]
pub mod trouble;
