//! The readers of other tools' output, against what the tools really print. One program, so that it links once.

mod bench;
mod bpftrace;
mod filesystems;
mod heaps;
mod hollow;
mod iostat;
mod logs;
mod monitors;
mod net;
mod nodes;
mod perf;
mod pidstat;
mod procps;
mod sadf;
mod sar;
mod snapshots;
mod storage;
mod support;
mod tracing;
mod variants;
mod written;
