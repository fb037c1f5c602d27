//! Services and dependencies as tables.

use mitra_diagnose::words;
use mitra_model::report::{Moment, Window};

use super::Shown;
use crate::render::page::Page;
use crate::render::sources::range;
use crate::render::style::{Ink, Style};
use crate::render::table::Table;
use crate::render::units;
use crate::services::{Answers, Caller, Dependency, Edge, Service, Services, Slower, is_some};

/// From here on the tables have all columns.
const WIDE_SERVICES: usize = 100;
const WIDE_DEPENDENCIES: usize = 112;
/// Columns that the numbers of the tables take, in a narrow and in a wide one.
const SERVICE_NUMBERS: [usize; 2] = [52, 62];
const DEPENDENCY_NUMBERS: [usize; 2] = [39, 61];
/// Names and addresses are not cut to less.
const ROOM_MIN: usize = 12;
/// Of each service.
const CALLS_SHOWN: usize = 3;

pub fn tables(shown: &Shown<'_>, style: &Style) -> String {
    let mut page = Page::new(style);
    let services = shown.services;
    let window = Window { since: Moment(shown.span.since), until: Moment(shown.span.until) };
    let mut dependencies = shown.dependencies();
    dependencies.retain(|i| !services.dependencies[*i].is_idle());
    if shown.chosen.is_empty() && dependencies.is_empty() {
        page.paragraph(0, 2, None, &format!("No service was asked anything in {}.", range(window, style)));
        return page.finish();
    }
    let length = units::length(services.seconds);
    page.paragraph(0, 2, Some(Ink::Faint), &format!("{}, {length} recorded", range(window, style)));
    if let Some(lost) = services.lost.filter(|lost| *lost >= 1.0) {
        let text = format!("{lost:.0} services and processes that call had no room in the recorder's table.");
        page.paragraph(0, 2, Some(Ink::Warn), &text);
    }
    if !shown.chosen.is_empty() {
        page.gap();
        service_table(&mut page, shown);
    }
    if !dependencies.is_empty() {
        page.gap();
        dependency_table(&mut page, shown, &dependencies);
    }
    page.finish()
}

fn service_table(page: &mut Page<'_>, shown: &Shown<'_>) {
    let style = page.style;
    let is_wide = style.width >= WIDE_SERVICES;
    let room = style.width.saturating_sub(SERVICE_NUMBERS[usize::from(is_wide)]).max(ROOM_MIN);
    let mut table = Table::of(if is_wide {
        "SERVICE|>REQ/S|>P50|>P99|>MAX|>ERR/S|>OPEN|>WAITING"
    } else {
        "SERVICE|>REQ/S|>P50|>P99|>ERR/S|>OPEN|>WAITING"
    });
    for i in &shown.chosen {
        let service = &shown.services.services[*i];
        let traffic = &service.traffic;
        let mut cells = vec![
            cut(&service.title(), room),
            number(traffic.requests),
            time(traffic.latency.quantile(0.5)),
            time(traffic.latency.quantile(0.99)),
        ];
        if is_wide {
            cells.push(time(traffic.latency.max()));
        }
        cells.extend([traffic.errors(), traffic.open, traffic.waiting].map(number));
        table.row(cells);
    }
    let text = table.render(style);
    for (line, row) in text.lines().zip(std::iter::once(None).chain(shown.chosen.iter().map(Some))) {
        page.line(line.to_owned());
        if let Some(i) = row {
            beneath(page, shown, *i);
        }
    }
    more(page, shown.all, shown.chosen.len());
}

pub fn more(page: &mut Page<'_>, all: usize, shown: usize) {
    if all > shown {
        page.paragraph(2, 2, Some(Ink::Faint), &format!("and {} more: see --limit", all - shown));
    }
}

/// Since when it is slower, and what it waits for.
fn beneath(page: &mut Page<'_>, shown: &Shown<'_>, i: usize) {
    let style = page.style;
    let service = &shown.services.services[i];
    if let Some(slower) = &service.slower {
        let text = format!("slower since {}: {}", style.clock(slower.since), slow(slower));
        page.paragraph(2, 4, Some(Ink::Warn), &text);
    }
    if let Some((ink, text)) = service.traffic.answers.as_ref().and_then(answered_badly) {
        page.paragraph(2, 4, Some(ink), &text);
    }
    if let Some(share) = service.traffic.watched.filter(|share| *share < 1.0) {
        let text = format!(
            "its requests were looked at for {} of the time, and stand for all",
            words::percent(share)
        );
        page.paragraph(2, 4, Some(Ink::Faint), &text);
    }
    let calls: Vec<&Edge> = shown.map.from(&Caller::Service(i)).collect();
    if calls.is_empty() {
        return;
    }
    let said = calls.iter().take(CALLS_SHOWN).map(|edge| {
        // A word that is longer than the line would not be broken.
        let target = cut(&target(edge, shown.services), style.width.saturating_sub(8));
        match figures(edge) {
            figures if figures.is_empty() => target,
            figures => format!("{target} ({figures})"),
        }
    });
    let mut said: Vec<String> = said.collect();
    if calls.len() > CALLS_SHOWN {
        said.push(format!("{} more", calls.len() - CALLS_SHOWN));
    }
    page.paragraph(2, 4, Some(Ink::Faint), &format!("calls {}", said.join(", ")));
}

/// `answered 4/s with errors (HTTP 5xx), 0.50/s with errors of the client (HTTP 4xx); how 12 % went is not known`.
fn answered_badly(answers: &Answers) -> Option<(Ink, String)> {
    let of = |class: &str| match answers.protocol.as_deref() {
        Some("HTTP") => format!(" (HTTP {class})"),
        Some(protocol) => format!(" ({protocol})"),
        None => String::new(),
    };
    let classes = [
        (answers.server_errors, "errors", of("5xx")),
        (answers.client_errors, "errors of the client", of("4xx")),
    ];
    let said = classes.iter().filter(|(rate, ..)| *rate > 0.0);
    let said: Vec<String> =
        said.map(|(rate, what, of)| format!("{}/s with {what}{of}", units::number(*rate))).collect();
    if said.is_empty() {
        return None;
    }
    let mut text = format!("answered {}", said.join(", "));
    let all = answers.ok + answers.client_errors + answers.server_errors + answers.unknown;
    if answers.unknown > 0.0 {
        text.push_str(&format!("; how {} went is not known", words::percent(answers.unknown / all)));
    }
    Some((if answers.server_errors > 0.0 { Ink::Warn } else { Ink::Faint }, text))
}

/// `p50 6.8 s instead of 2.5 ms`.
pub fn slow(slower: &Slower) -> String {
    let before = words::seconds(slower.before);
    match slower.now {
        Some(now) => format!("p50 {} instead of {before}", words::seconds(now)),
        None => format!("no answer; p50 was {before} before"),
    }
}

/// What an edge leads to: a service of this machine by name, or an address.
pub fn target(edge: &Edge, services: &Services) -> String {
    edge.to.and_then(|to| services.services.get(to)).map_or_else(|| edge.called.clone(), Service::title)
}

/// `6.0/s, p50 6.1 s, p99 24 s, 3 attempts to connect go on`.
pub fn figures(edge: &Edge) -> String {
    let mut parts = Vec::new();
    if let Some(requests) = edge.requests.filter(|requests| *requests > 0.0) {
        parts.push(format!("{}/s", units::number(requests)));
    }
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        parts.extend(edge.latency.quantile(share).map(|time| format!("{name} {}", words::seconds(time))));
    }
    parts.extend(trouble(edge.connect_failed, edge.connecting));
    parts.join(", ")
}

/// Connections that do not come about.
fn trouble(failed: Option<f64>, connecting: Option<f64>) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some(failed) = failed.filter(|failed| *failed > 0.0) {
        parts.push(format!("{} connects/s failed", units::number(failed)));
    }
    if let Some(connecting) = connecting.filter(|connecting| *connecting > 0.0) {
        parts.push(format!("{} connecting", units::number(connecting)));
    }
    parts
}

fn dependency_table(page: &mut Page<'_>, shown: &Shown<'_>, dependencies: &[usize]) {
    let style = page.style;
    let is_wide = style.width >= WIDE_DEPENDENCIES;
    let room = style.width.saturating_sub(DEPENDENCY_NUMBERS[usize::from(is_wide)]).max(2 * ROOM_MIN);
    let caller_room = room * 2 / 5;
    let mut table = Table::of(if is_wide {
        "CALLER|CALLS|>REQ/S|>P50|>P99|>FAILED/S|>CONNECTING|>WAITING"
    } else {
        "CALLER|CALLS|>REQ/S|>P50|>P99|>WAITING"
    });
    let rows: Vec<&Dependency> =
        dependencies.iter().take(shown.limit).map(|i| &shown.services.dependencies[*i]).collect();
    for dependency in &rows {
        let traffic = &dependency.traffic;
        let mut cells = vec![
            cut(&dependency.caller(), caller_room),
            cut(&dependency.target(shown.services), room - caller_room),
            number(traffic.requests),
            time(traffic.latency.quantile(0.5)),
            time(traffic.latency.quantile(0.99)),
        ];
        if is_wide {
            cells.extend([dependency.connect_failed, dependency.connecting].map(number));
        }
        cells.push(number(traffic.waiting));
        table.row(cells);
    }
    let text = table.render(style);
    for (line, row) in text.lines().zip(std::iter::once(None).chain(rows.iter().map(Some))) {
        page.line(line.to_owned());
        if let Some(dependency) = row.filter(|_| !is_wide) {
            let trouble = trouble(dependency.connect_failed, dependency.connecting);
            if !trouble.is_empty() {
                page.paragraph(2, 4, Some(Ink::Warn), &trouble.join(", "));
            }
        }
    }
    more(page, dependencies.len(), rows.len());
}

/// One sentence about a service: what it answered, how fast, and what went wrong.
pub fn sentence(service: &Service) -> String {
    let traffic = &service.traffic;
    let mut parts = Vec::new();
    parts.push(match traffic.requests {
        Some(requests) if requests > 0.0 => format!("it answered {} requests/s", units::number(requests)),
        _ => "it answered nothing".to_owned(),
    });
    if let (Some(half), Some(most)) = (traffic.latency.quantile(0.5), traffic.latency.quantile(0.99)) {
        parts.push(format!("p50 {}, p99 {}", words::seconds(half), words::seconds(most)));
    }
    parts.extend(traffic.latency.max().map(|max| format!("max {}", words::seconds(max))));
    parts.extend(traffic.waiting.map(|waiting| format!("{} waiting", units::number(waiting))));
    match traffic.errors() {
        Some(errors) if errors > 0.0 => parts.push(format!("{} errors/s", units::number(errors))),
        Some(_) => parts.push("no errors".to_owned()),
        None => {}
    }
    parts.extend(traffic.answers.as_ref().and_then(answered_badly).map(|(_, text)| text));
    if is_some(traffic.open) {
        parts.push(format!("{} open at the end", number(traffic.open)));
    }
    parts.join(", ")
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), units::number)
}

fn time(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), words::seconds)
}

/// A text of at most `width` columns. Of a longer one the end stays, where the port is, and some of the beginning.
pub fn cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let head = width.saturating_sub(1) / 3;
    let tail = width.saturating_sub(head + 1);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(length - tail)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{with, with_example};
    use super::*;
    use crate::services::example;

    #[test]
    fn tables_at_80_columns() {
        insta::assert_snapshot!(with_example(None, |shown| tables(shown, &Style::plain(80))));
    }

    #[test]
    fn tables_at_120_columns() {
        insta::assert_snapshot!(with_example(None, |shown| tables(shown, &Style::plain(120))));
    }

    #[test]
    fn one_service_and_what_it_calls() {
        insta::assert_snapshot!(with_example(Some("orders-api"), |shown| tables(shown, &Style::plain(100))));
    }

    #[test]
    fn errors_that_are_answers_are_said_with_what_they_are() {
        let mut services = example::services();
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let table =
            |services: &Services| words(&with(services, None, |shown| tables(shown, &Style::plain(120))));
        let before = table(&services);
        assert!(!before.contains("with errors"), "{before}");
        let traffic = &mut services.services[1].traffic;
        let errors = traffic.errors().unwrap();
        let answers = Answers {
            ok: 3.0,
            client_errors: 1.0,
            server_errors: 2.0,
            unknown: 2.0,
            protocol: Some("HTTP".to_owned()),
        };
        traffic.answers = Some(answers);
        assert_eq!(traffic.errors(), Some(errors + 2.0));
        assert_eq!(traffic.without_answer(), Some(errors));
        let text = table(&services);
        let said = "answered 2/s with errors (HTTP 5xx), 1/s with errors of the client (HTTP 4xx); \
                    how 25 % went is not known";
        assert!(text.contains(said), "{text}");
        assert!(sentence(&services.services[1]).contains(said), "{}", sentence(&services.services[1]));
        let answers = services.services[1].traffic.answers.as_mut().unwrap();
        (answers.client_errors, answers.server_errors) = (0.0, 0.0);
        assert_eq!(table(&services), before);
    }

    #[test]
    fn lines_keep_to_the_width_whatever_is_in_names() {
        let mut services = example::services();
        let long = "unix:/run/a/very/long/path/that/somebody/chose/for/a/socket/of/a/service.sock";
        services.services[0].key = long.to_owned();
        services.services[1].name = "evil\u{1b}[2J\u{202e}\n\u{9b}31m|<b>".to_owned();
        services.dependencies[0].called = format!("{long}\u{1b}]0;x\u{7}");
        services.dependencies[0].to = None;
        for width in [80, 100, 120] {
            let text = with(&services, None, |shown| tables(shown, &Style::plain(width)));
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
            assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{9b}', '\u{7}']), "{text}");
            assert!(text.contains("evil?[2J??"), "{text}");
        }
    }

    #[test]
    fn rows_beyond_the_limit_are_counted() {
        let services = example::services();
        let text = with(&services, None, |shown| {
            let shown = Shown {
                chosen: vec![shown.chosen[0]],
                limit: 1,
                ..Shown { services: &services, map: shown.map, chosen: Vec::new(), ..*shown }
            };
            tables(&shown, &Style::plain(80))
        });
        assert!(
            text.contains("and 2 more: see --limit\n") && text.contains("and 9 more: see --limit\n"),
            "{text}"
        );
    }

    #[test]
    fn a_quiet_machine_says_so() {
        let text = with(&Services::default(), None, |shown| tables(shown, &Style::plain(80)));
        assert_eq!(text, "No service was asked anything in 2026-11-21 03:43:01 to 03:44:00 UTC.\n");
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(cut("nginx 0.0.0.0:80", 20), "nginx 0.0.0.0:80");
        assert_eq!(cut("postgres 0.0.0.0:5432@net:[4026532201]", 20), "postgr…:[4026532201]");
        assert_eq!(cut("abc", 1), "…");
    }
}
