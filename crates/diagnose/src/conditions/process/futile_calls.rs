//! A program makes futile system calls, again and again.
//!
//! A search path of hundreds of folders, a poll of what is not ready, a file that is opened by a name that does not exist:
//! each call costs a microsecond or two, and a program that makes them by the hundred thousand spends its time in the
//! kernel and answers later, while the machine has nothing to complain about. It is a finding and no incident. A probe
//! of the calls that fail (a capture of kind `errors`) names the call, the error and the program.

use crate::captured;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "futile-calls",
    title: "a program makes futile system calls",
    role: Role::Finding,
    area: "process",
    needs: &["task.system_time"],
    observe,
    remedies_of: remedies,
    next_of: next,
    suspicions: &[Suspicion {
        rank: 210,
        name: "busy-in-the-kernel",
        when: "sum(task.system_time{kthread=0}) by pid > 30% and sum(task.rchar) by pid < 10MiB/s \
               and sum(task.wchar) by pid < 10MiB/s and sum(softnet.processed) < 5000/s for 10s",
        arm: &["errors"],
        seconds: 3.0,
        cool_down_s: 3600.0,
        why: "A third of a CPU inside the kernel is a quarter of a million short calls a second. A program that moves \
              no data by read and write and no packets either may make futile calls; no counter says so. It runs once \
              an hour at most, after all other triggers.",
        ..Suspicion::NONE
    }],
    source: include_str!("futile_calls.rs"),
    ..Condition::ROOT
};

/// A call that fails costs half a microsecond at least: a hundredth of a CPU.
const FAILED_S: f64 = 20_000.0;

fn observe(view: &View<'_>) -> Observation {
    let errors = captured::top(view, "errors", |row| Some(row.what.as_str()), |row| row.count);
    let Some(top) = errors else {
        return Observation::cannot_tell(
            "which system calls fail: mitra capture errors --seconds 5, or strace -c -f -p PID",
        );
    };
    let often = words::count(top.count_s);
    if top.count_s < FAILED_S {
        return Observation::Inactive(format!(
            "{} fails most often, {often} times a second: {}",
            top.who(),
            top.what
        ));
    }
    let mut finding = view.finding_at(top.event.real);
    finding.culprit.process = Some(top.comm.to_owned());
    finding.culprit.pid = top.pid;
    let (call, error) = top.what.split_once(' ').unwrap_or((top.what, "an error"));
    finding.statement =
        format!("{} makes {often} calls of {call} a second that fail with {error}", top.who());
    finding.evidence.push(view.event_evidence("event.capture", &top.who(), top.count_s, "1/s", top.event));
    if let Some(process) = top.pid.and_then(|pid| view.process(pid)) {
        finding.culprit.cgroup = process.cgroup.filter(|group| *group != "/").map(str::to_owned);
        let spent = process.signal(view.set, "task.system_time", view.window);
        let in_kernel = spent.and_then(|signal| signal.mean()).unwrap_or(0.0);
        finding
            .statement
            .push_str(&format!(", and is in the kernel for {} of a CPU", words::percent(in_kernel)));
        finding.evidence.push(view.task_evidence("task.system_time", process, None, in_kernel, view.window));
    }
    finding.confidence = 0.9;
    finding.active()
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let process = finding.culprit.process.as_deref().unwrap_or("the program");
    vec![Remedy {
        action: format!(
            "let {process} ask for what exists or wait for what is ready: shorten its search path, or poll with a timeout"
        ),
        command: String::new(),
        verify: format!("strace -c -f -p {}: few errors", finding.pid()),
        risk: String::new(),
    }]
}

fn next(finding: &Finding) -> Vec<Next> {
    vec![Next {
        measure: "which names or descriptors the calls are about".to_owned(),
        command: format!("strace -f -Z -p {}", finding.pid()),
    }]
}
