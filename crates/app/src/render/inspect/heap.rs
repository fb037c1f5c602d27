//! What is in the heaps of a process, as people read it.

mod c_heap;
mod python;
mod runtimes;
mod strings;

use std::time::Duration;

use mitra_diagnose::words;
use mitra_inspect::Look;
use mitra_inspect::runtimes::Runtime;
use mitra_inspect::verdict;

use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::units;

/// How much of a name is shown.
const NAME: usize = 60;

/// All of it.
#[must_use]
pub fn text(look: &Look, rows: usize, style: &Style) -> String {
    let mut page = Page::new(style);
    page.heading(&headline(look));
    page.paragraph(2, 2, None, &cost(look));
    let made_of = verdict::of(std::slice::from_ref(look), &[]).statement;
    page.paragraph(2, 2, None, &format!("{made_of}."));
    for doubt in &look.doubts {
        page.labelled(2, "note", 5, Some(Ink::Warn), doubt);
    }
    let mut out = page.finish();
    let parts = [
        look.c_heap.as_ref().map(|heap| c_heap::c_heap(heap, rows, style)),
        look.strings.as_ref().map(|census| strings::strings(census, look.has_contents, rows, style)),
        look.python.as_ref().map(|heap| python::python(heap, look.pymalloc.as_ref(), rows, style)),
        look.holders.as_ref().map(|held| python::holders(held, style)),
        look.runtime.as_ref().map(|runtime| match runtime {
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

fn headline(look: &Look) -> String {
    let size = look.composition.as_ref().and_then(|c| c.totals.rss_bytes);
    let size = size.map_or(String::new(), |size| format!(": {} in memory", bytes(size)));
    let age = look.age_s.map_or(String::new(), |age| format!(", running for {}", units::length(age)));
    format!("{} ({}) on {}{size}{age}", look.comm, look.pid, look.host)
}

fn cost(look: &Look) -> String {
    let cost = &look.cost;
    let read = cost.bytes_read.map_or(String::new(), |read| format!("; {} were read", bytes(read)));
    let own = cost.rss_max_bytes.map_or(String::new(), |own| format!("; it took {} of memory", bytes(own)));
    format!(
        "Looking took {}, {} of CPU time{read}{own}. The process was not stopped: what changed meanwhile is counted as it was met.",
        words::seconds(cost.wall_s),
        words::seconds(cost.cpu_s)
    )
}
