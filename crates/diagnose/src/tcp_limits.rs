//! What TCP may have: sockets without a process, and memory.

use mitra_model::report::Evidence;
use mitra_model::{Event, EventKind, SeriesSet, Span, TextSeries};

use crate::signal::Signal;
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
pub fn orphans(view: &View<'_>) -> Option<Orphans> {
    let known = view.fullest("sock.tcp_orphan", MAX_ORPHANS, "");
    let most = known
        .map_or_else(|| view.set.get("sock.tcp_orphan", "")?.max(view.window), |(most, _)| Some(most))?;
    let mut evidence = Vec::new();
    evidence.extend(view.reading_evidence("sock.tcp_orphan", ""));
    if let Some(first) = evidence.first_mut() {
        first.during = most;
    }
    if let Some(limit) = known.map(|(_, limit)| limit).or_else(|| view.reading(MAX_ORPHANS, "")) {
        let mut setting = view.reading_evidence(MAX_ORPHANS, "");
        if let Some(setting) = &mut setting {
            setting.during = limit;
        }
        evidence.extend(setting);
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
        ..view.evidence_of(MAX_ORPHANS, "", None, limit)
    });
    Some(Orphans { most, limit, is_guess: true, evidence })
}

const MAX_ORPHANS: &str = "sysctl.net.ipv4.tcp_max_orphans";

/// Three numbers that rise, or the text is not this setting.
fn three_limits(text: &str) -> Option<[f64; 3]> {
    let numbers: Vec<f64> =
        text.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().unwrap_or_default();
    let &[low, pressure, high] = numbers.as_slice() else { return None };
    (0.0 < low && low <= pressure && pressure <= high).then_some([low, pressure, high])
}

/// Where TCP's memory was above the number from which on it is short: one, and zero elsewhere.
pub fn under_pressure(set: &SeriesSet, window: Span) -> Option<Signal> {
    let used = Signal::of(set.system("sock.tcp_mem")?, window);
    let setting: &TextSeries = set.text("sysctl.net.ipv4.tcp_mem", "")?;
    let mut pressure = used.clone();
    for (t, value) in used.t.iter().zip(&mut pressure.v) {
        let limits = setting.at(*t).or_else(|| setting.last()).and_then(three_limits);
        *value = limits.map_or(0.0, |limits| if *value >= limits[1] { 1.0 } else { 0.0 });
    }
    Some(pressure)
}

/// The memory of TCP in a view.
pub fn memory(view: &View<'_>) -> Option<Memory> {
    let setting = view.set.text("sysctl.net.ipv4.tcp_mem", "")?;
    let at = |t: i64| setting.at(t).or_else(|| setting.last()).and_then(three_limits);
    let samples = view.set.get("sock.tcp_mem", "")?.samples(view.window);
    let of_limits = samples.filter_map(|(t, _, used)| Some((used, at(t)?)));
    let (used, limits) = of_limits.max_by(|a, b| (a.0 / a.1[2]).total_cmp(&(b.0 / b.1[2])))?;
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
pub fn message_evidence(view: &View<'_>, event: &Event, what: &str, count: usize) -> Evidence {
    view.event_evidence("event.tcp-pressure", what, count as f64, "", event)
}
