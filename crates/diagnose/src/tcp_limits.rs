//! What TCP may have: sockets without a process, and memory.

use mitra_model::report::Evidence;
use mitra_model::{Event, EventKind, Span};

use crate::view::View;

/// Orphans and their limit.
pub struct Orphans {
    /// The most that were seen: sockets that no process has and that still have data to send or a close to finish.
    pub most: f64,
    /// `net.ipv4.tcp_max_orphans`.
    pub limit: f64,
    /// Whether the limit comes from a file of a bare number, of which only the other files say what it is.
    pub is_guess: bool,
    /// The numbers that say so.
    pub evidence: Vec<Evidence>,
}

/// Memory of TCP in pages, and its three limits: below the first no pressure, from the second on buffers shrink, at the
/// third nothing more is given.
pub struct Memory {
    /// The most that was used.
    pub used: f64,
    /// `net.ipv4.tcp_mem`.
    pub limits: [f64; 3],
    /// The numbers that say so.
    pub evidence: Vec<Evidence>,
}

/// The orphans of a view.
#[must_use]
pub fn orphans(view: &View<'_>) -> Option<Orphans> {
    let most = view.set.get("sock.tcp_orphan", "")?.max(view.window)?;
    let mut evidence = Vec::new();
    evidence.extend(view.reading_evidence("sock.tcp_orphan", ""));
    if let Some(first) = evidence.first_mut() {
        first.during = most;
    }
    if let Some(limit) = view.reading("sysctl.net.ipv4.tcp_max_orphans", "") {
        evidence.extend(view.reading_evidence("sysctl.net.ipv4.tcp_max_orphans", ""));
        return Some(Orphans { most, limit, is_guess: false, evidence });
    }
    // A number that was saved without its name. With a message of TCP beside it, a count of orphans, and no other bare
    // number it can be taken for the limit that the message is about; the report says that it was.
    let mut bare = view.set.events.iter().filter_map(|e| match &e.kind {
        EventKind::Numbers { values } if values.len() == 1 => Some((e, values[0])),
        _ => None,
    });
    let (event, limit) = bare.next().filter(|(_, limit)| *limit >= 1.0)?;
    if bare.next().is_some() || messages(view).next().is_none() {
        return None;
    }
    evidence.push(Evidence {
        quotes: view.event_quote(event).into_iter().collect(),
        ..view.evidence_of("sysctl.net.ipv4.tcp_max_orphans", "", None, limit)
    });
    Some(Orphans { most, limit, is_guess: true, evidence })
}

/// The memory of TCP in a view.
#[must_use]
pub fn memory(view: &View<'_>) -> Option<Memory> {
    let used = view.set.get("sock.tcp_mem", "")?.max(view.window)?;
    let text = view.set.text("sysctl.net.ipv4.tcp_mem", "")?.last()?;
    let numbers: Vec<f64> =
        text.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().unwrap_or_default();
    // Three numbers that rise, or the line is not this setting.
    let &[low, pressure, high] = numbers.as_slice() else { return None };
    if !(0.0 < low && low <= pressure && pressure <= high) {
        return None;
    }
    let limits = [low, pressure, high];
    let mut evidence: Vec<Evidence> = view.reading_evidence("sock.tcp_mem", "").into_iter().collect();
    if let Some(first) = evidence.first_mut() {
        first.during = used;
    }
    let mut limit = view.evidence_of("sysctl.net.ipv4.tcp_mem", "", None, limits[2]);
    "pages".clone_into(&mut limit.unit);
    limit.quotes.extend(view.text_quote("sysctl.net.ipv4.tcp_mem", ""));
    evidence.push(limit);
    Some(Memory { used, limits, evidence })
}

/// What the kernel's TCP complained of: the event, and `orphans`, `memory` or `unnamed`.
pub fn messages<'a>(view: &'a View<'_>) -> impl Iterator<Item = (&'a Event, &'a str, &'a str)> {
    let window: Span = view.window;
    view.set.events.iter().filter(move |e| window.contains(e.real)).filter_map(|e| match &e.kind {
        EventKind::TcpPressure { what, text } => Some((e, what.as_str(), text.as_str())),
        _ => None,
    })
}

/// The message as evidence.
#[must_use]
pub fn message_evidence(view: &View<'_>, event: &Event, what: &str, count: usize) -> Evidence {
    view.event_evidence("event.tcp-pressure", what, count as f64, "", event)
}
