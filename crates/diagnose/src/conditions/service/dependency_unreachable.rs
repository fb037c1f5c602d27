//! Processes call an address, and nobody answers or takes the connection.
//!
//! The first packet of a connection (SYN) is not answered: the machine is off, a firewall drops it, a route is gone. The kernel
//! sends it again after one second, then two, four, eight, and the task that waits for the connection does nothing else
//! meanwhile. No counter of the machine shows it, and the processes sleep. Or the connection is refused at once: the
//! machine is there, and the program that served is not.
//!
//! Where many connections to it are kept open meanwhile, whoever answers is there, and the number of connections is at a limit on the
//! way: source ports of a gateway (SNAT), connections for each client (connlimit, a limit of the server). Who keeps most of them is named.
//!
//! The address is the culprit and the processes that call it are victims. An address that some program has always
//! failed to reach is no news. An attempt that the kernel does not count as begun (`tcp.ActiveOpens`) failed for want of a local port, or an
//! address, and who is called knows nothing of it. Where a service of this machine that is there does not take the connection, see
//! `service-silent` and `listen-overflow`.

mod kept;

use std::borrow::Cow;
use std::collections::BTreeSet;

use kept::Kept;

use crate::network::SYN_WAIT_S;
use crate::prelude::*;
use crate::services::{self, Address, local_service, rows_by_address};

pub const CONDITION: Condition = Condition {
    id: "dependency-unreachable",
    title: "a dependency is unreachable",
    area: "service",
    needs: &[
        "dependency.connecting",
        "dependency.connect_time",
        "dependency.connect_failed",
        "dependency.connects",
        "dependency.established",
        "dependency.requests",
        "dependency.pid",
        "dependency.comm",
        "service.requests",
        "service.comm",
        "listener.pid",
        "listener.queue",
        "tcpext.ListenOverflows",
        "tcpext.ListenDrops",
        "netns.tcpext_ListenOverflows",
        "netns.tcpext_ListenDrops",
        "tcp.ActiveOpens",
        "netns.tcp_ActiveOpens",
        "tcp.AttemptFails",
        "netns.tcp_AttemptFails",
        FILTERED,
        "netns.tcpext_IPReversePathFilter",
    ],
    triggers: &[Trigger::Signals(Signals {
        metrics: METRICS,
        find: are_in_vain,
        need_s: NEED_S,
        can_be_steady: true,
    })],
    observe,
    causes: &[
        explains("timeout-cascade", "the caller times out waiting for a connection"),
        explains("retry-storm", "what fails or times out is retried"),
        effect("worker-pool-exhausted", "each worker waits for a connection until it gives up"),
        explains("service-slow", "a request waits while its worker waits for a connection"),
        explains("service-silent", "all threads that could answer wait for a connection"),
        explains("service-failing", "requests that need it cannot be answered"),
        explains("failing-fast", "requests that need it are answered with an error at once"),
        explains("retransmit-storm", "the SYN is retransmitted to a host that does not answer").here(),
    ],
    remedies_of: remedies,
    next_of: next,
    source: include_str!("dependency_unreachable.rs"),
    ..Condition::ROOT
};

const METRICS: &[&str] =
    &["dependency.connecting", "dependency.connect_time", "dependency.connect_failed", "dependency.connects"];

/// Answers that come in by another way than packets go out.
const FILTERED: &str = "tcpext.IPReversePathFilter";
/// Half of the attempts that come to an end.
const FAILED: f64 = 0.5;
/// Somebody waits for a connection half of the time.
const PENDING: f64 = 0.5;
/// An attempt that took less was refused: no answer takes a tenth of a second and more to be given up.
const REFUSED_S: f64 = 0.1;
/// Times as long, or as large a share, as before.
const GROWTH: f64 = 3.0;
const NEED_S: f64 = 3.0;
/// Attempts in vain: of an address that used to be reached, and of one that nobody had called before.
const LEAST: f64 = 3.0;
const LEAST_NEW: f64 = 10.0;
/// Processes, or threads, that wait at a time for an address that nobody had called before: one may look for something
/// that need not be there.
const CROWD: f64 = 2.5;
const NEW_S: f64 = 5.0;
/// A tenth: of the attempts that came to something, and of the time before the first one in vain.
const ALWAYS: f64 = 0.1;

/// The attempts to connect to one address, of all processes.
struct Attempts {
    /// Attempts that go on, on average of each sample.
    pending: Signal,
    /// Per second.
    failed: Signal,
    connected: Signal,
}

impl Attempts {
    fn of(set: &SeriesSet, rows: &[&str], span: Span) -> Option<Attempts> {
        let sum = |metric: &str| Signal::sum(rows.iter().filter_map(|row| set.get(metric, row)), span);
        let pending = sum("dependency.connect_time")?;
        let zero = || pending.clone().map(|_| 0.0);
        let failed = sum("dependency.connect_failed").unwrap_or_else(zero);
        let connected = sum("dependency.connects").unwrap_or_else(zero);
        Some(Attempts { pending, failed, connected })
    }

    /// How long an attempt takes, or has taken so far.
    fn each_s(&self) -> Signal {
        let ended = self.failed.zip(&self.connected, |a, b| a + b);
        let mut each = self.pending.zip(&ended, |_, ended| ended);
        let mut open_s = 0.0;
        for i in 0..each.t.len() {
            let at = self.pending.t.partition_point(|t| *t < each.t[i]);
            let pending = self.pending.v.get(at).copied().unwrap_or(0.0);
            open_s += pending * each.dt[i];
            let attempts = (each.v[i] * each.dt[i]).max(pending);
            let is_over = each.v[i] > 0.0;
            each.v[i] = if attempts > 0.0 { open_s / attempts } else { 0.0 };
            if is_over || pending <= 0.0 {
                open_s = 0.0;
            }
        }
        each
    }

    /// One where attempts are in vain.
    fn in_vain(&self) -> Signal {
        let share =
            self.failed.zip(
                &self.connected,
                |failed, connected| {
                    if failed > 0.0 { failed / (failed + connected) } else { 0.0 }
                },
            );
        let waits =
            self.pending.zip(&self.each_s(), |pending, each| step(pending >= PENDING && each >= SYN_WAIT_S));
        waits.zip(&share, |waits, share| step(waits > 0.0 || share >= FAILED))
    }

    fn failed_share(&self) -> f64 {
        let (failed, connected) = (self.failed.total(), self.connected.total());
        if failed > 0.0 { failed / (failed + connected) } else { 0.0 }
    }
}

/// An address that is not reached.
struct Vain<'a> {
    address: Address<'a>,
    rows: Vec<&'a str>,
    run: Run,
    waited_s: f64,
    failed: f64,
    /// Attempts that went on at once at most.
    pending: f64,
    is_refused: bool,
    /// Before anything was sent.
    is_unsent: bool,
    was_reached: bool,
    kept: Option<Kept<'a>>,
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has("dependency.connect_time") {
        return Observation::needs_as(
            "attempts to connect (dependency.connecting): ss -tn state syn-sent",
            &["dependency.connecting"],
        );
    }
    let mut because = "attempts to connect were answered".to_owned();
    let mut best: Option<Vain<'_>> = None;
    for (address, rows) in rows_by_address(view.set, "dependency.connect_time") {
        match vain(view, address, rows) {
            Ok(Some(one)) if best.as_ref().is_none_or(|b| one.weight() > b.weight()) => best = Some(one),
            Ok(_) => {}
            Err(reason) => because = reason,
        }
    }
    match best {
        Some(vain) => finding(view, &vain).active(),
        None => Observation::Inactive(because),
    }
}

impl Vain<'_> {
    /// Seconds that were waited; a refused attempt costs whoever made it another one.
    fn weight(&self) -> f64 {
        self.waited_s + 0.1 * self.failed
    }
}

/// Whether an address is not reached that should be; an error is the reason why that is not so.
fn vain<'a>(view: &View<'a>, address: Address<'a>, rows: Vec<&'a str>) -> Result<Option<Vain<'a>>, String> {
    let Some(attempts) = Attempts::of(view.set, &rows, view.window) else { return Ok(None) };
    let Some(run) = attempts.in_vain().run(1.0, NEED_S) else { return Ok(None) };
    let span = run.span();
    let inside = Attempts {
        pending: attempts.pending.within(span),
        failed: attempts.failed.within(span),
        connected: attempts.connected.within(span),
    };
    let (waited_s, failed) = (inside.pending.total(), inside.failed.total());
    let connecting =
        Signal::sum(rows.iter().filter_map(|row| view.set.get("dependency.connecting", row)), span);
    let pending = connecting.and_then(|s| s.max()).unwrap_or(0.0).max(inside.pending.max().unwrap_or(0.0));
    let is_at_once = failed > 0.0 && waited_s / failed < REFUSED_S;
    let counted =
        |metric: &'static str| address.net.sum(view.set, &[metric], span).map(|signal| signal.total());
    // Who is called knows nothing of what was not begun; and who gives up that soon was not refused.
    let of_all = |metric: &str| {
        let own = view.each(metric).filter(|(row, _)| Address::called(row).net == address.net);
        own.filter_map(|(_, series)| series.total(span)).fold(0.0, |a, b| a + b)
    };
    let tried = of_all("dependency.connects") + of_all("dependency.connect_failed");
    let is_unsent = is_at_once
        && counted("tcp.ActiveOpens").is_some_and(|begun| tried - begun >= (1.0 - ALWAYS) * failed);
    let is_given_up = !is_unsent && counted("tcp.AttemptFails").is_some_and(|fails| fails < FAILED * failed);
    let is_refused = is_at_once && !is_given_up;
    if !is_refused && let Some(listener) = full_queue(view, &address, span) {
        return Err(format!("{} is served on this machine and does not accept", Address::of(listener).text));
    }
    // Other processes may have called it before.
    let (base_set, base_span) = earlier(view, &run)?;
    let base_rows = rows_by_address(base_set, "dependency.connect_time").remove(&address).unwrap_or_default();
    let before = Attempts::of(base_set, &base_rows, base_span);
    let total = |metric: &str| -> f64 {
        base_rows.iter().filter_map(|row| base_set.get(metric, row)?.total(base_span)).sum()
    };
    let was_reached = total("dependency.connects") + total("dependency.requests") >= 1.0;
    if let Some(before) = &before {
        // Who is refused waits no longer than who is let in.
        let as_long =
            !is_refused && waited_s / run.seconds().max(1.0) < GROWTH * before.pending.mean().unwrap_or(0.0);
        let as_often = failed > 0.0 && inside.failed_share() < GROWTH * before.failed_share();
        if before.failed_share() >= FAILED || as_long || as_often {
            return Err(format!("connecting to {} failed before as well", address.text));
        }
    }
    let established = |row: &&str| base_set.get("dependency.established", row)?.mean(base_span);
    let kept_before = base_rows.iter().filter_map(established).sum();
    let kept = if is_refused { None } else { Kept::of(view.set, &rows, span, kept_before) };
    let tried = failed + pending;
    let is_hurt = if was_reached {
        tried >= LEAST || waited_s >= NEED_S
    } else if is_refused {
        let later = Span { since: run.onset, until: view.window.until };
        let never = attempts.connected.within(later).total() <= 0.0;
        tried >= LEAST_NEW && run.seconds() >= 2.0 * NEW_S && never
    } else {
        (pending >= CROWD || failed >= LEAST_NEW) && run.seconds() >= NEW_S
    };
    if !is_hurt {
        let tried = words::count(tried.ceil());
        return Err(format!("only {tried} attempts to connect to {} failed", address.text));
    }
    Ok(Some(Vain { address, rows, run, waited_s, failed, pending, is_refused, is_unsent, was_reached, kept }))
}

/// The listening socket of this machine that an address reaches, where connections wait in its queue: it is there, and full.
fn full_queue<'a>(view: &View<'a>, address: &Address<'_>, span: Span) -> Option<&'a str> {
    let set: &'a SeriesSet = view.set;
    let service = local_service(set, address).map(Address::of);
    let is_it = |row: &str| address.reaches(&Address::of(row)) || service == Some(Address::of(row));
    let queued =
        |row: &str| set.get("listener.queue", row).and_then(|s| s.max(span)).is_some_and(|n| n >= LEAST);
    set.each("listener.queue").map(|(row, _)| row).find(|row| is_it(row) && queued(row))
}

const DROPS: &str = "a packet filter of this machine drops";
/// Connections that a listening socket had no room for.
const NO_ROOM: &[&str] = &["tcpext.ListenOverflows", "tcpext.ListenDrops"];

/// Whether something on this machine drops what is sent to an address: the loopback device loses nothing, and where nobody listens
/// connections are refused at once.
fn is_dropped_here(view: &View<'_>, vain: &Vain<'_>, span: Span) -> bool {
    let no_room = vain.address.net.total(view, NO_ROOM, span);
    vain.address.is_loopback() && no_room.is_some_and(|times| times < LEAST)
}

/// What it is compared with: the baseline, or what is known before where the machine had no quiet time.
fn earlier<'v>(view: &'v View<'_>, run: &Run) -> Result<(&'v SeriesSet, Span), String> {
    if let Some(baseline) = view.baseline {
        return Ok((view.base_set, baseline));
    }
    let known = view.around.span().map_or(run.onset, |known| known.since);
    if words::between(known, run.onset) < NEW_S {
        return Err("what could not be reached was unreachable from the start of the data".to_owned());
    }
    Ok((view.around, Span { since: known, until: run.onset + 1 }))
}

fn finding(view: &View<'_>, vain: &Vain<'_>) -> Finding {
    let (span, address) = (vain.run.span(), vain.address);
    let mut finding = view.finding(&vain.run);
    finding.netns = Some(address.net.id());
    finding.culprit.address = Some(address.text.to_owned());
    let callers = callers(view, vain);
    let place = address.net.place();
    finding.statement = if vain.is_unsent {
        format!(
            "connect() to {}{place} fails before anything is sent, {} times for {callers}: there is no local port or address left for it",
            address.text,
            words::count(vain.failed)
        )
    } else if vain.is_refused {
        format!(
            "{}{place} refuses connections: {} attempts of {callers} failed",
            address.text,
            words::count(vain.failed)
        )
    } else {
        let what = match &vain.kept {
            Some(kept) => kept.words(view, &address),
            None if is_dropped_here(view, vain, span) => {
                format!("{DROPS} what is sent to {}{place}", address.text)
            }
            None => format!("nothing answers at {}{place}", address.text),
        };
        format!(
            "{what}: {callers} waited {} for connections, up to {} attempts at a time{}",
            words::seconds(vain.waited_s),
            words::count(vain.pending.round()),
            if vain.failed >= 1.0 {
                format!(", and {} timed out", words::count(vain.failed))
            } else {
                String::new()
            }
        )
    };
    finding.remarks.push(format!("its callers are victims: {callers}"));
    if let Some(service) = local_service(view.set, &address).filter(|_| !vain.is_unsent) {
        let comm = view.set.text("service.comm", service).and_then(|t| t.last());
        finding.culprit.process = comm.map(str::to_owned);
        finding.remarks.extend(comm.map(|comm| format!("{comm} served there on this machine")));
        let listens = view.set.get("listener.pid", service).and_then(|pid| pid.last(span)).is_some();
        if vain.is_refused && listens {
            finding.remarks.push(format!(
                "it listens still: who refuses has the same address, a firewall or a duplicate of it: ip neigh; arping -D -I DEV {}",
                host(address.text)
            ));
        }
    }
    if let Some(dropped) = filtered(view, vain, span) {
        finding.remarks.insert(
            0,
            format!(
                "meanwhile {} packets{place} came in by a device that is not the way back to their sender, and were dropped (rp_filter); \
                 answers may be among them: ip route get {}; ip route; sysctl net.ipv4.conf.all.rp_filter",
                words::count(dropped),
                host(address.text)
            ),
        );
        finding.evidence.extend(address.net.evidence(view, FILTERED, span));
    }
    if let Some(kept) = &vain.kept {
        let pid = kept.row.split_once('>').and_then(|(who, _)| who.parse().ok());
        if let Some(process) = pid.and_then(|pid| view.process(pid)) {
            finding.blame_pid(process.comm, process.pid);
            finding.infer_culprit();
        }
        finding.prove(view, &["dependency.established"], kept.row, span);
    }
    let most =
        |row: &&&str| view.set.get("dependency.connect_time", row).and_then(|s| s.total(span)).unwrap_or(0.0);
    if let Some(row) = vain.rows.iter().max_by(|a, b| most(a).total_cmp(&most(b))) {
        finding.prove_nonzero(view, METRICS, row, span);
    }
    finding.confidence = match (vain.was_reached, vain.is_refused) {
        _ if vain.kept.is_some() => services::LIKELY,
        (true, _) => 0.95,
        (false, false) => 0.85,
        (false, true) => 0.6,
    };
    finding
}

/// Packets that were dropped by the reverse path filter in the namespace of the callers, of which none were before.
fn filtered(view: &View<'_>, vain: &Vain<'_>, span: Span) -> Option<f64> {
    let before =
        view.baseline.and_then(|baseline| vain.address.net.sum(view.base_set, &[FILTERED], baseline));
    let dropped = vain.address.net.total(view, &[FILTERED], span)?;
    (dropped >= LEAST && before.is_none_or(|before| before.total() <= 0.0)).then_some(dropped)
}

/// `4 processes (python3)`, `python3 (812)`.
fn callers(view: &View<'_>, vain: &Vain<'_>) -> String {
    let span = vain.run.span();
    let tried = |row: &&&str| {
        METRICS
            .iter()
            .any(|metric| view.set.get(metric, row).and_then(|s| s.max(span)).is_some_and(|v| v > 0.0))
    };
    services::callers(view, vain.rows.iter().filter(tried).copied().collect::<BTreeSet<&str>>())
}

/// Of each address: one where attempts to connect are in vain.
fn are_in_vain(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let of = |rows: Vec<&str>| {
        let attempts = Attempts::of(set, &rows, window)?;
        let vain = attempts.in_vain();
        (!is_always(&attempts, &vain)).then_some(vain)
    };
    rows_by_address(set, "dependency.connect_time").into_values().filter_map(of).collect()
}

/// Whether an address has been called in vain from the beginning of what is known on: some program always tries.
fn is_always(attempts: &Attempts, vain: &Signal) -> bool {
    let tried = attempts.pending.zip(&attempts.failed, |pending, failed| pending + failed);
    let tried = tried.zip(&attempts.connected, |tried, connected| step(tried + connected > 0.0)).total();
    let begins = vain.v.iter().position(|v| *v > 0.0).unwrap_or(vain.v.len());
    vain.total() >= (1.0 - ALWAYS) * tried && begins as f64 <= ALWAYS * vain.v.len() as f64
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let address = finding.culprit.address.as_deref().unwrap_or("ADDRESS");
    let limit = finding.culprit.pid.map(|pid| Remedy {
        action: format!(
            "let process {pid} keep fewer connections to {address}, or raise the limit that they have reached on the way: source ports of \
             the gateway, connections for each client"
        ),
        command: format!(
            "ss -tnp dst {} | grep -c pid={pid},; on the gateway: nft list ruleset; conntrack -L -d {1} | wc -l",
            destination(address),
            host(address)
        ),
        verify: format!("ss -tn state syn-sent dst {}: empty", destination(address)),
        risk: "what the process does with them ends".to_owned(),
    });
    let port = services::port(address).unwrap_or("PORT");
    let is_dropped = finding.statement.contains(DROPS);
    let action = match is_dropped {
        true => format!("find the rule that drops what goes to {address}, and remove it"),
        false => {
            format!("restore the service at {address}, or the path to it: its machine, a firewall, a route")
        }
    };
    let command = match is_dropped {
        true => format!(
            "nft list ruleset | grep -w {port}; iptables-save | grep -w {port}; tc qdisc show dev lo; tc filter show dev lo; bpftool net"
        ),
        false => format!("ping -c 3 {0}; ip route get {0}; nft list ruleset | grep -F {0}", host(address)),
    };
    let restore = [
        Remedy {
            action,
            command,
            verify: format!("ss -tn state syn-sent dst {}: empty", destination(address)),
            risk: String::new(),
        },
        Remedy {
            action: "until then: a short connect timeout, and a circuit breaker, so that workers do not wait for it"
                .to_owned(),
            command: "connect timeout of the client library: a second at most; after some failures fail fast".to_owned(),
            verify: "requests that need it fail fast, and all others are answered as before".to_owned(),
            risk: "what needs it fails instead of waiting".to_owned(),
        },
    ];
    limit.into_iter().chain(restore).collect()
}

fn next(finding: &Finding) -> Vec<Next> {
    let address = finding.culprit.address.as_deref().unwrap_or("ADDRESS");
    let destination = destination(address);
    vec![
        to_measure("which processes wait for it", format!("ss -tnpo state syn-sent dst {destination}")),
        to_measure("whether any reply comes back", format!("tcpdump -ni any host {}", host(address))),
    ]
}

fn host(address: &str) -> Cow<'_, str> {
    let port = services::port(address);
    words::shell(port.map_or(address, |port| address.trim_end_matches(port).trim_end_matches(':')))
}

/// As `ss` wants it.
fn destination(address: &str) -> String {
    services::port(address)
        .map_or_else(|| host(address).into_owned(), |port| format!("{} dport = :{port}", host(address)))
}
