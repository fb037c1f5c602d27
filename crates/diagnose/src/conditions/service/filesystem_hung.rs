//! The daemon of a FUSE file system does not answer, and every task that touches a file of it hangs.
//!
//! The kernel counts the requests that a daemon has not answered. A daemon that works answers in milliseconds, one that
//! fetches from far away in a second: each answer wakes it. One that stands still (stopped, stuck itself, waiting for a
//! server that is gone) is not on a CPU at all while requests wait. Those who wait sleep, some in D state, some not, and the
//! machine idles.
//!
//! A file system that is merely busy has requests waiting at every sample too: its daemon runs. A single request may wait on
//! purpose, as the read of a file that tells of events does: it is an incident only where the daemon is stopped or somebody
//! waits in D state.

use crate::hangs;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "filesystem-hung",
    title: "a FUSE file system does not answer",
    area: "service",
    needs: &[
        WAITING,
        "fuse.pid",
        "fuse.comm",
        "fuse.mount",
        "fuse.type",
        "task.state",
        "task.nvcsw",
        "task.cpu_time",
        "tasks.d_io",
        "psi.io_some",
    ],
    triggers: &[Trigger::Signals(Signals {
        metrics: &[WAITING],
        find: are_waiting,
        need_s: NEED_S,
        can_be_steady: true,
    })],
    observe,
    causes: &[
        explains("timeout-cascade", "clients give up while the file system hangs"),
        explains("retry-storm", "what times out is retried"),
        explains("service-slow", "requests wait while their workers wait for the file system"),
        explains("service-silent", "every worker waits for the file system"),
        explains("service-failing", "clients give up before the file system answers"),
        explains("tasks-in-d-state", "a task that waits for a file page is in uninterruptible sleep"),
        explains("pressure-io", "a task that waits for a file page waits for I/O"),
        explains("iowait-high", "CPUs idle while tasks wait for pages"),
        explains("hung-task", "what it waits for is the daemon"),
        effect("worker-pool-exhausted", "each worker waits for the file system"),
        effect("lock-queue", "the lock holder waits for the file system"),
        within("dependency-slow", "the service that is asked waits for the file system"),
    ],
    remedies_of: remedies,
    next_of: next,
    source: include_str!("filesystem_hung.rs"),
    ..Condition::ROOT
};

const WAITING: &str = "fuse.waiting";
/// TCP sends a lost segment again after 0.2, 0.4, 0.8 and 1.6 s: a server that answers at all has by then.
const NEED_S: f64 = 3.0;
/// One may wait on purpose.
const CROWD: f64 = 2.0;
/// Of the samples in which the requests wait, a task in D state is there in nearly all.
const NEARLY_ALL: f64 = 0.8;

/// What a daemon does while requests wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Daemon {
    Stopped,
    Blocked,
    Sleeps,
    Runs,
    Unknown,
}

/// A file system that does not answer.
struct Hung<'a> {
    row: &'a str,
    high: High,
    pid: Option<u32>,
    daemon: Daemon,
    /// Tasks in D state that did not wake.
    asleep: usize,
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has(WAITING) {
        // Rows are there only of file systems that are mounted.
        return if view.has("task.tgid") && !view.is_case {
            Observation::inactive("no FUSE file system was mounted whose requests are known")
        } else {
            Observation::cannot_tell("requests that wait: grep . /sys/fs/fuse/connections/*/waiting")
        };
    }
    let mut because = "every FUSE file system answered".to_owned();
    let mut best: Option<Hung<'_>> = None;
    for (row, _) in view.each(WAITING) {
        match hung(view, row) {
            Ok(Some(hung)) if best.as_ref().is_none_or(|b| hung.waited_s() > b.waited_s()) => {
                best = Some(hung);
            }
            Ok(_) => {}
            Err(reason) => because = reason,
        }
    }
    match best {
        Some(hung) => finding(view, &hung).active(),
        None => Observation::Inactive(because),
    }
}

/// Whether a file system hangs; an error is a reason why one with requests that wait does not.
fn hung<'a>(view: &View<'a>, row: &'a str) -> Result<Option<Hung<'a>>, String> {
    let Some(any) = view.high(WAITING, row, 1.0, NEED_S) else { return Ok(None) };
    let Some(signal) = view.of(WAITING, row) else { return Ok(None) };
    let waited = without_answer(&signal.within(any.run.span()));
    let Some(high) = view.high_signal(&waited, 1.0, NEED_S, any.before) else {
        return Err(format!("{} answered all requests now and then", mount(view, row)));
    };
    let span = high.run.span();
    let pid = view.set.get("fuse.pid", row).and_then(|s| s.last(span)).filter(|pid| *pid >= 1.0);
    let pid = pid.map(|pid| pid as u32);
    let daemon = pid.map_or(Daemon::Unknown, |pid| does(view, pid, &high.run));
    let asleep = hangs::asleep_in(view, span);
    if matches!(daemon, Daemon::Runs | Daemon::Unknown) && asleep == 0 {
        let who = if daemon == Daemon::Runs { "its daemon works" } else { "its daemon is not known" };
        return Err(format!(
            "{} requests waited for {}; {who}, and no task hangs in D state",
            words::count(high.peak),
            mount(view, row)
        ));
    }
    let in_d = view.system("tasks.d_io").and_then(|s| s.within(span).mean()).unwrap_or(0.0);
    let hurts = high.peak >= CROWD || daemon == Daemon::Stopped || asleep > 0 || in_d >= NEARLY_ALL;
    if !hurts {
        return Err(format!("one request waits for {}, and may do so on purpose", mount(view, row)));
    }
    Ok(Some(Hung { row, high, pid, daemon, asleep }))
}

/// The longest stretch in which a request waited in each sample: all were answered before it.
fn without_answer(waiting: &Signal) -> Signal {
    let waits: Vec<usize> = (0..waiting.v.len()).filter(|i| waiting.v[*i] >= 1.0).collect();
    let stretches =
        waits.chunk_by(|a, b| a + 1 == *b).filter_map(|stretch| stretch.first().zip(stretch.last()));
    let of = |(first, last): (&usize, &usize)| {
        waiting.within(Span { since: waiting.t[*first], until: waiting.t[*last] + 1 })
    };
    let seconds = |signal: &Signal| signal.dt.iter().sum::<f64>();
    stretches.map(of).max_by(|a, b| seconds(a).total_cmp(&seconds(b))).unwrap_or_default()
}

impl Hung<'_> {
    fn waited_s(&self) -> f64 {
        self.high.during * self.high.run.high_s
    }
}

/// What a daemon did. Each answer wakes it.
fn does(view: &View<'_>, pid: u32, run: &Run) -> Daemon {
    if !view.has("task.nvcsw") {
        return Daemon::Unknown;
    }
    // Of a task that never ran nothing is loaded: it slept.
    let Some(process) = view.process(pid) else { return Daemon::Sleeps };
    if process.rows.iter().any(|row| hangs::woke(view, row, run)) {
        return Daemon::Runs;
    }
    let states: Vec<f64> =
        process.series(view.set, "task.state").filter_map(|s| s.last(run.span())).collect();
    let is = |letters: &[u8]| states.iter().any(|s| letters.iter().any(|letter| *s == f64::from(*letter)));
    if is(b"Tt") {
        Daemon::Stopped
    } else if is(b"D") {
        Daemon::Blocked
    } else {
        Daemon::Sleeps
    }
}

/// `/mnt/share (fuse.sshfs)`.
fn mount(view: &View<'_>, row: &str) -> String {
    let text = |metric: &str| view.set.text(metric, row).and_then(|t| t.last());
    match (text("fuse.mount"), text("fuse.type")) {
        (Some(point), Some(kind)) => format!("{point} ({kind})"),
        _ => format!("FUSE file system {row}"),
    }
}

fn finding(view: &View<'_>, hung: &Hung<'_>) -> Finding {
    let span = hung.high.run.span();
    let mut finding = view.finding(&hung.high.run);
    let text = |metric: &str| view.set.text(metric, hung.row).and_then(|t| t.last()).map(str::to_owned);
    finding.culprit.path = text("fuse.mount");
    let name = text("fuse.comm");
    match hung.pid.and_then(|pid| view.process(pid)) {
        Some(process) => finding.blame(process),
        None => (finding.culprit.process, finding.culprit.pid) = (name, hung.pid),
    }
    let who = match (&finding.culprit.process, hung.pid) {
        (Some(name), Some(pid)) => format!("its daemon, {name} ({pid}),"),
        (None, Some(pid)) => format!("its daemon, process {pid},"),
        _ => "its daemon".to_owned(),
    };
    let does = match hung.daemon {
        Daemon::Stopped => "is stopped, by a signal or a debugger",
        Daemon::Blocked => "hangs in the kernel itself",
        Daemon::Sleeps => "sleeps and was not on a CPU meanwhile",
        Daemon::Runs => "runs and does not answer them",
        Daemon::Unknown => "is not known",
    };
    let count = |n: f64, what: &str| format!("{} {what}{}", words::count(n), if n > 1.0 { "s" } else { "" });
    finding.statement = format!(
        "{} did not answer for {}: up to {} waited, and {who} {does}",
        mount(view, hung.row),
        words::seconds(hung.high.run.high_s),
        count(hung.high.peak, "request"),
    );
    if hung.asleep > 0 {
        let tasks = count(hung.asleep as f64, "task");
        finding.remarks.push(format!(
            "{tasks} in D state did not wake meanwhile, and cannot be killed if they wait for it"
        ));
    }
    finding.prove(view, &[WAITING], hung.row, span);
    finding.prove_nonzero(view, &["tasks.d_io", "psi.io_some"], "", span);
    let waited_s = hung.waited_s();
    (finding.loss_s, finding.client_wait_s) = (Some(waited_s), Some(waited_s));
    finding.confidence = match hung.daemon {
        Daemon::Stopped | Daemon::Blocked => 0.95,
        Daemon::Sleeps => 0.85,
        Daemon::Runs | Daemon::Unknown => 0.7,
    };
    finding
}

/// One where a request waits.
fn are_waiting(set: &SeriesSet, window: Span) -> Vec<Signal> {
    set.each(WAITING).map(|(_, series)| Signal::of(series, window).map(|n| step(n >= 1.0))).collect()
}

/// The name of the directory of fusectl: the kernel's own form of the device number.
fn connection(finding: &Finding) -> Option<u32> {
    let evidence = finding.evidence.iter().find(|e| e.metric == WAITING)?;
    let (major, minor) = evidence.entity.split_once(':')?;
    Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let pid = finding.pid();
    let point = words::shell(finding.culprit.path.as_deref().unwrap_or("MOUNTPOINT"));
    let number = connection(finding).map_or_else(|| "N".to_owned(), |number| number.to_string());
    let is_stopped = finding.statement.contains("is stopped");
    let first = if is_stopped {
        Remedy {
            action: "resume the daemon, once it is known what stopped it".to_owned(),
            command: format!("kill -CONT {pid}"),
            verify: format!("cat /sys/fs/fuse/connections/{number}/waiting: 0"),
            risk: String::new(),
        }
    } else {
        Remedy {
            action: "free what the daemon waits for (its server, its network, a lock), or kill it: its requests fail, \
                     and the waiting tasks continue with an error"
                .to_owned(),
            command: format!("kill {pid}; fusermount3 -uz {point}"),
            verify: format!("cat /sys/fs/fuse/connections/{number}/waiting: no such file"),
            risk: "what was written and not yet sent is lost".to_owned(),
        }
    };
    let abort = Remedy {
        action: "if it cannot be killed: abort the FUSE connection, unmount, and restart the daemon"
            .to_owned(),
        command: format!("echo 1 > /sys/fs/fuse/connections/{number}/abort; umount -l {point}"),
        verify: "no task is left in D state".to_owned(),
        risk:
            "everything below the mount point fails until it is mounted again; what was not written is lost"
                .to_owned(),
    };
    vec![first, abort]
}

fn next(finding: &Finding) -> Vec<Next> {
    let pid = finding.pid();
    vec![
        to_measure(
            "what the daemon waits for".to_owned(),
            format!(
                "grep State /proc/{pid}/status; cat /proc/{pid}/task/*/stack; ss -tnpo | grep pid={pid},"
            ),
        ),
        to_measure(
            "which processes wait for it".to_owned(),
            "grep -ls -e request_wait_answer -e fuse_ /proc/[0-9]*/task/*/stack".to_owned(),
        ),
    ]
}
