//! The listening sockets and the programs that own them.
//!
//! ```text
//! tcp 0.0.0.0:22 sshd uid=0
//! tcp [::1]:631 cupsd uid=0
//! udp 0.0.0.0:123 chronyd uid=104
//! ```
//!
//! Ports chosen by the kernel (`net.ipv4.ip_local_port_range`) are in `@sockets/ephemeral`, which
//! has the flag `volatile`, because they change with every outgoing request. Process ids are left
//! out, because they change with every start.
//!
//! The owner of a socket is found through `/proc/PID/fd` of every process, and only if there is a
//! new socket since the last run. New UDP sockets on ports chosen by the kernel do not trigger this
//! scan, because a name server opens one for each request.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

use rustix::fs::OFlags;

use super::{Source, number, word};
use crate::document::{Document, Facts, Flag, Kind};

/// Maximum number of sockets per file.
const SOCKETS_MAX: usize = 65_536;
/// Maximum size of one file in bytes. A line has 150.
const FILE_MAX: u64 = SOCKETS_MAX as u64 * 192;
/// Maximum number of processes scanned.
const PROCESSES_MAX: usize = 32_768;
/// Maximum number of open files scanned, of all processes together.
const FILES_MAX: usize = 1 << 20;
/// Owners are looked up again after this long, because a program may pass a socket to another one.
const OWNERS_KEPT_NS: i64 = 3_600_000_000_000;
/// The default port range, if the kernel does not report its own.
const EPHEMERAL: RangeInclusive<u16> = 32_768..=60_999;

/// A listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Socket {
    /// The local address and port.
    pub address: SocketAddr,
    /// The id of the user who created it.
    pub uid: u32,
    /// Its inode, or 0 for a socket of the kernel.
    pub inode: u64,
}

/// The meaning of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// A listening socket.
    Listens(Socket),
    /// Another socket, or the heading.
    Other,
}

/// Two documents: the sockets on fixed ports, and those on ports chosen by the kernel.
pub fn collect(source: &Source<'_>) -> Result<Vec<Document>, String> {
    let mut found = Vec::new();
    let mut reasons = Vec::new();
    for name in ["tcp", "tcp6", "udp", "udp6"] {
        match read(source, name) {
            Ok(sockets) => {
                found.extend(sockets.into_iter().map(|socket| (name.trim_end_matches('6'), socket)))
            }
            Err(reason) => reasons.push(reason),
        }
    }
    // One missing file is no error: IPv6 may be disabled.
    if reasons.len() == 4 {
        return Err(reasons.swap_remove(0));
    }
    let range = source.value("/proc/sys/net/ipv4/ip_local_port_range").and_then(|text| parse_range(&text));
    let range = range.unwrap_or(EPHEMERAL);
    // Sockets of the kernel have inode 0.
    let numbered = || found.iter().filter(|(_, s)| s.inode != 0);
    let inodes: BTreeSet<u64> = numbered().map(|(_, s)| s.inode).collect();
    let worth_it = numbered().filter(|(kind, s)| *kind == "tcp" || !range.contains(&s.address.port()));
    let owners = owners(source, &inodes, worth_it.map(|(_, s)| s.inode));
    let (ephemeral, lasting): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(_, s)| range.contains(&s.address.port()));
    let mut documents = vec![document(source, "@sockets", &lasting, &owners)];
    if !ephemeral.is_empty() {
        let mut document = document(source, "@sockets/ephemeral", &ephemeral, &owners);
        document.flag(Flag::Volatile);
        documents.push(document);
    }
    Ok(documents)
}

fn document(
    source: &Source<'_>,
    filename: &str,
    sockets: &[(&str, Socket)],
    owners: &BTreeMap<u64, String>,
) -> Document {
    // Sorted by port. Several sockets of one program on a port (one per thread) share a line.
    let mut lines = BTreeMap::new();
    let (mut ports, mut addresses, mut processes) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (kind, socket) in sockets {
        let owner = owners.get(&socket.inode).map_or("-", String::as_str);
        let address = socket.address;
        let text = format!("{kind} {address} {owner} uid={}\n", socket.uid);
        lines.insert((*kind, address.port(), address.ip(), owner, socket.uid), text);
        ports.insert(address.port());
        addresses.insert(address.to_string());
        processes.extend(owner.split(',').filter(|name| *name != "-"));
    }
    let mut facts = Facts::new();
    ports.into_iter().for_each(|port| number(&mut facts, "socket.port", port.into()));
    addresses.into_iter().for_each(|address| word(&mut facts, "socket.address", address));
    processes.into_iter().for_each(|process| word(&mut facts, "socket.process", process));
    source.document(filename, Kind::Socket, lines.into_values().collect(), facts)
}

/// The listening sockets in `/proc/net/NAME`. TCP lists them first, so reading stops at the first
/// that does not listen: a busy machine has hundreds of thousands of connections.
fn read(source: &Source<'_>, name: &str) -> Result<Vec<Socket>, String> {
    let path = format!("/proc/net/{name}");
    let fd = source.open(&path, OFlags::RDONLY).map_err(|e| format!("{path}: {e}"))?;
    let mut file = BufReader::with_capacity(16 << 10, std::fs::File::from(fd).take(FILE_MAX));
    let mut found = Vec::new();
    let mut text = String::new();
    for at in 0..SOCKETS_MAX {
        text.clear();
        if file.read_line(&mut text).map_err(|e| format!("{path}: {e}"))? == 0 {
            break;
        }
        match parse_line(name, &text).map_err(|e| format!("{path}: line {}: {e}", at + 1))? {
            Line::Listens(socket) => found.push(socket),
            Line::Other if at > 0 && name.starts_with("tcp") => break,
            Line::Other => {}
        }
    }
    Ok(found)
}

/// Parses a line of `/proc/net/tcp`, `tcp6`, `udp` or `udp6`. The addresses are words in the CPU's
/// byte order.
///
/// ```text
///   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
///  0: 0100007F:0277 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 17554 …
/// ```
pub fn parse_line(name: &str, line: &str) -> Result<Line, String> {
    let mut parts = line.split_ascii_whitespace();
    let (Some(slot), Some(local), Some(remote), Some(state)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("a socket with its state was wanted".to_owned());
    };
    if slot == "sl" {
        return Ok(Line::Other);
    }
    // 0A is LISTEN. An unconnected UDP socket has state 07 and no remote address.
    let no_other_end = remote.bytes().all(|b| matches!(b, b'0' | b':'));
    let listens = if name.starts_with("tcp") { state == "0A" } else { state == "07" && no_other_end };
    if !listens {
        return Ok(Line::Other);
    }
    // Skips queues, timer and retransmissions.
    let (Some(uid), Some(_timeout), Some(inode)) = (parts.nth(3), parts.next(), parts.next()) else {
        return Err("the user and the number of a socket were wanted".to_owned());
    };
    Ok(Line::Listens(Socket {
        address: parse_address(local).ok_or_else(|| format!("'{local}' is not an address"))?,
        uid: uid.parse().map_err(|_| format!("'{uid}' is not the number of a user"))?,
        inode: inode.parse().map_err(|_| format!("'{inode}' is not the number of a socket"))?,
    }))
}

/// Parses `0100007F:0277` as 127.0.0.1, port 631.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let part =
        |at: usize| u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match address.len() {
        8 => IpAddr::from(Ipv4Addr::from(part(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, to) in bytes.chunks_exact_mut(4).enumerate() {
                to.copy_from_slice(&part(at)?);
            }
            IpAddr::from(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Parses `ip_local_port_range`: `32768    60999`.
#[must_use]
pub fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut parts = text.split_ascii_whitespace().map(str::parse);
    match (parts.next()?, parts.next()?, parts.next()) {
        (Ok(first), Ok(last), None) if first <= last => Some(first..=last),
        _ => None,
    }
}

/// The names of the programs that own these sockets, separated by commas. Scans the processes only
/// if an inode of `worth_it` is unknown or the last scan is too old.
fn owners(
    source: &Source<'_>,
    inodes: &BTreeSet<u64>,
    mut worth_it: impl Iterator<Item = u64>,
) -> BTreeMap<u64, String> {
    let mut known = source.cache.owners();
    let is_old =
        known.scanned_ns.is_none_or(|at| !(0..OWNERS_KEPT_NS).contains(&source.now_ns.saturating_sub(at)));
    if is_old || worth_it.any(|inode| !known.by_inode.contains_key(&inode)) {
        let mut found = scan(source, inodes);
        known.by_inode = inodes.iter().map(|inode| (*inode, found.remove(inode))).collect();
        known.scanned_ns = Some(source.now_ns);
    }
    let owned = inodes.iter().filter_map(|inode| Some((*inode, known.by_inode.get(inode)?.clone()?)));
    owned.collect()
}

/// Searches the open files of every process for these sockets. Skips processes that cannot be read
/// or end meanwhile.
fn scan(source: &Source<'_>, inodes: &BTreeSet<u64>) -> BTreeMap<u64, String> {
    let mut found: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    let mut files = 0;
    let is_process = |name: &String| name.bytes().all(|b| b.is_ascii_digit());
    for process in source.names("/proc").into_iter().filter(is_process).take(PROCESSES_MAX) {
        let path = format!("/proc/{process}/fd");
        let Ok(folder) = source.open(&path, OFlags::RDONLY | OFlags::DIRECTORY) else { continue };
        let Ok(copy) = folder.try_clone() else { continue };
        let mut has = BTreeSet::new();
        for entry in super::read::entries(copy).unwrap_or_default() {
            files += 1;
            if files > FILES_MAX {
                break;
            }
            let Ok(link) = rustix::fs::readlinkat(&folder, &*entry.name, Vec::new()) else { continue };
            has.extend(socket_number(link.to_bytes()).filter(|inode| inodes.contains(inode)));
        }
        if has.is_empty() {
            continue;
        }
        let Some(name) = source.value(&format!("/proc/{process}/comm")) else { continue };
        // The comma separates names.
        let name = name.replace([',', ' '], "_");
        has.into_iter().for_each(|inode| _ = found.entry(inode).or_default().insert(name.clone()));
    }
    found.into_iter().map(|(inode, names)| (inode, names.into_iter().collect::<Vec<_>>().join(","))).collect()
}

/// Returns 17554 for `socket:[17554]`.
fn socket_number(link: &[u8]) -> Option<u64> {
    let digits = link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::collectors::Cache;
    use crate::document::Value;

    const HEADING: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    fn row(local: &str, remote: &str, state: &str, inode: u64) -> String {
        format!(
            "   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000   104        0 {inode} 1 0 100\n"
        )
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn addresses_are_read() {
        for (text, wanted) in [
            ("0100007F:0277", "127.0.0.1:631"),
            ("00000000000000000000000001000000:0016", "[::1]:22"),
            ("B80D0120000000000000000001000000:01BB", "[2001:db8::1]:443"),
        ] {
            assert_eq!(parse_address(text).map(|a| a.to_string()).as_deref(), Some(wanted));
        }
        for wrong in ["0100007F", "0100007F:", "0100007F:10000", "01:0016", "0100007G:0016", "äääää:0016"]
        {
            assert_eq!(parse_address(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_does_not_listen_is_another() {
        let line = |name, text: &str| parse_line(name, text);
        assert_eq!(line("tcp", HEADING), Ok(Line::Other));
        assert_eq!(line("tcp", &row("0100007F:0277", "0200007F:0016", "01", 9)), Ok(Line::Other));
        assert_eq!(line("udp", &row("0100007F:0277", "0200007F:0016", "07", 9)), Ok(Line::Other));
        assert!(matches!(line("udp", &row("0100007F:0277", "00000000:0000", "07", 9)), Ok(Line::Listens(_))));
        assert!(line("tcp", "   0: 0100007F:0277\n").is_err());
        assert!(line("tcp", "   0: 0100007F:0277 0:0 0A 0:0\n").is_err());
        assert!(line("tcp", &row("nowhere:0277", "00000000:0000", "0A", 9)).is_err());
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn sockets_have_their_owners() {
        let root = tempfile::tempdir().unwrap();
        let add = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let none = "00000000:0000";
        let (http, dns) = (row("00000000:0050", none, "0A", 7), row("0100007F:0035", none, "0A", 8));
        let connection = row("0100007F:0035", "0200007F:9999", "01", 9);
        let behind = row("0100007F:0036", none, "0A", 10);
        add("proc/net/tcp", &format!("{HEADING}{http}{http}{dns}{connection}{behind}"));
        add("proc/net/udp", &format!("{HEADING}{}", row("0100007F:9C40", none, "07", 11)));
        add("proc/12/comm", "nginx\n");
        add("proc/13/comm", "nginx\n");
        add("proc/14/comm", "a b\n");
        for (process, inode) in [("12", 7), ("13", 7), ("14", 7), ("14", 99)] {
            let folder = root.path().join("proc").join(process).join("fd");
            fs::create_dir_all(&folder).unwrap();
            symlink(format!("socket:[{inode}]"), folder.join(inode.to_string())).unwrap();
        }
        let cache = Cache::default();
        let source = Source { root: root.path(), now_ns: 0, cache: &cache };
        let documents = collect(&source).unwrap();
        let contents: Vec<_> =
            documents.iter().map(|d| (d.filename.as_str(), d.content.as_deref().unwrap())).collect();
        let stay = "tcp 127.0.0.1:53 - uid=104\ntcp 0.0.0.0:80 a_b,nginx uid=104\n";
        assert_eq!(contents, [("@sockets", stay), ("@sockets/ephemeral", "udp 127.0.0.1:40000 - uid=104\n")]);
        let texts = |names: &[&str]| names.iter().map(|n| Value::Text((*n).to_owned())).collect::<Vec<_>>();
        assert_eq!(documents[0].facts.get("socket.process"), Some(&texts(&["a_b", "nginx"])));
        assert_eq!(documents[0].facts.get("socket.address"), Some(&texts(&["0.0.0.0:80", "127.0.0.1:53"])));
        assert_eq!(
            documents[0].facts.get("socket.port"),
            Some(&vec![Value::Number(53.0), Value::Number(80.0)])
        );
        assert!(documents[1].is(Flag::Volatile));

        // The same sockets and one more of UDP on a port chosen by the kernel: no new scan.
        fs::write(root.path().join("proc/12/comm"), "other\n").unwrap();
        add("proc/net/udp", &format!("{HEADING}{}", row("0100007F:9C40", none, "07", 12)));
        assert_eq!(collect(&source).unwrap(), documents);
        let later = Source { now_ns: OWNERS_KEPT_NS, ..source };
        let again = collect(&later).unwrap();
        assert!(again[0].content.as_deref().unwrap().contains(" a_b,nginx,other "), "{:?}", again[0].content);
    }

    #[test]
    fn the_ports_of_the_kernel_are_a_range() {
        assert_eq!(parse_range("32768\t60999"), Some(32_768..=60_999));
        for wrong in ["", "1", "2 1", "1 70000", "1 2 3"] {
            assert_eq!(parse_range(wrong), None, "{wrong}");
        }
    }
}
