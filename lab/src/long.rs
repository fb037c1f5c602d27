//! Long forms: hours, days and months in which something happens now and then.
//!
//! They are put together from recordings (see [`crate::stitch`]): a healthy machine, and incidents whose truth is known. Asked about all of
//! it, Mitra has to tell each of them, where it was, and nothing else.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};
use std::{fmt, fs};

use mitra_archive::Reader;
use mitra_model::time::SECOND;
use mitra_model::{Entity, NA, Span, columns};
use serde_json::Value;

use crate::draw::Draw;
use crate::machine;
use crate::record::{ActRecord, Kind, Record};
use crate::recorder::Mitra;
use crate::report::{describe, incidents, root, time_of};
use crate::score::{is_true, started_s};
use crate::stitch::Stitcher;
use crate::stored::Stored;

/// When long recordings begin: 2026-11-01, 00:00 UTC.
const BEGIN_NS: i64 = 1_793_491_200 * SECOND;
/// The healthy machine between the incidents.
const HEALTHY: &str = "idle.25s";
/// An onset may be told so many seconds late: that a name server does not answer is known when the resolver gives up, after 5 s.
const OFF_S: f64 = 5.0;
/// From the second after the end of an incident on it is over.
const OVER_S: f64 = 10.0;
const MINUTE_S: f64 = 60.0;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Three incidents of different kinds, with a tenth of all the time between them at least.
    Apart,
    /// The same one again and again, as a job that hurts each few minutes.
    Periodic,
    /// A second one that begins less than a minute after the first has ended.
    Follows,
    /// One is over before the window begins.
    Over,
}

impl Form {
    /// All forms.
    pub const ALL: [Self; 4] = [Self::Apart, Self::Periodic, Self::Follows, Self::Over];
}

/// One incident of a long recording.
pub struct Happened {
    act: ActRecord,
    /// When its recording begins and ends, in seconds since the epoch. It begins with a load that the healthy machine before it did not have.
    since_s: f64,
    until_s: f64,
    onset_s: f64,
}

/// What was put together.
pub struct Long {
    /// Which of it.
    pub form: Form,
    /// What has to be asked about.
    pub window: Span,
    happened: Vec<Happened>,
    /// What comes again, comes each so many seconds.
    period_s: Option<f64>,
}

impl fmt::Display for Long {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.window.seconds() / 3600.0;
        write!(f, "{:?}, {hours:.1} h", self.form)?;
        let mut names: Vec<&str> = self.happened.iter().map(|h| h.act.name.as_str()).collect();
        names.dedup();
        names.iter().try_for_each(|name| write!(f, ", {name}"))?;
        self.period_s.map_or(Ok(()), |s| write!(f, " {} times, each {s:.0} s", self.happened.len()))
    }
}

/// Puts one together in `to`. What happens when is drawn; it lasts about so many hours.
pub fn make(
    form: Form,
    hours: f64,
    draw: &mut Draw,
    recordings: &[Stored],
    to: &Path,
) -> anyhow::Result<Long> {
    let is_idle = |s: &&Stored| s.record.kind == Kind::Control && s.record.key.starts_with(HEALTHY);
    let idle = recordings.iter().find(is_idle).ok_or_else(|| anyhow::anyhow!("no recording of {HEALTHY}"))?;
    // What is told wrongly by itself says nothing about hours.
    let is_told = |s: &&Stored| s.record.kind == Kind::Incident && s.miss.is_none();
    let mut choices: Vec<&Stored> = recordings.iter().filter(is_told).collect();
    draw.shuffle(&mut choices);
    if matches!(form, Form::Apart | Form::Follows) {
        // Where the laboratory had prepared the machine, a setting would change between two pieces.
        let of_idle = settings(idle)?;
        let is_alike = |s: &&Stored| settings(s).is_ok_and(|own| own == of_idle);
        choices = choices.into_iter().filter(is_alike).collect();
    }
    let length_s = hours * 3600.0;
    let period_s = (form == Form::Periodic).then(|| draw.real(2.0 * MINUTE_S, 10.0 * MINUTE_S).round());
    let (wanted, pauses_s): (Vec<&Stored>, Vec<f64>) = match (form, choices.as_slice()) {
        (Form::Apart, [first, ..]) => {
            let mut wanted = vec![*first];
            for other in &choices {
                if wanted.len() < 3 && wanted.iter().all(|w| area(&w.record) != area(&other.record)) {
                    wanted.push(other);
                }
            }
            let pauses = wanted.iter().map(|_| draw.real(0.1, 0.4) * length_s).collect();
            (wanted, pauses)
        }
        (Form::Periodic, [one, ..]) => {
            let times = (length_s / period_s.unwrap_or(length_s)).max(4.0) as usize;
            (vec![*one; times], vec![period_s.unwrap_or(length_s); times])
        }
        (Form::Follows, [first, rest @ ..]) => {
            let second = rest.iter().find(|other| area(&other.record) != area(&first.record));
            let wanted: Vec<&Stored> = std::iter::once(*first).chain(second.copied()).collect();
            (wanted, vec![draw.real(0.2, 0.8) * length_s, draw.real(0.25, 0.9) * MINUTE_S])
        }
        (Form::Over, [one, ..]) => (vec![*one], vec![draw.real(0.2, 0.8) * length_s]),
        (_, []) => anyhow::bail!("no incidents among the recordings"),
    };
    let least = if form == Form::Apart { 3 } else { 2 };
    anyhow::ensure!(
        !matches!(form, Form::Apart | Form::Follows) || wanted.len() >= least,
        "{form:?} needs recordings of {least} areas that begin with the settings of {HEALTHY}"
    );
    let host = Reader::open(&idle.archive)?.host().clone();
    let mut stitcher = Stitcher::new(to, &host, BEGIN_NS)?;
    let healthy = match (form, wanted.as_slice()) {
        (Form::Apart | Form::Follows, _) | (_, []) => stitcher.load(&idle.archive, Span::ALL)?,
        (Form::Periodic | Form::Over, [one, ..]) => stitcher.load(&one.archive, before(&one.record))?,
    };
    let mut long = Long { form, window: Span { since: BEGIN_NS, until: 0 }, happened: Vec::new(), period_s };
    for (stored, pause_s) in wanted.iter().zip(&pauses_s) {
        let record = &stored.record;
        let piece = stitcher.load(&stored.archive, within(record))?;
        // From the beginning of one to that of the next, for what comes again.
        let pause_s = if period_s.is_some() { pause_s - piece.seconds() - 1.0 } else { *pause_s };
        stitcher.fill(&healthy, pause_s)?;
        let ahead_s =
            stitcher.play(&piece, matches!(form, Form::Apart | Form::Follows))? as f64 / SECOND as f64;
        for act in record.acts.iter().filter(|a| !a.noise) {
            long.happened.push(Happened {
                act: act.clone(),
                since_s: record.since_s + ahead_s,
                until_s: record.until_s + ahead_s,
                onset_s: act.onset_s + ahead_s,
            });
        }
    }
    if form == Form::Over {
        stitcher.fill(&healthy, OVER_S)?;
        long.window.since = stitcher.real_ns();
    }
    stitcher.fill(&healthy, (length_s * 0.1).max(2.0 * MINUTE_S))?;
    long.window.until = stitcher.real_ns() + SECOND;
    stitcher.finish()?;
    Ok(long)
}

/// Makes so many of so many hours, and prints what is wrong of what is told of them. Whether all is right.
pub fn score(
    recordings: &[Stored],
    (seed, count, hours): (u64, usize, f64),
    keep: Option<&Path>,
    mitra: &Mitra,
) -> anyhow::Result<bool> {
    let base = machine::base_dir().join(format!("mitra-lab-long-{}", std::process::id()));
    let mut right = 0;
    for (i, form) in Form::ALL.into_iter().cycle().take(count).enumerate() {
        let dir = keep.unwrap_or(&base).join(format!("{i}"));
        let archive = dir.join("archive");
        fs::create_dir_all(&dir)?;
        let long = make(form, hours, &mut Draw::new(seed, &format!("long {i}")), recordings, &archive)?;
        let start = Instant::now();
        let at = |ns: i64| UNIX_EPOCH + Duration::from_nanos(ns.max(0).cast_unsigned());
        let (since, until) = (at(long.window.since), at(long.window.until));
        let report = mitra.report(&archive, &dir, since, until).map_err(|e| anyhow::anyhow!("{e}"))?;
        let wrong = judge(&long, &report);
        let verdict = if wrong.is_empty() { "right" } else { "WRONG" };
        println!("{verdict} {long}, explained in {:.1} s", start.elapsed().as_secs_f64());
        wrong.iter().for_each(|why| println!("    {why}"));
        right += usize::from(wrong.is_empty());
        match keep {
            Some(_) => fs::write(dir.join("report.json"), report.to_string())?,
            None => fs::remove_dir_all(&dir)?,
        }
    }
    _ = fs::remove_dir(&base);
    println!("{right} of {count} right");
    Ok(right == count)
}

/// The settings of a machine as its recording begins.
fn settings(stored: &Stored) -> anyhow::Result<BTreeMap<&'static str, i64>> {
    let mut all = BTreeMap::new();
    Reader::open(&stored.archive)?.frames(within(&stored.record), &mut |frame, _| {
        let cells = frame.table(Entity::System).rows().next().map_or(&[][..], |(_, cells)| cells);
        for (metric, cell) in columns(Entity::System).iter().zip(cells) {
            if metric.name.starts_with("sysctl.") && *cell != NA {
                all.entry(metric.name).or_insert(*cell);
            }
        }
    })?;
    Ok(all)
}

/// The machine of an incident before its trouble.
fn before(record: &Record) -> Span {
    let until = (started_s(record) * SECOND as f64) as i64 - SECOND / 2;
    Span { until, ..within(record) }
}

/// From two seconds before the window to its end.
fn within(record: &Record) -> Span {
    let at = |s: f64| (s * SECOND as f64) as i64;
    Span { since: at(record.since_s - 2.0), until: at(record.until_s + 1.0) }
}

fn area(record: &Record) -> &str {
    record.acts.first().map_or("", |act| &act.area)
}

/// What a report says wrongly or not at all. Nothing: it is right.
pub fn judge(long: &Long, report: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let expected: &[Happened] = if long.form == Form::Over { &[] } else { &long.happened };
    let mut told: Vec<(usize, &Value)> = incidents(report).iter().enumerate().collect();
    let mut places = Vec::new();
    for happened in expected {
        let is_of = |incident: &Value| {
            let onset_s = time_of(incident, "onset");
            onset_s.is_some_and(|s| s > happened.since_s - OFF_S && s < happened.until_s + OFF_S)
        };
        let (mine, others): (Vec<_>, Vec<_>) = told.into_iter().partition(|(_, incident)| is_of(incident));
        told = others;
        let at = (happened.onset_s - BEGIN_NS as f64 / SECOND as f64) / MINUTE_S;
        let what = format!("{} after {at:.1} min", happened.act.condition);
        let right = mine.iter().find(|(_, i)| root(i).is_some_and(|root| is_true(&happened.act, &root)));
        match right {
            None if mine.is_empty() => wrong.push(format!("{what} was not told")),
            None => wrong.push(format!("{what} was told as {}", describe(mine[0].1))),
            Some((place, incident)) => {
                let besides = mine.iter().filter(|(other, _)| other != place);
                wrong.extend(besides.map(|(_, other)| format!("{what}: told besides: {}", describe(other))));
                places.push(*place);
                let late_s = time_of(incident, "onset").map_or(f64::MAX, |s| s - happened.onset_s);
                if late_s > OFF_S {
                    wrong.push(format!("{what}: told {late_s:.1} s late"));
                }
                let end_s = time_of(incident, "end").unwrap_or(f64::MAX);
                if end_s > happened.until_s + OVER_S {
                    wrong.push(format!("{what}: does not end with it"));
                }
            }
        }
    }
    wrong.extend(told.iter().map(|(_, i)| format!("nothing of that happened: {}", describe(i))));
    if let Some(period_s) = long.period_s.filter(|_| wrong.is_empty()) {
        let repeats = report["repeats"].as_array().map_or(&[][..], Vec::as_slice);
        let of_all =
            repeats.iter().find(|r| r["incidents"].as_array().is_some_and(|i| i.len() == places.len()));
        match of_all.map(|r| r["period_seconds"].as_f64()) {
            None => wrong.push(format!("{} times the same, and not told as that", places.len())),
            Some(said) if said.is_some_and(|s| (s - period_s).abs() <= OFF_S) => {}
            Some(said) => wrong.push(format!("comes each {period_s:.0} s, and said is {said:?}")),
        }
    }
    wrong
}
