//! Processes of a service that are held still from outside, or accept nothing.

use mitra_model::Span;
use mitra_model::report::Remedy;

use super::{ACCEPT, ELSEWHERE, THREADS_MIN, Wait, blame, looked_at, sum, waits_of, words};
use crate::condition::Finding;
use crate::services::Servers;
use crate::view::View;

/// What holds a process still from outside.
pub(super) const HELD: &[&str] = &["stopped", "frozen"];

/// Says that a process of a service is held still while others of it would answer, and names it: true. The kernel goes on giving it its
/// part of the connections (`SO_REUSEPORT`, or what it had accepted before).
pub(super) fn say_held(
    view: &View<'_>,
    finding: &mut Finding,
    servers: &Servers<'_, '_>,
    row: &str,
    span: Span,
) -> bool {
    let own = looked_at(view, servers);
    let all: Vec<(u32, Vec<Wait<'_>>)> =
        own.iter().map(|pid| (*pid, waits_of(view.set, &[*pid], span))).collect();
    let nearly_all_in = |kinds: &[&str]| {
        all.iter().find_map(|(pid, waits)| {
            let total = sum(waits.iter());
            let still = waits.iter().find(|wait| kinds.contains(&wait.kind))?;
            (total >= THREADS_MIN && still.threads >= (1.0 - ELSEWHERE) * total).then_some((*pid, still.kind))
        })
    };
    // Connections wait for one that sleeps, while another one would accept them.
    let accepts = all.iter().any(|(_, waits)| waits.iter().any(|wait| wait.kind == ACCEPT));
    let queued = view.set.get("listener.queue", row).and_then(|queue| queue.max(span));
    let is_left = accepts && own.len() > 1 && queued.is_some_and(|queued| queued >= 1.0);
    let sleeper = || nearly_all_in(&["timer"]).filter(|_| is_left);
    let Some((pid, kind)) = nearly_all_in(HELD).or_else(sleeper) else { return false };
    let comm = view.process(pid).map(|process| process.comm).or(servers.comm.as_deref());
    let name = comm.map_or_else(|| format!("process {pid}"), |comm| format!("{comm} ({pid})"));
    finding.waits_for = Some(match own.len() {
        1 => format!("{name} {}", words::does(kind)),
        count if HELD.contains(&kind) => format!("of its {count} processes {name} {}", words::does(kind)),
        count => format!(
            "of its {count} processes {name} {} and accepts no connection: those that the kernel gives it wait",
            words::does(kind)
        ),
    });
    finding.remarks.extend(finding.waits_for.clone());
    let comm = comm.map(str::to_owned);
    blame(view, finding, pid, comm.as_deref());
    true
}

/// What lets the process go on that a service waits for in the end, where that is held still from outside.
#[must_use]
pub fn go_on(finding: &Finding) -> Option<Remedy> {
    let waits = finding.waits_for.as_deref()?;
    let who = finding.culprit.process.as_deref().unwrap_or("the process");
    let pid = finding.pid();
    if waits.ends_with(words::IS_STOPPED) {
        return Some(let_go_on(who, &pid));
    }
    if waits.contains(words::LETS_GO) {
        return Some(Remedy {
            action: "end whoever traces it, or whoever that waits for: strace and gdb detach when they end".to_owned(),
            command: "grep TracerPid /proc/PID/status; kill TRACER".to_owned(),
            verify: "TracerPid is 0, and requests are answered again".to_owned(),
            risk: "what the tracer has not written yet is lost; a debugger that is killed by SIGKILL may leave breakpoints".to_owned(),
        });
    }
    if waits.ends_with(words::IS_FROZEN) {
        return Some(Remedy {
            action: format!(
                "thaw the cgroup of {who}, once it is known who froze it (docker pause, a snapshot, a suspend)"
            ),
            command: format!(
                "cat /proc/{pid}/cgroup; echo 0 > /sys/fs/cgroup/GROUP/cgroup.freeze; version 1: echo THAWED > \
             /sys/fs/cgroup/freezer/GROUP/freezer.state"
            ),
            verify: "cgroup.events has frozen 0, and requests are answered again".to_owned(),
            risk: "whoever froze it may be in the middle of a snapshot".to_owned(),
        });
    }
    // Who is named is the last one to be waited for.
    let ends_at = |phrase: &str| {
        let beyond = waits.rsplit_once(phrase).map(|(_, beyond)| beyond);
        beyond.is_some_and(|beyond| !beyond.contains(" waits for ") && !beyond.contains(" wait for "))
    };
    if ends_at(words::SCANNED) {
        return Some(Remedy {
            action: format!(
                "let {who} leave these files out, or answer faster; stop it meanwhile, if what it guards may be open for so long"
            ),
            command: format!("ls -l /proc/{pid}/fdinfo; grep -H fanotify /proc/{pid}/fdinfo/*; kill {pid}"),
            verify: "files are opened as fast as before".to_owned(),
            risk: "nothing is scanned without it".to_owned(),
        });
    }
    if ends_at(words::NOT_READ) || ends_at(words::UNREAD_PIPE) {
        return Some(Remedy {
            action: format!(
                "let {who} go on, or end it; let whoever writes drop what is not read in time, or buffer it elsewhere (a proxy that \
                 buffers, a log of its own)"
            ),
            command: format!("cat /proc/{pid}/stack; ss -tnp | grep 'pid={pid},'; kill {pid}"),
            verify: "requests are answered again".to_owned(),
            risk: "what was written and not read is lost".to_owned(),
        });
    }
    None
}

/// What to do about it.
#[must_use]
pub fn let_go_on(who: &str, pid: &str) -> Remedy {
    Remedy {
        action: format!("resume {who}, once it is known what stopped it"),
        command: format!("kill -CONT {pid}"),
        verify: "requests are answered again, and it is in state S or R: ps -o stat,pid,comm".to_owned(),
        risk: "a debugger that looks at it loses its place".to_owned(),
    }
}
