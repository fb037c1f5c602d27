//! The score as text for a terminal.

use std::fmt::Write as _;

use super::calibration::Bin;
use super::{Judged, Summary, Verdict};
use crate::record::Kind;

/// The errors of a verdict, in a few words. Empty if there are none.
pub fn remark(v: &Verdict) -> String {
    if let Some(why) = &v.broke {
        return why.lines().next().unwrap_or_default().to_owned();
    }
    let mut parts = Vec::new();
    if !v.root {
        parts.push(format!("said {}", v.answer.as_deref().unwrap_or("nothing")));
        if v.named {
            parts.push("named further down".into());
        }
    }
    if v.answer.is_some() {
        parts.extend(v.culprit_wrong.iter().cloned());
    }
    parts.extend(v.chain_wrong.iter().cloned());
    if !v.gaps_s.is_empty() {
        parts.push(format!("{} gaps of the recorder", v.gaps_s.len()));
    }
    parts.join("; ")
}

/// Live explanations that failed.
pub fn live_failures(run: &Judged) -> Option<String> {
    let mut failed = run.record.live.iter().filter_map(|l| l.failed.as_deref());
    let first = failed.next()?.lines().next().unwrap_or_default();
    Some(format!("live explanations that failed: {}; the first: {first}", 1 + failed.count()))
}

/// A verdict in one line.
pub fn line(v: &Verdict) -> String {
    let mark = |ok: bool| if ok { "yes" } else { "NO" };
    let seconds = |s: Option<f64>, sign: bool| match s {
        Some(s) if sign => format!("{s:+.1}"),
        Some(s) => format!("{s:.1}"),
        None => "-".into(),
    };
    format!(
        "{:<26} {:<5} {:<26} {:>4} {:>7} {:>6} {:>6} {:>7}  {}",
        v.name,
        v.form.map(|f| f.to_string()).unwrap_or_default(),
        v.condition,
        mark(v.root),
        mark(v.culprit),
        seconds(v.onset_error_s, true),
        seconds(v.live_s, false),
        v.slower.map_or("-".into(), |s| format!("{s:.1}x")),
        remark(v)
    )
}

/// The whole page.
pub fn page(runs: &[Judged], summary: &Summary) -> String {
    let mut text = String::new();
    let single = || runs.iter().filter(|r| r.record.kind == Kind::Incident);
    if single().next().is_some() {
        _ = writeln!(
            text,
            "{:<26} {:<5} {:<26} {:>4} {:>7} {:>6} {:>6} {:>7}",
            "incident", "form", "true root", "root", "culprit", "onset", "live", "slower"
        );
    }
    for v in single().flat_map(|r| &r.verdicts) {
        _ = writeln!(text, "{}", line(v));
    }
    for kind in [Kind::Pair, Kind::Noise] {
        for run in runs.iter().filter(|r| r.record.kind == kind && r.record.state.is_judged()) {
            let named = |v: &Verdict| if v.named { "named" } else { "NOT named" };
            let parts: Vec<String> = run
                .verdicts
                .iter()
                .map(|v| {
                    format!(
                        "{} {} (first: {})",
                        v.condition,
                        named(v),
                        v.answer.as_deref().or(v.broke.as_deref()).unwrap_or("nothing")
                    )
                })
                .collect();
            _ = writeln!(text, "{:<52} {}", run.record.key, parts.join("; "));
        }
    }
    for run in runs.iter().filter(|r| r.record.kind == Kind::Control && r.record.state.is_judged()) {
        let said = match run.found_on_control.as_slice() {
            [] => "silent".to_owned(),
            found => format!("FALSE: {}", found.join("; ")),
        };
        _ = writeln!(text, "{:<52} {said}", run.record.key);
    }
    for run in runs {
        for said in &run.early {
            _ = writeln!(text, "{:<52} before the trouble: {said}", run.record.key);
        }
        if let Some(failed) = live_failures(run) {
            _ = writeln!(text, "{:<52} {failed}", run.record.key);
        }
    }
    _ = writeln!(text);
    if let Some(line) = summary.mixed_builds() {
        _ = writeln!(text, "{line}");
    }
    for goal in &summary.goals {
        let reached = match goal.reached {
            Some(true) => "reached",
            Some(false) => "MISSED",
            None => "",
        };
        _ = writeln!(text, "{:<58} {:<40} {:<7} {reached}", goal.what, goal.is, goal.should);
    }
    for (seed, root, culprit) in &summary.seeds {
        _ = writeln!(text, "  seed {seed:<8} root {root:<20} culprit {culprit}");
    }
    _ = writeln!(text, "\nhow sure, and how often right");
    for bin in &summary.calibration {
        let Bin { from, verdicts, said, right } = bin;
        _ = writeln!(
            text,
            "  from {:>3.0} %   said {:>3.0} %   right {:>3.0} %   of {verdicts}",
            100.0 * from,
            100.0 * said,
            100.0 * right
        );
    }
    _ = writeln!(text, "\nroot in first place, by others on the same recordings");
    for (name, right, all) in &summary.baselines {
        _ = writeln!(text, "  {name:<50} {right} of {all}");
    }
    _ = writeln!(text, "  {}", crate::baselines::RULE);
    if let Some(line) = summary.unnameable() {
        _ = writeln!(text, "  {line}");
    }
    if !summary.untold.is_empty() {
        _ = writeln!(text, "\nnot counted");
    }
    for (key, _, why) in &summary.untold {
        _ = writeln!(text, "  {key:<50} {}", why.lines().next().unwrap_or_default());
    }
    confusion(&mut text, summary);
    text
}

fn confusion(text: &mut String, summary: &Summary) {
    let wrong: Vec<_> = summary.confusion.iter().filter(|((truth, answer), _)| truth != answer).collect();
    if !wrong.is_empty() {
        _ = writeln!(text, "\nanswers other than the truth");
    }
    for ((truth, answer), count) in wrong {
        _ = writeln!(text, "  {truth:<28} {answer:<28} {count}");
    }
}
