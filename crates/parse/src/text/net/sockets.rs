//! Sockets: the summary of `ss -s`, and the lists of `ss` and `netstat`, counted by state.
//!
//! ```text
//! Total: 17
//! TCP:   2 (estab 0, closed 1, orphaned 0, timewait 1)
//! ```
//! ```text
//! State     Recv-Q Send-Q Local Address:Port  Peer Address:PortProcess
//! LISTEN    0      128          0.0.0.0:2024       0.0.0.0:*
//! ```
//! ```text
//! Proto Recv-Q Send-Q Local Address           Foreign Address         State
//! tcp        0      0 0.0.0.0:2024            0.0.0.0:*               LISTEN
//! ```
//!
//! Of a listening socket `Recv-Q` is how many connections wait to be accepted; `ss` shows in `Send-Q` how many may.

use super::Out;
use crate::text::prelude::*;

/// `ss -s`.
pub const SUMMARY: Format = Format::new("ss -s", "sockets by kind", summary_starts, summary);
/// `ss`.
pub const LIST: Format =
    Format::new("ss", "sockets by state and their queues, from `ss` and `netstat -tan`", list_starts, list);

fn summary_starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let is_tcp = |line: &[u8]| line.starts_with(b"TCP:") && has(line, b"(estab ");
    match lines.peek() {
        Some(line) if line.starts_with(b"Total: ") => lines.soon(1, is_tcp),
        Some(line) => is_tcp(line),
        None => false,
    }
}

fn summary(lines: &mut Lines<'_>, import: &mut Import) {
    let mut out = Out::default();
    let mut has_tcp = false;
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        let line = line.to_vec();
        let first = words(&line).next().unwrap_or_default();
        match first {
            b"Total:" if !has_tcp => {
                let used = words(&line).nth(1).and_then(integer);
                put_if(&mut out, import, "sock.used", at, used, &line);
            }
            b"TCP:" if !has_tcp => {
                has_tcp = true;
                summary_of_tcp(&line, at, &mut out, import);
            }
            b"Transport" | b"RAW" | b"UDP" | b"TCP" | b"INET" | b"FRAG" | b"*" if has_tcp => {}
            b"" if has_tcp && lines.soon(1, |next| next.starts_with(b"Transport")) => {}
            _ => return Took::No,
        }
        Took::Yes
    });
}

fn put_if(out: &mut Out, import: &mut Import, metric: &str, at: u32, value: Option<u64>, line: &[u8]) {
    match value {
        Some(value) => out.put(import, metric, b"", at, value as f64),
        None => import.unread(at, line),
    }
}

/// `(estab 0, closed 1, orphaned 0, synrecv 0, timewait 1/0), ports 0`.
fn summary_of_tcp(line: &[u8], at: u32, out: &mut Out, import: &mut Import) {
    let Some(open) = line.iter().position(|b| *b == b'(') else { return };
    let inside = line.get(open + 1..).unwrap_or_default();
    let inside = inside.split(|b| *b == b')').next().unwrap_or_default();
    for pair in inside.split(|b| *b == b',') {
        let mut list = words(pair);
        let metric = match list.next() {
            Some(b"estab") => "sock.tcp_established",
            Some(b"orphaned") => "sock.tcp_orphan",
            Some(b"synrecv") => "sock.tcp_syn_recv",
            Some(b"timewait") => "sock.tcp_tw",
            _ => continue,
        };
        let value = list.next().and_then(|v| v.split(|b| *b == b'/').next()).and_then(integer);
        put_if(out, import, metric, at, value, line);
    }
}

/// States as `ss` and as `netstat` write them.
const STATES: &[(&[u8], &[u8], &str)] = &[
    (b"ESTAB", b"ESTABLISHED", "sock.tcp_established"),
    (b"SYN-SENT", b"SYN_SENT", "sock.tcp_syn_sent"),
    (b"SYN-RECV", b"SYN_RECV", "sock.tcp_syn_recv"),
    (b"FIN-WAIT-1", b"FIN_WAIT1", "sock.tcp_fin_wait1"),
    (b"FIN-WAIT-2", b"FIN_WAIT2", "sock.tcp_fin_wait2"),
    (b"TIME-WAIT", b"TIME_WAIT", "sock.tcp_tw"),
    (b"UNCONN", b"CLOSE", "sock.tcp_close"),
    (b"CLOSE-WAIT", b"CLOSE_WAIT", "sock.tcp_close_wait"),
    (b"LAST-ACK", b"LAST_ACK", "sock.tcp_last_ack"),
    (b"LISTEN", b"LISTEN", "sock.tcp_listen"),
    (b"CLOSING", b"CLOSING", "sock.tcp_closing"),
];
/// The position of `LISTEN`.
const LISTEN: usize = 9;

/// Which tool a list is of.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Tool {
    /// `ss` with one family of sockets.
    Ss,
    /// `ss` with the family before the state.
    SsFamilies,
    Netstat,
}

fn heading(line: &[u8]) -> Option<Tool> {
    let mut list = words(line);
    let first = list.next()?;
    match first {
        b"State" if list.next()? == b"Recv-Q" && list.next()? == b"Send-Q" => Some(Tool::Ss),
        b"Netid" if list.next()? == b"State" && list.next()? == b"Recv-Q" => Some(Tool::SsFamilies),
        b"Proto" if list.next()? == b"Recv-Q" && list.next()? == b"Send-Q" => Some(Tool::Netstat),
        _ => None,
    }
}

/// One socket of a list.
struct Socket {
    state: usize,
    recv_q: u64,
    send_q: u64,
}

/// A TCP socket; `Some(None)` for a line of another kind of socket.
fn socket(tool: Tool, line: &[u8]) -> Option<Option<Socket>> {
    let mut list = words(line);
    let family: &[u8] = if tool == Tool::Ss { b"tcp" } else { list.next()? };
    if !family.starts_with(b"tcp") {
        let known: &[&[u8]] = &[
            b"udp", b"raw", b"unix", b"icmp", b"u_", b"nl", b"p_", b"v_", b"mptcp", b"sctp", b"dccp",
            b"tipc", b"xdp", b"???",
        ];
        return known.iter().any(|k| family.starts_with(k)).then_some(None);
    }
    let state_of = |word: &[u8]| STATES.iter().position(|(ss, netstat, _)| *ss == word || *netstat == word);
    let early = if tool == Tool::Netstat { None } else { Some(state_of(list.next()?)?) };
    let (recv_q, send_q) = (integer(list.next()?)?, integer(list.next()?)?);
    let is_address = |word: &[u8]| word.contains(&b':') || word == b"*";
    let (local, peer) = (list.next()?, list.next()?);
    if !is_address(local) || !is_address(peer) {
        return None;
    }
    let state = match early {
        Some(state) => state,
        None => state_of(list.next()?)?,
    };
    Some(Some(Socket { state, recv_q, send_q }))
}

fn list_starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| heading(line).is_some() || is_title(line))
}

/// What `netstat` prints above its lists.
fn is_title(line: &[u8]) -> bool {
    line.starts_with(b"Active Internet connections") || line.starts_with(b"Active UNIX domain sockets")
}

#[derive(Default)]
struct Counts {
    states: [u64; STATES.len()],
    sockets: u64,
    recv: u64,
    send: u64,
    overfull: u64,
    /// Waiting connections, allowed ones where known, and the line.
    longest: Option<(u64, Option<u64>, u32)>,
    retrans: Option<u64>,
}

impl Counts {
    fn add(&mut self, socket: &Socket, tool: Tool, line: u32) {
        self.sockets += 1;
        if let Some(n) = self.states.get_mut(socket.state) {
            *n += 1;
        }
        if socket.state != LISTEN {
            self.recv = self.recv.saturating_add(socket.recv_q);
            self.send = self.send.saturating_add(socket.send_q);
            return;
        }
        let allowed = (tool != Tool::Netstat).then_some(socket.send_q);
        if self.longest.is_none_or(|(most, ..)| socket.recv_q > most) {
            self.longest = Some((socket.recv_q, allowed, line));
        }
        // The kernel lets one more wait than it was told.
        self.overfull += u64::from(allowed.is_some_and(|allowed| socket.recv_q > allowed));
    }

    fn put(&self, heading: u32, import: &mut Import) {
        let mut out = Out::default();
        if self.sockets == 0 {
            return;
        }
        for ((_, _, metric), n) in STATES.iter().zip(self.states) {
            // A list may be of some states only, so a state without sockets says nothing.
            if n > 0 {
                out.put(import, metric, b"", heading, n as f64);
            }
        }
        if self.states.iter().enumerate().any(|(state, n)| state != LISTEN && *n > 0) {
            out.put(import, "sock.recv_queue_bytes", b"", heading, self.recv as f64);
            out.put(import, "sock.send_queue_bytes", b"", heading, self.send as f64);
        }
        if let Some((waiting, allowed, line)) = self.longest {
            out.put(import, "sock.listen_queue_max", b"", line, waiting as f64);
            if let Some(allowed) = allowed {
                out.put(import, "sock.listen_backlog", b"", line, allowed as f64);
                out.put(import, "sock.listen_overfull", b"", line, self.overfull as f64);
            }
        }
        if let Some(retrans) = self.retrans {
            out.put(import, "sock.open_retrans", b"", heading, retrans as f64);
        }
    }
}

fn list(lines: &mut Lines<'_>, import: &mut Import) {
    let mut counts = Counts::default();
    let first = lines.number();
    let mut tool = None;
    let mut is_unix = false;
    lines.each(import, |lines, at, _| {
        let line = lines.line();
        if is_title(line) {
            is_unix = line.starts_with(b"Active UNIX");
        } else if is_unix && (line.starts_with(b"Proto ") || line.starts_with(b"unix ")) {
        } else if let Some(found) = heading(line) {
            tool = Some(found);
        } else if line.trim_ascii().is_empty() {
            // `ss -m` leaves the line of memory blank below a socket that has none.
            if !line.starts_with(b"\t") {
                return Took::No;
            }
        } else if let Some(tool) = tool {
            match socket(tool, line) {
                Some(socket) => {
                    if let Some(socket) = socket {
                        counts.add(&socket, tool, at);
                        if info(line).is_some() || has(line, b" rto:") {
                            counts.retrans = Some(counts.retrans.unwrap_or(0) + info(line).unwrap_or(0));
                        }
                    }
                }
                None if line.starts_with(b"\t") || line.starts_with(b"  ") => {
                    if has(line, b"rto:") || info(line).is_some() {
                        let more = info(line).unwrap_or(0);
                        counts.retrans = Some(counts.retrans.unwrap_or(0).saturating_add(more));
                    }
                }
                None => return Took::No,
            }
        } else {
            return Took::No;
        }
        Took::Yes
    });
    if lines.number() > first {
        counts.put(first, import);
    }
}

/// All retransmissions of a connection: the second number of `retrans:0/5`.
fn info(line: &[u8]) -> Option<u64> {
    let word = words(line).find_map(|w| w.strip_prefix(b"retrans:"))?;
    integer(word.split(|b| *b == b'/').nth(1)?)
}
