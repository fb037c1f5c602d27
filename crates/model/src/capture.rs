//! What an armed probe saw: `mitra.capture/1`.
//!
//! A capture is made on suspicion or by hand, for a bounded time. It has a header that says how it came about and
//! what it cost, tables, histograms and stacks. [`Captured`] is what is stored and printed; [`Raw`] is the same
//! before the addresses of its stacks have names.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::event::{Event, EventKind};

/// What [`Captured::schema`] says.
pub const SCHEMA: &str = "mitra.capture/1";
/// As many rows travel in an event.
pub const TOPS_MAX: usize = 20;
/// The table of stacks.
const STACKS: &str = "stacks";
/// As many frames of the kernel, and of the program, are named in a row; the whole stack is in the profile.
const KERNEL_LEAVES: usize = 4;
const USER_LEAVES: usize = 2;
/// What the name of a frame of the kernel ends in.
pub const KERNEL_MARK: &str = "_[k]";

/// What an armed probe saw, and what it cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Captured {
    /// [`SCHEMA`].
    pub schema: String,
    /// The kind: `offcpu`, `faults`, ….
    pub kind: String,
    /// Who or what wanted it.
    pub why: String,
    /// The machine.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// When it began, in nanoseconds since 1970 UTC.
    pub since_real: i64,
    /// When it began, on the monotonic clock.
    pub since_mono: i64,
    /// For how long it was armed.
    pub seconds: f64,
    /// What was asked for beyond the kind: `pid`, `comm`, `cgroup`, `d-only`, ….
    pub filter: BTreeMap<String, String>,
    /// Events counted.
    pub events: u64,
    /// Events, or parts of them, for which there was no room.
    pub lost: u64,
    /// How it ended.
    pub ended: Ended,
    /// CPU time that it took, kernel and user together; none where the kernel does not measure it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<u64>,
    /// The part of it that the programs in the kernel took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_kernel_ns: Option<u64>,
    /// How often the programs in the kernel ran, also for events that were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<u64>,
    /// CPU time that it took to load it, before it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_setup_ns: Option<u64>,
    /// What a reader has to know beside the numbers.
    pub notes: Vec<String>,
    /// The rows that matter most, largest first, at most [`TOPS_MAX`].
    pub tops: Vec<CaptureRow>,
    /// Tables, the main one first.
    pub tables: Vec<CaptureTable>,
    /// Distributions.
    pub histograms: Vec<CaptureHistogram>,
    /// Stacks with their weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

/// How a capture ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// Its time was over.
    #[default]
    Time,
    /// It had as many events as were asked for.
    Events,
    /// It had cost as much as it was allowed to.
    Cost,
    /// Somebody stopped it.
    Stopped,
    /// The process that it watched ended.
    Gone,
    /// Something went wrong.
    Failed(String),
}

impl Ended {
    /// In words.
    #[must_use]
    pub fn words(&self) -> Cow<'static, str> {
        match self {
            Ended::Time => "its time was over".into(),
            Ended::Events => "it had enough events".into(),
            Ended::Cost => "it cost more than it was allowed to".into(),
            Ended::Stopped => "it was stopped".into(),
            Ended::Gone => "the process ended".into(),
            Ended::Failed(why) => format!("it failed: {why}").into(),
        }
    }

    /// As [`EventKind::Capture`] has it: `time`, `events`, `cost`, `stopped`, `gone`, `failed: …`.
    #[must_use]
    pub fn id(&self) -> String {
        match self {
            Ended::Time => "time".to_owned(),
            Ended::Events => "events".to_owned(),
            Ended::Cost => "cost".to_owned(),
            Ended::Stopped => "stopped".to_owned(),
            Ended::Gone => "gone".to_owned(),
            Ended::Failed(why) => format!("failed: {why}"),
        }
    }
}

/// One of the rows that matter most, in a form that all kinds share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureRow {
    /// The process, where the row belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its name; empty where the row belongs to none.
    pub comm: String,
    /// A file, directory, call, end of a stack, ….
    pub what: String,
    /// The device, where the row belongs to one.
    pub device: String,
    /// How often.
    pub count: f64,
    /// Seconds or bytes, by the kind; 0 where it has neither.
    pub amount: f64,
}

/// A table with named columns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureTable {
    /// What the rows are.
    pub name: String,
    /// The columns.
    pub columns: Vec<CaptureColumn>,
    /// The rows, the most important first; each has as many cells as there are columns.
    pub rows: Vec<Vec<Cell>>,
    /// Rows that were left out because there were too many.
    pub left_out: u64,
}

/// A column of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureColumn {
    /// Its name.
    pub name: Cow<'static, str>,
    /// The unit of its numbers: `s`, `B`, `1` for counts, and empty for texts.
    pub unit: Cow<'static, str>,
    /// What it means.
    pub help: Cow<'static, str>,
}

/// One cell. What was not measured is [`Cell::Unknown`], never zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number in the unit of its column.
    Number(f64),
    /// A text.
    Text(String),
    /// Not known.
    Unknown(()),
}

impl Cell {
    /// A number; one that is not finite is not known.
    #[must_use]
    pub fn number(value: f64) -> Cell {
        if value.is_finite() { Cell::Number(value) } else { Cell::Unknown(()) }
    }

    /// A text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }
}

/// A distribution.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureHistogram {
    /// What is counted.
    pub name: String,
    /// The unit of the bounds: `s` or `B`.
    pub unit: String,
    /// Upper bound of each bucket, rising, and how many fell into it. The last bucket has no bound.
    pub buckets: Vec<(Option<f64>, u64)>,
}

/// Stacks with their weight. Names are stored once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// What the weight is: `time off CPU`.
    pub weight: String,
    /// Its unit: `s` or `1`.
    pub unit: String,
    /// The names of all frames.
    pub names: Vec<String>,
    /// The stacks, the heaviest first.
    pub stacks: Vec<Stack>,
}

/// One stack.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stack {
    /// The process; 0 where it is not known.
    pub pid: u32,
    /// The name of the thread.
    pub comm: String,
    /// What sets this stack apart beside its frames: the state that a task waited in, the kind of a fault.
    pub tag: String,
    /// Frames from the root to the leaf, as positions in [`Profile::names`]. Those of the kernel end in `_[k]`.
    pub frames: Vec<u32>,
    /// How much of the weight.
    pub weight: f64,
    /// How often.
    pub count: u64,
}

impl Profile {
    /// The names of a stack's frames, from the root to the leaf.
    pub fn frames<'a>(&'a self, stack: &'a Stack) -> impl DoubleEndedIterator<Item = &'a str> {
        stack.frames.iter().map(|i| self.names.get(*i as usize).map_or("?", String::as_str))
    }
}

/// A program that a process ran: another one after `execve`, so that addresses keep their meaning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// Its number in this capture, from 1.
    pub id: u32,
    /// The process.
    pub pid: u32,
    /// Its name when it was seen first.
    pub comm: String,
}

/// A stack of addresses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawStack {
    /// The process; 0 is a thread of the kernel.
    pub pid: u32,
    /// The program that the process ran, [`Image::id`]; 0 where it is not known.
    pub image: u32,
    /// The name of the thread.
    pub comm: String,
    /// See [`Stack::tag`].
    pub tag: String,
    /// Addresses in the program, the leaf first.
    pub user: Vec<u64>,
    /// Addresses in the kernel, the leaf first.
    pub kernel: Vec<u64>,
    /// How much of the weight.
    pub weight: f64,
    /// How often.
    pub count: u64,
}

/// A capture whose stacks are addresses still.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Raw {
    /// The rest of it, without [`Captured::profile`].
    pub captured: Captured,
    /// What the weight of the stacks is, and its unit; none where the kind has no stacks.
    pub weight: Option<(&'static str, &'static str)>,
    /// The stacks.
    pub stacks: Vec<RawStack>,
}

impl Raw {
    /// Gives the frames names. `name` returns those of one stack, from the root to the leaf; frames of the kernel end
    /// in `_[k]`. A kind that has not made a table of
    /// its stacks itself gets one, after its own.
    #[must_use]
    pub fn resolve(mut self, name: &mut dyn FnMut(&RawStack) -> Vec<String>) -> Captured {
        let Some((weight, unit)) = self.weight else { return self.captured };
        let mut profile = Profile { weight: weight.to_owned(), unit: unit.to_owned(), ..Profile::default() };
        let mut known: HashMap<String, u32> = HashMap::new();
        self.stacks.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        for raw in self.stacks {
            let mut frames = Vec::new();
            for frame in name(&raw) {
                let next = u32::try_from(profile.names.len()).unwrap_or(u32::MAX);
                frames.push(*known.entry(frame).or_insert_with_key(|frame| {
                    profile.names.push(frame.clone());
                    next
                }));
            }
            let RawStack { pid, comm, tag, weight, count, .. } = raw;
            profile.stacks.push(Stack { pid, comm, tag, frames, weight, count });
        }
        if !self.captured.tables.iter().any(|table| table.name == STACKS) {
            self.captured.tables.push(stack_table(&profile));
        }
        if self.captured.tops.is_empty() {
            self.captured.tops = stack_tops(&profile);
        }
        self.captured.profile = Some(profile);
        self.captured
    }
}

/// Beginnings of frames that many stacks of the kernel have, and that say nothing of why: the scheduler, and the way
/// from user mode into the kernel.
const PLUMBING: &[&str] = &[
    "__schedule",
    "schedule",
    "io_schedule",
    "__cond_resched",
    "preempt_schedule",
    "raw_irqentry_",
    "irqentry_",
    "asm_",
    "entry_",
    "do_syscall_64",
    "x64_sys_call",
    "el0_",
    "el0t_",
    "ret_from_fork",
];

/// The end of a stack in words: its innermost frames, beginning with the leaf, without the marks of the kernel.
fn leaf(profile: &Profile, stack: &Stack) -> String {
    let kernel = |frame: &&str| frame.ends_with(KERNEL_MARK);
    let telling = |frame: &&str| !PLUMBING.iter().any(|start| frame.starts_with(start));
    let leaves = || profile.frames(stack).rev();
    let mut frames: Vec<&str> = leaves().filter(kernel).filter(telling).take(KERNEL_LEAVES).collect();
    frames.extend(leaves().filter(|frame| !kernel(frame)).take(USER_LEAVES));
    if frames.is_empty() {
        frames = leaves().take(KERNEL_LEAVES).collect();
    }
    let mut frames: Vec<Cow<'_, str>> = frames.into_iter().map(shown).collect();
    frames.dedup();
    let mut text = frames.join(" < ");
    if !stack.tag.is_empty() {
        text = if text.is_empty() { stack.tag.clone() } else { format!("{}: {text}", stack.tag) };
    }
    text
}

/// A frame in a row: without the mark of the kernel, and without the place in a file that says no function: `[libm.so]`.
fn shown(frame: &str) -> Cow<'_, str> {
    let frame = frame.trim_end_matches(KERNEL_MARK);
    match frame.strip_prefix('[').and_then(|rest| rest.rsplit_once("+0x")) {
        Some((module, _)) => format!("[{module}]").into(),
        None => frame.into(),
    }
}

/// Stacks of one process that end alike are one row.
fn stack_rows(profile: &Profile) -> Vec<CaptureRow> {
    let mut rows: Vec<CaptureRow> = Vec::new();
    let mut known: HashMap<(u32, &str, String), usize> = HashMap::new();
    for stack in &profile.stacks {
        let what = leaf(profile, stack);
        let at = *known.entry((stack.pid, &stack.comm, what)).or_insert_with_key(|(pid, comm, what)| {
            rows.push(CaptureRow {
                pid: (*pid > 0).then_some(*pid),
                comm: (*comm).to_owned(),
                what: what.clone(),
                ..CaptureRow::default()
            });
            rows.len() - 1
        });
        if let Some(row) = rows.get_mut(at) {
            row.count += stack.count as f64;
            row.amount += stack.weight;
        }
    }
    rows.sort_by(|a, b| b.amount.total_cmp(&a.amount));
    rows
}

fn stack_tops(profile: &Profile) -> Vec<CaptureRow> {
    let mut rows = stack_rows(profile);
    rows.truncate(TOPS_MAX);
    if profile.unit == "1" {
        // The weight is the count itself.
        rows.iter_mut().for_each(|row| row.amount = 0.0);
    }
    rows
}

fn stack_table(profile: &Profile) -> CaptureTable {
    let column = |name: &'static str, unit: &str, help: &'static str| CaptureColumn {
        name: name.into(),
        unit: unit.to_owned().into(),
        help: help.into(),
    };
    let counts_only = profile.unit == "1";
    let mut columns = vec![
        column("pid", "", "the process"),
        column("comm", "", "the name of the thread"),
        column("count", "1", "how often"),
    ];
    if !counts_only {
        columns.push(CaptureColumn { name: profile.weight.clone().into(), ..column("", &profile.unit, "") });
    }
    columns.push(column(
        "where",
        "",
        "the innermost frames of the kernel and of the program, the leaf first",
    ));
    let rows = stack_rows(profile).into_iter().map(|row| {
        let mut cells = vec![
            row.pid.map_or(Cell::Unknown(()), |pid| Cell::number(f64::from(pid))),
            Cell::text(row.comm),
            Cell::number(row.count),
        ];
        if !counts_only {
            cells.push(Cell::number(row.amount));
        }
        cells.push(Cell::text(row.what));
        cells
    });
    let rows = rows.collect();
    CaptureTable { name: STACKS.to_owned(), columns, rows, left_out: 0 }
}

impl Captured {
    /// When it ended, in nanoseconds since 1970 UTC.
    #[must_use]
    pub fn until_real(&self) -> i64 {
        self.since_real.saturating_add((self.seconds * 1e9) as i64)
    }

    /// The event that an archive has of it; its time is the end. `file` is where the whole of it is.
    #[must_use]
    pub fn event(&self, file: Option<String>) -> Event {
        Event {
            real: self.until_real(),
            mono: Some(self.since_mono.saturating_add((self.seconds * 1e9) as i64)),
            place: None,
            kind: EventKind::Capture {
                capture: self.kind.clone(),
                why: self.why.clone(),
                seconds: self.seconds,
                events: self.events,
                lost: self.lost,
                ended: self.ended.id(),
                cost_ns: self.cost_ns,
                file,
                tops: self.tops.iter().take(TOPS_MAX).cloned().collect(),
            },
        }
    }

    /// Share of one CPU that it took.
    #[must_use]
    pub fn cost_share(&self) -> Option<f64> {
        let cost = self.cost_ns? as f64 * 1e-9;
        (self.seconds > 0.0).then(|| cost / self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw() -> Raw {
        let stack = |comm: &str, user: &[u64], kernel: &[u64], weight| RawStack {
            pid: 7,
            comm: comm.to_owned(),
            user: user.to_vec(),
            kernel: kernel.to_vec(),
            weight,
            count: 2,
            ..RawStack::default()
        };
        Raw {
            captured: Captured { kind: "offcpu".into(), seconds: 2.0, ..Captured::default() },
            weight: Some(("time off CPU", "s")),
            stacks: vec![
                stack("a", &[2, 1], &[20], 0.5),
                stack("a", &[3, 1], &[20, 21], 1.5),
                stack("b", &[], &[20], 0.25),
            ],
        }
    }

    fn name(stack: &RawStack) -> Vec<String> {
        let user = stack.user.iter().rev().map(|a| format!("u{a}"));
        let kernel = stack.kernel.iter().rev();
        user.chain(kernel.map(|a| if *a == 20 { "schedule_[k]".into() } else { format!("k{a}_[k]") }))
            .collect()
    }

    #[test]
    fn stacks_get_names_and_become_rows() {
        let captured = raw().resolve(&mut name);
        let profile = captured.profile.as_ref().unwrap();
        let frames: Vec<Vec<&str>> = profile.stacks.iter().map(|s| profile.frames(s).collect()).collect();
        assert_eq!(frames[0], ["u1", "u3", "k21_[k]", "schedule_[k]"]);
        assert_eq!(profile.names.len(), 5, "a name is stored once");
        let tops: Vec<(&str, f64)> = captured.tops.iter().map(|r| (r.what.as_str(), r.amount)).collect();
        assert_eq!(tops, [("k21 < u3 < u1", 1.5), ("u2 < u1", 0.5), ("schedule", 0.25)]);
        assert!(captured.tables[0].rows.iter().all(|row| row.len() == captured.tables[0].columns.len()));
    }

    #[test]
    fn places_without_a_name_are_one_row_for_each_module() {
        let mut raw = raw();
        raw.stacks.iter_mut().for_each(|stack| stack.kernel.clear());
        let place = |stack: &RawStack| stack.user.iter().rev().map(|a| format!("[libm.so+{a:#x}]")).collect();
        let captured = raw.resolve(&mut { place });
        let tops: Vec<(&str, f64)> = captured.tops.iter().map(|r| (r.what.as_str(), r.amount)).collect();
        assert_eq!(tops, [("[libm.so]", 2.0), ("", 0.25)]);
        assert_eq!(captured.profile.unwrap().names.len(), 3, "the profile keeps the places");
    }

    #[test]
    fn what_is_written_is_read_and_the_event_is_short() {
        let mut captured = raw().resolve(&mut name);
        captured.tables[0].rows[0][0] = Cell::Unknown(());
        captured.ended = Ended::Failed("no room".into());
        captured.tops = vec![CaptureRow::default(); 30];
        let text = serde_json::to_string(&captured).unwrap();
        assert_eq!(serde_json::from_str::<Captured>(&text).unwrap(), captured);
        let EventKind::Capture { ended, tops, .. } = captured.event(None).kind else {
            panic!("another event")
        };
        assert_eq!((ended.as_str(), tops.len()), ("failed: no room", TOPS_MAX));
        assert_eq!(captured.event(None).real, 2_000_000_000);
    }

    #[test]
    fn what_a_later_version_adds_is_passed_over() {
        let read: Captured = serde_json::from_str(r#"{"kind":"tachyons","hue":3}"#).unwrap();
        assert_eq!(read.kind, "tachyons");
    }
}
