//! Lists and tables of the HTML page.

use mitra_model::report::{Evidence, FileRead, Finding, Ledger, Link, Quote, Remedy, Unknown};

use super::escape;
use crate::render::ledger;
use crate::render::proof;
use crate::render::sources;
use crate::render::style::Style;
use crate::render::text::{self, Title};
use crate::render::units;

/// Elements between two tags; nothing if there are none.
pub fn enclosed(open: &str, items: impl IntoIterator<Item = String>, close: &str) -> String {
    let items: String = items.into_iter().collect();
    if items.is_empty() { items } else { format!("{open}{items}{close}") }
}

pub fn list(class: &str, items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("<li>{}</li>", escape(item))).collect();
    enclosed(&format!("<ul class=\"{class}\">"), [items.join("\n")], "</ul>\n")
}

/// Terms with explanations in HTML.
pub fn terms<'a>(items: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let items = items.into_iter().map(|(term, html)| format!("<dt>{}</dt><dd>{html}</dd>\n", escape(term)));
    enclosed("<dl>\n", items, "</dl>\n")
}

pub fn unknown(list: &[Unknown]) -> String {
    let needs = |one: &Unknown| {
        let command = one.command.as_deref().map_or_else(String::new, command);
        format!("needs {}{command}", escape(&one.needs))
    };
    terms(list.iter().map(|one| (one.condition.as_str(), needs(one))))
}

/// A link: its numbers and their lines. The statement is left out if it was `said` already.
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
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"numbers\"><tr><th>number</th><th class=\"n\">before</th>\
                    <th class=\"n\">during</th>"
            .to_owned();
    html.push_str(if has_peak { "<th class=\"n\">extreme</th>" } else { "" });
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

/// Quoted lines with their numbers, by file.
pub fn quotes<'q>(quotes: impl Iterator<Item = &'q Quote>) -> String {
    let mut lines: Vec<(&str, u32, &str)> =
        quotes.filter_map(|q| Some((q.file.as_str(), q.line, q.text.as_deref()?))).collect();
    lines.sort_unstable();
    lines.dedup();
    let mut html = String::new();
    for file in lines.chunk_by(|a, b| a.0 == b.0) {
        let Some((name, _, _)) = file.first() else { continue };
        html.push_str(&format!(
            "<p class=\"place\">{}</p><div class=\"raw\" tabindex=\"0\"><table>\n",
            escape(name)
        ));
        for (_, line, text) in file {
            html.push_str(&format!("<tr><td>{line}</td><td>{}</td></tr>\n", escape(text)));
        }
        html.push_str("</table></div>\n");
    }
    html
}

/// Remedies. A click on a command selects it.
pub fn remedies(remedies: &[Remedy]) -> String {
    let item = |remedy: &Remedy| {
        let remarks = [("Verify", &remedy.verify), ("Risk", &remedy.risk)].map(|(label, text)| {
            let open = format!("<p><span class=\"faint\">{label}:</span> ");
            enclosed(&open, [escape(text).into_owned()], "</p>")
        });
        format!("<li>{}{}{}</li>\n", escape(&remedy.action), command(&remedy.command), remarks.concat())
    };
    enclosed("<ol class=\"steps\">\n", remedies.iter().map(item), "</ol>\n")
}

pub fn command(command: &str) -> String {
    enclosed("<pre class=\"command\">", [escape(command).into_owned()], "</pre>")
}

/// What nobody suffers from yet.
pub fn findings(all: &[Finding]) -> String {
    let section = |finding: &Finding| {
        format!(
            "<div class=\"proof\"><h3>{}</h3>\n<p class=\"kicker\">{}</p>\n{}{}{}</div>\n",
            escape(&finding.statement),
            escape(&finding.condition),
            list("remarks", &finding.remarks),
            numbers(&finding.evidence),
            remedies(&finding.remedies)
        )
    };
    all.iter().map(section).collect()
}

/// Lost time.
pub fn lost(ledger: &Ledger) -> String {
    let causes = ledger.by_cause.iter().map(|c| (c.cause.clone(), c.seconds));
    let processes = ledger.by_process.iter().map(|p| (format!("{} ({})", p.name, p.pid), p.seconds));
    let mut html = String::new();
    for (what, rows) in
        [("What tasks waited for", causes.collect::<Vec<_>>()), ("Who waited", processes.collect())]
    {
        let rows: Vec<(String, f64, String)> = rows
            .into_iter()
            .filter(|row| row.1 >= ledger::TOLD_S)
            .map(|(name, s)| (name, s, text::short_seconds(s)))
            .collect();
        let caption = format!("<figure><figcaption>{what}, task-seconds</figcaption>");
        html.push_str(&enclosed(&caption, [super::runs::bars(&rows)], "</figure>\n"));
    }
    let remarks =
        ledger::remarks(ledger).into_iter().map(|remark| format!("<p class=\"faint\">{remark}</p>\n"));
    html.extend(remarks);
    html
}

/// The files, and what was read of each.
pub fn files(files: &[FileRead]) -> String {
    let row = |file: &FileRead| {
        let first = file.first_unread.as_ref().map_or_else(String::new, |(line, text)| {
            format!("<span class=\"place\">{line}</span> <code>{}</code>", escape(text))
        });
        let (name, what) = (escape(&file.file), sources::made_of(file));
        format!("<tr><td><code>{name}</code></td><td>{}</td><td>{first}</td></tr>\n", escape(&what))
    };
    let head = "<div class=\"scroll\" tabindex=\"0\"><table><tr><th>file</th><th>holds</th>\
                <th>first line that made no sense</th></tr>\n";
    enclosed(head, files.iter().map(row), "</table></div>\n")
}
