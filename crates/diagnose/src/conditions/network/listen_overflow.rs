//! A server does not accept its connections as fast as they come: the queue of its listening socket is full, and the
//! kernel turns further ones away.
//!
//! The kernel finishes the handshake by itself and lets the connection wait in the accept queue, as many as `listen()`
//! asked for and `net.core.somaxconn` allows. When it is full the SYN, or the last packet of the handshake, is dropped
//! without a word. The client knows nothing of it and tries again after one second, then three, then seven: its times
//! come in steps. The server itself looks idle when it stands still, or busy when it is too slow.
//!
//! SYNs that are sent again without an overflow are lost on the way: see `retransmit-storm`, `nic-drops`,
//! `conntrack-full`. Where the process has no file descriptor left the root is `fd-exhaustion`; where one of its threads
//! is busy all the time, `single-thread-bottleneck`.

use crate::network::{self, Net, SYN_WAIT_S};
use crate::prelude::*;
use crate::services;

pub const CONDITION: Condition = Condition {
    id: "listen-overflow",
    title: "a server does not accept connections fast enough",
    area: "network",
    needs: &[
        "tcpext.ListenOverflows",
        "tcpext.ListenDrops",
        "tcpext.TCPSynRetrans",
        "netns.tcpext_ListenOverflows",
        "netns.tcpext_ListenDrops",
        "netns.tcpext_TCPSynRetrans",
        "listener.queue",
        "listener.backlog",
        "listener.pid",
        "listener.comm",
        "sock.listen_overfull",
        "task.cpu_time",
        "task.run_delay",
    ],
    triggers: &[
        // Each is a second of a client's time.
        each_above(&["tcpext.ListenOverflows"], OVERFLOWS_S),
    ],
    observe,
    causes: &[
        explains(
            "retransmit-storm",
            "a half-accepted client retransmits its request to a server that has not accepted the connection",
        ),
        effect("session-drop", "a session that reconnects is not accepted"),
        within("service-slow", "what waits in the accept queue is answered late"),
    ],
    settings: Settings::new(
        "the limit was lowered",
        &[lowered("sysctl.net.core.somaxconn", Acts::ForListeners)],
    ),
    remedies_of: remedies,
    next: &[measure("what it does instead of accepting", "mitra capture offcpu --pid {pid}")],
    suspicions: &[Suspicion {
        rank: 50,
        name: "accept-queue-overflow",
        when: "tcpext.ListenOverflows > 1/s or any(netns.tcpext_ListenOverflows > 1/s) for 2s",
        arm: &["sockets"],
        seconds: 5.0,
        why: "Each is a client that waits a second for its next try. A healthy machine has none.",
        ..Suspicion::NONE
    }],
    source: include_str!("listen_overflow.rs"),
    ..Condition::ROOT
};

/// Each one is a second of somebody's time, so one in two seconds costs half of it.
const OVERFLOWS_S: f64 = 0.5;
/// Fewer may be the clients that all come back at once after a restart, whom a second attempt lets in.
const LEAST: f64 = 5.0;
/// In how many seconds at least: one burst is over before anybody can look.
const NEED_S: f64 = 2.0;
/// A thread is busy from here on.
const BUSY: f64 = 0.8;

/// The listening socket whose queue was full.
struct Listener<'a> {
    row: &'a str,
    address: &'a str,
    queue: f64,
    backlog: f64,
    full_s: f64,
    comm: Option<&'a str>,
    pid: Option<u32>,
}

fn observe(view: &View<'_>) -> Observation {
    let found = network::worst(view, &["tcpext.ListenOverflows"], OVERFLOWS_S, NEED_S);
    let Some((net, high)) = found else {
        if view.is_case && view.reading("sock.listen_overfull", "").is_some_and(|n| n > 0.0) {
            return Observation::suspected("how it grows: nstat -az TcpExtListenOverflows; sleep 10; nstat");
        }
        return match network::peak(view, &["tcpext.ListenOverflows"]) {
            Some(peak) => Observation::Inactive(format!(
                "connections that found no room in a listener's queue: at most {}/s",
                words::count(peak)
            )),
            None => Observation::cannot_tell("TcpExtListenOverflows (nstat)"),
        };
    };
    let span = high.run.span();
    let overflows = net.total(view, &["tcpext.ListenOverflows"], span).unwrap_or(0.0);
    if overflows < LEAST {
        return Observation::Inactive(format!("{overflows:.0} connections found no room, and no more came"));
    }
    let listener = fullest(view, net, span);
    let mut finding = view.finding(&high.run);
    finding.loss_s = Some(overflows * SYN_WAIT_S);
    finding.statement = statement(net, listener.as_ref(), overflows, high.during);
    finding.evidence.extend(net.evidence(view, "tcpext.ListenOverflows", span));
    if let Some(syn) = net.evidence(view, "tcpext.TCPSynRetrans", span).filter(|e| e.during > 0.0) {
        finding.evidence.push(syn);
    }
    finding.confidence = 0.7;
    // That others wait for a CPU keeps no server from accepting that does not.
    if !listener.as_ref().is_some_and(|listener| is_starved(view, listener, span)) {
        finding.despite.push("runqueue-wait");
    }
    if let Some(listener) = &listener {
        describe(view, &mut finding, listener, span);
    } else if view.is_case {
        finding.remarks.push("whose socket it is: ss -ltnp, those whose Recv-Q is above Send-Q".to_owned());
    }
    finding.active()
}

fn statement(net: Net<'_>, listener: Option<&Listener<'_>>, overflows: f64, rate: f64) -> String {
    let who = match listener {
        Some(Listener { comm: Some(comm), pid: Some(pid), .. }) => {
            format!("{comm} ({pid}) does not accept fast enough")
        }
        _ => "a server does not accept fast enough".to_owned(),
    };
    let queue = listener
        .map(|l| format!(" at {}: {:.0} connections waited where {:.0} may", l.address, l.queue, l.backlog))
        .unwrap_or_default();
    format!(
        "{who}{queue}; {} connections were turned away{} ({}/s), each of which retries after {} at the earliest",
        words::count(overflows),
        net.place(),
        words::count(rate),
        words::seconds(SYN_WAIT_S)
    )
}

/// The listener of the namespace whose queue was full for the longest time, or else the one that was nearest to it.
fn fullest<'a>(view: &View<'a>, net: Net<'_>, span: Span) -> Option<Listener<'a>> {
    let set: &'a SeriesSet = view.set;
    let listeners = set.each("listener.queue").filter_map(|(row, series)| {
        let (address, of) = network::device(row);
        let (queue, backlog) = (series.max(span)?, set.get("listener.backlog", row)?.max(span)?);
        // Whoever calls a Unix socket waits, and is counted nowhere.
        let is_tcp = services::port(address).is_some();
        if of != net || !is_tcp || backlog < 1.0 || queue < backlog / 2.0 {
            return None;
        }
        let full = series.samples(span).filter(|(_, dt, v)| *v >= backlog && dt.is_finite());
        Some(Listener {
            row,
            address,
            queue,
            backlog,
            full_s: full.map(|(_, dt, _)| dt).sum(),
            comm: set.text("listener.comm", row).and_then(|t| t.last()),
            pid: set
                .get("listener.pid", row)
                .and_then(|s| s.last(Span::ALL))
                .filter(|p| *p >= 1.0)
                .map(|p| p as u32),
        })
    });
    listeners.max_by(|a, b| {
        (a.full_s, a.queue / a.backlog)
            .partial_cmp(&(b.full_s, b.queue / b.backlog))
            .unwrap_or(std::cmp::Ordering::Equal)
    })
}

fn describe<'a>(view: &View<'a>, finding: &mut Finding, listener: &Listener<'a>, span: Span) {
    finding.culprit.address = Some(listener.address.to_owned());
    finding.culprit.process = listener.comm.map(str::to_owned);
    finding.culprit.pid = listener.pid;
    finding.prove(view, &["listener.queue", "listener.backlog"], listener.row, span);
    finding.confidence = if listener.full_s > 0.0 && listener.pid.is_some() { 0.95 } else { 0.85 };
    let Some(process) = listener.pid.and_then(|pid| view.process(pid)) else { return };
    finding.culprit.cgroup = process.cgroup.filter(|c| *c != "/").map(str::to_owned);
    let busiest = busiest_thread(view, process, span);
    let Some(busiest) = busiest else { return };
    let words = words::percent(busiest);
    finding.remarks.push(if busiest >= BUSY {
        format!("its busiest thread took {words} of a CPU: it has no time to accept")
    } else {
        let whom = services::waited_for(view, listener.row, span);
        let whom = whom.map_or_else(|| "something".to_owned(), |list| list.join(" and "));
        format!("its busiest thread took {words} of a CPU: it waits for {whom} and does not accept meanwhile")
    });
    finding.evidence.push(view.task_evidence("task.cpu_time", process, None, busiest, span));
}

/// A fifth of a task's time: what arrives meanwhile fills the queue of a server that else has time to spare.
const STARVED: f64 = 0.2;

/// Whether the server of a socket waited for a CPU.
fn is_starved(view: &View<'_>, listener: &Listener<'_>, span: Span) -> bool {
    let of_server = view.processes().iter().filter(|p| Some(p.pid) == listener.pid);
    let waited: f64 = of_server.map(|p| p.total(view.set, "task.run_delay", span)).sum();
    waited >= STARVED * span.seconds()
}

fn busiest_thread(view: &View<'_>, process: &Process<'_>, span: Span) -> Option<f64> {
    process.series(view.set, "task.cpu_time").filter_map(|s| s.mean(span)).max_by(f64::total_cmp)
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let port = finding.culprit.address.as_deref().and_then(services::port).unwrap_or("PORT");
    let pid = finding.pid();
    let who = finding.culprit.process.as_deref().unwrap_or("the server");
    let verify = "nstat -az TcpExtListenOverflows: stops growing".to_owned();
    vec![
        Remedy {
            action: format!("find what keeps {who} from calling accept, and give it more workers"),
            command: format!("cat /proc/{pid}/task/*/wchan; ss -ltnp 'sport = :{port}'"),
            verify: verify.clone(),
            risk: String::new(),
        },
        Remedy {
            action:
                "raise both queue limits; this helps against bursts, not against a server that is too slow"
                    .to_owned(),
            command: "sysctl -w net.core.somaxconn=4096, and a larger backlog in the server's listen()"
                .to_owned(),
            verify,
            risk: "the server has to be restarted, and connections wait longer instead of failing".to_owned(),
        },
    ]
}
