//! A process has no file descriptor left: whatever it opens next fails.
//!
//! At the soft limit `open`, `socket` and `accept` return EMFILE. No counter of the kernel tells of it. A server that cannot
//! accept leaves its connections in the queue until that overflows, and from outside looks as if it had stopped accepting:
//! there the descriptors are few. A leak climbs to the limit and stays; a server that was given too low a limit touches it
//! when work comes, and its log says so (`limit.lines`) however few are open at the moment of a sample. Of the whole machine, `fs.file-max` is the same limit for all processes together (ENFILE).

use mitra_model::limits::text_of;

use crate::prelude::*;
use crate::services;

pub const CONDITION: Condition = Condition {
    id: "fd-exhaustion",
    title: "a process has no file descriptors left",
    area: "process",
    needs: &[
        "task.fds",
        "task.fd_limit",
        "task.comm",
        "tasks.fds_fullest",
        "files.nr",
        "files.max",
        "tcpext.ListenOverflows",
        LINES,
        "service.established",
        "dependency.established",
    ],
    needs_of: &[services::NEEDS],
    triggers: &[
        above(&["tasks.fds_fullest"], FULL),
        Trigger::Signals(Signals { metrics: &[LINES], find: are_said, need_s: NEED_S, can_be_steady: true }),
    ],
    observe,
    causes: &[
        within("listen-overflow", "a server without descriptors cannot accept"),
        within("service-slow", "connections that cannot be accepted wait"),
        within("service-silent", "a server without descriptors cannot accept"),
        within("service-failing", "what needs a file or a connection fails"),
        within("failing-fast", "what needs a file or a connection fails at once"),
        within("single-thread-bottleneck", "accept fails at once and is tried again at once"),
        within("cpu-hog", "the CPU goes into calls that fail at once"),
    ],
    settings: Settings::new(
        "the limit was lowered",
        &[lowered("sysctl.fs.file-max", Acts::AtLevel("files.nr"))],
    ),
    remedies_of: remedies,
    next: &[measure(
        "what the descriptors are",
        "ls -l /proc/{pid}/fd | awk '{print $NF}' | sed 's/[0-9]\\+/N/g' | sort | uniq -c | sort -rn | head",
    )],
    suspicions: &[Suspicion {
        rank: 30,
        name: "descriptors-near-limit",
        when: "tasks.fds_fullest >= 95% and task.fds / task.fd_limit >= 95%",
        arm: &["errors"],
        is_of_culprit: true,
        seconds: 5.0,
        cool_down_s: 300.0,
        why: "The last twentieth of a limit is used up by a leak or by the next burst, and then accept and open fail with \
              EMFILE, which no counter of the kernel shows.",
        ..Suspicion::NONE
    }],
    source: include_str!("fd_exhaustion.rs"),
    ..Condition::ROOT
};

/// Descriptors are closed and opened between two samples, so a process at its limit is a little below it at most of them.
pub const FULL: f64 = 0.98;
/// A process that lived as near to its limit before is made so.
const WAS_FULL: f64 = 0.95;
/// Two samples.
const NEED_S: f64 = 2.0;
const LINES: &str = "limit.lines";
/// What a program says is missing, in `model/src/limits.txt`.
const KIND: &str = "open-files";
/// A line in each second or two, and more than a single burst of clients leaves.
const LINES_S: f64 = 0.5;
const LINES_LEAST: f64 = 5.0;
/// Who has room for as many again is another process of the same name.
const HALF: f64 = 0.5;

struct Full<'v, 'a> {
    process: &'v Process<'a>,
    row: &'a str,
    run: Run,
    limit: f64,
    peak: f64,
}

fn observe(view: &View<'_>) -> Observation {
    if let Some(finding) = whole_machine(view) {
        return finding.active();
    }
    if !view.has("task.fds") {
        return Observation::cannot_tell(
            "open file descriptors and the limit of each process: ls /proc/PID/fd | wc -l; grep 'open files' /proc/PID/limits",
        );
    }
    let mut best: Option<Full<'_, '_>> = None;
    let mut nearest: Option<(f64, &Process<'_>)> = None;
    for process in view.processes().iter().filter(|p| !p.kthread) {
        let Some(row) = process.rows.first().copied() else { continue };
        let Some((fds, limit)) = fds_and_limit(view, row, view.window) else { continue };
        let Some(most) = fds.max(view.window).map(|n| n / limit) else { continue };
        if nearest.is_none_or(|(n, _)| most > n) {
            nearest = Some((most, process));
        }
        if most < HALF {
            continue;
        }
        let most_in =
            |span: Span| fds_and_limit(view, row, span).and_then(|(fds, limit)| Some(fds.max(span)? / limit));
        if view.baseline.and_then(most_in).is_some_and(|before| before >= WAS_FULL) {
            continue;
        }
        let full = Signal::of(fds, view.window).run(FULL * limit, NEED_S);
        let Some(run) = full.or_else(|| said(view, process.comm)) else { continue };
        let least = fds_and_limit(view, row, Span::ALL)
            .and_then(|(fds, limit)| Some(fds.min(Span::ALL)? / limit))
            .unwrap_or(0.0);
        // For as long as it is known it has been so; then somebody has to be seen to suffer.
        if least >= WAS_FULL
            && view.system("tcpext.ListenOverflows").and_then(|s| s.max()).is_none_or(|n| n <= 0.0)
        {
            continue;
        }
        let full = Full { process, row, run, limit, peak: most * limit };
        if best.as_ref().is_none_or(|b| full.run.high_s > b.run.high_s) {
            best = Some(full);
        }
    }
    match (best, nearest) {
        (Some(full), _) => finding(view, &full).active(),
        (None, Some((most, process))) => Observation::Inactive(format!(
            "no process came to its limit of descriptors: {} ({}) had {} of it",
            process.comm,
            process.pid,
            words::percent(most)
        )),
        (None, None) => {
            Observation::needs_as("the limits of descriptors (task.fd_limit)", &["task.fd_limit"])
        }
    }
}

/// The program of a row, if it is about descriptors.
fn program(row: &str) -> Option<&str> {
    let (comm, kind) = row.rsplit_once(':')?;
    text_of(comm, kind).filter(|text| text.kind == KIND).map(|_| comm)
}

/// Of each program that says in its log that it has no descriptors left: one while it does.
fn are_said(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let rows = set.each(LINES).filter(|(row, _)| program(row).is_some());
    rows.map(|(_, series)| Signal::of(series, window).map(|lines| step(lines >= LINES_S))).collect()
}

/// When a program says so.
fn said(view: &View<'_>, comm: &str) -> Option<Run> {
    let (row, series) = view.each(LINES).find(|(row, _)| program(row) == Some(comm))?;
    let is_often = series.total(view.window)? >= LINES_LEAST;
    view.high(LINES, row, LINES_S, NEED_S).filter(|_| is_often).map(|high| high.run)
}

/// Open descriptors of a process, and its limit in the span.
fn fds_and_limit<'v>(view: &View<'v>, row: &str, span: Span) -> Option<(&'v Series, f64)> {
    let limit = view.set.get("task.fd_limit", row)?.last(span).filter(|l| *l > 0.0)?;
    Some((view.set.get("task.fds", row)?, limit))
}

fn finding(view: &View<'_>, full: &Full<'_, '_>) -> Finding {
    let mut finding = view.finding(&full.run);
    let process = full.process;
    finding.blame(process);
    let series = view.set.get("task.fds", full.row);
    let first = series.and_then(|s| s.first(Span::ALL));
    let from = first.filter(|f| *f < 0.9 * full.peak);
    let climbed = from.map(|f| format!(", up from {}", words::count(f))).unwrap_or_default();
    finding.statement = format!(
        "{} ({}) has {} file descriptors open{climbed} and may have {}: what it opens or accepts next fails",
        process.comm,
        process.pid,
        words::count(full.peak),
        words::count(full.limit)
    );
    let span = full.run.span();
    finding.evidence.push(view.task_evidence("task.fds", process, from, full.peak, span));
    finding.evidence.push(view.task_evidence("task.fd_limit", process, None, full.limit, span));
    if let Some((row, _)) = view.each(LINES).find(|(row, _)| program(row) == Some(process.comm)) {
        finding.prove_nonzero(view, &[LINES], row, span);
    }
    // A server in another network namespace is counted there.
    let overflows = view.evidence("tcpext.ListenOverflows", "", span);
    finding.evidence.extend(overflows.filter(|e| e.during > 0.0));
    finding.confidence = if from.is_some() { 0.95 } else { 0.85 };
    if from.is_some_and(|f| f < 0.5 * full.peak) {
        finding.remarks.push(
            "the number climbed and stayed: descriptors are opened and not closed; a higher limit only delays it"
                .to_owned(),
        );
    }
    finding.remarks.extend(services::who_has_most(view, process.comm, span));
    finding
}

/// The limit of the whole machine.
fn whole_machine(view: &View<'_>) -> Option<Finding> {
    let (_, max) = view.fullest("files.nr", "files.max", "")?;
    let high = view.high("files.nr", "", FULL * max, NEED_S)?;
    if high.before.is_some_and(|before| before >= WAS_FULL * max) {
        return None;
    }
    let mut finding = view.finding(&high.run);
    finding.statement = format!(
        "{} of the {} files that the machine may have open are",
        words::count(high.peak),
        words::count(max)
    );
    finding.culprit.sysctl = Some("fs.file-max".to_owned());
    finding.prove(view, &["files.nr", "files.max"], "", high.run.span());
    let holders = view.processes().iter().filter_map(|p| {
        let row = p.rows.first()?;
        Some((p, view.set.get("task.fds", row)?.last(view.window)?))
    });
    if let Some((p, fds)) = holders.max_by(|a, b| a.1.total_cmp(&b.1)) {
        finding.blame_pid(p.comm, p.pid);
        finding.statement =
            format!("{}; {} ({}) holds most, {}", finding.statement, p.comm, p.pid, words::count(fds));
    }
    finding.confidence = 0.9;
    Some(finding)
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let name = finding.culprit.process.as_deref().unwrap_or("the process");
    let pid = finding.pid();
    let soft = finding.evidence.iter().find(|e| e.metric == "task.fd_limit").map(|e| e.during);
    let twice = soft.map_or_else(|| "NUMBER".to_owned(), |s| format!("{:.0}", 2.0 * s));
    vec![
        Remedy {
            action: format!("give {name} room at once: raise its limit while it runs"),
            command: format!("prlimit --pid {pid} --nofile={twice}"),
            verify: format!(
                "ls /proc/{pid}/fd | wc -l stays below the limit; nstat -z TcpExtListenOverflows stands still"
            ),
            risk: "where descriptors leak this only delays it; above 1024 programs that use select() break"
                .to_owned(),
        },
        Remedy {
            action: format!("restart {name}, and fix the descriptor leak"),
            command: String::new(),
            verify: format!("ls /proc/{pid}/fd | wc -l does not climb with the work done"),
            risk: "what it has open is lost".to_owned(),
        },
    ]
}
