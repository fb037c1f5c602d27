//! The report as one self-contained HTML page: nothing is loaded, no script runs.

mod body;
pub mod captured;
pub mod chain;
pub mod compare;
pub mod experiment;
pub mod flame;
pub mod plot;
mod resource;
mod runs;
pub mod sections;
mod svg;

use std::borrow::Cow;

use mitra_model::capture::FoldedCapture;
use mitra_model::must_escape;
use mitra_model::report::{Culprit, How, Incident, Link, Moment, Report, Root};
use mitra_model::{Era, SeriesSet};

use crate::render::card;
use crate::render::changed;
use crate::render::ledger;
use crate::render::repeats;
use crate::render::sources;
use crate::render::style::Style;
use crate::render::text::{self, Title};
use crate::render::units;
use body::Body;
use sections::{command, enclosed, evidence, files, findings, list, lost, remedies, terms, unknown};

const STYLE: &str = include_str!("style.css");

/// What a page draws.
#[derive(Clone, Copy, Default)]
pub struct Drawn<'a> {
    pub sets: &'a [&'a SeriesSet],
    /// Captures, with the numbers of their spans in [`captured::spans`].
    pub captured: &'a [(usize, FoldedCapture)],
}

impl<'a> Drawn<'a> {
    pub fn of(sets: &'a [&'a SeriesSet]) -> Self {
        Drawn { sets, ..Drawn::default() }
    }
}

/// The page.
pub fn report(report: &Report, drawn: Drawn<'_>, style: &Style, title: Title<'_>) -> String {
    let style = &text::clock_of(report, style);
    let name = match report.incidents.first() {
        Some(incident) => text::verdict(incident, report.window.until, style, title),
        None => report
            .comparison
            .as_ref()
            .map_or_else(|| text::nothing_wrong(report, style), |c| c.statement.clone()),
    };
    let mut body = Body::default();
    body.push(&head(report, style));
    let told = repeats::told(report);
    for one in &told {
        let (number, again) = (one.number, repeats::again(one, report, style));
        let one = one.incident;
        let words = card::words(&one.root_cause, title);
        body.push("<article class=\"incident\">\n");
        if told.len() > 1 {
            let id = body.entry(&format!("{number}. {words}"));
            let all = report.incidents.len();
            body.push(&format!("<p class=\"kicker\" id=\"{id}\">incident {number} of {all}</p>\n"));
        }
        body.push(&summary(report, one, style, title));
        body.push(&enclosed("<p>", again.map(|again| escape(&again).into_owned()), "</p>\n"));
        body.push(&list("remarks", &one.root_cause.remarks));
        body.place_list();
        incident(&mut body, report, one, drawn, style, title);
        body.push("</article>\n");
    }
    if let Some(comparison) = &report.comparison {
        body.push(&runs::comparison(comparison));
    }
    if report.incidents.is_empty() {
        let tag = if report.comparison.is_some() { "p" } else { "h1" };
        body.push(&format!(
            "<{tag} class=\"verdict fine\">{}</{tag}>\n",
            escape(&text::nothing_wrong(report, style))
        ));
        body.place_list();
    }
    body.section("What was seen", &observed(report, drawn.sets, style, title));
    whole(&mut body, report, style);
    body.finish(&name)
}

pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        escape(title)
    )
}

/// Escapes text for elements and quoted attributes. Deceptive characters become U+FFFD.
pub fn escape(text: &str) -> Cow<'_, str> {
    let special =
        |c: char| matches!(c, '&' | '<' | '>' | '"' | '\'') || (must_escape(c) && !matches!(c, '\n' | '\t'));
    if !text.contains(special) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if special(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

fn head(report: &Report, style: &Style) -> String {
    let mut about = "Mitra".to_owned();
    if !report.host.is_empty() {
        about.push_str(&format!(" on {}", report.host));
    }
    if sources::is_known(report.window) {
        about.push_str(&format!(", {}", sources::range(report.window, style)));
    }
    if let Some(baseline) = report.baseline.filter(|b| sources::is_known(*b)) {
        about.push_str(&format!(", compared with {}", sources::range(baseline, style)));
    }
    format!("<p class=\"kicker\">{}</p>\n", escape(&about))
}

fn incident(
    body: &mut Body,
    report: &Report,
    incident: &Incident,
    drawn: Drawn<'_>,
    style: &Style,
    title: Title<'_>,
) {
    let root = &incident.root_cause;
    let mut came_about = chain::chain(incident, style, title);
    let symptoms: Vec<&str> = incident.symptoms.iter().map(|id| title(id).unwrap_or(id)).collect();
    let symptoms = escape(&symptoms.join("; ")).into_owned();
    came_about.push_str(&enclosed("<p><span class=\"faint\">Noticed as:</span> ", [symptoms], "</p>\n"));
    body.section("How it came about", &came_about);
    let others = incident.other_roots.iter();
    let others = others.map(|other| {
        let said = escape(&other.statement);
        format!("<p>{said}</p>\n{}{}", facts(other, title), list("remarks", &other.remarks))
    });
    body.section("What else went wrong", &others.collect::<String>());
    body.section("What to do", &remedies(&incident.remedies));
    body.section("What was changed before", &changed::html(incident, style));
    let next = incident.next.iter();
    let next = next.map(|next| format!("<li>{}{}</li>\n", escape(&next.measure), command(&next.command)));
    body.section("What to measure next", &enclosed("<ul class=\"plain\">\n", next, "</ul>\n"));
    body.section("The numbers over time", &plot::incident(report, incident, drawn.sets, style));
    let captured = captured::section(report, incident, drawn.captured, style);
    body.section("Stacks that were captured meanwhile", &captured);
    let proof = incident.chain.iter().map(|link| evidence(link, &root.statement, style, title));
    body.closed("The evidence: all numbers", &proof.collect::<String>());
    let ruled_out = incident.ruled_out.iter();
    let ruled_out = ruled_out.map(|r| (r.condition.as_str(), escape(&r.because).into_owned()));
    body.closed("What it is not", &terms(ruled_out));
    body.section("What could not be told", &unknown(&incident.unknown));
}

/// What happened in plain words, by whom, at what cost and when, and the first thing to do.
fn summary(report: &Report, incident: &Incident, style: &Style, title: Title<'_>) -> String {
    let (root, until) = (&incident.root_cause, report.window.until);
    let words = match root.unexplained {
        true => format!("Root cause {}", card::words(root, title)),
        false => card::words(root, title),
    };
    let share = root.share.map(|share| format!(", explains {} of the lost time", text::percent(share)));
    let mut html = format!(
        "<h1 class=\"verdict\">{}</h1>\n<p class=\"sure\"><code>{}</code> {}{}</p>\n",
        escape(&words),
        escape(&root.condition),
        card::sure(root).unwrap_or_default(),
        share.unwrap_or_default()
    );
    html.push_str(&enclosed("<p class=\"lead\">", [escape(&root.statement).into_owned()], "</p>\n"));
    let said = |text: Option<String>| text.map(|text| escape(&text).into_owned());
    let (label, first) = match (incident.remedies.first(), incident.next.first()) {
        (Some(remedy), _) => ("Do", Some((&remedy.action, &remedy.command, remedy.risk.as_str()))),
        (None, next) => ("Measure", next.map(|next| (&next.measure, &next.command, ""))),
    };
    let first = first.map(|(action, line, risk)| {
        let risk = enclosed("<span class=\"faint\">Risk: ", [escape(risk).into_owned()], "</span>");
        format!("<span class=\"do\">{}</span>{}{risk}", escape(action), command(line))
    });
    let step = |link: &Link| format!("<span class=\"id\">{}</span>", escape(&link.condition));
    let steps: Vec<String> = incident.chain.iter().map(step).collect();
    let facts = [
        ("Caused by", culprit(&root.culprit)),
        ("Cost", said(card::cost(incident, until))),
        (label, first),
        ("Seen", said(card::seen(style, incident, until))),
        ("Because", (steps.len() > 1).then(|| steps.join(" → "))),
    ];
    let facts =
        facts.into_iter().filter_map(|(label, html)| Some(format!("<dt>{label}</dt><dd>{}</dd>\n", html?)));
    html.push_str(&enclosed("<dl class=\"card\">\n", facts, "</dl>\n"));
    html
}

/// Conditions that are active without a cause that can be named.
fn observed(report: &Report, sets: &[&SeriesSet], style: &Style, title: Title<'_>) -> String {
    if report.observed.is_empty() {
        return String::new();
    }
    let onset = Moment(Era::Fact.zero());
    let seen = Incident { onset, chain: report.observed.clone(), ..Incident::default() };
    let mut html = chain::chain(&seen, style, title);
    html.push_str(&plot::incident(report, &seen, sets, style));
    for link in &report.observed {
        html.push_str(&evidence(link, "", style, title));
    }
    html
}

/// The condition, the culprit, the confidence.
fn facts(root: &Root, title: Title<'_>) -> String {
    let mut facts = vec![match title(&root.condition) {
        Some(words) => format!("<b>{}</b>: {}", escape(&root.condition), escape(words)),
        None => format!("<b>{}</b>", escape(&root.condition)),
    }];
    if let Some(culprit) = culprit(&root.culprit) {
        facts.push(format!("culprit {culprit}"));
    }
    facts.extend(card::sure(root));
    if let Some(share) = root.share {
        facts.push(format!("explains {} of the lost time", text::percent(share)));
    }
    format!("<ul class=\"facts\"><li>{}</li></ul>\n", facts.join("</li><li>"))
}

/// The names of a culprit, and how it is known.
fn culprit(culprit: &Culprit) -> Option<String> {
    let how = culprit.how.map(|how| match how {
        How::Measured => "measured",
        How::Inferred => "inferred from other numbers, from names or times",
        How::Near => "only near: active in the same place at that time",
    });
    let how = enclosed(" <span class=\"faint\">", how.map(|how| format!("({how})")), "</span>");
    text::culprit(culprit).map(|names| format!("<b>{}</b>{how}", escape(&names)))
}

/// What applies to the whole window.
fn whole(body: &mut Body, report: &Report, style: &Style) {
    body.section(&ledger::heading(&report.ledger, report.window), &lost(&report.ledger));
    body.section("Findings: nobody suffers from it yet", &findings(&report.findings));
    body.section("What could not be told", &unknown(&report.unknown));
    body.section("Files read", &files(&report.files));
    let healthy = escape(&report.healthy.join(", ")).into_owned();
    body.section("Checked and healthy", &enclosed("<p class=\"good\">", [healthy], "</p>\n"));
    let loads: Vec<String> = report.loads.iter().map(|run| sources::load(run, style)).collect();
    body.section("Load that was made", &enclosed("<p>", [escape(&loads.join("; ")).into_owned()], "</p>\n"));
    let mut unseen = Vec::new();
    if let Some(left_out) = &report.left_out {
        unseen.push(("Left out".to_owned(), escape(&repeats::left_out(left_out)).into_owned()));
    }
    if !report.contradictions.is_empty() {
        unseen.push(("Doubt".to_owned(), escape(&sources::doubt(report)).into_owned()));
    }
    for gap in &report.recorder.gaps {
        let length = units::length(mitra_model::series::seconds_between(gap.since.0, gap.until.0));
        let why = format!("nothing for {length} ({})", escape(&gap.why));
        unseen.push((style.date_clock(gap.since.0), why));
    }
    for source in &report.recorder.unavailable {
        unseen.push((source.source.clone(), escape(&source.why).into_owned()));
    }
    let unseen = unseen.iter().map(|(term, html)| (term.as_str(), html.clone()));
    body.section("What was not seen", &terms(unseen));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mitra_model::time::SECOND;
    use mitra_model::{Axis, Series, lookup};

    use super::*;
    use crate::render::examples;

    fn title(id: &str) -> Option<&'static str> {
        (id == "streaming-read-flood").then_some("somebody reads more <than> the cache holds")
    }

    /// Every ten seconds around the incident of the example.
    fn series() -> SeriesSet {
        let mut set = SeriesSet::default();
        let start = examples::files().window.since.0;
        let axis = Arc::new(Axis {
            t: (0..120).map(|i| start + i * 10 * SECOND).collect(),
            dt: vec![10.0; 120],
            places: Vec::new(),
        });
        for (metric, high) in [("vm.pgscan_kswapd", 400_526.0), ("vm.pgmajfault", 6768.0)] {
            let values = (0..120).map(|i| if (60..69).contains(&i) { high } else { 0.0 }).collect();
            set.insert(lookup(metric).unwrap(), "".into(), Series { axis: axis.clone(), start: 0, values });
        }
        set
    }

    #[test]
    fn nothing_of_what_was_quoted_becomes_markup() {
        let html = report(&examples::files(), Drawn::of(&[&series()]), &Style::plain(80), &title);
        for evil in ["<script", "<b>dentry", "<than>", "\x1b"] {
            assert!(!html.contains(evil), "{evil}");
        }
        assert!(
            html.contains("&lt;script&gt;alert(1)&lt;/script&gt;")
                && html.contains("&lt;b&gt;dentry&lt;/b&gt;")
        );
        assert_eq!(escape("a\x07<&>\"'\n"), "a\u{fffd}&lt;&amp;&gt;&quot;&#39;\n");
    }

    #[test]
    fn how_a_culprit_is_known_is_said() {
        let mut flood = examples::flood();
        for (how, said) in [
            (
                Some(How::Measured),
                "<b>dd (pid 8123), cgroup /backup, device vda, file /data/big\u{fffd}[2J</b> <span class=\"faint\">(measured",
            ),
            (Some(How::Inferred), "(inferred from"),
            (Some(How::Near), "(only near"),
            (None, "[2J</b></dd>"),
        ] {
            flood.incidents[0].root_cause.culprit.how = how;
            let html = report(&flood, Drawn::default(), &Style::plain(80), &title);
            assert!(html.contains(said), "{said} is not in {html}");
        }
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere() {
        for example in [examples::files(), examples::runs(), examples::two(), examples::quiet()] {
            let html = report(&example, Drawn::default(), &Style::plain(80), &title);
            for outside in ["http:", "https:", "src=", "@import", "url(h"] {
                assert!(!html.contains(outside), "{outside}");
            }
            assert!(html.contains("Content-Security-Policy"));
        }
    }

    #[test]
    fn every_element_is_closed() {
        for example in [examples::files(), examples::runs(), examples::two(), examples::quiet()] {
            let html = report(&example, Drawn::of(&[&series()]), &Style::plain(80), &title);
            let tags = [
                "section", "article", "nav", "details", "div", "figure", "svg", "g", "i", "table", "tr",
                "td", "ul", "ol", "li", "dl", "pre", "p", "text",
            ];
            for tag in tags {
                let open =
                    html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
                assert_eq!(open, html.matches(&format!("</{tag}>")).count(), "{tag}");
            }
        }
    }

    #[test]
    fn the_numbers_of_the_chain_are_drawn_where_there_are_series() {
        let html = report(&examples::files(), Drawn::of(&[&series()]), &Style::plain(80), &title);
        assert_eq!(html.matches("class=\"series\"").count(), 2);
        // The onset of each of the two, and the stretch of the incident.
        assert_eq!(html.matches("class=\"onset\"").count(), 2);
        assert_eq!(html.matches("class=\"shade\"").count(), 2);
        assert!(
            html.contains(">12:40<")
                && html.contains("<h3>Memory</h3>")
                && html.contains("Times of a day without a date"),
            "no axis"
        );
        let bare = report(&examples::files(), Drawn::default(), &Style::plain(80), &title);
        assert!(!bare.contains("over time<"));
    }

    #[test]
    fn what_has_no_time_is_drawn_sample_by_sample() {
        let mut set = SeriesSet::default();
        let t = (0..5).map(|i| Era::Sequence.zero() + i * SECOND).collect();
        let axis = Arc::new(Axis { t, dt: vec![f64::NAN; 5], places: Vec::new() });
        let values = vec![0.0, 1.0, 2.0, 4.0, 8.0].into();
        set.insert(lookup("vm.pgscan_kswapd").unwrap(), "".into(), Series { axis, start: 0, values });
        let html = report(&examples::files(), Drawn::of(&[&set]), &Style::plain(80), &title);
        assert!(html.contains(">sample 5<") && !html.contains("class=\"onset\""));
    }
}
