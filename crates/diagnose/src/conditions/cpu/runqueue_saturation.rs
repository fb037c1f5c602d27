//! More tasks want to run than there are CPUs, for long: each gets at most a third of one.
//!
//! Busy is not broken: a build that keeps all CPUs full with about as many jobs as there are CPUs loses little of
//! anybody's time, and what it loses belongs to itself. Saturation is a queue twice as long as the machine is wide, of tasks
//! that stay: where most of the CPU time goes to processes that have ended by the end of it, they were jobs of some
//! work that gets done. Where one program's handful of tasks takes the CPUs and others wait, `cpu-hog` is the better word.
//!
//! Where the delay of tasks was not recorded, the length of the queue is: `r` of vmstat and `runq-sz` of sar count the
//! tasks that run with those that wait.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "runqueue-saturation",
    title: "more runnable tasks than CPUs",
    area: "cpu",
    needs: &[
        "tasks.run_delay",
        "tasks.cpu_time",
        "tasks.exited_cpu_time",
        "sys.cpu_idle",
        "sys.cpu_iowait",
        "sys.procs_running",
        "cgroup.throttled_time",
        "task.cpu_time",
        "task.run_delay",
    ],
    triggers: &[
        // For each CPU one task that runs and one that waits.
        above(&["sys.procs_running"], 2.0).per_cpu().of_files(),
    ],
    observe,
    causes: &[
        effect("cpu-saturated", "more runnable tasks than CPUs"),
        effect("runqueue-wait", "more runnable tasks than CPUs"),
    ],
    remedies: &[Advice {
        action: "run fewer of {process:the program} at a time, or give them a lower CPU weight than latency-sensitive work",
        command: "renice -n 19 $(pgrep -x {process:the program})",
        verify: "vmstat 1: r falls to the number of CPUs",
        risk: "they take longer",
    }],
    next: &[measure("which process started them", "ps -eo pid,ppid,stat,etime,comm --sort=-pcpu | head -30")],
    source: include_str!("runqueue_saturation.rs"),
    ..Condition::ROOT
};

/// Two tasks wait for each one that runs: everything takes three times as long. Builds are run with up to two jobs a
/// CPU on purpose, which makes one wait.
const WAITING_PER_CPU: f64 = 2.0;
/// Of all CPUs together.
const BUSY: f64 = 0.9;

fn observe(view: &View<'_>) -> Observation {
    if view.set.host.cpus == 0 {
        return Observation::cannot_tell("how many CPUs the machine has: nproc");
    }
    let cpus = view.cpus();
    let queue = |running: f64| (running - cpus).max(0.0);
    let (delay, before) = match (view.system("tasks.run_delay"), view.system("sys.procs_running")) {
        (Some(delay), _) => (delay, view.before("tasks.run_delay", "").map(|d| d / cpus)),
        (None, Some(running)) => {
            (running.map(queue), view.before("sys.procs_running", "").map(|r| queue(r) / cpus))
        }
        (None, None) => {
            return Observation::cannot_tell(
                "how long tasks wait or how many: vmstat 1 (r), sar -q, pidstat -u 1 (%wait)",
            );
        }
    };
    let Some(idle) = view.idle() else { return Observation::needs(&["sys.cpu_idle"]) };
    let waiting =
        delay.zip(&idle, |delay, idle| if idle <= (1.0 - BUSY) * cpus { delay / cpus } else { 0.0 });
    let threshold = WAITING_PER_CPU.max(before.map_or(0.0, |b| 2.0 * b));
    let Some(high) = view.high_signal(&waiting, threshold, 4.0, before) else {
        return Observation::Inactive(format!(
            "with all CPUs busy at most {} tasks waited for each CPU",
            words::at_a_time(waiting.max().unwrap_or(0.0))
        ));
    };
    let span = high.run.span();
    let throttled: f64 = view.each("cgroup.throttled_time").filter_map(|(_, s)| s.mean(span)).sum();
    if throttled > 0.5 * high.during * cpus {
        return Observation::inactive("what waited was waiting for CPU quota");
    }
    let ended = ended_cpu_s(view, high.run.end, span);
    let used = view.system("tasks.cpu_time").map_or(cpus * high.run.seconds(), |s| s.within(span).total());
    if ended > 0.5 * used {
        return Observation::Inactive(format!(
            "{} of the CPU time went to processes that have exited: jobs that complete",
            words::percent(ended / used.max(1e-9))
        ));
    }
    let mut finding = view.finding(&high.run);
    let tops = process::ranking(view.processes(), span, |p| p.total(view.set, "task.cpu_time", span));
    let who = match tops.first() {
        Some(top) => {
            finding.blame_pid(top.comm, top.pid());
            finding.evidence.push(view.task_evidence("task.cpu_time", &top.lead, None, top.rate, span));
            format!("{} used most of the CPU time ({})", top.words(), words::percent(top.share))
        }
        None => "which program they belong to is not known".to_owned(),
    };
    finding.statement = format!(
        "{:.1} tasks waited for each of the {cpus:.0} CPUs ({:.1} before) and none was idle; {who}",
        high.during,
        before.unwrap_or(0.0)
    );
    finding.prove(view, &["tasks.run_delay", "sys.procs_running", "sys.cpu_idle"], "", span);
    finding.loss_s = view.excess(&["tasks.run_delay"], span);
    finding.confidence = if tops.is_empty() { 0.7 } else { 0.9 };
    finding.active()
}

/// CPU-seconds of processes that had ended when the run did, as far as frames saw them and after.
fn ended_cpu_s(view: &View<'_>, end: i64, span: Span) -> f64 {
    let step_ns = view.system("tasks.run_delay").map_or(SECOND, |s| (s.step_s() * SECOND as f64) as i64);
    let unseen = view.system("tasks.exited_cpu_time").map_or(0.0, |s| s.within(span).total());
    let seen: f64 = view
        .processes()
        .iter()
        .filter(|p| p.last_seen(view.set).is_some_and(|last| last < end - 2 * step_ns))
        .map(|p| p.total(view.set, "task.cpu_time", span))
        .sum();
    unseen + seen
}
