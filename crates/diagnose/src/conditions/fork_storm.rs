//! Processes are started and end so fast that starting them is most of the work.
//!
//! Each lives for milliseconds, so tools that look once a second see none of them: their CPU time belongs to nobody.
//! An ordinary build shows the same gap with few forks, so the rate decides: the parent that starts them is the
//! culprit.

use std::collections::BTreeMap;

use mitra_model::Span;
use mitra_model::report::{Next, Remedy};

use crate::captured;
use crate::condition::{Condition, Finding, Observation, Role};
use crate::view::View;
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "fork-storm",
    title: "processes are started and end all the time",
    role: Role::Root,
    area: "cpu",
    needs: &[
        "sys.forks",
        "exited.count",
        "exited.lifetime",
        "exited.cpu_time",
        "tasks.exited",
        "tasks.exited_cpu_time",
        "tasks.run_delay",
        "sys.cpu_system",
        "vm.pgfault",
        "task.ppid",
    ],
    observe,
    remedies,
    next,
    source: include_str!("fork_storm.rs"),
};

/// To fork, exec and exit the smallest program costs 0.5 to 1 ms of CPU, so from here on a fifth of a CPU does nothing
/// else. Package upgrades and builds stay below half of it.
const FORKS_S: f64 = 250.0;
/// On a machine with many CPUs it takes more to be a storm: an eighth of all CPUs.
const FORKS_PER_CPU_S: f64 = 125.0;
/// A process that lives for a tenth of a second does something; the storm's do not.
const SHORT_S: f64 = 0.1;

fn observe(view: &View<'_>) -> Observation {
    let Some(forks) = view.system("sys.forks") else {
        return Observation::CannotTell("sys.forks".to_owned());
    };
    let floor = FORKS_S.max(FORKS_PER_CPU_S * view.cpus());
    let Some(high) = view.high("sys.forks", "", floor, 3.0) else {
        return Observation::Inactive(format!(
            "{} forks/s at most",
            words::count(forks.max().unwrap_or(0.0))
        ));
    };
    let span = high.run.span();
    let parents = parents(view, span);
    let mut finding = view.finding(&high.run);
    for metric in ["sys.forks", "tasks.exited", "tasks.exited_cpu_time", "sys.cpu_system", "vm.pgfault"] {
        finding.evidence.extend(view.evidence(metric, "", span));
    }
    finding.loss_s = view.excess(&["tasks.run_delay"], span);
    let Some(top) = parents.first() else {
        finding.confidence = 0.6;
        finding.statement = format!(
            "{} processes a second were started ({} before); by whom is not known without the exit probe",
            words::count(high.during),
            words::count(high.before.unwrap_or(0.0))
        );
        captured::name_program(view, &mut finding);
        return Observation::Active(Box::new(finding));
    };
    if top.lifetime_s >= SHORT_S {
        return Observation::Inactive(format!(
            "the processes that ended had lived for {} each",
            words::seconds(top.lifetime_s)
        ));
    }
    finding.culprit.process = Some(top.parent.clone());
    finding.culprit.pid = top.pid;
    finding.culprit.cgroup = top
        .pid
        .and_then(|pid| view.processes().iter().find(|p| p.pid == pid))
        .and_then(|p| p.cgroup)
        .filter(|c| *c != "/")
        .map(str::to_owned);
    let by = match top.pid {
        Some(pid) if top.lead_share >= 0.5 => format!("{} ({pid})", top.parent),
        Some(pid) => format!("{} processes named {}, {pid} most of all,", top.pids, top.parent),
        None => top.parent.clone(),
    };
    finding.statement = format!(
        "{} processes a second were started ({} before); {by} started {} of those that ended, mostly {}, which lived for {} each",
        words::count(high.during),
        words::count(high.before.unwrap_or(0.0)),
        words::percent(top.share),
        top.child,
        words::seconds(top.lifetime_s)
    );
    finding.confidence = 0.5 + 0.5 * top.share;
    captured::name_program(view, &mut finding);
    Observation::Active(Box::new(finding))
}

/// Processes of one name that start others.
struct Parent {
    parent: String,
    /// The one that started most.
    pid: Option<u32>,
    /// Its share of what those of its name started.
    lead_share: f64,
    pids: usize,
    child: String,
    share: f64,
    lifetime_s: f64,
}

fn parents(view: &View<'_>, span: Span) -> Vec<Parent> {
    #[derive(Default)]
    struct Sum<'a> {
        count: f64,
        lifetime_s: f64,
        by_pid: BTreeMap<u32, f64>,
        by_child: BTreeMap<&'a str, f64>,
    }
    let mut sums: BTreeMap<&str, Sum<'_>> = BTreeMap::new();
    let mut all = 0.0;
    for (row, series) in view.each("exited.count") {
        let Some(count) = series.total(span).filter(|n| *n > 0.0) else { continue };
        let Some((pid, child)) = row.split_once(':') else { continue };
        let Ok(pid) = pid.parse::<u32>() else { continue };
        let parent = view.set.text("exited.parent_comm", row).and_then(|t| t.last()).unwrap_or("?");
        let sum = sums.entry(parent).or_default();
        sum.count += count;
        sum.lifetime_s += view.set.get("exited.lifetime", row).and_then(|s| s.total(span)).unwrap_or(0.0);
        *sum.by_pid.entry(pid).or_default() += count;
        *sum.by_child.entry(child).or_default() += count;
        all += count;
    }
    let mut parents: Vec<Parent> = sums
        .into_iter()
        .map(|(parent, sum)| {
            let most = |(_, n): &(_, f64)| *n;
            let lead =
                sum.by_pid.iter().map(|(pid, n)| (*pid, *n)).max_by(|a, b| most(a).total_cmp(&most(b)));
            let child = sum.by_child.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(c, _)| (*c).to_owned());
            Parent {
                parent: parent.to_owned(),
                pid: lead.map(|(pid, _)| pid),
                lead_share: lead.map_or(0.0, |(_, n)| n / sum.count),
                pids: sum.by_pid.len(),
                child: child.unwrap_or_default(),
                share: sum.count / all,
                lifetime_s: sum.lifetime_s / sum.count.max(1.0),
            }
        })
        .collect();
    parents.sort_by(|a, b| b.share.total_cmp(&a.share));
    parents
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let by = finding.culprit.process.as_deref().unwrap_or("the parent");
    let pid = finding.culprit.pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
    vec![Remedy {
        action: format!(
            "stop the loop in {by}, or let it do the work itself instead of starting a program for each item"
        ),
        command: format!("kill -STOP {pid}   (kill -CONT {pid} to go on)"),
        verify: "sar -w 1: proc/s falls".to_owned(),
        risk: "what the loop does stops".to_owned(),
    }]
}

fn next(finding: &Finding) -> Vec<Next> {
    let pid = finding.culprit.pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
    vec![Next {
        measure: "which script or service it is".to_owned(),
        command: format!("tr '\\0' ' ' < /proc/{pid}/cmdline; pstree -sp {pid}"),
    }]
}
