//! The parts of the page that are lists and tables.

use mitra_model::report::{Advice, Evidence, FileRead, Ledger, Link, Quote, Remedy, Unknown, Window};

use super::escape;
use crate::render::proof;
use crate::render::sources;
use crate::render::style::Style;
use crate::render::text::{self, Title};
use crate::render::units;

/// A list of short sentences; nothing where there are none.
pub fn list(class: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let items: Vec<String> = items.iter().map(|item| format!("<li>{}</li>", escape(item))).collect();
    format!("<ul class=\"{class}\">{}</ul>\n", items.join("\n"))
}

/// Names with what is to be said of each, below a heading.
pub fn paragraphs(heading: &str, items: &[(&str, &str)]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let mut html = format!("<h2>{heading}</h2>\n<dl>\n");
    for (name, what) in items {
        html.push_str(&format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(what)));
    }
    html.push_str("</dl>\n");
    html
}

/// What could not be told, and what would tell it.
pub fn unknown(list: &[Unknown]) -> String {
    if list.is_empty() {
        return String::new();
    }
    let mut html = "<h2>What could not be told</h2>\n<dl>\n".to_owned();
    for one in list {
        html.push_str(&format!(
            "<dt>{}</dt><dd>needs {}{}</dd>\n",
            escape(&one.condition),
            escape(&one.needs),
            one.command.as_deref().map_or_else(String::new, command)
        ));
    }
    html.push_str("</dl>\n");
    html
}

/// One link: its numbers and the lines that say so. What was `said` above is not said again.
pub fn evidence(link: &Link, said: &str, style: &Style, title: Title<'_>) -> String {
    let when = style.clock(link.onset.0);
    let words = title(&link.condition).map_or_else(String::new, |words| format!(": {words}"));
    let mut html = format!(
        "<div class=\"proof\"><h3>{}{} <span class=\"faint\">{}</span></h3>\n",
        escape(&link.condition),
        escape(&words),
        escape(&when)
    );
    if !link.statement.is_empty() && link.statement != said {
        html.push_str(&format!("<p>{}</p>\n{}", escape(&link.statement), list("remarks", &link.remarks)));
    }
    html.push_str(&numbers(&link.evidence));
    html.push_str("</div>\n");
    html
}

fn numbers(list: &[Evidence]) -> String {
    if list.is_empty() {
        return String::new();
    }
    let has_peak = list.iter().any(|e| e.peak.is_some());
    let has_places = list.iter().any(|e| !e.quotes.is_empty());
    let mut html =
        "<div class=\"scroll\"><table class=\"numbers\"><tr><th>number</th><th class=\"n\">before</th>\
                    <th class=\"n\">during</th>"
            .to_owned();
    html.push_str(if has_peak { "<th class=\"n\">peak</th>" } else { "" });
    html.push_str(if has_places { "<th>lines</th></tr>\n" } else { "</tr>\n" });
    for evidence in list {
        let show = |value: Option<f64>| {
            let text = value.map_or_else(|| "–".to_owned(), |value| units::value(value, &evidence.unit));
            format!("<td class=\"n\">{}</td>", escape(&text))
        };
        html.push_str(&format!("<tr><td><code>{}</code></td>", escape(&proof::name(evidence))));
        html.push_str(&show(evidence.before));
        html.push_str(&show(Some(evidence.during)));
        if has_peak {
            html.push_str(&show(evidence.peak));
        }
        if has_places {
            let places = proof::places(&evidence.quotes);
            html.push_str(&format!("<td class=\"place\">{}</td>", escape(&places)));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
    html.push_str(&quotes(list.iter().flat_map(|e| &e.quotes)));
    html
}

/// The lines themselves with their numbers, file by file.
pub fn quotes<'q>(quotes: impl Iterator<Item = &'q Quote>) -> String {
    let mut lines: Vec<(&str, u32, &str)> =
        quotes.filter_map(|q| Some((q.file.as_str(), q.line, q.text.as_deref()?))).collect();
    lines.sort_unstable();
    lines.dedup();
    let mut html = String::new();
    for file in lines.chunk_by(|a, b| a.0 == b.0) {
        let Some((name, _, _)) = file.first() else { continue };
        html.push_str(&format!("<p class=\"place\">{}</p><div class=\"raw\"><table>\n", escape(name)));
        for (_, line, text) in file {
            html.push_str(&format!("<tr><td>{line}</td><td>{}</td></tr>\n", escape(text)));
        }
        html.push_str("</table></div>\n");
    }
    html
}

/// What to do. One click on a command selects all of it.
pub fn remedies(heading: &str, remedies: &[Remedy]) -> String {
    if remedies.is_empty() {
        return String::new();
    }
    let mut html = format!("<h2>{heading}</h2>\n<ol class=\"steps\">\n");
    for remedy in remedies {
        html.push_str(&format!("<li>{}{}", escape(&remedy.action), command(&remedy.command)));
        for (label, text) in [("Verify", &remedy.verify), ("Risk", &remedy.risk)] {
            if !text.is_empty() {
                html.push_str(&format!("<p><span class=\"faint\">{label}:</span> {}</p>", escape(text)));
            }
        }
        html.push_str("</li>\n");
    }
    html.push_str("</ol>\n");
    html
}

/// A command to be copied.
pub fn command(command: &str) -> String {
    if command.is_empty() {
        return String::new();
    }
    format!("<pre class=\"command\">{}</pre>", escape(command))
}

/// What could be better although nothing went wrong.
pub fn advice(list_of: &[Advice]) -> String {
    if list_of.is_empty() {
        return String::new();
    }
    let mut html = "<h2>What could be better</h2>\n".to_owned();
    for advice in list_of {
        html.push_str(&format!(
            "<section class=\"proof\"><h3>{}</h3>\n<p class=\"kicker\">{}</p>\n",
            escape(&advice.statement),
            escape(&advice.condition)
        ));
        html.push_str(&list("remarks", &advice.remarks));
        html.push_str(&numbers(&advice.evidence));
        html.push_str(&remedies("", &advice.remedies).replacen("<h2></h2>\n", "", 1));
        html.push_str("</section>\n");
    }
    html
}

/// Where time was lost.
pub fn ledger(ledger: &Ledger, window: Window) -> String {
    if ledger.by_cause.is_empty() && ledger.by_process.is_empty() {
        return String::new();
    }
    let all = ledger.lost_task_seconds.map_or_else(String::new, |lost| {
        format!(": {} in {}", units::task_seconds(lost), text::window_length(window))
    });
    let mut html = format!("<h2>Time lost in the whole window{all}</h2>\n");
    let causes = ledger.by_cause.iter().map(|c| (c.cause.clone(), c.seconds));
    let processes = ledger.by_process.iter().map(|p| (format!("{} ({})", p.name, p.pid), p.seconds));
    for (what, rows) in
        [("What tasks waited for", causes.collect::<Vec<_>>()), ("Who waited", processes.collect())]
    {
        if !rows.is_empty() {
            let rows: Vec<(String, f64, String)> =
                rows.into_iter().map(|(name, s)| (name, s, text::short_seconds(s))).collect();
            html.push_str(&format!(
                "<figure><figcaption>{what}, task-seconds</figcaption>{}</figure>\n",
                super::runs::bars(&rows)
            ));
        }
    }
    html
}

/// The files, and what was made of each.
pub fn files(files: &[FileRead]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let mut html = "<h2>Files read</h2>\n<div class=\"scroll\"><table><tr><th>file</th><th>holds</th>\
                    <th>first line that made no sense</th></tr>\n"
        .to_owned();
    for file in files {
        let first = file.first_unread.as_ref().map_or_else(String::new, |(line, text)| {
            format!("<span class=\"place\">{line}</span> <code>{}</code>", escape(text))
        });
        html.push_str(&format!(
            "<tr><td><code>{}</code></td><td>{}</td><td>{first}</td></tr>\n",
            escape(&file.file),
            escape(&sources::made_of(file))
        ));
    }
    html.push_str("</table></div>\n");
    html
}
