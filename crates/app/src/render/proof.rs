//! Evidence: numbers, and the quoted lines that contain them.

use std::collections::HashSet;

use mitra_model::Era;
use mitra_model::report::{Evidence, Link, Quote};

use crate::render::page::Page;
use crate::render::style::{Ink, Style, UNKNOWN};
use crate::render::text::Title;
use crate::render::units;

/// Numbers per link.
const EVIDENCE_MAX: usize = 4;
/// Quoted lines per link.
const LINES_MAX: usize = 8;
/// Minimum width of the times before the numbers.
const HEAD_MIN: usize = 16;

/// How much of the evidence is shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Detail {
    /// All numbers, and all that was ruled out.
    pub numbers: bool,
    /// The quoted lines.
    pub quotes: bool,
}

impl Detail {
    /// Everything.
    pub const ALL: Detail = Detail { numbers: true, quotes: true };
}

/// What is shown of the evidence, and the quoted lines that were already: later only their place is.
#[derive(Default)]
pub struct ShownLines {
    pub detail: Detail,
    lines: HashSet<(String, u32)>,
    remarks: HashSet<String>,
}

impl ShownLines {
    pub fn new(detail: Detail) -> Self {
        ShownLines { detail, ..ShownLines::default() }
    }
}

/// The chain, from the root cause on. A statement is left out if the verdict has `said` it.
pub fn chain(
    page: &mut Page<'_>,
    links: &[Link],
    said: &str,
    shown: &mut ShownLines,
    style: &Style,
    title: Title<'_>,
) {
    if !shown.detail.numbers {
        return short_chain(page, links, said, shown, style, title);
    }
    let (heads, width) = heads(links, style);
    let width = width.max(HEAD_MIN);
    let at = width + 4;
    for (link, head) in links.iter().zip(&heads) {
        let words = title(&link.condition).map_or_else(String::new, |words| format!(": {words}"));
        page.labelled(2, head, width, None, &format!("{}{words}", link.condition));
        if !link.statement.is_empty() && link.statement != said {
            page.paragraph(at, at, None, &link.statement);
            remarks(page, at, &link.remarks, shown);
        }
        evidence(page, at, &link.evidence, shown);
    }
}

/// Remarks that were not made yet: links of one chain know the same of it.
pub fn remarks(page: &mut Page<'_>, indent: usize, remarks: &[String], shown: &mut ShownLines) {
    for remark in remarks {
        if shown.remarks.insert(remark.clone()) {
            page.paragraph(indent, indent + 2, None, &format!("- {remark}"));
        }
    }
}

/// One line for each link: what happened, with its number, and the id of its condition.
fn short_chain(
    page: &mut Page<'_>,
    links: &[Link],
    said: &str,
    shown: &mut ShownLines,
    style: &Style,
    title: Title<'_>,
) {
    let (heads, width) = heads(links, style);
    for (link, head) in links.iter().zip(&heads) {
        let is_said = is_said(link, said);
        let text = brief(link, said, title);
        let id =
            if text.starts_with(&link.condition) { String::new() } else { format!(" ({})", link.condition) };
        page.labelled(2, head, width, Some(Ink::Faint), &format!("{text}{id}"));
        if !is_said {
            remarks(page, width + 4, &link.remarks, shown);
        }
        if shown.detail.quotes {
            quotes(page, width + 4, link.evidence.iter().flat_map(|e| &e.quotes), shown);
        }
    }
}

fn is_said(link: &Link, said: &str) -> bool {
    link.statement.is_empty() || link.statement == said
}

/// What happened, with its number.
pub fn brief(link: &Link, said: &str, title: Title<'_>) -> String {
    if !is_said(link, said) {
        return link.statement.trim_end_matches('.').to_owned();
    }
    let words = title(&link.condition).unwrap_or(&link.condition);
    let number = link.evidence.first().map_or_else(String::new, |e| format!(": {}", number(e)));
    format!("{words}{number}")
}

/// `vm.pgmajfault 0/s → 61,204/s (sar-B.txt:5)`.
fn number(evidence: &Evidence) -> String {
    let places = places(&evidence.quotes);
    let places = if places.is_empty() { places } else { format!(" ({places})") };
    format!("{} {}{places}", name(evidence), movement(evidence))
}

/// The onset of each link. If only some have a date, the date is shown, so that times of different
/// days do not look like one clock.
pub fn clocks(links: &[Link], style: &Style) -> Vec<String> {
    let mut eras = links.iter().filter(|l| l.onset.is_known()).map(|l| Era::of(l.onset.0));
    let first = eras.next();
    let is_mixed = eras.any(|era| Some(era) != first);
    let clock = |l: &Link| if is_mixed { style.date_clock(l.onset.0) } else { style.clock(l.onset.0) };
    links.iter().map(clock).collect()
}

/// The times of the links, and how many columns they take.
fn heads(links: &[Link], style: &Style) -> (Vec<String>, usize) {
    let heads: Vec<String> =
        links.iter().zip(clocks(links, style)).map(|(link, clock)| head(link, clock)).collect();
    let width = heads.iter().map(|head| head.chars().count()).max().unwrap_or(0);
    (heads, width)
}

/// `03:42:15    +8 s`. Onsets of different clocks have no lag.
fn head(link: &Link, clock: String) -> String {
    if clock == UNKNOWN || !link.lag_s.is_finite() || link.lag_s.abs() < 0.5 {
        return clock;
    }
    format!("{clock}  {:>6}", format!("{:+.0} s", link.lag_s))
}

/// Numbers with the places of their lines, then the lines.
pub fn evidence(page: &mut Page<'_>, indent: usize, list: &[Evidence], shown: &mut ShownLines) {
    let list = list.get(..EVIDENCE_MAX).unwrap_or(list);
    let names: Vec<String> = list.iter().map(name).collect();
    let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0).min(40);
    for (evidence, name) in list.iter().zip(&names) {
        let places = places(&evidence.quotes);
        let places = if places.is_empty() { places } else { format!("  ({places})") };
        page.labelled(indent, name, width, Some(Ink::Faint), &format!("{}{places}", movement(evidence)));
    }
    if shown.detail.quotes {
        quotes(page, indent + 2, list.iter().flat_map(|e| &e.quotes), shown);
    }
}

/// Quoted lines in the order of the files, each once per report.
pub fn quotes<'q>(
    page: &mut Page<'_>,
    indent: usize,
    quotes: impl Iterator<Item = &'q Quote>,
    shown: &mut ShownLines,
) {
    let mut lines: Vec<(&str, u32, &str)> = quotes
        .filter_map(|q| Some((q.file.as_str(), q.line, q.text.as_deref()?)))
        .filter(|(file, line, _)| !shown.lines.contains(&((*file).to_owned(), *line)))
        .collect();
    lines.sort_unstable();
    lines.dedup();
    let places: Vec<String> =
        lines.iter().take(LINES_MAX).map(|(file, line, _)| format!("{file}:{line}")).collect();
    let width = places.iter().map(|p| p.chars().count()).max().unwrap_or(0);
    for (place, (file, line, text)) in places.iter().zip(&lines) {
        page.quoted(indent, place, width, text);
        shown.lines.insert(((*file).to_owned(), *line));
    }
}

/// `sar-B.txt:5 :6 :41, vmstat.txt:9`.
pub fn places(quotes: &[Quote]) -> String {
    let mut text = String::new();
    let mut last: Option<(&str, u32)> = None;
    for quote in quotes {
        let here = (quote.file.as_str(), quote.line);
        match last {
            Some(before) if before == here => continue,
            Some((file, _)) if file == here.0 => text.push_str(&format!(" :{}", quote.line)),
            Some(_) => text.push_str(&format!(", {}:{}", quote.file, quote.line)),
            None => text = format!("{}:{}", quote.file, quote.line),
        }
        last = Some(here);
    }
    text
}

pub fn name(evidence: &Evidence) -> String {
    if evidence.entity.is_empty() {
        evidence.metric.clone()
    } else {
        format!("{} {}", evidence.metric, thing(&evidence.metric, &evidence.entity))
    }
}

/// The name of a thing. A thread is told apart from later ones of its id by when it began, which nobody reads.
fn thing<'e>(metric: &str, entity: &'e str) -> &'e str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match entity.split_once('@') {
        Some((id, began)) if metric.starts_with("task.") && is_number(id) && is_number(began) => id,
        _ => entity,
    }
}

/// `1.2 MB/s → 710 MB/s, at most 812 MB/s`.
pub fn movement(evidence: &Evidence) -> String {
    let show = |value: f64| units::value(value, &evidence.unit);
    let during = show(evidence.during);
    let peak = evidence.peak.map(show).filter(|peak| *peak != during);
    let word = if evidence.peak.is_some_and(|peak| peak < evidence.during) { "lowest" } else { "peak" };
    let peak = peak.map_or_else(String::new, |peak| format!(", {word} {peak}"));
    match evidence.before {
        Some(before) => format!("{} → {during}{peak}", show(before)),
        None => format!("{during}{peak}"),
    }
}
