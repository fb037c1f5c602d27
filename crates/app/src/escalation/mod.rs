//! Escalation: evaluates the rules on each sample. A rule that holds runs probes or a command, for
//! a bounded time.
//!
//! The recorder never waits for them. Another process, `mitra armed`, runs the probes, because
//! parsing BTF and reading symbols takes memory and time that a recorder must not take. It stores
//! the captures in the archive and prints one event for each, which becomes part of the next frame.

mod asks;
pub mod heap;
mod job;
mod plan;
pub mod probes;
pub mod settings;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, UNIX_EPOCH};

use mitra_archive::Reader;
use mitra_confine::Privileges;
use mitra_model::capture::{CaptureColumn, CaptureTable, Captured, Cell, Ended, SCHEMA};
use mitra_model::{Event, EventKind, Frame, HostInfo, Span, Stamp, Strings};
use mitra_rules::{Busy, Config, Decision, Details, News, Policy, Rule, Verdict, Watcher, Wish, in_words};

use crate::asked::WHY;
use crate::log::log;
use crate::redact;
use asks::Asks;
use job::{End, Job, JobCgroups, Outcome};
pub use plan::Plan;

/// Time for loading, symbols and writing on a machine in trouble, beyond the rule's own seconds.
const BEYOND: Duration = Duration::from_secs(60);
/// A few kilobytes per event.
const EVENTS_BYTES: usize = 1 << 20;
/// How long the recorder waits at its end: a job ends within two seconds.
const END_LOOKS: u32 = 60;
const END_LOOK: Duration = Duration::from_millis(50);
/// The period of the policy's limits.
const HOUR_NS: i64 = 3600 * mitra_model::time::SECOND;
/// Lines of a command's output that are stored.
const LINES_MAX: usize = 20_000;

pub struct Escalation {
    rules: Vec<Rule>,
    watcher: Watcher,
    policy: Policy,
    /// Whether probes and commands may run at all.
    is_armed: bool,
    /// The kinds of probes of this build.
    kinds: Vec<&'static str>,
    dir: PathBuf,
    host: HostInfo,
    probes: Vec<JoinHandle<()>>,
    commands: Vec<JoinHandle<()>>,
    cgroups: Arc<JobCgroups>,
    stop: Arc<AtomicBool>,
    sender: Sender<Event>,
    receiver: Receiver<Event>,
    news: Vec<(usize, News)>,
    asks: Vec<Asks>,
}

impl Escalation {
    /// `can_arm` is false if the user wants nothing to run, `has_bpf` if there are no probes.
    pub fn new(config: Config, host: &HostInfo, dir: &Path, can_arm: bool, has_bpf: bool) -> Escalation {
        let Config { rules, budget_s, arm, .. } = config;
        let programs = rules
            .iter()
            .map(|rule| (rule.program.clone(), rule.choice.as_ref().map(|(_, program)| program.clone())));
        let page_bytes = if host.page_bytes == 0 { 4096.0 } else { host.page_bytes as f64 };
        let watcher = Watcher::new(programs.collect(), page_bytes);
        let policy = Policy::new(rules.iter().map(|rule| (rule.cool_down_s, rule.per_hour)), budget_s);
        let (sender, receiver) = channel();
        let is_armed = arm && can_arm;
        Escalation {
            rules,
            watcher,
            policy,
            is_armed,
            cgroups: Arc::new(if is_armed { JobCgroups::find() } else { JobCgroups::none() }),
            kinds: probes::all().into_iter().map(|(kind, _)| kind).filter(|_| has_bpf).collect(),
            dir: dir.to_path_buf(),
            host: host.clone(),
            probes: Vec::new(),
            commands: Vec::new(),
            stop: Arc::default(),
            sender,
            receiver,
            news: Vec::new(),
            asks: Vec::new(),
        }
    }

    /// Counts what earlier recorders started within the last hour: a restart begins no new hour.
    pub fn remember(&mut self, now: Stamp) {
        let span = Span { since: now.real.saturating_sub(HOUR_NS), until: now.real };
        let since = UNIX_EPOCH + Duration::from_nanos(span.since.try_into().unwrap_or(0));
        // A log that cannot be read was reported when the archive was opened.
        let read = Reader::open_since(&self.dir, since).and_then(|reader| reader.events(span));
        for event in read.unwrap_or_default() {
            let now_s = now.mono as f64 * 1e-9;
            let at_s = now_s - now.real.saturating_sub(event.real) as f64 * 1e-9;
            if let EventKind::Capture { why, seconds, .. } = &event.kind
                && why.starts_with(WHY)
            {
                self.policy.remember_asked(at_s, now_s, *seconds);
            }
            let EventKind::Suspicion { rule, armed, .. } = &event.kind else { continue };
            let found =
                self.rules.iter().enumerate().find(|(_, known)| known.name == *rule && !armed.is_empty());
            let Some((number, rule)) = found else { continue };
            let probes: Vec<String> = rule.arm.iter().map(ToString::to_string).collect();
            let is_probe = |what: &String| probes.contains(what);
            let started = Wish {
                seconds: if armed.iter().any(is_probe) { rule.seconds } else { 0.0 },
                has_command: !armed.iter().all(is_probe),
            };
            self.policy.remember(number, at_s, now_s, started);
        }
    }

    /// Evaluates the rules on a sample, starts what they want, and adds events to the sample.
    pub fn look(&mut self, frame: &mut Frame, strings: &Strings) {
        frame.events.extend(self.receiver.try_iter());
        self.probes.retain(|thread| !thread.is_finished());
        self.commands.retain(|thread| !thread.is_finished());
        let now_s = frame.time.mono as f64 * 1e-9;
        self.answer(frame, now_s);
        let (policy, news) = (&mut self.policy, &mut self.news);
        self.watcher.observe(frame, strings, &mut |rule| policy.wants(rule, now_s), &mut |rule, one| {
            news.push((rule, one))
        });
        for (rule, one) in std::mem::take(&mut self.news) {
            match one {
                News::Holds(details) => self.act(rule, &details, frame, now_s),
                News::CannotTell { missing } => self.say_unknown(rule, &missing, frame),
            }
        }
    }

    fn say_unknown(&self, rule: usize, missing: &[&str], frame: &mut Frame) {
        let Some(rule) = self.rules.get(rule) else { return };
        let why = format!("the rule cannot be told: {} is not measured here", missing.join(", "));
        // A missing source of a built-in rule is reported by the source itself.
        if !rule.is_builtin {
            log(&format!("{}: {why}", rule.name));
            let kind = EventKind::Unavailable { source: format!("rule.{}", rule.name), why };
            frame.events.push(event(frame.time, kind));
        }
    }

    fn act(&mut self, number: usize, details: &Details, frame: &mut Frame, now_s: f64) {
        let Some(rule) = self.rules.get(number) else { return };
        let plan = Plan::of(rule, &self.kinds, self.is_armed);
        let busy = Busy { probes: !self.probes.is_empty(), command: !self.commands.is_empty() };
        let decision = self.policy.decide(number, now_s, plan.wish(), busy);
        if decision == Decision::default() {
            return;
        }
        let mut text = in_words(details);
        let mut armed = Vec::new();
        match decision.probes {
            Some(Verdict::Go) => {
                let started = self.arm(rule, &plan.probes, details);
                note(&mut self.probes, started, plan.probes, &mut armed, &mut text);
            }
            Some(refused) => text = format!("{text}; no probes were run: {}", refused.why_no_probes()),
            None => {}
        }
        match decision.command {
            Some(Verdict::Go) if plan.has_command => {
                let started = self.run_command(rule, details, frame.time);
                let what = vec![redact::text(&rule.command.join(" "))];
                note(&mut self.commands, started, what, &mut armed, &mut text);
            }
            Some(refused) if plan.has_command => {
                text = format!("{text}; the command was not run: {}", refused.why_no_command());
            }
            // A rule that starts nothing.
            Some(Verdict::TooOften) => text = format!("{text}; that was often enough to be told in an hour"),
            _ => {}
        }
        let kind =
            EventKind::Suspicion { rule: rule.name.clone(), condition: rule.suspects.clone(), text, armed };
        frame.events.push(event(frame.time, kind));
    }

    fn arm(&self, rule: &Rule, probes: &[String], details: &Details) -> Result<JoinHandle<()>, String> {
        let pid = match rule.is_of_pid {
            true => Some((details.pid.ok_or("the process that is meant is not known")?, details.pid_born)),
            false => None,
        };
        self.start_probes(&format!("rule {}", rule.name), rule.seconds, pid, probes)
    }

    /// Starts `mitra armed`, of one process that was born then, or of all.
    fn start_probes(
        &self,
        why: &str,
        seconds: f64,
        pid: Option<(u32, Option<u64>)>,
        probes: &[String],
    ) -> Result<JoinHandle<()>, String> {
        let dir = self.dir.to_str().ok_or("the archive's path is no text")?;
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        // This binary, even if its file was replaced.
        let mut argv = words(&["/proc/self/exe", "armed", "--archive", dir]);
        argv.extend(words(&["--why", why, "--seconds", &seconds.to_string()]));
        if let Some((pid, born)) = pid {
            argv.extend(words(&["--pid", &pid.to_string()]));
            if let Some(born) = born {
                argv.extend(words(&["--pid-began", &ticks(born).to_string()]));
            }
        }
        argv.push("--".to_owned());
        argv.extend(probes.iter().cloned());
        let timeout = Duration::from_secs_f64(seconds) + BEYOND;
        let sender = self.sender.clone();
        let (why, kinds) = (why.to_owned(), probes.join(", "));
        let done = move |outcome: Outcome| {
            for event in events_of(&outcome, &kinds, &why) {
                // If the recorder has ended, the capture's file still has it.
                _ = sender.send(event);
            }
        };
        let job = Job { argv, timeout, output_bytes: EVENTS_BYTES, privileges: Privileges::Kept };
        job::start(job, Arc::clone(&self.cgroups), Arc::clone(&self.stop), done)
            .map_err(|error| error.to_string())
    }

    fn run_command(&self, rule: &Rule, details: &Details, now: Stamp) -> Result<JoinHandle<()>, String> {
        let argv = rule.argv(details, now.real / mitra_model::time::SECOND)?;
        let job = Job {
            argv: argv.clone(),
            timeout: Duration::from_secs_f64(rule.timeout_s),
            output_bytes: usize::try_from(rule.output_bytes).unwrap_or(0),
            privileges: if rule.is_privileged { Privileges::Kept } else { Privileges::None },
        };
        let (dir, host, sender) = (self.dir.clone(), self.host.clone(), self.sender.clone());
        let why = format!("rule {}", rule.name);
        let done = move |outcome: Outcome| {
            let captured = command_output(&argv, &why, &host, now, &outcome);
            let file = mitra_archive::store_capture(&dir, &captured);
            if let Err(error) = &file {
                log(&format!("the output of {} could not be stored: {error}", argv.join(" ")));
            }
            _ = sender.send(captured.event(file.ok()));
        };
        job::start(job, Arc::clone(&self.cgroups), Arc::clone(&self.stop), done)
            .map_err(|error| error.to_string())
    }

    /// Stops what is running, and waits for it for a bounded time.
    pub fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        for _ in 0..END_LOOKS {
            if self.probes.iter().chain(&self.commands).all(JoinHandle::is_finished) {
                break;
            }
            std::thread::sleep(END_LOOK);
        }
    }
}

/// Nanoseconds since boot in the clock ticks of `/proc/PID/stat` (`nsec_to_clock_t` in
/// kernel/time/).
fn ticks(ns: u64) -> u64 {
    ns / (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// Notes what was started, or why it was not.
fn note(
    running: &mut Vec<JoinHandle<()>>,
    started: Result<JoinHandle<()>, String>,
    what: Vec<String>,
    armed: &mut Vec<String>,
    text: &mut String,
) {
    match started {
        Ok(thread) => {
            running.push(thread);
            armed.extend(what);
        }
        Err(why) => *text = format!("{text}; {} was not started: {why}", what.join(", ")),
    }
}

fn event(now: Stamp, kind: EventKind) -> Event {
    Event { real: now.real, mono: Some(now.mono), place: None, kind }
}

/// Parses the output of `mitra armed`: an event per line, and error messages.
fn events_of(outcome: &Outcome, kinds: &str, why: &str) -> Vec<Event> {
    let mut events = Vec::new();
    let mut said = Vec::new();
    for line in String::from_utf8_lossy(&outcome.output).lines() {
        match serde_json::from_str::<Event>(line) {
            Ok(event) => events.push(event),
            Err(_) => said.push(line.trim_start_matches("mitra: ").to_owned()),
        }
    }
    unavailable(&events, why).iter().for_each(|line| log(line));
    let (words, is_fine) = outcome.end.words();
    if is_fine || matches!(outcome.end, End::Stopped) {
        return events;
    }
    said.truncate(4);
    let reason = if said.is_empty() { words } else { said.join("; ") };
    log(&format!("{kinds}, started by {why}: {reason}"));
    let now = mitra_collect::Clock::Real.now();
    let kind = EventKind::Unavailable { source: format!("capture of {kinds}"), why: reason };
    events.push(event(now, kind));
    events
}

/// The probes that could not run, for the recorder's log.
fn unavailable(events: &[Event], why: &str) -> Vec<String> {
    let words = |event: &Event| match &event.kind {
        EventKind::Unavailable { source, why: reason } => {
            Some(format!("{source}, wanted by {why}: {reason}"))
        }
        _ => None,
    };
    events.iter().filter_map(words).collect()
}

/// The output of a command as a capture, so that it is stored, listed, shown and expired like one.
fn command_output(argv: &[String], why: &str, host: &HostInfo, began: Stamp, outcome: &Outcome) -> Captured {
    let (words, is_fine) = outcome.end.words();
    // As a whole, because a private key has many lines.
    let text = redact::text(&String::from_utf8_lossy(&outcome.output));
    let mut rows: Vec<Vec<Cell>> = text.lines().take(LINES_MAX).map(|line| vec![Cell::text(line)]).collect();
    let left_out = text.lines().count().saturating_sub(rows.len()) as u64;
    rows.shrink_to_fit();
    let mut notes = vec![format!("{} {words}", argv.join(" "))];
    if outcome.is_cut {
        notes.push(format!("it printed more than the {} bytes that are kept", outcome.output.len()));
    }
    let column = CaptureColumn { name: "line".into(), unit: "".into(), help: "as it was printed".into() };
    let mut captured = Captured {
        schema: SCHEMA.to_owned(),
        kind: "command".to_owned(),
        why: why.to_owned(),
        host: host.hostname.clone(),
        kernel: host.kernel.clone(),
        since_real: began.real,
        since_mono: began.mono,
        seconds: outcome.seconds,
        filter: [("command".to_owned(), argv.join(" "))].into(),
        events: rows.len() as u64,
        lost: left_out,
        ended: match &outcome.end {
            End::TimedOut => Ended::Time,
            End::Stopped => Ended::Stopped,
            End::Exited(_) if is_fine => Ended::Gone,
            _ => Ended::Failed(words),
        },
        notes,
        tables: vec![CaptureTable { name: "output".to_owned(), columns: vec![column], rows, left_out }],
        ..Captured::default()
    };
    redact::capture(&mut captured);
    captured
}

#[cfg(test)]
mod tests {
    use mitra_archive::{Options, Writer};
    use mitra_model::time::SECOND;

    use super::*;

    /// A recorder that fails and restarts repeatedly keeps to the limits.
    #[test]
    fn a_recorder_that_begins_anew_begins_no_new_hour() {
        let dir = tempfile::tempdir().unwrap();
        let host = HostInfo::default();
        let mut frame = Frame::new();
        let at = |seconds: i64| {
            let ns = seconds * SECOND;
            Stamp { real: 1_790_000_000 * SECOND + ns, mono: ns, boot: ns }
        };
        let mut writer = Writer::open(dir.path(), &host, Options::default()).unwrap();
        for (seconds, armed) in [(10_000, vec!["/bin/true"]), (10_010, vec![]), (10_020, vec!["/bin/true"])] {
            frame.time = at(seconds);
            let kind = EventKind::Suspicion {
                rule: "always".to_owned(),
                condition: None,
                text: String::new(),
                armed: armed.into_iter().map(str::to_owned).collect(),
            };
            frame.events = vec![event(frame.time, kind)];
            writer.append(&frame, &Strings::new()).unwrap();
        }
        writer.finish().unwrap();
        let mut rule = Rule::new("always", "mem.free > 0").unwrap();
        rule.command = vec!["/bin/true".to_owned()];
        let verdict = |per_hour: u32, seconds: i64| {
            let rules = vec![Rule { per_hour, ..rule.clone() }];
            let config = Config { rules, ..Config::default() };
            let mut escalation = Escalation::new(config, &host, dir.path(), true, false);
            escalation.remember(at(seconds));
            let wish = Wish { seconds: 0.0, has_command: true };
            escalation.policy.decide(0, seconds as f64, wish, Busy::default()).command
        };
        assert_eq!(verdict(2, 10_030), Some(Verdict::TooOften));
        assert_eq!(verdict(3, 10_030), Some(Verdict::Go));
        // The first is more than an hour ago.
        assert_eq!(verdict(2, 13_610), Some(Verdict::Go));
    }

    #[test]
    fn what_could_not_be_armed_is_told_in_the_log_too() {
        let now = Stamp { real: 5, mono: 5, boot: 5 };
        let kind = EventKind::Unavailable { source: "capture of oncpu".into(), why: "no".into() };
        let events = [event(now, kind), Captured::default().event(None)];
        assert_eq!(unavailable(&events, "rule x"), ["capture of oncpu, wanted by rule x: no"]);
    }

    #[test]
    fn what_a_command_prints_is_stored_without_secrets() {
        let key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n-----END PRIVATE KEY-----\n";
        let printed =
            format!("root 1 mysqld --password=hunter2-hunter2\nuser 2 sshpass -p hunter3 ssh x\n{key}last\n");
        let outcome =
            Outcome { seconds: 1.0, output: printed.into_bytes(), is_cut: false, end: End::Stopped };
        let argv = ["/usr/bin/mysqladmin", "--password=hunter4-hunter4", "status"].map(str::to_owned);
        let now = Stamp { real: 5, mono: 5, boot: 5 };
        let captured = command_output(&argv, "rule x", &HostInfo::default(), now, &outcome);
        let stored = serde_json::to_string(&captured).unwrap();
        for secret in ["hunter2", "hunter3", "hunter4", "MIIEv"] {
            assert!(!stored.contains(secret), "{secret} is in {stored}");
        }
        let rows = &captured.tables[0].rows;
        assert_eq!(rows.len(), 6, "lines stay lines");
        assert_eq!(rows[0], [Cell::text("root 1 mysqld --password=<withheld:password>")]);
        assert_eq!(rows[5], [Cell::text("last")]);
        assert!(!format!("{:?}", captured.event(None)).contains("hunter"));
    }

    /// The suspicions of a number of seconds in which the rules hold.
    fn said(rules: Vec<Rule>, seconds: i64) -> Vec<(i64, String, String)> {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { rules, ..Config::default() };
        let mut escalation = Escalation::new(config, &HostInfo::default(), dir.path(), true, false);
        let (mut frame, strings) = (Frame::new(), Strings::new());
        frame.system_mut()[mitra_model::column("mem.free").unwrap()] = 1;
        let mut said = Vec::new();
        for second in 0..seconds {
            let ns = second * SECOND;
            frame.time = Stamp { real: 1_790_000_000 * SECOND + ns, mono: ns, boot: ns };
            frame.events.clear();
            escalation.look(&mut frame, &strings);
            said.extend(frame.events.iter().filter_map(|event| match &event.kind {
                EventKind::Suspicion { rule, text, armed, .. } => {
                    let what = if armed.is_empty() { text } else { &armed[0] };
                    Some((second, rule.clone(), what.clone()))
                }
                _ => None,
            }));
        }
        escalation.finish();
        said
    }

    #[test]
    fn a_command_that_runs_for_long_keeps_back_no_more_than_commands() {
        let rule = |name: &str, command: &[&str]| {
            let mut rule = Rule::new(name, "mem.free > 0").unwrap();
            rule.command = command.iter().map(|word| (*word).to_owned()).collect();
            rule.per_hour = 1;
            rule
        };
        let rules =
            vec![rule("runs", &["/bin/sleep", "30"]), rule("waits", &["/bin/true"]), rule("notes", &[])];
        let said = said(rules, 90);
        let of = |rule: &str| {
            let found = said.iter().filter(|(_, name, _)| name == rule);
            found.map(|(second, _, what)| (*second, what.as_str())).collect::<Vec<_>>()
        };
        assert_eq!(of("runs")[0], (0, "/bin/sleep 30"));
        let [(0, refused)] = of("waits")[..] else { panic!("{said:?}") };
        assert!(refused.ends_with("; the command was not run: another command is running"), "{refused}");
        // A rule that starts nothing is reported at most so often in an hour.
        let notes = of("notes");
        assert_eq!(notes.iter().map(|(second, _)| *second).collect::<Vec<_>>(), [0, 60], "{said:?}");
        assert!(!notes[0].1.contains(';') && notes[1].1.contains("often enough to be told"), "{notes:?}");
    }
}
