//! What the memory of a process is made of.

use mitra_diagnose::words;
use mitra_inspect::composition::{Composition, CountMethod, LargeMapping, MappingGroup, SmapsTime};

use super::growth::{Growth, MemoryHistory};
use super::{bytes, many, per_hour, shortened};
use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::table::{Align, Table};
use crate::render::units;

/// How much of a name is shown.
const NAME: usize = 48;

/// All of it.
#[must_use]
pub fn text(
    comm: &str,
    pid: u32,
    composition: &Composition,
    recorded: &Result<MemoryHistory, String>,
    rows: usize,
    style: &Style,
) -> String {
    let mut page = Page::new(style);
    page.heading(&headline(comm, pid, composition));
    page.paragraph(2, 2, None, &cost(composition));
    for line in growing(recorded, style) {
        page.paragraph(2, 4, None, &line);
    }
    for doubt in doubts(composition) {
        page.labelled(2, "note", 5, Some(Ink::Warn), &doubt);
    }
    let mut out = page.finish();
    out.push('\n');
    out.push_str(&kinds(composition, style));
    out.push('\n');
    out.push_str(&files(composition, rows, style));
    out.push('\n');
    out.push_str(&biggest(composition, rows, style));
    out
}

/// `python3 (4242): 812 MB in memory, 790 MB of it its own, 0 B in swap; 1.2 GB at most; 312 mappings`.
fn headline(comm: &str, pid: u32, composition: &Composition) -> String {
    let totals = &composition.totals;
    let mut parts = vec![format!("{} in memory", bytes(totals.rss_bytes))];
    if totals.rss_anon_bytes.is_some() {
        parts.push(format!("{} of it its own", bytes(totals.rss_anon_bytes)));
    }
    if totals.swap_bytes.is_some() {
        parts.push(format!("{} in swap", bytes(totals.swap_bytes)));
    }
    if totals.rss_max_bytes.is_some() {
        parts.push(format!("at most it was {}", bytes(totals.rss_max_bytes)));
    }
    let mappings = many(composition.mappings, "mapping");
    let threads = totals.threads.map_or(String::new(), |n| format!(", {}", many(n, "thread")));
    format!("{comm} ({pid}): {}; {mappings}{threads}", parts.join(", "))
}

fn cost(composition: &Composition) -> String {
    let took = words::seconds(composition.wall_s);
    match composition.how {
        CountMethod::Smaps => {
            format!(
                "Read from smaps in {}.",
                words::seconds(composition.smaps.took_s.unwrap_or(composition.wall_s))
            )
        }
        CountMethod::Nothing => {
            format!("The kernel does not let its pages be counted; the mappings were read in {took}.")
        }
        CountMethod::Scan | CountMethod::Pagemap => {
            format!("Its pages were counted in {took}; {}.", smaps_takes(&composition.smaps))
        }
    }
}

/// What smaps would take, before it is read.
#[must_use]
pub fn smaps_takes(time: &SmapsTime) -> String {
    match (time.estimated_s, time.longest_s) {
        (Some(all), Some(longest)) => format!(
            "smaps (--smaps) takes about {}; page faults of the process may wait for up to {} of it",
            words::seconds(all),
            words::seconds(longest)
        ),
        _ => "how long smaps takes is not known".to_owned(),
    }
}

/// What has been growing, and since when.
fn growing(recorded: &Result<MemoryHistory, String>, style: &Style) -> Vec<String> {
    let recorded = match recorded {
        Ok(recorded) => recorded,
        Err(why) => return vec![format!("What has been growing is not known: {why}.")],
    };
    if recorded.grown.is_empty() {
        return vec![format!(
            "Nothing of it has grown since {}, as recorded.",
            style.date_clock(recorded.since_ns)
        )];
    }
    let line = |grown: &Growth| {
        format!(
            "Growing: {}, {} since {} (from {} to {}){}.",
            grown.what,
            per_hour(grown.bytes_per_hour),
            style.date_clock(grown.since_ns),
            words::bytes(grown.from_bytes),
            words::bytes(grown.to_bytes),
            if grown.levels_off { "; it levels off" } else { "" }
        )
    };
    recorded.grown.iter().map(line).collect()
}

fn doubts(composition: &Composition) -> Vec<String> {
    let mut list = Vec::new();
    if composition.uncounted > 0 {
        list.push(format!(
            "{} not counted; their sizes in memory are in no sum",
            many(composition.uncounted, "mapping")
        ));
    }
    let sum = composition.sum().resident_bytes;
    if let Some((sum, rss)) = sum.zip(composition.totals.rss_bytes)
        && sum.abs_diff(rss) > rss / 20 + (4 << 20)
        && composition.uncounted == 0
    {
        list.push(format!(
            "the mappings hold {} together and the kernel counts {}: it changed meanwhile",
            bytes(Some(sum)),
            bytes(Some(rss))
        ));
    }
    list
}

fn kinds(composition: &Composition, style: &Style) -> String {
    let has_smaps = composition.how == CountMethod::Smaps;
    let mut heads = vec![
        ("KIND", Align::Left),
        ("MAPPINGS", Align::Right),
        ("IN MEMORY", Align::Right),
        ("ANONYMOUS", Align::Right),
        ("HUGE", Align::Right),
        ("IN SWAP", Align::Right),
    ];
    if has_smaps {
        heads.extend([("DIRTY", Align::Right), ("PSS", Align::Right)]);
    }
    heads.push(("ADDRESSES", Align::Right));
    let mut table = Table::new(&heads);
    let row = |name: String, mappings: u64, part: &mitra_inspect::composition::MemorySizes| {
        let mut cells = vec![
            name,
            units::grouped(mappings as f64),
            bytes(part.resident_bytes),
            bytes(part.anonymous_bytes),
            bytes(part.huge_bytes),
            bytes(part.swapped_bytes),
        ];
        if has_smaps {
            cells.extend([bytes(part.private_dirty_bytes), bytes(part.pss_bytes)]);
        }
        cells.push(bytes(Some(part.virtual_bytes)));
        cells
    };
    for part in composition.kinds() {
        table.row(row(part.kind.to_string(), part.mappings, &part.sizes));
    }
    table.row(row("all".to_owned(), composition.mappings, &composition.sum()));
    table.render(style)
}

fn files(composition: &Composition, rows: usize, style: &Style) -> String {
    let named: Vec<&MappingGroup> = composition
        .parts
        .iter()
        .filter(|part| part.name.is_some() && part.sizes.resident_bytes != Some(0))
        .collect();
    let mut table = Table::new(&[
        ("IN MEMORY", Align::Right),
        ("ANONYMOUS", Align::Right),
        ("KIND", Align::Left),
        ("FILE OR NAME", Align::Left),
    ]);
    for part in named.iter().take(rows) {
        table.row([
            bytes(part.sizes.resident_bytes),
            bytes(part.sizes.anonymous_bytes),
            part.kind.to_string(),
            shortened(part.name.as_deref().unwrap_or(""), NAME),
        ]);
    }
    table.render(style) + &more(named.len(), rows, style)
}

fn biggest(composition: &Composition, rows: usize, style: &Style) -> String {
    let mut table = Table::new(&[
        ("MAPPING", Align::Left),
        ("ACCESS", Align::Left),
        ("IN MEMORY", Align::Right),
        ("HUGE", Align::Right),
        ("IN SWAP", Align::Right),
        ("ADDRESSES", Align::Right),
        ("KIND", Align::Left),
        ("FILE OR NAME", Align::Left),
    ]);
    let cells = |piece: &LargeMapping| {
        [
            format!("{:x}-{:x}", piece.start, piece.end),
            piece.access.clone(),
            bytes(piece.sizes.resident_bytes),
            bytes(piece.sizes.huge_bytes),
            bytes(piece.sizes.swapped_bytes),
            bytes(Some(piece.sizes.virtual_bytes)),
            piece.kind.to_string(),
            shortened(piece.name.as_deref().unwrap_or(""), NAME),
        ]
    };
    for piece in composition.biggest.iter().take(rows) {
        table.row(cells(piece));
    }
    table.render(style) + &more(composition.mappings as usize, rows, style)
}

/// `and 12 more`.
pub(super) fn more(all: usize, rows: usize, style: &Style) -> String {
    match all.saturating_sub(rows) {
        0 => String::new(),
        more => {
            format!("{}\n", style.paint(Ink::Faint, &format!("and {} more", units::grouped(more as f64))))
        }
    }
}
