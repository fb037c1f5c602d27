//! HAProxy, by its stats socket: sessions, their limits and what waits for one.
//!
//! Only a socket is asked that the configuration of the process names as `stats socket`: what else listens on a path may be a
//! frontend, which would take the question for a request. Both questions (`show info`, `show stat`) are free to everybody who may
//! connect, whatever the level. The answers name their columns; the typed form of them is ten times as long.

use std::collections::HashMap;
use std::time::Duration;

use super::PoolSaid;
use super::server::{self, Server};
use super::wire::{Failure, Wire, name, number};
use crate::file::{Buffer, Root};

/// A configuration is not read beyond, and of one process as many files.
const CONFIGURATION_BYTES_MAX: u64 = 512 * 1024;
const FILES_MAX: usize = 16;
/// As many frontends, backends and servers have rows: those first where somebody waits, or that are fullest.
const ROWS_MAX: usize = 32;
const QUESTION: &[u8] = b"show info;show stat\n";

/// Asks once: each question is a connection, which HAProxy closes behind the answer.
pub fn pools(root: &Root, server: Server, limit: Duration) -> Result<Vec<PoolSaid>, Failure> {
    // Before anything is read that its command line names.
    server::check_program(root, server)?;
    let wanted = stats_sockets(root, server)?;
    let socket = server::open_one_of(root, server, &wanted)?;
    ask(Wire::new(socket, limit))
}

fn ask(mut wire: Wire) -> Result<Vec<PoolSaid>, Failure> {
    wire.send(QUESTION)?;
    read(&wire.rest()?)
}

/// The paths that the configuration of a process names.
fn stats_sockets(root: &Root, server: Server) -> Result<Vec<Vec<u8>>, Failure> {
    let mut buffer = Buffer::default();
    let line = root.read(&format!("proc/{}/cmdline", server.pid), &mut buffer)?;
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    let files = words.windows(2).filter(|pair| pair.first() == Some(&&b"-f"[..]));
    let mut wanted = Vec::new();
    for file in files.filter_map(|pair| pair.get(1)).take(FILES_MAX) {
        let read = |pid| server::read_in_root(root, pid, file, CONFIGURATION_BYTES_MAX).ok();
        if let Some(text) = server::own_and_parent(root, server).into_iter().find_map(read) {
            wanted.extend(text.split(|byte| *byte == b'\n').filter_map(stats_socket).map(<[u8]>::to_vec));
        }
    }
    if wanted.is_empty() {
        return Err(Failure::Lasting("its configuration names no stats socket on a path".to_owned()));
    }
    Ok(wanted)
}

/// The path of `stats socket /run/haproxy/admin.sock mode 660 level admin`.
fn stats_socket(line: &[u8]) -> Option<&[u8]> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let is_it = words.next()? == b"stats" && words.next()? == b"socket";
    let path = words.next().filter(|_| is_it)?;
    let path = path.strip_prefix(b"unix@").unwrap_or(path);
    let path = path.strip_prefix(b"\"").and_then(|path| path.strip_suffix(b"\"")).unwrap_or(path);
    path.starts_with(b"/").then_some(path)
}

fn read(answer: &[u8]) -> Result<Vec<PoolSaid>, Failure> {
    let lines: Vec<&[u8]> = answer.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).collect();
    let info = |of: &str| {
        let of = |line: &&[u8]| line.strip_prefix(of.as_bytes())?.strip_prefix(b": ").and_then(number);
        lines.iter().find_map(of)
    };
    let header = lines.iter().position(|line| line.starts_with(b"# pxname,svname,"));
    let (Some(used), Some(max), Some(header)) = (info("CurrConns"), info("Maxconn"), header) else {
        return Err(Failure::junk("no answer of show info and show stat"));
    };
    let columns: HashMap<&[u8], usize> = lines
        .get(header)
        .and_then(|line| line.strip_prefix(b"# "))
        .into_iter()
        .flat_map(|line| line.split(|byte| *byte == b',').enumerate())
        .map(|(at, name)| (name, at))
        .collect();
    let rows = lines.iter().skip(header + 1).filter_map(|line| row(line, &columns));
    let mut pools: Vec<PoolSaid> = rows.collect();
    let part = |pool: &PoolSaid| {
        pool.max.filter(|max| *max > 0).map_or(0, |max| pool.used.saturating_mul(1000) / max)
    };
    pools.sort_by_cached_key(|pool| std::cmp::Reverse((pool.queue.unwrap_or(0), part(pool), pool.used)));
    pools.truncate(ROWS_MAX);
    pools.push(PoolSaid { name: "process".to_owned(), used, max: Some(max), queue: None, reached: None });
    Ok(pools)
}

/// A row of `show stat`: what has sessions. A limit that is not set is empty.
fn row(line: &[u8], columns: &HashMap<&[u8], usize>) -> Option<PoolSaid> {
    let cells: Vec<&[u8]> = line.split(|byte| *byte == b',').collect();
    let of = |column: &str| cells.get(*columns.get(column.as_bytes())?).copied();
    let (proxy, part) = (name(of("pxname")?)?, name(of("svname")?)?);
    let count = |column: &str| of(column).and_then(number);
    // That of a backend is its fullconn, which keeps nobody waiting: what waits for all of its servers waits there.
    let max = count("slim").filter(|max| *max > 0 && part != "BACKEND");
    let name = format!("{proxy}/{part}");
    Some(PoolSaid { name, used: count("scur")?, max, queue: count("qcur"), reached: None })
}

#[cfg(test)]
pub mod tests {
    use super::super::tests::{LIMIT, server};
    use super::*;

    /// All that it says, a secret in it.
    pub fn conversation() -> Vec<u8> {
        b"Name: HAProxy\nnode: hunter2\nMaxconn: 53122\nCurrConns: 7\ndescription: hunter2\n\n\
          # pxname,svname,qcur,qmax,scur,smax,slim,last_chk,\nweb,FRONTEND,,,5,9,20,hunter2,\n\
          app,one,3,3,2,2,2,hunter2,\napp,BACKEND,0,3,2,2,200,,\n\n"
            .to_vec()
    }

    pub fn read_all(says: &[u8]) -> String {
        format!("{:?}", ask(Wire::new(server(says), LIMIT)))
    }

    #[test]
    fn who_waits_comes_first_and_nothing_else_is_kept() {
        let pools = ask(Wire::new(server(&conversation()), LIMIT)).unwrap();
        let names: Vec<&str> = pools.iter().map(|pool| &*pool.name).collect();
        assert_eq!(names, ["app/one", "web/FRONTEND", "app/BACKEND", "process"]);
        let PoolSaid { used, max, queue, .. } = pools[0];
        assert_eq!((used, max, queue), (2, Some(2), Some(3)));
        assert_eq!((pools[1].queue, pools[2].max, pools[3].max), (None, None, Some(53_122)));
    }

    #[test]
    fn a_frontend_in_the_place_of_it_or_one_that_says_too_much_is_given_up() {
        for says in [&b"HTTP/1.1 400 Bad request\r\n\r\n"[..], b"Unknown command.\n", b"", b"\0\xff\n\n"] {
            assert!(matches!(ask(Wire::new(server(says), LIMIT)), Err(Failure::Passing(_))), "{says:?}");
        }
        let endless = ask(Wire::new(server(&b"Maxconn: 1\n".repeat(1 << 20)), LIMIT)).unwrap_err();
        assert!(endless.why().contains("more than"), "{endless:?}");
    }

    #[test]
    fn the_configuration_names_the_socket() {
        let of =
            |line: &'static str| stats_socket(line.as_bytes()).map(|path| std::str::from_utf8(path).unwrap());
        let path = Some("/run/haproxy/admin.sock");
        assert_eq!(of("\tstats socket /run/haproxy/admin.sock mode 660 level admin\r"), path);
        assert_eq!(of("stats  socket \"/run/haproxy/admin.sock\""), path);
        assert_eq!(of("stats socket unix@/run/haproxy/admin.sock"), path);
        for line in
            ["stats socket ipv4@127.0.0.1:9999", "stats timeout 30s", "# stats socket /a", "bind /a", ""]
        {
            assert_eq!(of(line), None);
        }
    }
}
