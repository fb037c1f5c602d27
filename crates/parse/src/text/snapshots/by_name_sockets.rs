//! `/proc/net/tcp` and `/proc/net/tcp6`.
//!
//! ```text
//!   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
//!    0: 00000000:1F90 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 4242
//! ```
//!
//! The states of connections count only where both files stand one after the other: a server often has all of its
//! connections in one of them. The receive queue of a listening socket is how many connections wait to be accepted.

use mitra_model::lookup;

use super::by_name::Block;
use super::sink::Sink;
use crate::text::prelude::*;

/// States from 1 on, as the kernel numbers them, without `NEW_SYN_RECV`. 6 is the `TIME_WAIT` of `sockstat`.
const STATES: [&str; 11] = [
    "sock.tcp_established",
    "sock.tcp_syn_sent",
    "sock.tcp_syn_recv",
    "sock.tcp_fin_wait1",
    "sock.tcp_fin_wait2",
    "sock.tcp_tw",
    "sock.tcp_close",
    "sock.tcp_close_wait",
    "sock.tcp_last_ack",
    "sock.tcp_listen",
    "sock.tcp_closing",
];
/// The state of a listening socket.
const LISTEN: u64 = 10;

/// The heading, of TCP alone: those of UDP and raw sockets count drops.
pub(super) fn is_heading(line: &[u8]) -> bool {
    let mut list = words(line);
    list.next() == Some(b"sl")
        && list.next() == Some(b"local_address")
        && matches!(list.next(), Some(b"rem_address" | b"remote_address"))
        && !has(line, b"drops")
}

struct Socket {
    is_v6: bool,
    state: u64,
    send: u64,
    receive: u64,
}

fn socket(line: &[u8]) -> Option<Socket> {
    let mut list = words(line);
    list.next()?;
    let (local, _) = (list.next()?, list.next()?);
    let state = hexadecimal(list.next()?)?;
    let mut queues = list.next()?.split(|b| *b == b':').map(hexadecimal);
    let colon = memchr::memchr(b':', local)?;
    Some(Socket { is_v6: colon == 32, state, send: queues.next()??, receive: queues.next()?? })
}

pub(super) fn read(block: &Block, sink: &mut Sink, import: &mut Import) {
    import.format("/proc/net/tcp");
    let (mut v4, mut v6) = (false, false);
    let mut states = [0_u32; STATES.len()];
    let (mut send, mut receive, mut queue) = (0.0, 0.0, None::<(u64, u32)>);
    for (at, line) in block.lines() {
        if is_heading(line) {
            continue;
        }
        let Some(socket) = socket(line) else {
            import.unread(at, line);
            continue;
        };
        v4 |= !socket.is_v6;
        v6 |= socket.is_v6;
        let place = usize::try_from(socket.state).unwrap_or(0).checked_sub(1);
        if let Some(count) = place.and_then(|at| states.get_mut(at)) {
            *count += 1;
        }
        if socket.state == LISTEN {
            if queue.is_none_or(|(most, _)| socket.receive > most) {
                queue = Some((socket.receive, at));
            }
        } else {
            send += socket.send as f64;
            receive += socket.receive as f64;
        }
    }
    let mut put = |name: &str, at: u32, value: f64| {
        if let Some(metric) = lookup(name) {
            sink.put_as(import, metric, Form::Level, 1.0, b"", block.when, at, value);
        }
    };
    if let Some((waiting, at)) = queue {
        put("sock.listen_queue_max", at, waiting as f64);
    }
    if v4 && v6 {
        for (name, count) in STATES.into_iter().zip(states) {
            put(name, block.first, f64::from(count));
        }
        put("sock.send_queue_bytes", block.first, send);
        put("sock.recv_queue_bytes", block.first, receive);
    } else {
        import
            .note("connections by state are left out: only one of /proc/net/tcp and /proc/net/tcp6 is there");
    }
}
