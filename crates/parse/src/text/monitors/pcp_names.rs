//! Names of PCP's metrics of the kernel.

use super::wide::{Cell, KIB, Names, find, names};
use crate::text::prelude::*;

/// Metrics of the machine, by their whole name.
#[rustfmt::skip]
const MACHINE: &[Names] = &[
    names(Form::Rate, 1.0, pairs!(
        "kernel.all.intr sys.intr  kernel.all.pswitch sys.ctxt  kernel.all.sysfork sys.forks
         network.tcp.retranssegs tcp.RetransSegs  network.tcp.activeopens tcp.ActiveOpens
         network.tcp.passiveopens tcp.PassiveOpens  network.tcp.insegs tcp.InSegs  network.tcp.outsegs tcp.OutSegs
         network.tcp.listenoverflows tcpext.ListenOverflows  network.tcp.listendrops tcpext.ListenDrops"
    )),
    names(Form::Level, 1.0, pairs!(
        "kernel.all.running sys.procs_running  kernel.all.runnable sys.procs_running  kernel.all.blocked sys.procs_blocked
         kernel.all.nprocs tasks.total  vfs.files.count files.nr  vfs.inodes.count inode.nr
         network.tcpconn.established sock.tcp_established  network.tcpconn.listen sock.tcp_listen"
    )),
    names(Form::Level, KIB, pairs!(
        "mem.physmem mem.total  mem.freemem mem.free  mem.util.used mem.used  mem.util.free mem.free
         mem.util.available mem.available  mem.util.bufmem mem.buffers  mem.util.cached mem.cached
         mem.util.active mem.active  mem.util.inactive mem.inactive  mem.util.dirty mem.dirty
         mem.util.writeback mem.writeback  mem.util.anonpages mem.anon  mem.util.mapped mem.mapped
         mem.util.slab mem.slab  mem.util.slabReclaimable mem.sreclaimable  mem.util.shmem mem.shmem
         mem.util.swapTotal mem.swap_total  mem.util.swapFree mem.swap_free  mem.util.committed_AS mem.committed_as"
    )),
];
/// Metrics with an instance behind a dash.
#[rustfmt::skip]
const OF_THINGS: &[Names] = &[
    names(Form::Rate, 1.0, pairs!(
        "disk.dev.read disk.reads  disk.dev.write disk.writes  disk.dev.total disk.transfers
         disk.dev.read_merge disk.read_merges  disk.dev.write_merge disk.write_merges
         network.interface.in.bytes nic.rx_bytes  network.interface.out.bytes nic.tx_bytes
         network.interface.in.packets nic.rx_packets  network.interface.out.packets nic.tx_packets
         network.interface.in.errors nic.rx_errs  network.interface.out.errors nic.tx_errs
         network.interface.in.drops nic.rx_drop  network.interface.out.drops nic.tx_drop"
    )),
    names(Form::Rate, KIB, pairs!("disk.dev.read_bytes disk.read_bytes  disk.dev.write_bytes disk.write_bytes")),
];
const LOADS: Pairs = pairs!("1_minute sys.load1  5_minute sys.load5  15_minute sys.load15");

/// What a column of `pmrep` is: `disk.dev.read-vda`, `mem.util.free`, `kernel.all.load-1 minute`.
///
/// Counters are rates by default; those of time are shares of it, whose unit differs between versions, and are left out.
pub(super) fn cell(name: &[u8]) -> Option<Cell> {
    if let Some(found) = find(MACHINE, name, b"") {
        return Some(found);
    }
    if let Some(key) = name.strip_prefix(b"mem.vmstat.") {
        let metric = std::str::from_utf8(key).ok()?;
        let found = Cell::raw(&format!("vm.{metric}"), b"")?;
        let form = if found.form == Form::Total { Form::Rate } else { found.form };
        return Some(Cell { form, ..found });
    }
    let dash = memchr::memchr(b'-', name)?;
    let (metric, row) = (name.get(..dash)?, name.get(dash + 1..)?);
    if metric == b"kernel.all.load" {
        return find(&[names(Form::Level, 1.0, LOADS)], row, b"");
    }
    find(OF_THINGS, metric, row)
}
