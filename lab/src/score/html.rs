//! The score as one self-contained HTML file.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::page::{live_failures, remark};
use super::{Judged, Summary, Verdict};
use crate::record::Kind;

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;color:#1c2430}\
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .6rem;border-bottom:1px solid #dde2e8;text-align:left;\
vertical-align:top}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.y{color:#12702f}.x{color:#b3261e;font-weight:600}\
.w{overflow-x:auto}.m td{text-align:center;padding:.15rem .35rem}.m th.v{writing-mode:vertical-rl;transform:rotate(180deg);font-weight:400}\
.d{background:#d9f0df}.e{background:#f9d9d6}small{color:#5a6675}\
@media(prefers-color-scheme:dark){body{background:#14181d;color:#dde3ea}td,th{border-color:#323a44}.d{background:#1d4a2b}.e{background:#5c2320}}";

/// Escapes text for HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn mark(ok: bool) -> &'static str {
    if ok { "<span class=y>yes</span>" } else { "<span class=x>no</span>" }
}

/// The whole file.
pub fn html(runs: &[Judged], summary: &Summary) -> String {
    let mut text = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>Laboratory</title><style>{STYLE}</style><h1>Laboratory</h1>"
    );
    if let Some(run) = runs.first() {
        let seeds: BTreeSet<u64> = runs.iter().map(|r| r.record.seed).collect();
        let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
        _ = write!(
            text,
            "<p>{}, {}, seed {}</p>",
            escape(&summary.mixed_builds().unwrap_or_else(|| run.record.mitra.clone())),
            escape(&run.record.machine),
            seeds.join(", ")
        );
    }
    goals(&mut text, summary);
    incidents(&mut text, runs);
    controls(&mut text, runs);
    pairs(&mut text, runs);
    matrix(&mut text, summary);
    remarks(&mut text, runs);
    untold(&mut text, summary);
    text.push_str("</html>\n");
    text
}

fn goals(text: &mut String, summary: &Summary) {
    text.push_str("<h2>Against the goals</h2><table><tr><th><th>is<th>should be<th>");
    for g in &summary.goals {
        let reached = match g.reached {
            Some(true) => "<span class=y>reached</span>",
            Some(false) => "<span class=x>missed</span>",
            None => "",
        };
        _ = write!(text, "<tr><td>{}<td>{}<td>{}<td>{reached}", escape(g.what), escape(&g.is), g.should);
    }
    for (seed, root, culprit) in &summary.seeds {
        _ = write!(text, "<tr><td>root and culprit, seed {seed}<td>{root}; {culprit}<td><td>");
    }
    text.push_str("</table><h2>Others on the same recordings</h2><table><tr><th>root in first place<th class=n>right<th class=n>of");
    for (name, right, all) in &summary.baselines {
        _ = write!(text, "<tr><td>{}<td class=n>{right}<td class=n>{all}", escape(name));
    }
    _ = write!(text, "</table><p><small>{}</small>", escape(crate::baselines::RULE));
    if let Some(line) = summary.unnameable() {
        _ = write!(text, "<p><small>{}</small>", escape(&line));
    }
}

fn row(text: &mut String, v: &Verdict) {
    let seconds = |s: Option<f64>| s.map_or("–".into(), |s| format!("{s:.1}"));
    _ = write!(
        text,
        "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td class=n>{}<td class=n>{}<td class=n>{}<td><small>{}</small>",
        escape(&v.name),
        v.form.map(|f| f.to_string()).unwrap_or_default(),
        escape(&v.condition),
        mark(v.root),
        mark(v.culprit),
        seconds(v.onset_error_s),
        seconds(v.live_s),
        v.slower.map_or("–".into(), |s| format!("{s:.1}")),
        escape(&remark(v))
    );
    for said in &v.baselines.said {
        _ = write!(text, "<td><small>{}</small>", escape(said));
    }
}

fn incidents(text: &mut String, runs: &[Judged]) {
    text.push_str("<h2>Incidents</h2><table><tr><th>incident<th>form<th>true root<th>root<th>culprit<th class=n>onset, s<th class=n>live, s<th class=n>slower, times<th>");
    for name in crate::baselines::NAMES {
        _ = write!(text, "<th><small>{}</small>", escape(name));
    }
    for v in runs.iter().filter(|r| r.record.kind == Kind::Incident).flat_map(|r| &r.verdicts) {
        row(text, v);
    }
    text.push_str("</table>");
}

fn controls(text: &mut String, runs: &[Judged]) {
    text.push_str("<h2>Healthy machines</h2><table>");
    for run in runs.iter().filter(|r| r.record.kind == Kind::Control && r.record.state.is_judged()) {
        let said = match run.found_on_control.as_slice() {
            [] => "<span class=y>silent</span>".to_owned(),
            found => format!("<span class=x>{}</span>", escape(&found.join("; "))),
        };
        _ = write!(text, "<tr><td>{}<td>{said}", escape(&run.record.key));
    }
    text.push_str("</table>");
}

fn pairs(text: &mut String, runs: &[Judged]) {
    text.push_str("<h2>Two at once</h2><table><tr><th>run<th>truth<th>named<th>in first place");
    let both = |r: &&Judged| matches!(r.record.kind, Kind::Pair | Kind::Noise);
    for run in runs.iter().filter(both) {
        for v in &run.verdicts {
            _ = write!(
                text,
                "<tr><td>{}<td>{}<td>{}<td>{}",
                escape(&run.record.key),
                escape(&v.condition),
                mark(v.named),
                escape(v.answer.as_deref().or(v.broke.as_deref()).unwrap_or("nothing"))
            );
        }
    }
    text.push_str("</table>");
}

fn matrix(text: &mut String, summary: &Summary) {
    let truths: BTreeSet<&str> = summary.confusion.keys().map(|(t, _)| t.as_str()).collect();
    let answers: BTreeSet<&str> = summary.confusion.keys().map(|(_, a)| a.as_str()).collect();
    text.push_str("<h2>Truth (rows) and answer (columns)</h2><div class=w><table class=m><tr><th>");
    for answer in &answers {
        _ = write!(text, "<th class=v>{}", escape(answer));
    }
    for truth in truths {
        _ = write!(text, "<tr><th>{}", escape(truth));
        for answer in &answers {
            match summary.confusion.get(&(truth.to_owned(), (*answer).to_owned())) {
                Some(count) => {
                    let class = if truth == *answer { "d" } else { "e" };
                    _ = write!(text, "<td class={class}>{count}");
                }
                None => text.push_str("<td>"),
            }
        }
    }
    text.push_str("</table></div>");
}

fn remarks(text: &mut String, runs: &[Judged]) {
    let early: Vec<(&str, &str)> = runs
        .iter()
        .flat_map(|r| r.early.iter().map(move |said| (r.record.key.as_str(), said.as_str())))
        .collect();
    list(text, "Before the trouble", &early);
    let failed: Vec<(&str, String)> =
        runs.iter().filter_map(|r| Some((r.record.key.as_str(), live_failures(r)?))).collect();
    let failed: Vec<(&str, &str)> = failed.iter().map(|(key, said)| (*key, said.as_str())).collect();
    list(text, "Live", &failed);
}

fn untold(text: &mut String, summary: &Summary) {
    let untold: Vec<(&str, &str)> =
        summary.untold.iter().map(|(key, _, why)| (key.as_str(), why.as_str())).collect();
    list(text, "Not counted", &untold);
}

fn list(text: &mut String, title: &str, rows: &[(&str, &str)]) {
    if rows.is_empty() {
        return;
    }
    _ = write!(text, "<h2>{title}</h2><table>");
    for (key, said) in rows {
        _ = write!(text, "<tr><td>{}<td>{}", escape(key), escape(said));
    }
    text.push_str("</table>");
}
