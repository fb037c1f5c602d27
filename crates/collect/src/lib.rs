//! Samples the host: kept-open files, BPF iterators and BPF probes.

#[cfg(feature = "bpf")]
pub mod bpf;
