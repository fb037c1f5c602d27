//! TCP has used up the memory that it may have: buffers shrink, data are dropped, connections are reset.
//!
//! `net.ipv4.tcp_mem` holds three numbers of pages: below the first all is well, from the second on TCP is moderate with
//! its buffers, and the third is the end. `mem` in /proc/net/sockstat is what is used. A message about memory in the
//! kernel log can also mean orphaned sockets: see `tcp-orphan-pressure`.

use crate::network;
use crate::prelude::*;
use crate::tcp_limits;

pub const CONDITION: Condition = Condition {
    id: "tcp-memory-pressure",
    title: "TCP has used up its memory (tcp_mem)",
    area: "network",
    needs: &[
        "sock.tcp_mem",
        "sysctl.net.ipv4.tcp_mem",
        "tcpext.TCPMemoryPressures",
        "tcpext.TCPAbortOnMemory",
        "tcpext.PruneCalled",
        "tcpext.TCPRcvQDrop",
        "netns.tcpext_TCPAbortOnMemory",
        "netns.tcpext_PruneCalled",
        "netns.tcpext_TCPRcvQDrop",
    ],
    triggers: &[signals(&["sock.tcp_mem", "sysctl.net.ipv4.tcp_mem"], |set, window| {
        tcp_limits::under_pressure(set, window).into_iter().collect()
    })],
    observe,
    causes: &[
        effect("socket-buffer-overflow", "no buffer may grow any more, and received data is dropped"),
        effect("retransmit-storm", "segments are dropped for lack of memory and sent again"),
        effect("session-drop", "connections are reset for lack of memory"),
    ],
    settings: Settings::new("the limit was lowered", &[lowered("sysctl.net.ipv4.tcp_mem", Acts::Now)]),
    remedies_of: remedies,
    source: include_str!("tcp_memory_pressure.rs"),
    ..Condition::ROOT
};

/// What the kernel does about it, in each namespace: data that arrived are thrown away, buffers are squeezed, connections
/// are reset.
const EFFECTS: &[&str] = &["tcpext.TCPRcvQDrop", "tcpext.PruneCalled", "tcpext.TCPAbortOnMemory"];

fn observe(view: &View<'_>) -> Observation {
    let Some(memory) = tcp_limits::memory(view) else {
        let needs = "net.ipv4.tcp_mem and /proc/net/sockstat";
        let is_complained_of = tcp_limits::messages(view).next().is_some();
        return if is_complained_of {
            Observation::suspected(needs)
        } else {
            Observation::cannot_tell(needs)
        };
    };
    let of = format!("{:.0} pages used of {:.0} allowed", memory.used, memory.limits[2]);
    if memory.used < memory.limits[1] {
        return Observation::Inactive(of);
    }
    let run = tcp_limits::under_pressure(view.set, view.window).and_then(|s| s.run(1.0, 0.0));
    let mut finding = run.map_or_else(
        || view.finding_at(view.window.since.max(mitra_model::Era::Fact.zero())),
        |r| view.finding(&r),
    );
    finding.culprit.sysctl = Some("net.ipv4.tcp_mem".to_owned());
    finding.statement = format!(
        "TCP's memory is short: {of}, pressure begins at {:.0} ({})",
        memory.limits[1],
        words::bytes(memory.limits[1] * view.page_bytes())
    );
    finding.evidence = memory.evidence;
    let messages: Vec<_> = tcp_limits::messages(view).filter(|(_, what, _)| *what != "orphans").collect();
    if let Some((event, what, _)) = messages.first() {
        finding.evidence.push(tcp_limits::message_evidence(view, event, what, messages.len()));
    }
    let span = run.map_or(view.window, |r| r.span());
    for metric in EFFECTS {
        let nets = network::nets(view.set, metric).into_iter();
        let all = nets.filter_map(|net| Some((net, net.total(view, &[metric], span)?)));
        let most = all.filter(|(_, total)| *total >= 1.0).max_by(|a, b| a.1.total_cmp(&b.1));
        finding.evidence.extend(most.and_then(|(net, _)| net.evidence(view, metric, span)));
    }
    finding.confidence = if memory.used >= memory.limits[2] { 0.95 } else { 0.8 };
    finding.active()
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let used = finding.evidence.iter().find(|e| e.metric == "sock.tcp_mem").map_or(0.0, |e| e.during);
    vec![Remedy {
        action: "find whose sockets hold the data (a reader that does not read, a peer that does not acknowledge)"
            .to_owned(),
        command: "ss -tanmp | sort -k2 -n | tail".to_owned(),
        verify: "grep TCP: /proc/net/sockstat: mem falls".to_owned(),
        risk: String::new(),
    }, Remedy {
        action: "give TCP more, if the machine has it".to_owned(),
        command: format!("sysctl -w net.ipv4.tcp_mem=\"{:.0} {:.0} {:.0}\"", used * 1.5, used * 2.0, used * 3.0),
        verify: "grep TCP: /proc/net/sockstat: mem stays below the second number".to_owned(),
        risk: "this memory is not available to others".to_owned(),
    }]
}
