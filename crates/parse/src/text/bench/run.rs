//! One run of a benchmark as rows of [`mitra_model::Entity::Run`], and the units that benchmarks print.

use super::super::import::{Form, Import, When};
use super::super::lines::Lines;
use super::super::number::{leading, text};

/// How many lines after one that makes no sense are looked at for more of the same output.
const DAMAGE_MAX: usize = 4;
/// A name of a job that is longer than this is cut.
const NAME_MAX: usize = 120;
/// Names of one file that are remembered.
const RUNS_MAX: usize = 1000;

/// The run that is being read.
pub struct Run {
    row: String,
    when: When,
}

impl Run {
    /// Begins a run. It is called after its file and its job; a second one of that name in the file gets a number.
    pub fn begin(import: &mut Import, tool: &str, job: Option<&str>) -> Run {
        let stem = stem(&import.context.file_name);
        let name = match job {
            Some(job) => {
                let job: String = job.chars().take(NAME_MAX).collect();
                if job == stem || stem.is_empty() { job } else { format!("{stem}:{job}") }
            }
            None => stem.to_owned(),
        };
        let row = match times(&mut import.context.runs, &name) {
            1 => name,
            n => format!("{name}#{n}"),
        };
        let run = Run { row, when: import.now() };
        import.text("run.tool", &run.row, run.when, tool);
        run
    }

    /// One number of it, in base units.
    pub fn put(&self, import: &mut Import, metric: &str, line: u32, value: Option<f64>) {
        if let Some(value) = value.filter(|v| v.is_finite()) {
            import.value(metric, &self.row, Form::Level, self.when, line, value);
        }
    }

    /// What the run was made against.
    pub fn target(&self, import: &mut Import, target: &[u8]) {
        if !target.is_empty() {
            import.text("run.target", &self.row, self.when, &text(target));
        }
    }

    /// Says more exactly which benchmark it was.
    pub fn tool(&self, import: &mut Import, tool: &str) {
        import.text("run.tool", &self.row, self.when, tool);
    }

    /// A percentile of the latency in seconds, if it is one of those that are kept.
    pub fn percentile(&self, import: &mut Import, percent: f64, line: u32, seconds: Option<f64>) {
        const KEPT: [(f64, &str); 7] = [
            (50.0, "run.latency_p50"),
            (75.0, "run.latency_p75"),
            (90.0, "run.latency_p90"),
            (95.0, "run.latency_p95"),
            (99.0, "run.latency_p99"),
            (99.9, "run.latency_p999"),
            (100.0, "run.latency_max"),
        ];
        if let Some((_, metric)) = KEPT.iter().find(|(p, _)| (p - percent).abs() < 1e-6) {
            self.put(import, metric, line, seconds);
        }
    }
}

/// How often the name has come, this time included.
fn times(runs: &mut Vec<(String, u32)>, name: &str) -> u32 {
    if let Some((_, n)) = runs.iter_mut().find(|(known, _)| known == name) {
        *n = n.saturating_add(1);
        return *n;
    }
    if runs.len() < RUNS_MAX {
        runs.push((name.to_owned(), 1));
    }
    1
}

/// The name of a file without directory and extension.
fn stem(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() && extension.len() <= 5 => stem,
        _ => name,
    }
}

/// What was made of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Took {
    /// It belongs to the run.
    Yes,
    /// It belongs to the run, and nothing comes after it.
    Last,
    /// It is of something else, or damaged.
    No,
    /// It begins something else.
    Stop,
}

/// Reads lines up to the last one or to the first that is not of the run. A line that makes no sense is damage where
/// `known` tells that more of the run follows within a few lines.
pub fn each_line(
    lines: &mut Lines<'_>,
    import: &mut Import,
    known: fn(&[u8]) -> bool,
    mut take: impl FnMut(&[u8], u32, &mut Import) -> Took,
) {
    loop {
        let number = lines.number();
        let Some(line) = lines.peek() else { return };
        let took = if line.trim_ascii().is_empty() { Took::Yes } else { take(line, number, import) };
        if took == Took::Stop {
            return;
        }
        if took == Took::No {
            let more = (1..=DAMAGE_MAX).any(|n| lines.ahead(n).is_some_and(known));
            if !more {
                return;
            }
            if let Some(line) = lines.peek() {
                import.unread(number, line);
            }
        }
        lines.advance();
        if took == Took::Last {
            return;
        }
    }
}

/// A time with its unit, in seconds: `103.07ms`, `1.76s`, `2.00m`, `1.5h`, `843µs`, `12.5 secs`, and what Go prints,
/// `1m2.5s`.
pub fn seconds(word: &[u8]) -> Option<f64> {
    let mut rest = word.trim_ascii();
    let mut total = 0.0;
    loop {
        let (value, after) = leading(rest)?;
        let after = after.trim_ascii_start();
        let end = after.iter().position(|b| b.is_ascii_digit() || *b == b' ').unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(end)?;
        total += value * unit_seconds(unit)?;
        rest = after.trim_ascii_start();
        if rest.is_empty() {
            return Some(total);
        }
    }
}

/// What a unit of time is worth in seconds.
pub fn unit_seconds(unit: &[u8]) -> Option<f64> {
    Some(match unit {
        b"ns" | b"nsec" => 1e-9,
        b"us" | b"usec" | b"\xc2\xb5s" | b"\xce\xbcs" => 1e-6,
        b"ms" | b"msec" | b"milliseconds" => 1e-3,
        b"s" | b"sec" | b"secs" | b"second" | b"seconds" => 1.0,
        b"m" | b"min" => 60.0,
        b"h" => 3600.0,
        _ => return None,
    })
}

/// What follows `key` on a line that begins with it, blanks and a colon apart.
pub fn after<'a>(line: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let rest = line.trim_ascii().strip_prefix(key)?.trim_ascii_start();
    Some(rest.strip_prefix(b":").unwrap_or(rest).trim_ascii())
}

/// The number that a text begins with.
pub fn first(text: &[u8]) -> Option<f64> {
    leading(text.trim_ascii_start()).map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let near = |text: &str, want: f64| {
            let got = seconds(text.as_bytes()).unwrap();
            assert!((got - want).abs() < 1e-12 * want.max(1.0), "{text} {got}");
        };
        near("103.07ms", 0.103_07);
        near("1.76s", 1.76);
        near("2.00m", 120.0);
        near("1m2.5s", 62.5);
        near("843.2µs", 843.2e-6);
        near("12.5 secs", 12.5);
        for bad in ["", "12", "12xs", "ms", "1m2", "1..5s"] {
            assert_eq!(seconds(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn runs_are_named_after_their_file() {
        assert_eq!(stem("a/b/wrk-flask.txt"), "wrk-flask");
        assert_eq!(stem("run.2026-11-21"), "run.2026-11-21");
        assert_eq!(stem(".hidden"), ".hidden");
        assert_eq!(stem(""), "");
    }
}
