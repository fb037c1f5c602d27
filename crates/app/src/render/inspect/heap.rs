//! What is in the heaps of a process, as people read it.

mod c_heap;
mod python;
mod runtimes;
mod strings;

use std::time::Duration;

use mitra_diagnose::words;
use mitra_inspect::Snapshot;
use mitra_inspect::runtimes::Runtime;
use mitra_inspect::verdict;

use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::units;

/// How much of a name is shown.
const NAME: usize = 60;

/// All of it.
#[must_use]
pub fn text(snapshot: &Snapshot, rows: usize, style: &Style) -> String {
    let mut page = Page::new(style);
    page.heading(&headline(snapshot));
    page.paragraph(2, 2, None, &cost(snapshot));
    let made_of = verdict::of(std::slice::from_ref(snapshot), &[]).statement;
    page.paragraph(2, 2, None, &format!("{made_of}."));
    for doubt in &snapshot.doubts {
        page.labelled(2, "note", 5, Some(Ink::Warn), doubt);
    }
    let mut out = page.finish();
    let parts = [
        snapshot.c_heap.as_ref().map(|heap| c_heap::c_heap(heap, rows, style)),
        snapshot.strings.as_ref().map(|census| strings::strings(census, snapshot.has_contents, rows, style)),
        snapshot.python.as_ref().map(|heap| python::python(heap, snapshot.pymalloc.as_ref(), rows, style)),
        snapshot.holders.as_ref().map(|held| python::holders(held, style)),
        snapshot.runtime.as_ref().map(|runtime| match runtime {
            Runtime::Jvm(heap) => runtimes::jvm(heap, rows, style),
            Runtime::Erlang(heap) => runtimes::erlang(heap, rows, style),
        }),
    ];
    for part in parts.into_iter().flatten() {
        out.push('\n');
        out.push_str(&part);
    }
    out
}

/// How long until the next look, and what looking takes.
#[must_use]
pub fn pace(wait: Duration, share: f64, is_longer: bool) -> String {
    let why = if is_longer { ", so as not to take more than its share (--budget)" } else { "" };
    format!(
        "the next look comes {} after this one{why}; looking takes {} of one CPU",
        units::length(wait.as_secs_f64()),
        words::percent(share)
    )
}

fn bytes(bytes: u64) -> String {
    words::bytes(bytes as f64)
}

fn count(count: u64) -> String {
    units::grouped(count as f64)
}

fn headline(snapshot: &Snapshot) -> String {
    let size = snapshot.composition.as_ref().and_then(|c| c.totals.rss_bytes);
    let size = size.map_or(String::new(), |size| format!(": {} in memory", bytes(size)));
    let age = snapshot.age_s.map_or(String::new(), |age| format!(", running for {}", units::length(age)));
    format!("{} ({}) on {}{size}{age}", snapshot.comm, snapshot.pid, snapshot.host)
}

fn cost(snapshot: &Snapshot) -> String {
    let cost = &snapshot.cost;
    let read = cost.bytes_read.map_or(String::new(), |read| format!("; {} were read", bytes(read)));
    let own = cost.rss_max_bytes.map_or(String::new(), |own| format!("; it took {} of memory", bytes(own)));
    format!(
        "Looking took {}, {} of CPU time{read}{own}. The process was not stopped: what changed meanwhile is counted as it was met.",
        words::seconds(cost.wall_s),
        words::seconds(cost.cpu_s)
    )
}
