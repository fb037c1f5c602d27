//! PHP-FPM, by the status page of each pool: workers that have a request, and what waits for one.
//!
//! The page is asked for over FastCGI where the pool has one (`pm.status_path`) and a Unix socket. It is a worker that answers it,
//! unless the pool has `pm.status_listen`: without that a pool whose workers are all taken says nothing within the time limit.
//! `pm.max_children` comes from the configuration, because the page does not have it.

use std::time::{Duration, Instant};

use super::PoolSaid;
use super::server::{self, Server};
use super::wire::{Failure, Wire, name, number};
use crate::file::Root;

/// A file of the configuration is not read beyond, and as many of them.
const CONFIGURATION_BYTES_MAX: u64 = 128 * 1024;
const FILES_MAX: usize = 64;
/// As many pools are asked.
const POOLS_MAX: usize = 8;
/// Of one record of FastCGI.
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
/// The page has half a kilobyte.
const PAGE_BYTES_MAX: usize = 16 * 1024;

/// A pool, by its configuration.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Pool {
    name: String,
    listen: String,
    status_path: Option<String>,
    status_listen: Option<String>,
    max_children: Option<u64>,
}

/// Asks each pool that has a page. `server` is the master.
pub fn pools(root: &Root, server: Server, limit: Duration) -> Result<Vec<PoolSaid>, Failure> {
    let deadline = Instant::now() + limit;
    // Before anything is read that its title names.
    server::check_program(root, server)?;
    let pools = configured(root, server.pid)?;
    let asked: Vec<&Pool> = pools.iter().filter(|pool| pool.status_path.is_some()).take(POOLS_MAX).collect();
    let (mut said, mut failure) =
        (Vec::new(), Failure::Lasting("no pool of it has pm.status_path".to_owned()));
    for (nth, pool) in asked.iter().enumerate() {
        // One whose workers are all taken leaves time for the others.
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(asked.len() - nth).unwrap_or(1);
        match ask(root, server, pool, share) {
            Ok(one) => said.push(one),
            Err(why) => failure = why,
        }
    }
    if said.is_empty() { Err(failure) } else { Ok(said) }
}

fn ask(root: &Root, server: Server, pool: &Pool, limit: Duration) -> Result<PoolSaid, Failure> {
    let listen = pool.status_listen.as_ref().unwrap_or(&pool.listen);
    let socket = server::open_one_of(root, server, &[listen.clone().into_bytes()])?;
    request(Wire::new(socket, limit), pool)
}

fn request(mut wire: Wire, pool: &Pool) -> Result<PoolSaid, Failure> {
    wire.send(&question(pool.status_path.as_deref().unwrap_or_default())?)?;
    let page = page(&mut wire)?;
    let lines: Vec<&[u8]> = page.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).collect();
    let of = |what: &str| {
        let of = |line: &&[u8]| number(line.strip_prefix(what.as_bytes())?.strip_prefix(b":")?.trim_ascii());
        lines.iter().find_map(of)
    };
    match (of("active processes"), of("listen queue")) {
        (Some(used), Some(queue)) => Ok(PoolSaid {
            name: pool.name.clone(),
            // The worker that answers is one of them, unless it is of another pool.
            used: used.saturating_sub(u64::from(pool.status_listen.is_none())),
            max: pool.max_children,
            // It says 0 of a Unix socket, because it cannot tell.
            queue: Some(queue).filter(|_| !pool.listen.starts_with('/')),
            reached: of("max children reached"),
        }),
        _ => Err(Failure::Lasting("its page is not there: pm.status_path".to_owned())),
    }
}

/// One request of FastCGI for a page.
fn question(path: &str) -> Result<Vec<u8>, Failure> {
    let mut params = Vec::new();
    for (name, value) in
        [("SCRIPT_NAME", path), ("SCRIPT_FILENAME", path), ("REQUEST_METHOD", "GET"), ("QUERY_STRING", "")]
    {
        let length = u8::try_from(value.len()).ok().filter(|length| *length < 0x80);
        params.push(name.len() as u8);
        params.push(length.ok_or_else(|| Failure::Lasting("pm.status_path is too long".to_owned()))?);
        params.extend(name.as_bytes());
        params.extend(value.as_bytes());
    }
    let mut bytes = Vec::new();
    let mut record = |kind: u8, content: &[u8]| {
        let length = u16::try_from(content.len()).unwrap_or(0).to_be_bytes();
        bytes.extend([1, kind, 0, 1, length[0], length[1], 0, 0]);
        bytes.extend(content);
    };
    // A responder whose connection is closed behind the answer.
    record(BEGIN_REQUEST, &[0, 1, 0, 0, 0, 0, 0, 0]);
    record(PARAMS, &params);
    record(PARAMS, &[]);
    record(STDIN, &[]);
    Ok(bytes)
}

/// What comes as standard output until the end of the request.
fn page(wire: &mut Wire) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    loop {
        let [version, kind, _, _, high, low, padding, _] = wire.array::<8>()?;
        if version != 1 {
            return Err(Failure::junk("another protocol"));
        }
        let content = wire.take(usize::from(u16::from_be_bytes([high, low])))?;
        wire.take(padding.into())?;
        match kind {
            END_REQUEST => return Ok(page),
            STDOUT => page.extend(content),
            _ => {}
        }
        if page.len() > PAGE_BYTES_MAX {
            return Err(Failure::junk("a page that is too long"));
        }
    }
}

/// The pools of a master, by its title: `php-fpm: master process (/etc/php/8.2/fpm/php-fpm.conf)`.
fn configured(root: &Root, pid: u32) -> Result<Vec<Pool>, Failure> {
    let title = root.text(&format!("proc/{pid}/cmdline")).unwrap_or_default();
    let path = title.split_once("master process (").and_then(|(_, rest)| rest.split(')').next());
    let Some(path) = path.filter(|path| path.starts_with('/')) else {
        return Err(Failure::Lasting("its title names no configuration".to_owned()));
    };
    let text = |path: &str| {
        let bytes = server::read_in_root(root, pid, path.as_bytes(), CONFIGURATION_BYTES_MAX)?;
        Ok::<_, Failure>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let main = text(path)?;
    let mut pools = read(&main);
    for pattern in settings(&main).filter(|(_, key, _)| *key == "include").map(|(_, _, value)| value) {
        let (dir, name) = pattern.rsplit_once('/').unwrap_or((".", pattern));
        let (begin, end) = name.split_once('*').unwrap_or((name, ""));
        let is_included = |name: &str| {
            name.len() >= begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end)
        };
        for name in server::names_in_root(root, pid, dir.as_bytes())?
            .into_iter()
            .filter(|name| is_included(name))
            .take(FILES_MAX)
        {
            pools.extend(text(&format!("{dir}/{name}")).iter().flat_map(|text| read(text)));
        }
    }
    Ok(pools)
}

/// Section, key and value of each line that has them.
fn settings(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let mut section = "";
    text.lines().filter_map(move |line| {
        let line = line.split(';').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
        }
        let (key, value) = line.split_once('=')?;
        Some((section, key.trim(), value.trim().trim_matches('"')))
    })
}

/// The pools of a file. Sections without a name for people are left out, as is `[global]`.
fn read(text: &str) -> Vec<Pool> {
    let mut pools: Vec<Pool> = Vec::new();
    for (section, key, value) in settings(text) {
        let Some(section) = name(section.as_bytes()).filter(|section| *section != "global") else { continue };
        if pools.last().is_none_or(|pool| pool.name != section) {
            pools.push(Pool { name: section.to_owned(), ..Pool::default() });
        }
        let Some(pool) = pools.last_mut() else { continue };
        let value = value.replace("$pool", section);
        match key {
            "listen" => pool.listen = value,
            "pm.status_path" => pool.status_path = Some(value).filter(|path| path.starts_with('/')),
            "pm.status_listen" => pool.status_listen = Some(value),
            "pm.max_children" => pool.max_children = value.parse().ok(),
            _ => {}
        }
    }
    pools
}

#[cfg(test)]
pub mod tests {
    use super::super::tests::{LIMIT, server};
    use super::*;

    fn pool() -> Pool {
        Pool {
            name: "www".to_owned(),
            status_path: Some("/status".to_owned()),
            max_children: Some(41),
            status_listen: Some("/run/s.sock".to_owned()),
            ..Pool::default()
        }
    }

    /// A request for a page.
    pub fn question_of(path: &str) -> Vec<u8> {
        question(path).unwrap()
    }

    /// All that it says, a secret in it.
    pub fn conversation() -> Vec<u8> {
        let page = "X-Powered-By: hunter2\r\n\r\npool: hunter2\nlisten queue:         9\nmax listen queue: 12\n\
                    active processes:     5\ntotal processes: 5\nmax children reached: 3\n";
        let mut says = vec![1, STDOUT, 0, 1, 0, page.len() as u8, 3, 0];
        says.extend(page.as_bytes());
        says.extend([0, 0, 0]);
        says.extend([1, END_REQUEST, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        says
    }

    pub fn read_all(says: &[u8]) -> String {
        format!("{:?}", request(Wire::new(server(says), LIMIT), &pool()))
    }

    #[test]
    fn the_page_says_how_many_wait_for_a_worker() {
        let said = request(Wire::new(server(&conversation()), LIMIT), &pool()).unwrap();
        assert_eq!((said.used, said.max, said.queue, said.reached), (5, Some(41), Some(9), Some(3)));
        let page = b"Status: 404 Not Found\r\n\r\nFile not found.\n";
        let mut says = vec![1, STDOUT, 0, 1, 0, page.len() as u8, 0, 0];
        says.extend(page);
        says.extend(&conversation()[conversation().len() - 16..]);
        assert!(matches!(request(Wire::new(server(&says), LIMIT), &pool()), Err(Failure::Lasting(_))));
        let endless = [&[1, STDOUT, 0, 1, 0xff, 0xff, 0, 0][..], &[b'x'; 0xffff]].concat().repeat(20);
        for says in [&endless[..], b"HTTP/1.1 400 Bad request", b"", &[1, STDOUT, 0, 1, 0, 9, 0, 0, b'x']] {
            assert!(matches!(request(Wire::new(server(says), LIMIT), &pool()), Err(Failure::Passing(_))));
        }
    }

    #[test]
    fn pools_are_read_from_their_configuration() {
        let text = "; [x]\n[global]\npid = /run/a.pid\n[www]\nlisten = /run/php/$pool.sock ; here\npm.status_path = /status\n\
                    pm.max_children=5\n[b\x1b]\nlisten = /b\n[shop]\nlisten = 127.0.0.1:9000\npm.status_listen = \"/run/s.sock\"\n";
        let pools = read(text);
        let www = Pool {
            listen: "/run/php/www.sock".to_owned(),
            max_children: Some(5),
            status_listen: None,
            ..pool()
        };
        assert_eq!(pools.len(), 2, "{pools:?}");
        assert_eq!(pools[0], www);
        assert_eq!((pools[1].status_listen.as_deref(), &pools[1].status_path), (Some("/run/s.sock"), &None));
        assert!(question(&"/".repeat(200)).is_err());
    }
}
