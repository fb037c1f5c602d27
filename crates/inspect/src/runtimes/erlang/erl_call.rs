//! Queries an Erlang VM about its allocators with `erl_call`.
//!
//! Only functions that read are called: `erlang:system_info/1` and `erlang:memory/0`. `erl_call`
//! connects as a hidden node, so processes that monitor nodes do not notice it. It needs what every
//! node needs to connect: the name of the node, which is on the command line of the VM, the port
//! mapper `epmd`, and the cookie. `erl_call` reads the cookie itself, as the user of the VM, from
//! that user's home. If the cookie is on the command line of the VM, it is passed on that of
//! `erl_call`, which is visible to the same users.

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::tool::{self, Limit, Question, Tool};
use super::command::CommandLine;
use super::term::Term;
use super::{Allocator, Calls, ErlangMemory, Pool, SegmentCache};
use crate::memory::Memory;
use crate::target::Target;

/// Limit of an answer: an allocator with a hundred instances takes 300 KB of text.
const BYTES_MAX: u64 = 16 << 20;
/// Time limit per request; a busy VM answers late.
const SECONDS_MAX: f64 = 10.0;
/// Limit of the instances that are kept.
const INSTANCES_MAX: usize = 10 << 10;

/// Limits of atoms.
const NODE_MAX: usize = 255;
const COOKIE_MAX: usize = 255;

/// How to reach the VM.
pub(super) struct ErlCall<'t> {
    target: &'t Target,
    tool: Tool,
    name: (String, bool),
    cookie: Option<String>,
    home: Option<String>,
    epmd_port: Option<String>,
    hidden: String,
    limit: Limit,
}

impl<'t> ErlCall<'t> {
    /// An error says in words why the VM cannot be asked.
    pub(super) fn new(target: &'t Target, line: &CommandLine, seconds_max: f64) -> Result<Self, String> {
        let name = line.name.clone().ok_or(
            "it cannot be asked: it is no node of its own, since there is neither -name nor -sname on its command line",
        )?;
        if !is_node(&name.0) {
            return Err("it cannot be asked: the name on its command line is no name of a node".to_owned());
        }
        if !is_here(&name.0) {
            return Err(
                "it cannot be asked: the name on its command line is of a host that neither this machine's name nor /etc/hosts \
                 says to be this one, and no other is talked to"
                    .to_owned(),
            );
        }
        let tool = Tool::find("erl_call", &places(target, line));
        let tool = tool.map_err(|why| format!("it cannot be asked: {why}"))?.ok_or(
            "it cannot be asked: erl_call is neither beside it nor on this machine (Debian: erlang-base)",
        )?;
        let time = Duration::from_secs_f64(seconds_max.clamp(0.1, SECONDS_MAX));
        Ok(ErlCall {
            target,
            tool,
            name,
            cookie: line.cookie.clone().filter(|cookie| is_cookie(cookie)),
            home: line.home.clone(),
            epmd_port: line.epmd_port.clone(),
            hidden: format!("mitra_{}", std::process::id()),
            limit: Limit { time, bytes: BYTES_MAX },
        })
    }

    fn call(&self, what: &str) -> Result<Term, String> {
        let (name, is_long) = &self.name;
        let mut words = vec![if *is_long { "-name" } else { "-sname" }, name, "-h", &self.hidden];
        if let Some(cookie) = &self.cookie {
            words.extend(["-c", cookie]);
        }
        words.extend(["-a", what]);
        let home = self.home.as_deref().unwrap_or("/nonexistent");
        let mut environment = vec![("HOME", OsStr::new(home))];
        environment.extend(self.epmd_port.as_deref().map(|port| ("ERL_EPMD_PORT", OsStr::new(port))));
        let question = Question {
            arguments: words.into_iter().map(OsString::from).collect(),
            environment,
            signal: None,
            limit: self.limit,
        };
        let output = tool::run(&self.tool, &question, self.target, &|| self.target.is_wanted());
        let output = output.map_err(|why| {
            let hint = if why.contains("failed to connect") {
                ": epmd, its address or its cookie are not what they should be"
            } else {
                ""
            };
            format!("it could not be asked: {why}{hint}")
        })?;
        if output.is_cut {
            return Err("it could not be asked: its answer is too long".to_owned());
        }
        Term::parse(&output.text).ok_or_else(|| "it could not be asked: its answer makes no sense".to_owned())
    }

    /// `erlang:memory()`.
    pub(super) fn memory(&self) -> Result<ErlangMemory, String> {
        let term = self.call("erlang memory []")?;
        let of = |key| term.value(key).and_then(Term::count);
        Ok(ErlangMemory {
            total_bytes: of("total"),
            processes_bytes: of("processes"),
            binary_bytes: of("binary"),
            ets_bytes: of("ets"),
            code_bytes: of("code"),
            atom_bytes: of("atom"),
        })
    }

    /// `25`.
    pub(super) fn release(&self) -> Result<String, String> {
        let term = self.call("erlang system_info [otp_release]")?;
        let word = term.word().ok_or("it could not be asked: its answer makes no sense")?;
        Ok(word.chars().filter(|c| !c.is_control()).take(32).collect())
    }

    /// All instances of all allocators.
    pub(super) fn allocators(&self) -> Result<Vec<Allocator>, String> {
        let names = self.call("erlang system_info [alloc_util_allocators]")?;
        let mut all = Vec::new();
        for name in names.list().iter().filter_map(Term::word).take(16) {
            // The name comes from outside and becomes part of a request.
            if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
                continue;
            }
            let term = self.call(&format!("erlang system_info [{{allocator,{name}}}]"))?;
            all.extend(allocators(name, &term));
        }
        all.truncate(INSTANCES_MAX);
        Ok(all)
    }

    /// The cache of freed segments.
    pub(super) fn cache(&self) -> Result<SegmentCache, String> {
        Ok(cache(&self.call("erlang system_info [{allocator,mseg_alloc}]")?))
    }
}

/// Beside the VM's own program, if it has the same root directory as we do.
fn places(target: &Target, line: &CommandLine) -> Vec<PathBuf> {
    let own =
        target.mappings().iter().find(|mapping| mapping.is_file() && super::is_emulator(mapping.module()));
    let own = own.filter(|_| target.sees_our_files());
    let Some(beside) = own.and_then(|mapping| Path::new(&mapping.path).parent()) else { return Vec::new() };
    let root = line.root.as_deref().map(Path::new).filter(|root| root.is_absolute());
    let installed = root.map(|root| root.join("bin/erl_call"));
    std::iter::once(beside.join("erl_call")).chain(installed).collect()
}

/// Whether it is a plain node name such as `shop` or `shop@db1.example.com`, which `erl_call`
/// cannot take for an option.
fn is_node(name: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@:".contains(&byte);
    (1..=NODE_MAX).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(is_of_name)
}

/// Whether a node is on this machine, by local information only. A name server could return
/// anything, and the user who named the process could direct the query to any other machine.
fn is_here(node: &str) -> bool {
    let Some((_, host)) = node.split_once('@') else { return true };
    let own = rustix::system::uname();
    let own = own.nodename().to_string_lossy();
    if host == "localhost" || host == own || own.split('.').next() == Some(host) {
        return true;
    }
    // Only a local address can be bound.
    let is_own =
        |address: &str| address.parse::<IpAddr>().is_ok_and(|address| UdpSocket::bind((address, 0)).is_ok());
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let says = |line: &str| {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        words.next().filter(|_| words.any(|name| name == host)).is_some_and(is_own)
    };
    is_own(host) || hosts.lines().any(says)
}

/// Whether it is one word that is not an option of `erl_call`.
fn is_cookie(cookie: &str) -> bool {
    (1..=COOKIE_MAX).contains(&cookie.len())
        && !cookie.starts_with('-')
        && cookie.bytes().all(|byte| byte.is_ascii_graphic())
}

/// `[{instance, 0, [{options, […]}, {mbcs, […]}, {sbcs, […]}, {calls, […]}]}, …]`.
fn allocators(name: &str, term: &Term) -> Vec<Allocator> {
    let mut all = Vec::new();
    for instance in term.list() {
        let [Term::Atom(kind), number, about] = instance.tuple() else { continue };
        let Some(number) = number.count().filter(|_| kind == "instance") else { continue };
        let option =
            |key| about.value("options").and_then(|options| options.value(key)).and_then(Term::count);
        all.push(Allocator {
            name: name.to_owned(),
            instance: number as u32,
            mbcs: about.value("mbcs").map(pool).unwrap_or_default(),
            sbcs: about.value("sbcs").map(pool).unwrap_or_default(),
            calls: about.value("calls").map(calls),
            sbct_bytes: option("sbct"),
            smbcs_bytes: option("smbcs"),
            lmbcs_bytes: option("lmbcs"),
        });
    }
    all
}

fn pool(term: &Term) -> Pool {
    let now = |key| term.value(key).and_then(Term::count);
    let mut pool = Pool {
        carriers: now("carriers"),
        carriers_bytes: now("carriers_size"),
        blocks: None,
        blocks_bytes: None,
    };
    match term.value("blocks") {
        // Since OTP 23: per allocator with blocks in them.
        Some(Term::List(kinds)) => {
            let sum = |key: &str| {
                let each = kinds.iter().filter_map(|kind| kind.tuple().get(1)?.value(key)?.count());
                each.fold(0_u64, u64::saturating_add)
            };
            (pool.blocks, pool.blocks_bytes) = (Some(sum("count")), Some(sum("size")));
        }
        _ => (pool.blocks, pool.blocks_bytes) = (now("blocks"), now("blocks_size")),
    }
    pool
}

/// Counters are written as billions and the rest: `{mseg_alloc, 0, 4711}`.
fn call_count(term: &Term, key: &str) -> Option<u64> {
    let [billions, rest] = term.get(key)? else { return None };
    billions.count()?.checked_mul(1_000_000_000)?.checked_add(rest.count()?)
}

fn calls(term: &Term) -> Calls {
    let sum = |keys: [&str; 2]| {
        keys.iter().fold(0, |sum: u64, key| sum.saturating_add(call_count(term, key).unwrap_or(0)))
    };
    Calls {
        carriers_made: sum(["mseg_alloc", "sys_alloc"]),
        carriers_freed: sum(["mseg_dealloc", "sys_free"]),
        carriers_resized: sum(["mseg_realloc", "sys_realloc"]),
    }
}

fn cache(term: &Term) -> SegmentCache {
    let mut cache = SegmentCache::default();
    for instance in term.list() {
        let [_, _, about] = instance.tuple() else { continue };
        let kept = about.value("options").and_then(|options| options.value("mcs")).and_then(Term::count);
        cache.segments_max = cache.segments_max.or(kept);
        // There may be several kinds of memory.
        for kind in
            about.list().iter().filter(|kind| kind.tuple().first().and_then(Term::word) == Some("memkind"))
        {
            let Some(kind) = kind.tuple().get(1) else { continue };
            let hits =
                kind.value("status").and_then(|status| status.value("cache_hits")).and_then(Term::count);
            let calls = kind.value("calls").and_then(|calls| call_count(calls, "mseg_alloc"));
            cache.hits = cache.hits.saturating_add(hits.unwrap_or(0));
            cache.calls = cache.calls.saturating_add(calls.unwrap_or(0));
        }
    }
    cache
}

/// For [`crate::fuzzing`]: an answer of `erl_call`.
pub(super) fn fuzz(text: &str) {
    let Some(term) = Term::parse(text) else { return };
    let allocators = allocators("eheap_alloc", &term);
    std::hint::black_box((allocators, cache(&term), pool(&term), calls(&term), term.word().is_some()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_machine_is_asked() {
        let own = rustix::system::uname();
        let own = own.nodename().to_string_lossy().into_owned();
        for name in ["shop", "shop@localhost", "shop@127.0.0.1", "shop@::1", &format!("shop@{own}")] {
            assert!(is_here(name) || name.ends_with("::1"), "{name}");
        }
        for name in ["shop@192.0.2.1", "shop@db1.example.com", "shop@2001:db8::1", "shop@"] {
            assert!(!is_here(name), "{name}");
        }
    }

    #[test]
    fn what_a_vm_says_is_understood_in_both_forms() {
        // As OTP 25 prints it, and as OTP 21 did in the recorded case.
        let new = "[{instance, 1, [{options, [{e, true}, {sbct, 524288}, {lmbcs, 5242880}, {smbcs, 524288}]}, \
            {mbcs, [{blocks, [{eheap_alloc, [{count, 64, 64, 64}, {size, 689512, 1, 1}]}, {ets_alloc, [{count, 1, 2, 2}, \
            {size, 8, 9, 9}]}]}, {carriers, 3, 3, 3}, {carriers_size, 1835008, 1835008, 1835008}]}, {sbcs, [{blocks, []}, \
            {carriers, 0, 0, 0}, {carriers_size, 0, 0, 0}]}, {calls, [{eheap_alloc, 0, 284}, {mseg_alloc, 1, 2}, \
            {mseg_dealloc, 0, 1}, {mseg_realloc, 0, 0}, {sys_alloc, 0, 1}, {sys_free, 0, 0}, {sys_realloc, 0, 7}]}]}]";
        let all = allocators("eheap_alloc", &Term::parse(new).unwrap());
        assert_eq!(all.len(), 1);
        assert_eq!(
            (all[0].instance, all[0].sbct_bytes, all[0].lmbcs_bytes),
            (1, Some(524_288), Some(5_242_880))
        );
        assert_eq!((all[0].mbcs.blocks, all[0].mbcs.blocks_bytes), (Some(65), Some(689_520)));
        assert_eq!((all[0].sbcs.carriers, all[0].sbcs.blocks), (Some(0), Some(0)));
        let calls = all[0].calls.as_ref().unwrap();
        assert_eq!(
            (calls.carriers_made, calls.carriers_freed, calls.carriers_resized),
            (1_000_000_003, 1, 7)
        );
        let old = "[{instance, 0, [{sbcs, [{blocks, 93, 278, 390}, {blocks_size, 359408608, 1038591216, 1445304432}, \
            {carriers, 93, 278, 390}, {carriers_size, 369188864, 1069051904, 1508335616}]}]}]";
        let all = allocators("eheap_alloc", &Term::parse(old).unwrap());
        assert_eq!((all[0].sbcs.blocks, all[0].sbcs.blocks_bytes), (Some(93), Some(359_408_608)));
        assert_eq!((all[0].mbcs.carriers, all[0].calls.as_ref()), (None, None));
        assert!(allocators("eheap_alloc", &Term::Atom("false".to_owned())).is_empty());
    }

    #[test]
    fn a_command_line_gives_no_options_to_the_tool() {
        for name in ["shop", "shop@db-1.example.com", "a_b@::1"] {
            assert!(is_node(name), "{name}");
        }
        let long = "a".repeat(256);
        for name in ["", "-a", "--", "a b", "a\n", "a\u{1b}[2J", "é", "a;b", "$(id)", &long] {
            assert!(!is_node(name), "{name:?}");
            assert!(name == "a;b" || name == "$(id)" || !is_cookie(name), "{name:?}");
        }
        assert!(is_cookie("XZQ$-%") && !is_cookie("-c"));
    }

    #[test]
    fn hits_of_the_cache_are_added_up() {
        let text = "[{instance, 0, [{version, \"0.9\"}, {options, [{amcbf, 4194304}, {rmcbf, 20}, {mcs, 10}]}, \
            {memkind, [{name, \"all memory\"}, {status, [{cached_segments, 2}, {cache_hits, 2}]}, {calls, [{mseg_alloc, 0, 10}, \
            {mseg_create, 0, 8}]}]}]}, {instance, 1, [{options, [{mcs, 10}]}, {memkind, [{status, [{cache_hits, 4}]}, \
            {calls, [{mseg_alloc, 0, 11}]}]}]}]";
        let cache = cache(&Term::parse(text).unwrap());
        assert_eq!((cache.hits, cache.calls, cache.segments_max), (6, 21, Some(10)));
    }
}
