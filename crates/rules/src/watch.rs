//! Rules over the frames of a recorder as they come: for how long each has held, for which rows.

use mitra_model::frame::row_name;
use mitra_model::{Entity, Frame, Key, StrId, Strings};

use crate::ast::GroupBy;
use crate::compile::{Domain, Program};
use crate::eval::{At, Evaluation, Memo, Source};
use crate::frames::{FrameSource, TaskColumns, Texts};
use crate::past::Past;

/// Rows of one rule that are watched at the same time. A rule that holds for more is hardly about rows; those for which it
/// holds most are among them.
const HELD_MAX: usize = 64;
/// Samples for which a rule cannot be told before that is said: the first has no rates, and one may be lost.
const UNKNOWN_SAMPLES: u32 = 10;
/// Samples within a stretch that may be unknown. They do not count for it.
const UNKNOWN_WITHIN: u32 = 1;

/// A rule that is watched.
#[derive(Debug)]
struct Watched {
    program: Program,
    choice: Option<(Program, Texts)>,
    texts: Texts,
    held: Vec<Held>,
    /// Whether the rule holds for more rows than there are places.
    is_full: bool,
    unknown: u32,
    was_told: bool,
}

/// A row for which the rule holds.
#[derive(Debug, Clone)]
struct Held {
    key: Subject,
    /// The text whose id is part of the key: in another table of texts it has another one.
    text: Option<Box<str>>,
    seconds: f64,
    /// How much it holds, where that can be said: not a number otherwise.
    score: f64,
    unknown: u32,
    /// Whether it was seen in this sample.
    is_fresh: bool,
}

/// What a rule holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The machine.
    Machine,
    /// A row.
    Row(Entity, Key),
    /// A process, name or control group; the last two by the ids of their texts.
    Group(GroupBy, u64),
}

impl Subject {
    /// The id of a text, where that is part of what the row is known by.
    fn text_id(&mut self) -> Option<&mut u64> {
        match self {
            Subject::Machine | Subject::Row(Entity::System | Entity::Task, _) => None,
            Subject::Row(Entity::Exited, key) => Some(&mut key.born),
            Subject::Row(_, key) => Some(&mut key.id),
            Subject::Group(GroupBy::Pid, _) => None,
            Subject::Group(GroupBy::Comm | GroupBy::Cgroup, id) => Some(id),
        }
    }
}

impl Held {
    fn new(mut key: Subject, seconds: f64, score: f64, strings: &Strings) -> Held {
        let id = key.text_id().and_then(|id| StrId::try_from(*id).ok());
        let text = id.and_then(|id| strings.get(id)).map(Into::into);
        Held { key, text, seconds, score, unknown: 0, is_fresh: true }
    }

    /// Gives the row the id that its text has now; false where nobody has that text any more.
    fn follow(&mut self, strings: &Strings) -> bool {
        let Some(id) = self.key.text_id() else { return true };
        let Some(now) = self.text.as_deref().and_then(|text| strings.find(text)) else { return false };
        *id = u64::from(now);
        true
    }
}

/// What is known of a rule in one sample.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// It has held for as long as it has to. Told in every sample as long as it holds.
    Holds(Details),
    /// It cannot be told, and has not been for a while. Told once.
    CannotTell {
        /// The metrics that are not there.
        missing: Vec<&'static str>,
    },
}

/// By which numbers a rule holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Details {
    /// For how long.
    pub seconds: f64,
    /// The row's name; none of the machine.
    pub row: Option<String>,
    /// The process, where the row belongs to one, or the one that was chosen.
    pub pid: Option<u32>,
    /// When that process began, in nanoseconds since boot, where its first thread is in the frame: the number may be
    /// another one's by the time it is asked for.
    pub pid_born: Option<u64>,
    /// Its name.
    pub comm: Option<String>,
    /// The control group of the row.
    pub cgroup: Option<String>,
    /// How many rows it holds for.
    pub rows: usize,
    /// Whether it holds for more, of which it is not known for how long.
    pub has_more: bool,
    /// What was compared: text, value, unit.
    pub values: Vec<(String, f64, String)>,
}

/// Watches rules over frames.
///
/// What it costs, with the built-in rules on a quiet machine with 1,000 tasks: see `crates/app/benches/rules.rs`.
#[derive(Debug)]
pub struct Watcher {
    rules: Vec<Watched>,
    /// Shared by all rules, which are evaluated one after the other: groups of tasks take 100 KB per
    /// function and 1,000 tasks.
    memo: Memo,
    past: Past,
    columns: TaskColumns,
    page_bytes: f64,
    /// Of the texts by whose ids rows are known.
    generation: u32,
}

impl Watcher {
    /// Watches these. A rule may have a program that chooses the process that is meant, of all tasks.
    #[must_use]
    pub fn new(programs: Vec<(Program, Option<Program>)>, page_bytes: f64) -> Watcher {
        let past = Past::new(programs.iter().flat_map(|(program, choice)| {
            program.uses.iter().chain(choice.iter().flat_map(|choice| &choice.uses))
        }));
        let memo = Memo::new(
            programs.iter().flat_map(|(program, choice)| [Some(program), choice.as_ref()]).flatten(),
        );
        let rules = programs
            .into_iter()
            .map(|(program, choice)| Watched {
                texts: Texts::new(&program),
                choice: choice.map(|choice| {
                    let texts = Texts::new(&choice);
                    (choice, texts)
                }),
                program,
                held: Vec::with_capacity(HELD_MAX),
                is_full: false,
                unknown: 0,
                was_told: false,
            })
            .collect();
        Watcher { rules, memo, past, columns: TaskColumns::default(), page_bytes, generation: 0 }
    }

    /// Takes the next frame. `wants` is asked before the details of a rule that holds are gathered; `each` gets them.
    ///
    /// Nothing is allocated as long as no rule holds.
    pub fn observe(
        &mut self,
        frame: &Frame,
        strings: &Strings,
        wants: &mut dyn FnMut(usize) -> bool,
        each: &mut dyn FnMut(usize, News),
    ) {
        self.past.compare(frame, strings.generation());
        if std::mem::replace(&mut self.generation, strings.generation()) != strings.generation() {
            self.rules.iter_mut().for_each(|rule| rule.held.retain_mut(|held| held.follow(strings)));
        }
        let (past, columns, page_bytes) = (&self.past, self.columns, self.page_bytes);
        for (number, rule) in self.rules.iter_mut().enumerate() {
            rule.texts.check(strings);
            self.memo.clear();
            let Watched { program, texts, held, is_full, unknown, .. } = rule;
            let source = FrameSource { frame, strings, past, texts, columns, page_bytes };
            let run = Evaluation { program, source: &source, memo: &self.memo };
            let dt_s = if past.dt_s.is_finite() { past.dt_s } else { 0.0 };
            *is_full = step(&run, held, unknown, dt_s) && crowd(&run, held, dt_s);
            let ripe = |held: &&Held| held.seconds + 1e-6 >= program.hold_s && held.unknown == 0;
            let rows = held.iter().filter(ripe).count();
            if rows > 0 && wants(number) {
                if let Some(worst) = worst(held.iter().filter(ripe)) {
                    let mut details = details(&run, worst.key);
                    (details.seconds, details.rows, details.has_more) = (worst.seconds, rows, *is_full);
                    if let Some((choice, texts)) = &mut rule.choice {
                        texts.check(strings);
                        self.memo.clear();
                        let source = FrameSource { frame, strings, past, texts, columns, page_bytes };
                        choose(
                            &Evaluation { program: choice, source: &source, memo: &self.memo },
                            &mut details,
                        );
                    }
                    each(number, News::Holds(details));
                }
            } else if *unknown == UNKNOWN_SAMPLES && !rule.was_told {
                let missing = missing(&run);
                if !missing.is_empty() {
                    rule.was_told = true;
                    each(number, News::CannotTell { missing });
                }
            }
        }
        self.past.keep(frame);
    }
}

/// Brings the stretches of a rule up to this sample. Says whether there were rows without a place.
fn step(run: &Evaluation<'_, FrameSource<'_>>, held: &mut Vec<Held>, unknown: &mut u32, dt_s: f64) -> bool {
    held.iter_mut().for_each(|held| held.is_fresh = false);
    let (mut is_known, mut any, mut is_full) = (false, false, false);
    run.each(&mut |at, value| {
        any = true;
        is_known |= !value.is_nan();
        if value == 0.0 {
            return;
        }
        let Some(key) = subject(run, at) else { return };
        let has_room = held.len() < HELD_MAX;
        match held.iter_mut().find(|held| held.key == key) {
            Some(one) if value.is_nan() => {
                one.unknown += 1;
                one.is_fresh = one.unknown <= UNKNOWN_WITHIN;
            }
            Some(one) => {
                one.seconds += dt_s;
                one.score = score(run, at);
                (one.unknown, one.is_fresh) = (0, true);
            }
            None if value == 1.0 && has_room => {
                held.push(Held::new(key, dt_s, score(run, at), run.source.strings));
            }
            None => is_full |= value == 1.0,
        }
    });
    held.retain(|held| held.is_fresh);
    // Rows that were passed over because something else settled it are known not to hold.
    *unknown = if any && !is_known { unknown.saturating_add(1) } else { 0 };
    is_full
}

/// Gives places to those rows for which the rule holds most. Says whether it holds for more rows than have one.
fn crowd(run: &Evaluation<'_, FrameSource<'_>>, held: &mut Vec<Held>, dt_s: f64) -> bool {
    let (mut is_full, mut lowest) = (false, None);
    run.each(&mut |at, value| {
        let Some(key) = subject(run, at).filter(|_| value == 1.0) else { return };
        if held.iter().any(|held| held.key == key) {
            return;
        }
        let score = score(run, at);
        let one = || Held::new(key, dt_s, score, run.source.strings);
        if held.len() < HELD_MAX {
            held.push(one());
            return;
        }
        is_full = true;
        lowest = lowest.or_else(|| least(held));
        if let Some((place, least)) = lowest
            && score > least
            && let Some(held) = held.get_mut(place)
        {
            *held = one();
            lowest = None;
        }
    });
    is_full
}

/// The row that gives its place to another one, and how much the rule holds for it. Half of the places stay with those that
/// came first: where each sample has others that are worse, nothing would hold for as long as it has to.
fn least(held: &[Held]) -> Option<(usize, f64)> {
    let others = held.iter().enumerate().skip(HELD_MAX / 2);
    others.map(|(i, held)| (i, held.score)).min_by(|a, b| a.1.total_cmp(&b.1))
}

fn subject(run: &Evaluation<'_, FrameSource<'_>>, at: At<usize>) -> Option<Subject> {
    match (at, run.program.domain) {
        (At::Row(row), Domain::Rows(entity)) => {
            Some(Subject::Row(entity, *run.source.frame.table(entity).keys().get(row)?))
        }
        (At::Group(group), Domain::Groups(by)) => Some(Subject::Group(by, group)),
        _ => Some(Subject::Machine),
    }
}

fn at(run: &Evaluation<'_, FrameSource<'_>>, subject: Subject) -> Option<At<usize>> {
    match subject {
        Subject::Machine => Some(At::Machine),
        Subject::Group(_, group) => Some(At::Group(group)),
        Subject::Row(entity, key) => {
            let keys = run.source.frame.table(entity).keys();
            keys.iter().position(|k| *k == key).map(At::Row)
        }
    }
}

/// The row for which a rule holds most; the first one where that cannot be said.
fn worst<'a>(held: impl Iterator<Item = &'a Held>) -> Option<&'a Held> {
    held.reduce(|most, one| {
        let is_worse = one.score >= most.score || (most.score.is_nan() && !one.score.is_nan());
        if is_worse { one } else { most }
    })
}

/// How much a rule holds for a row; not a number where that cannot be said.
fn score(run: &Evaluation<'_, FrameSource<'_>>, at: At<usize>) -> f64 {
    run.program.score.as_ref().map_or(f64::NAN, |(op, sign)| sign * run.value(op, at))
}

fn details(run: &Evaluation<'_, FrameSource<'_>>, subject: Subject) -> Details {
    let source = run.source;
    let mut details = Details::default();
    match subject {
        Subject::Machine => {}
        Subject::Row(Entity::Task, key) => {
            let keys = source.frame.table(Entity::Task).keys();
            if let Some(row) = keys.iter().position(|k| *k == key) {
                name_task(source, row, &mut details);
                details.row = Some(format!("{} ({})", details.comm.as_deref().unwrap_or("?"), key.id));
            }
        }
        Subject::Row(entity, key) => {
            let name = row_name(entity, key, source.strings);
            match entity {
                Entity::Cgroup => details.cgroup = Some(name.clone()),
                // Their parent. Those for which there was no row of their own have nobody in its place.
                Entity::Exited => {
                    details.pid = u32::try_from(key.id).ok().filter(|pid| *pid > 0);
                    details.pid_born = details.pid.and_then(|pid| born(source, pid));
                }
                _ => {}
            }
            details.row = Some(name);
        }
        Subject::Group(by, group) => name_group(source, by, group, &mut details),
    }
    if let Some(at) = at(run, subject) {
        details.values = run.shown(at);
    }
    details
}

fn text(source: &FrameSource<'_>, cell: i64) -> Option<String> {
    source.strings.cell(cell).map(str::to_owned)
}

fn name_task(source: &FrameSource<'_>, row: usize, details: &mut Details) {
    details.pid = u32::try_from(source.task_cell(row, source.columns.tgid)).ok();
    details.pid_born = details.pid.and_then(|pid| born(source, pid));
    details.comm = text(source, source.task_cell(row, source.columns.comm));
    details.cgroup = text(source, source.task_cell(row, source.columns.cgroup));
}

fn born(source: &FrameSource<'_>, pid: u32) -> Option<u64> {
    let mut keys = source.frame.table(Entity::Task).keys().iter();
    keys.find(|key| key.id == u64::from(pid)).map(|key| key.born)
}

fn name_group(source: &FrameSource<'_>, by: GroupBy, group: u64, details: &mut Details) {
    let as_text = || StrId::try_from(group).ok().and_then(|id| source.strings.get(id)).map(str::to_owned);
    match by {
        GroupBy::Comm => (details.comm, details.row) = (as_text(), as_text()),
        GroupBy::Cgroup => (details.cgroup, details.row) = (as_text(), as_text()),
        GroupBy::Pid => name_process(source, group, details),
    }
}

/// By its leader, or by any thread where the leader is not in the frame.
fn name_process(source: &FrameSource<'_>, pid: u64, details: &mut Details) {
    let of = |row: &usize| u64::try_from(source.task_cell(*row, source.columns.tgid)) == Ok(pid);
    let keys = source.frame.table(Entity::Task).keys();
    let leader = keys.iter().position(|key| key.id == pid);
    if let Some(row) = leader.or_else(|| source.rows(Entity::Task).find(of)) {
        name_task(source, row, details);
    }
    details.pid = u32::try_from(pid).ok();
    details.row = Some(format!("{} ({pid})", details.comm.as_deref().unwrap_or("?")));
}

/// The process with most of a number.
fn choose(run: &Evaluation<'_, FrameSource<'_>>, details: &mut Details) {
    let mut best: Option<(At<usize>, f64)> = None;
    run.each(&mut |at, value| {
        if value > best.map_or(0.0, |(_, most)| most) {
            best = Some((at, value));
        }
    });
    let mut chosen = Details::default();
    match best {
        Some((At::Row(row), _)) => name_task(run.source, row, &mut chosen),
        Some((At::Group(pid), _)) => name_process(run.source, pid, &mut chosen),
        _ => return,
    }
    (details.pid, details.pid_born) = (chosen.pid, chosen.pid_born);
    (details.comm, details.cgroup) = (chosen.comm, chosen.cgroup);
}

/// The metrics that no row has a value of.
fn missing(run: &Evaluation<'_, FrameSource<'_>>) -> Vec<&'static str> {
    let mut missing = Vec::new();
    for of in &run.program.uses {
        let selector = of.selector.and_then(|i| run.program.selectors.get(i));
        let rows = 0..run.source.frame.table(of.metric.entity).len();
        let is_there = match of.metric.entity {
            Entity::System => run.source.value(of, None).is_finite(),
            // Where nothing is selected there is nothing to miss, unless it was asked for by name.
            _ => {
                let mut meant =
                    rows.filter(|row| selector.is_none_or(|s| run.source.is_selected(s, *row))).peekable();
                (meant.peek().is_none() && !of.is_one)
                    || meant.any(|row| run.source.value(of, Some(row)).is_finite())
            }
        };
        if !is_there && !missing.contains(&of.metric.name) {
            missing.push(of.metric.name);
        }
    }
    missing
}
