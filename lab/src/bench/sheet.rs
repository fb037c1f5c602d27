//! The data sheet, and the table of scores.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::score::Count;
use super::{Index, Part, Score};
use crate::record::Kind;
use crate::score::median;

const SHEET: &str = include_str!("sheet.md");

/// The scores as a table of Markdown.
pub fn table(scores: &[Score]) -> String {
    let mut text =
        "| method | part | root | process | culprit | right of those answered | onset within 2 s | onset, \
                    median error | false alarms | before the trouble | abstained | no answer |\n"
            .to_owned();
    text += "|---|---|---|---|---|---|---|---|---|---|---|---|\n";
    for score in scores {
        let median = score.onset_median_s.map_or("–".to_owned(), |s| format!("{s:.1} s"));
        _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {median} | {} | {} | {} | {} |",
            score.method.replace('|', "/"),
            score.part.map_or("both", Part::name),
            share(score.root),
            share(score.process),
            share(score.culprit),
            share(score.of_answered),
            share(score.onset),
            share(score.false_alarms),
            score.early,
            score.abstained,
            score.missing
        );
    }
    text
}

/// `84 % (31 of 37), 60 x chance`.
fn share(count: Count) -> String {
    if count.of == 0 {
        return "–".into();
    }
    let rate = 100.0 * count.right as f64 / count.of as f64;
    let lift = count.lift().map(|lift| format!(", {lift:.1} × chance")).unwrap_or_default();
    format!("{rate:.0} % ({} of {}){lift}", count.right, count.of)
}

/// The data sheet, with the table if there are scores.
pub fn page(index: &Index, dir: &Path, keep: Option<&Path>, scores: &[Score]) -> anyhow::Result<String> {
    let (mut healthy, mut made, mut incidents) = (0, BTreeSet::new(), 0);
    let mut chance = Count::default();
    for entry in &index.recordings {
        let Some(truth) = index.truth(entry, dir, keep)? else { continue };
        healthy += usize::from(truth.run.kind == Kind::Control);
        for act in truth.run.acts.iter().filter(|a| truth.run.kind != Kind::Control && !a.noise) {
            incidents += 1;
            _ = made.insert(act.condition.clone());
        }
        if let Some(of_process) = truth.chance {
            chance.of += 1;
            chance.chance += of_process;
        }
    }
    let mut lengths: Vec<f64> = index.recordings.iter().map(|e| e.until_s - e.since_s).collect();
    let machines: BTreeSet<&str> = index.recordings.iter().map(|e| e.machine.as_str()).collect();
    let count = |part: Part| index.recordings.iter().filter(|e| e.part == part).count().to_string();
    let values = [
        ("{recordings}", index.recordings.len().to_string()),
        ("{incidents}", incidents.to_string()),
        ("{healthy}", healthy.to_string()),
        ("{conditions}", made.len().to_string()),
        ("{roots}", index.roots.len().to_string()),
        ("{public}", count(Part::Public)),
        ("{sealed}", count(Part::Sealed)),
        ("{asks}", chance.of.to_string()),
        ("{chance}", format!("{:.1}", 100.0 * chance.chance / chance.of.max(1) as f64)),
        ("{seconds}", median(&mut lengths).map_or_else(String::new, |s| format!("{s:.0}"))),
        ("{machines}", machines.into_iter().collect::<Vec<_>>().join("; ")),
        (
            "{table}",
            if scores.is_empty() { String::new() } else { format!("## Scores\n\n{}", table(scores)) },
        ),
    ];
    let text = values.iter().fold(SHEET.to_owned(), |text, (name, value)| text.replace(name, value));
    Ok(text.trim_end().to_owned() + "\n")
}
