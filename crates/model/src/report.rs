//! The report: what `mitra explain` says, schema `mitra.report/1`.
//!
//! Numbers are in base units. Values that were not measured are left out or named under `unknown`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::time::{Era, SECOND};

/// The name of the schema of [`Report`].
pub const SCHEMA: &str = "mitra.report/1";

/// A moment as the contract writes it: RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub i64);

impl fmt::Display for Moment {
    /// Civil date from days, after Howard Hinnant's `civil_from_days`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let era = Era::of(self.0);
        let since = self.0.saturating_sub(era.zero());
        match era {
            Era::Dated => {}
            Era::Day => {
                let s = since.div_euclid(1_000_000_000).rem_euclid(86_400);
                return write!(f, "{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
            }
            Era::Boot => return write!(f, "+{:.3}", since as f64 / 1e9),
            Era::Sequence | Era::Fact => return f.write_str("-"),
        }
        let seconds = self.0.div_euclid(1_000_000_000);
        let (days, second_of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let z = days + 719_468;
        let era = z.div_euclid(146_097);
        let day_of_era = z.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_shifted = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
        let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let (h, m, s) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}Z")
    }
}

impl Moment {
    /// Whether it says anything to a reader: a position in a sequence without times does not.
    #[must_use]
    pub fn is_known(self) -> bool {
        !matches!(Era::of(self.0), Era::Sequence | Era::Fact)
    }

    /// The whole second that is nearest to a date: what is seen once a second is not known better, and what is cut off instead
    /// is half a second early on average.
    #[must_use]
    pub fn nearest_second(self) -> Self {
        match Era::of(self.0) {
            Era::Dated => Self(self.0.saturating_add(SECOND / 2).div_euclid(SECOND).saturating_mul(SECOND)),
            _ => self,
        }
    }
}

/// RFC 3339 for a date, `12:41:21` for a time of day without a date, `+6972247.491` for a time since boot, null for an
/// unknown time.
impl Serialize for Moment {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_known() { serializer.collect_str(self) } else { serializer.serialize_none() }
    }
}

/// A range of time in the report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Window {
    /// The start.
    pub since: Moment,
    /// The end.
    pub until: Moment,
}

/// The diagnosis of a time range.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The machine's name.
    pub host: String,
    /// `archive` or `files`.
    pub source: String,
    /// The time range.
    pub window: Window,
    /// The baseline; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Window>,
    /// The lost time of the whole window.
    pub ledger: Ledger,
    /// The incidents, in order of time.
    pub incidents: Vec<Incident>,
    /// Which of them are alike: the same root cause with the same culprit. Most costly first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repeats: Vec<Repeat>,
    /// Trouble that was seen and not looked into, because the window has too much of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// Areas that were checked and are not the problem.
    pub healthy: Vec<String>,
    /// Load that was made on purpose.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<LoadRun>,
    /// Gaps and unavailable sources of the recording.
    pub recorder: RecorderState,
    /// Active conditions without a cause that could be named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub observed: Vec<Link>,
    /// Conditions that could not be told, if there is no incident to list them with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<Unknown>,
    /// What is no incident and may become one, or could be better.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Benchmark runs side by side, if the files have some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// The files that were read, with the formats found in them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileRead>,
    /// Where the report contradicts itself, which is a bug of Mitra.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contradictions: Vec<String>,
}

/// How lines of the kernel log begin with which `mitra load` notes its runs:
/// `mitra load: offers 500/s for 60s to 127.0.0.1:8080 from @1795232527.250`, and when it has ended
/// `mitra load: offered 500/s for 60s to 127.0.0.1:8080 from @1795232527.250 to @1795232587.250`.
pub const LOAD_MARK: &str = "mitra load: ";

/// A run of `mitra load` on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LoadRun {
    /// How much to whom: `500/s for 60s to 127.0.0.1:8080`.
    pub what: String,
    /// When it began.
    pub since: Moment,
    /// When it ended; absent if that is not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Moment>,
}

/// Incidents that are alike.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Repeat {
    /// The id of the condition that is their root cause.
    pub condition: String,
    /// Their places in `incidents`, from 0.
    pub incidents: Vec<usize>,
    /// Seconds from one onset to the next, where these are nearly equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_seconds: Option<f64>,
    /// What they cost together; absent if that is not known of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_task_seconds: Option<f64>,
    /// What clients of services waited in all of them; absent if that is not known of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_wait_seconds: Option<f64>,
}

/// Stretches of trouble that were not looked into.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LeftOut {
    /// How many.
    pub stretches: usize,
    /// How long they are together.
    pub seconds: f64,
    /// The time that tasks lost in them; absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_task_seconds: Option<f64>,
}

/// Something that nobody suffers from yet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The id of the condition that it is, or that it becomes at its limit.
    pub condition: String,
    /// The object that it concerns.
    pub culprit: Culprit,
    /// One sentence with the numbers.
    pub statement: String,
    /// Caveats.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// The numbers that prove it.
    pub evidence: Vec<Evidence>,
    /// What to do.
    pub remedies: Vec<Remedy>,
    /// When it reaches its limit, counted from the end of the window: at the fastest and at the slowest pace that was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_in_seconds: Option<[f64; 2]>,
}

/// Benchmark runs side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// One sentence: which run is how much faster.
    pub statement: String,
    /// Caveats: errors, time-outs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// The runs, the best first.
    pub runs: Vec<RunResult>,
}

/// One run of a benchmark.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunResult {
    /// Its name.
    pub name: String,
    /// Its results by metric name, in base units.
    pub values: std::collections::BTreeMap<String, f64>,
    /// The lines that prove them.
    pub quotes: Vec<Quote>,
}

/// A file that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FileRead {
    /// The path as given, or relative to the given folder.
    pub file: String,
    /// The formats found in it: `sar -d`, `strace`, ….
    pub formats: Vec<String>,
    /// Lines.
    pub lines: u64,
    /// Lines that no format could read.
    pub unread: u64,
    /// The number and the text of the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_unread: Option<(u32, String)>,
    /// Notes: read as the baseline, a skipped section, a truncated file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Lost task-seconds: time in which tasks wanted to run and could not.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Ledger {
    /// The total; absent if it was not measured. Causes may overlap, so it is not the sum of `by_cause`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_task_seconds: Option<f64>,
    /// By cause, largest first.
    pub by_cause: Vec<CauseShare>,
    /// By process, largest first.
    pub by_process: Vec<ProcessShare>,
}

/// Lost time of one cause.
#[derive(Debug, Clone, Serialize)]
pub struct CauseShare {
    /// `run-queue`, `block-io`, `refault`, `reclaim`, `swap-in`, `cpu-quota`, `lock`, ….
    pub cause: String,
    /// Task-seconds.
    pub seconds: f64,
}

/// Lost time of one process.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessShare {
    /// Its name.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// Task-seconds.
    pub seconds: f64,
}

/// One incident.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Incident {
    /// When it began.
    pub onset: Moment,
    /// When it ended; null while it lasts.
    pub end: Option<Moment>,
    /// Its lost time, if it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_task_seconds: Option<f64>,
    /// What clients of a service waited beyond the usual, who are no tasks of the machine; absent where no service is concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_wait_seconds: Option<f64>,
    /// The symptoms that users notice.
    pub symptoms: Vec<String>,
    /// The most upstream cause that explains most.
    pub root_cause: Root,
    /// Other active conditions without an active cause.
    pub other_roots: Vec<Root>,
    /// The causal chain from the root to the symptoms.
    pub chain: Vec<Link>,
    /// Possible causes that were ruled out.
    pub ruled_out: Vec<RuledOut>,
    /// Conditions that could not be told.
    pub unknown: Vec<Unknown>,
    /// Changes on the machine in the day before it began, the latest first; changes that feed one of its conditions come
    /// before all others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// What to do.
    pub remedies: Vec<Remedy>,
    /// What to measure next.
    pub next: Vec<Next>,
}

impl Incident {
    /// What tasks lost, or clients waited, whichever is more, in seconds; if any of it was measured.
    #[must_use]
    pub fn cost_s(&self) -> Option<f64> {
        self.lost_task_seconds.into_iter().chain(self.client_wait_seconds).reduce(f64::max)
    }

    /// Rounds its times to seconds, see [`Moment::nearest_second`].
    pub fn round_times(&mut self) {
        self.onset = self.onset.nearest_second();
        self.end = self.end.map(Moment::nearest_second);
        self.chain.iter_mut().for_each(|link| link.onset = link.onset.nearest_second());
    }
}

/// A root cause.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Root {
    /// The id of the condition.
    pub condition: String,
    /// From 0 to 1: how often verdicts of this strength were right; where the cause was not found, how often a symptom that stands alone is
    /// the cause.
    pub confidence: f64,
    /// From 0 to 1: the part of the evidence that the condition asks for which was there and agreed.
    pub strength: f64,
    /// The cause was not found: this is the first that is seen of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unexplained: bool,
    /// The share of the incident's lost time that it explains; absent if no lost time was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// The culprit.
    pub culprit: Culprit,
    /// One sentence with the numbers.
    pub statement: String,
    /// Caveats: which object is a victim and not the cause, what the numbers do not mean.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// How a culprit is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// Its own part in what did the harm was measured: its CPU time, bytes, pages or requests; or the kernel named it.
    Measured,
    /// Concluded from something else that was measured of it, or from names and times.
    Inferred,
    /// It was active in the same place at that time. More is not known.
    Near,
}

/// The process, group, device or other object that caused it. Fields that do not apply are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Culprit {
    /// How it is known; absent where nothing is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub how: Option<How>,
    /// Name of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Control group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// What people call the control group: its unit, slice, container or pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_name: Option<String>,
    /// Block device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Network device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic: Option<String>,
    /// File or directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Slab cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slab: Option<String>,
    /// Kernel setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sysctl: Option<String>,
    /// Allocator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocator: Option<String>,
    /// Library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// Address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The object that fills its memory: a type of its runtime, or a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

impl Culprit {
    /// Its cgroup in a sentence: what it is called, or its path.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.cgroup_name.as_deref().or(self.cgroup.as_deref())
    }

    /// With how it is known: what a condition says nothing else of it has measured itself.
    #[must_use]
    pub fn known(mut self) -> Self {
        if self != Self::default() {
            self.how.get_or_insert(How::Measured);
        }
        self
    }
}

/// One link of the chain.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Link {
    /// The id of the condition.
    pub condition: String,
    /// When it became active.
    pub onset: Moment,
    /// Seconds after the root's onset; `NaN`, written as null, if the two times do not compare.
    pub lag_s: f64,
    /// The ids of the links that brought it about, without detours: of A → B → C only B is one of C.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// One sentence with the numbers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub statement: String,
    /// Caveats.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// The numbers that prove it.
    pub evidence: Vec<Evidence>,
}

/// One number that proves something.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Evidence {
    /// The metric of the table.
    pub metric: String,
    /// The row; empty for the whole machine.
    pub entity: String,
    /// The value in the baseline; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<f64>,
    /// The value in the incident.
    pub during: f64,
    /// The most extreme sample of the incident, if it is not `during` itself: the largest, or of what fell the smallest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<f64>,
    /// The unit of all of them.
    pub unit: String,
    /// The lines that prove it: the last before the incident, the first ones in it, the most extreme one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quotes: Vec<Quote>,
}

/// A line of a file that proves a number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quote {
    /// The file.
    pub file: String,
    /// The number of the line, from 1.
    pub line: u32,
    /// The value that was read there, in the base unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The time, as far as the file has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Moment>,
    /// The text of the line, filled in when the report is printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A condition that was ruled out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuledOut {
    /// The id of the condition.
    pub condition: String,
    /// The numbers against it.
    pub because: String,
}

/// A condition that could not be told.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Unknown {
    /// The id of the condition.
    pub condition: String,
    /// The missing data.
    pub needs: String,
    /// The command that would measure it, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// A remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remedy {
    /// The action.
    #[serde(rename = "do")]
    pub action: String,
    /// The command; empty if there is none.
    pub command: String,
    /// How to see that it helped.
    pub verify: String,
    /// What may go wrong.
    pub risk: String,
}

/// A measurement to make next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Next {
    /// The question that it answers.
    pub measure: String,
    /// The command.
    pub command: String,
}

/// Gaps and unavailable sources of the recording.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RecorderState {
    /// Stretches without samples.
    pub gaps: Vec<GapEntry>,
    /// Unavailable sources.
    pub unavailable: Vec<UnavailableSource>,
}

/// A stretch without samples.
#[derive(Debug, Clone, Serialize)]
pub struct GapEntry {
    /// The start.
    pub since: Moment,
    /// The end.
    pub until: Moment,
    /// The reason, if known.
    pub why: String,
}

/// A source that was unavailable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnavailableSource {
    /// The source: `probe.block`, `psi`, ….
    pub source: String,
    /// The reason, and the remedy.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_rfc_3339() {
        assert_eq!(Moment(0).to_string(), "1970-01-01T00:00:00Z");
        assert_eq!(Moment(951_782_399_999_999_999).to_string(), "2000-02-28T23:59:59Z");
        assert_eq!(Moment(951_782_400_000_000_000).to_string(), "2000-02-29T00:00:00Z");
        assert_eq!(Moment(1_795_232_527_000_000_000).to_string(), "2026-11-21T03:42:07Z");
        assert_eq!(Moment(-1).to_string(), "1969-12-31T23:59:59Z");
    }

    #[test]
    fn a_date_is_rounded_and_other_times_are_not() {
        for (ns, nearest) in [(1_499_999_999, 1), (1_500_000_000, 2), (-500_000_001, -1)] {
            assert_eq!(Moment(ns).nearest_second(), Moment(nearest * SECOND));
        }
        assert_eq!(Moment(i64::MAX).nearest_second(), Moment(i64::MAX / SECOND * SECOND));
        let boot = Moment(Era::Boot.zero() + 1_700_000_000);
        assert_eq!(boot.nearest_second(), boot);
    }
}
