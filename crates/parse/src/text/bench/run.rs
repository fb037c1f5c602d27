//! One run of a benchmark as rows of [`mitra_model::Entity::Run`], and the units that benchmarks print.

use crate::text::prelude::*;

/// How many lines after one that makes no sense are looked at for more of the same output.
pub const DAMAGE_MAX: usize = 4;
/// A name of a job that is longer than this is cut.
const NAME_MAX: usize = 120;
/// Names of one file that are remembered.
const RUNS_MAX: usize = 1000;

/// A line `KEY: VALUE` or `KEY = VALUE` of a report: the key, the metric, and how the value is read.
pub type Field = (&'static str, &'static str, fn(&[u8]) -> Option<f64>);

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

    /// Puts the value of a line that the table has. Whether it has it.
    pub fn field(&self, import: &mut Import, fields: &[Field], line: &[u8], n: u32) -> bool {
        let Some((key, value)) = pair(line) else { return false };
        let field = fields.iter().find(|(name, ..)| name.as_bytes() == key);
        if let Some((_, metric, read)) = field {
            self.put(import, metric, n, read(value));
        }
        field.is_some()
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

/// The key and the value of `KEY: VALUE` or `KEY = VALUE`.
pub fn pair(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|b| matches!(b, b':' | b'='))?;
    Some((line.get(..at)?.trim_ascii(), line.get(at + 1..)?.trim_ascii()))
}

/// The key of the line that begins a run, and of every other line of a report, by which its middle is known.
pub struct Shape {
    /// Whether the line begins a report: a second one ends the first.
    pub head: fn(&[u8]) -> bool,
    /// Whether the line is one of a report: a line that makes no sense is damage where such a one follows soon.
    pub known: fn(&[u8]) -> bool,
}

/// Reads the lines of one report, without the blanks around them.
pub fn report(
    lines: &mut Lines<'_>,
    import: &mut Import,
    shape: &Shape,
    mut take: impl FnMut(&[u8], u32, &mut Import) -> Took,
) {
    let first_line = lines.number();
    lines.each(import, |lines, n, import| {
        let line = lines.line().trim_ascii();
        if line.is_empty() {
            return Took::Yes;
        }
        if n != first_line && (shape.head)(line) {
            return Took::No;
        }
        match take(line, n, import) {
            Took::No if (shape.known)(lines.line().trim_ascii()) => Took::Yes,
            Took::No => Took::unread_if(lines.soon(DAMAGE_MAX, |line| (shape.known)(line.trim_ascii()))),
            took => took,
        }
    });
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
