//! Name servers of the test, at 127.0.0.1, 127.0.0.2 and 127.0.0.3, and at others that a test adds. They write
//! down each query, and then answer, lie or say nothing.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mitra_inspect::resolver::trace::{Answer, Basis, Got, Kind, Query, Reply, Transport};

/// How many there are from the start.
pub const SERVERS: u8 = 3;

/// What a server does with a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    /// So many addresses.
    Addresses(u16),
    /// The name is there, without an address.
    NoData,
    /// NXDOMAIN.
    NoName,
    /// Another code.
    Code(u8),
    /// Another code, in a message without the question.
    Bare(u8),
    /// A referral: nothing, and no recursion.
    Referral,
    /// No records, and the TC bit.
    Truncated,
    /// Nothing. Over TCP the connection is closed.
    Nothing,
    /// One address, later.
    Late(Duration),
}

/// A query, as a server hears it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    pub server: u8,
    pub name: String,
    pub kind: Kind,
    pub tcp: bool,
    pub edns: Option<u16>,
    pub ad: bool,
    pub at: Instant,
}

impl Heard {
    pub fn line(&self) -> String {
        line(self.server, &self.name, self.kind, self.tcp, self.edns, self.ad)
    }
}

/// A predicted query, written the same way.
pub fn line_of(query: &Query) -> String {
    let is_tcp = query.transport == Transport::Tcp;
    line(number_of(query.server), &query.name, query.kind, is_tcp, query.edns, query.ad)
}

/// The last byte of an IPv4 address; of an IPv6 address, plus ten.
fn number_of(server: SocketAddr) -> u8 {
    match server.ip().to_canonical() {
        IpAddr::V4(v4) => v4.octets()[3],
        IpAddr::V6(v6) => v6.octets()[15] + 10,
    }
}

/// Nobody can connect to a link-local address without an interface.
fn is_unreachable(server: SocketAddr) -> bool {
    matches!(server, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
}

fn line(server: u8, name: &str, kind: Kind, tcp: bool, edns: Option<u16>, ad: bool) -> String {
    let by = if tcp { "tcp" } else { "udp" };
    format!("{server} {kind:?} {name} {by} {edns:?} {ad}")
}

/// What servers do: by server, name, type, and whether it is TCP.
pub type Script = fn(u8, &str, Kind, bool) -> Does;

/// The reply that a script gives to a query.
pub fn reply(script: Script, query: &Query) -> Reply {
    let is_tcp = query.transport == Transport::Tcp;
    let answer = |answer: Answer| Got::Message(Answer { recursive: true, ..answer });
    if is_unreachable(query.server) {
        return Reply::assumed(Got::Refused);
    }
    let mut after = Duration::ZERO;
    let got = match script(number_of(query.server), &query.name, query.kind, is_tcp) {
        Does::Addresses(count) => answer(Answer { records: count, addresses: count, ..Answer::default() }),
        Does::NoData => answer(Answer::default()),
        Does::NoName => answer(Answer::nxdomain()),
        Does::Code(rcode) => answer(Answer { rcode, ..Answer::default() }),
        Does::Bare(rcode) => answer(Answer { rcode, is_bare: true, ..Answer::default() }),
        Does::Referral => Got::Message(Answer::default()),
        Does::Truncated => answer(Answer { truncated: true, ..Answer::default() }),
        Does::Nothing if is_tcp => Got::Closed,
        Does::Nothing => Got::Silence,
        Does::Late(time) => {
            after = time;
            answer(Answer { records: 1, addresses: 1, ..Answer::default() })
        }
    };
    Reply { got, after_us: after.as_micros() as u64, basis: Basis::Assumed }
}

/// The state that all servers share.
pub struct Servers {
    heard: Mutex<Vec<Heard>>,
    script: Mutex<Script>,
}

impl Servers {
    pub fn start() -> Arc<Self> {
        let script: Script = |_, _, _, _| Does::NoName;
        let servers = Arc::new(Servers { heard: Mutex::new(Vec::new()), script: Mutex::new(script) });
        for number in 1..=SERVERS {
            servers.add((Ipv4Addr::new(127, 0, 0, number), 53).into());
        }
        servers
    }

    /// One more server.
    pub fn add(self: &Arc<Self>, address: SocketAddr) {
        let number = number_of(address);
        let socket = UdpSocket::bind(address).unwrap();
        let listener = TcpListener::bind(address).unwrap();
        let shared = self.clone();
        std::thread::spawn(move || shared.serve_datagrams(number, &socket));
        let shared = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = shared.clone();
                std::thread::spawn(move || shared.serve_stream(number, stream.unwrap()));
            }
        });
    }

    pub fn set(&self, script: Script) {
        *self.script.lock().unwrap() = script;
    }

    pub fn take(&self) -> Vec<Heard> {
        std::mem::take(&mut *self.heard.lock().unwrap())
    }

    fn serve_datagrams(&self, number: u8, socket: &UdpSocket) {
        let mut buffer = [0; 1500];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            let query = &buffer[..length];
            let Some(does) = self.hear(number, query, false) else { continue };
            if let Does::Late(time) = does {
                let (socket, bytes) = (socket.try_clone().unwrap(), answer(query, does));
                std::thread::spawn(move || {
                    std::thread::sleep(time);
                    _ = socket.send_to(&bytes, from);
                });
            } else if does != Does::Nothing {
                // Whoever asked may be gone.
                _ = socket.send_to(&answer(query, does), from);
            }
        }
    }

    fn serve_stream(&self, number: u8, mut stream: TcpStream) {
        let mut length = [0; 2];
        while stream.read_exact(&mut length).is_ok() {
            let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
            if stream.read_exact(&mut query).is_err() {
                return;
            }
            let Some(does) = self.hear(number, &query, true) else { return };
            if does == Does::Nothing {
                return;
            }
            let answer = answer(&query, does);
            let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
            if stream.write_all(&[&length, answer.as_slice()].concat()).is_err() {
                return;
            }
        }
    }

    /// Writes a query down. `None` for a type that no resolver asks for here.
    fn hear(&self, server: u8, query: &[u8], tcp: bool) -> Option<Does> {
        let mut name = String::new();
        let mut at = 12;
        while query[at] != 0 {
            let label = &query[at + 1..at + 1 + usize::from(query[at])];
            name.push_str(if name.is_empty() { "" } else { "." });
            name.push_str(std::str::from_utf8(label).unwrap());
            at += 1 + label.len();
        }
        let kind = match query[at + 2] {
            1 => Kind::A,
            28 => Kind::Aaaa,
            6 => Kind::Soa,
            _ => return None,
        };
        // The OPT record is the only additional one: root, type, size.
        let edns = (query[11] > 0).then(|| u16::from_be_bytes([query[at + 8], query[at + 9]]));
        let ad = query[3] & 0x20 != 0;
        let does = (self.script.lock().unwrap())(server, &name, kind, tcp);
        self.heard.lock().unwrap().push(Heard { server, name, kind, tcp, edns, ad, at: Instant::now() });
        Some(does)
    }
}

fn answer(query: &[u8], does: Does) -> Vec<u8> {
    let name_end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap() + 1;
    let kind = query[name_end + 1];
    let (rcode, records, flags) = match does {
        Does::Addresses(count) => (0, count, 0x81),
        Does::Late(_) => (0, 1, 0x81),
        Does::NoName => (3, 0, 0x81),
        Does::Code(code) | Does::Bare(code) => (code, 0, 0x81),
        Does::Truncated => (0, 0, 0x83),
        Does::NoData | Does::Referral | Does::Nothing => (0, 0, 0x81),
    };
    let recursion = if does == Does::Referral { 0 } else { 0x80 };
    let mut message = query[..2].to_vec();
    if matches!(does, Does::Bare(_)) {
        message.extend([flags, recursion | rcode, 0, 0, 0, 0, 0, 0, 0, 0]);
        return message;
    }
    message.extend([flags, recursion | rcode, 0, 1]);
    message.extend(records.to_be_bytes());
    message.extend([0, 0, 0, 0]);
    message.extend(&query[12..name_end + 4]);
    for i in 0..records {
        message.extend([0xc0, 0x0c, 0, kind, 0, 1, 0, 0, 0, 60]);
        match kind {
            1 => message.extend([0, 4, 10, 9, 0, i as u8]),
            // Two names that are the root, and five numbers.
            6 => {
                message.extend([0, 22]);
                message.extend([0; 22]);
            }
            _ => {
                message.extend([0, 16, 0xfd]);
                message.extend([0; 14]);
                message.push(i as u8);
            }
        }
    }
    message
}
