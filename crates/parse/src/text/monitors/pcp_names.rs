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
        return vmstat(key);
    }
    let dash = memchr::memchr(b'-', name)?;
    let (metric, row) = (name.get(..dash)?, name.get(dash + 1..)?);
    if metric == b"kernel.all.load" {
        return find(&[names(Form::Level, 1.0, LOADS)], row, b"");
    }
    find(OF_THINGS, metric, row)
}

/// A line of `/proc/vmstat`.
fn vmstat(key: &[u8]) -> Option<Cell> {
    let metric = std::str::from_utf8(key).ok()?;
    let found = Cell::raw(&format!("vm.{metric}"), b"")?;
    let form = if found.form == Form::Total { Form::Rate } else { found.form };
    Some(Cell { form, ..found })
}

/// Whether a name is the short form of another one, as `pmrep` prints it: `d.d.read` of `disk.dev.read`.
fn is_short_of(short: &[u8], name: &[u8]) -> bool {
    let mut letters = short.split(|b| *b == b'.');
    let mut parts = name.split(|b| *b == b'.').peekable();
    while let Some(part) = parts.next() {
        let Some(letter) = letters.next() else { return false };
        let is_last = parts.peek().is_none();
        let is_same = if is_last { letter == part } else { letter.len() == 1 && part.starts_with(letter) };
        if !is_same {
            return false;
        }
    }
    letters.next().is_none()
}

const SHORT_LOAD: &[u8] = b"k.a.load";
const SHORT_VMSTAT: &[u8] = b"m.v.";

/// Whether the short name is the load, whose instances are known by their first letters.
pub(super) fn is_load(short: &[u8]) -> bool {
    short == SHORT_LOAD
}

/// Whether a metric here has that short name.
pub(super) fn is_short(short: &[u8]) -> bool {
    let mut all = MACHINE.iter().chain(OF_THINGS).flat_map(|table| table.names);
    is_load(short)
        || short.strip_prefix(SHORT_VMSTAT).and_then(vmstat).is_some()
        || all.any(|(name, _)| is_short_of(short, name))
}

/// What a column with that short name is, and with that instance, empty where it has none.
pub(super) fn short(short: &[u8], instance: &[u8]) -> Option<Cell> {
    if is_load(short) {
        // `15 minut`: what does not fit the column is cut off.
        let same = |(name, _): &&(&[u8], &str)| {
            (5..=name.len()).contains(&instance.len())
                && name.iter().zip(instance).all(|(a, b)| a == b || (*a == b'_' && *b == b' '))
        };
        let (_, metric) = LOADS.iter().find(same)?;
        return Cell::new(metric, Form::Level, 1.0, b"");
    }
    if let Some(key) = short.strip_prefix(SHORT_VMSTAT).filter(|_| instance.is_empty()) {
        return vmstat(key);
    }
    // `disk.dm` has the same letters as `disk.dev`: names of its volumes have a dash, those of devices have none.
    if instance.contains(&b'-') && short.starts_with(b"d.d.") {
        return None;
    }
    let tables = if instance.is_empty() { MACHINE } else { OF_THINGS };
    tables.iter().find_map(|table| {
        let (_, metric) = table.names.iter().find(|(name, _)| is_short_of(short, name))?;
        Cell::new(metric, table.form, table.factor, instance)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_of_one_metric_each() {
        for (short, name) in [
            ("d.d.read", "disk.dev.read"),
            ("m.freemem", "mem.freemem"),
            ("n.i.i.bytes", "network.interface.in.bytes"),
        ] {
            assert!(is_short_of(short.as_bytes(), name.as_bytes()), "{short}");
        }
        for (short, name) in
            [("d.d", "disk.dev.read"), ("di.d.read", "disk.dev.read"), ("d.d.reads", "disk.dev.read")]
        {
            assert!(!is_short_of(short.as_bytes(), name.as_bytes()), "{short}");
        }
        let all = || MACHINE.iter().chain(OF_THINGS).flat_map(|table| table.names);
        for (name, _) in all() {
            let letters: Vec<&[u8]> = name.split(|b| *b == b'.').collect();
            let (last, before) = letters.split_last().unwrap();
            let mut short: Vec<u8> = before.iter().flat_map(|part| [part[0], b'.']).collect();
            short.extend_from_slice(last);
            assert_eq!(all().filter(|(other, _)| is_short_of(&short, other)).count(), 1, "{}", text(name));
        }
    }
}
