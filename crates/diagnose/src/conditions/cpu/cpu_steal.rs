//! The hypervisor runs another guest while this machine wants to run.
//!
//! Steal counts only while a virtual CPU has something to do, so an idle machine on a full host shows none. It looks like slow
//! programs and long run queues with nobody inside to blame: the cause is the host, or a limit of CPU that the host applies.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "cpu-steal",
    title: "the hypervisor steals CPU time",
    area: "cpu",
    needs: &["sys.cpu_steal", "sys.cpu_idle", "sys.cpu_iowait", "tasks.run_delay"],
    triggers: &[
        // A tenth of the CPUs is somewhere else.
        above(&["sys.cpu_steal"], 0.1).per_cpu(),
    ],
    observe,
    causes: &[
        effect("runqueue-wait", "tasks wait for a CPU that the hypervisor took"),
        effect("cpu-saturated", "what is stolen is not idle"),
        explains("runqueue-saturation", "the run queue is long because the hypervisor took the CPUs"),
        explains("single-thread-bottleneck", "the thread has less than a CPU"),
        effect("scheduling-stall", "a stolen CPU runs nothing"),
    ],
    remedies: &[Advice {
        action: "move the VM to a less loaded host, or raise its CPU share or limit; a burstable instance has used up \
                 its credits",
        command: "",
        verify: "sar -u 1: %steal below 1",
        risk: "",
    }],
    next: &[measure("steal of each CPU, and the host's own figures", "mpstat -P ALL 1")],
    source: include_str!("cpu_steal.rs"),
    ..Condition::ROOT
};

/// A tenth of all CPUs: waits of that share are noticed; hosts that are not full stay below a hundredth.
const STOLEN: f64 = 0.1;
/// Of the time that the machine wanted to run it was kept from a fifth at least; little of little hurts nobody.
const OF_WANTED: f64 = 0.2;

fn observe(view: &View<'_>) -> Observation {
    let Some(steal) = view.system("sys.cpu_steal") else {
        return Observation::cannot_tell("sys.cpu_steal: sar -u 1 (%steal)");
    };
    let cpus = view.cpus();
    let Some(high) = view.high("sys.cpu_steal", "", STOLEN * cpus, 3.0) else {
        return Observation::Inactive(format!(
            "steal was {} of the CPUs at most",
            words::percent(steal.max().unwrap_or(0.0) / cpus)
        ));
    };
    let span = high.run.span();
    let wanted = view.idle().and_then(|idle| idle.within(span).mean()).map_or(cpus, |idle| cpus - idle);
    if high.during < OF_WANTED * wanted {
        return Observation::Inactive(format!(
            "{} of what the machine wanted to run was stolen",
            words::percent(high.during / wanted.max(1e-9))
        ));
    }
    let mut finding = view.finding(&high.run);
    finding.statement = format!(
        "the hypervisor kept this machine from {} of its CPUs ({} before), {} of what it wanted to run",
        words::percent(high.during / cpus),
        words::percent(high.before.unwrap_or(0.0) / cpus),
        words::percent(high.during / wanted.max(1e-9))
    );
    finding.prove(view, &["sys.cpu_steal", "sys.cpu_idle"], "", span);
    finding.loss_s = Some(high.during * high.run.seconds());
    finding.confidence = 0.9;
    finding.active()
}
