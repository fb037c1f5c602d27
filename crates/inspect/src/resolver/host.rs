//! What the resolvers of a host are configured with, read below a root directory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use serde::Serialize;

use crate::Error;

/// Bytes of a file that are read. Lists of blocked names in `/etc/hosts` have some megabytes.
const FILE_MAX: u64 = 16 << 20;
/// `openat2` fails with EAGAIN while something in the path is renamed.
const OPEN_TRIES: usize = 16;

/// Variables of the environment that change a lookup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// `LOCALDOMAIN`: the search list of glibc.
    pub localdomain: Option<String>,
    /// `RES_OPTIONS`: options of glibc.
    pub res_options: Option<String>,
    /// `HOSTALIASES`: a file of glibc with names for names.
    pub hostaliases: Option<String>,
    /// `GODEBUG`, which may have `netdns=` and `netedns0=`.
    pub godebug: Option<String>,
}

/// How long a Java VM keeps answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Jvm {
    /// Its security properties.
    pub path: String,
    /// `networkaddress.cache.ttl`, if it is set.
    pub ttl: Option<String>,
    /// `networkaddress.cache.negative.ttl`, if it is set.
    pub negative_ttl: Option<String>,
}

/// The cache of hosts that nscd has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nscd {
    /// How long it keeps a failure.
    pub negative_ttl_s: u32,
}

/// The configuration.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// `/etc/resolv.conf`.
    pub resolv_conf: Option<Vec<u8>>,
    /// `/etc/nsswitch.conf`.
    pub nsswitch: Option<Vec<u8>>,
    /// `/etc/hosts`.
    pub hosts: Option<Vec<u8>>,
    /// `/etc/host.conf` says `multi on`.
    pub has_multi: bool,
    /// It is below another root than this process has, and perhaps in another network.
    pub is_elsewhere: bool,
    /// The host's name.
    pub hostname: String,
    /// Variables.
    pub environment: Environment,
    /// Sources whose library `libnss_NAME.so.2` is there.
    pub modules: BTreeSet<String>,
    /// systemd-resolved listens.
    pub has_resolved: bool,
    /// avahi-daemon listens.
    pub has_avahi: bool,
    /// nscd listens and caches hosts.
    pub nscd: Option<Nscd>,
    /// `/etc/mdns.allow` is there.
    pub has_mdns_allow: bool,
    /// An IPv4 address other than 127.0.0.1; `None` if that could not be read.
    pub has_ipv4: Option<bool>,
    /// An IPv6 address other than `::1`; `None` if that could not be read.
    pub has_ipv6: Option<bool>,
    /// The kernel has IPv6 at all: a Java VM asks for it then.
    pub has_ipv6_stack: bool,
    /// Default routes by way of a router, of IPv4 and of IPv6; `None` if they could not be read.
    pub routers: Option<[u32; 2]>,
    /// `net.ipv4.tcp_syn_retries`; `None` if it could not be read.
    pub syn_retries: Option<u32>,
    /// Java VMs.
    pub jvms: Vec<Jvm>,
    /// Files that are longer than what is read of them.
    pub cut: Vec<String>,
    /// Interfaces that addresses of name servers name, with their indices.
    pub interfaces: Vec<(String, u32)>,
}

impl Host {
    /// Reads it below `root`. Links lead nowhere out of it.
    pub fn read(root: &Path, environment: Environment) -> Result<Self, Error> {
        let mut files = Files::open(root)?;
        let mut host = Host {
            resolv_conf: files.read("etc/resolv.conf")?,
            nsswitch: files.read("etc/nsswitch.conf")?,
            hosts: files.read("etc/hosts")?,
            has_multi: files.read("etc/host.conf")?.is_some_and(|file| super::hosts::is_multi(&file)),
            is_elsewhere: root != Path::new("/"),
            environment,
            ..Host::default()
        };
        let hostname = match files.read("proc/sys/kernel/hostname")? {
            Some(name) => Some(name),
            None => files.read("etc/hostname")?,
        };
        host.hostname = first_word(hostname.as_deref());
        for source in super::nsswitch::glibc(host.nsswitch.as_deref()).unwrap_or_default() {
            if is_plain(&source.name) && files.has_library(&format!("libnss_{}.so.2", source.name)) {
                host.modules.insert(source.name);
            }
        }
        host.has_resolved = files.has("run/systemd/resolve/io.systemd.Resolve", FileType::Socket);
        host.has_avahi = files.has("run/avahi-daemon/socket", FileType::Socket);
        if files.has("run/nscd/socket", FileType::Socket) {
            host.nscd = files.read("etc/nscd.conf")?.and_then(|file| nscd(&file));
        }
        host.has_mdns_allow = files.has("etc/mdns.allow", FileType::RegularFile);
        host.has_ipv4 = files.read("proc/net/fib_trie")?.map(|file| has_ipv4(&file));
        let if_inet6 = files.read("proc/net/if_inet6")?;
        // Where neither file can be read, the kernel is taken to have IPv6, as most have.
        host.has_ipv6_stack = if_inet6.as_ref().map_or(host.has_ipv4.is_none(), |file| !file.is_empty());
        // Without IPv6 in the kernel there is no such file.
        host.has_ipv6 = match &if_inet6 {
            Some(file) => Some(has_ipv6(file)),
            None => host.has_ipv4.map(|_| false),
        };
        if let Some(file) = files.read("proc/net/route")? {
            let v6 = files.read("proc/net/ipv6_route")?;
            host.routers =
                Some([routers(&file, ROUTE), routers(v6.as_deref().unwrap_or_default(), IPV6_ROUTE)]);
        }
        let retries = files.read("proc/sys/net/ipv4/tcp_syn_retries")?;
        host.syn_retries = first_word(retries.as_deref()).parse().ok();
        for name in zones(host.resolv_conf.as_deref()) {
            // sysfs shows the network of whoever mounted it.
            let index = match if_inet6.as_deref().and_then(|file| interface_index(file, &name)) {
                Some(index) => Some(index),
                None => {
                    let file = files.read(&format!("sys/class/net/{name}/ifindex"))?;
                    first_word(file.as_deref()).parse().ok()
                }
            };
            host.interfaces.extend(index.map(|index| (name, index)));
        }
        host.jvms = jvms(&mut files)?;
        host.cut = files.cut;
        Ok(host)
    }

    /// The index of an interface that `resolv.conf` names.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<u32> {
        self.interfaces.iter().find(|(known, _)| known == name).map(|(_, index)| *index)
    }
}

/// Files below a directory.
struct Files {
    root: OwnedFd,
    path: String,
    cut: Vec<String>,
}

impl Files {
    fn open(root: &Path) -> Result<Self, Error> {
        let path = root.display().to_string();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(CWD, root, flags, Mode::empty()) {
            Ok(fd) => Ok(Files { root: fd, path, cut: Vec::new() }),
            Err(error) => Err(Error::Io { path, source: error.into() }),
        }
    }

    fn open_inside(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut tries = 0;
        loop {
            let flags = flags | OFlags::CLOEXEC;
            match openat2(&self.root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                Err(Errno::AGAIN) if tries < OPEN_TRIES => tries += 1,
                opened => return opened,
            }
        }
    }

    /// A regular file. `None` if there is none.
    fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>, Error> {
        let failed = |error: Errno| Error::Io {
            path: format!("{}/{path}", self.path.trim_end_matches('/')),
            source: error.into(),
        };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = match self.open_inside(path, flags) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NXIO) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let stat = fstat(&fd).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let read = File::from(fd).take(FILE_MAX + 1).read_to_end(&mut bytes);
        match read {
            Ok(_) => {}
            Err(source) => return Err(Error::Io { path: format!("{}/{path}", self.path), source }),
        }
        if bytes.len() as u64 > FILE_MAX {
            bytes.truncate(FILE_MAX as usize);
            self.cut.push(format!("/{path}"));
        }
        Ok(Some(bytes))
    }

    fn has(&self, path: &str, kind: FileType) -> bool {
        let Ok(fd) = self.open_inside(path, OFlags::PATH) else { return false };
        fstat(&fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == kind)
    }

    /// Whether a library is where the dynamic loader of the distributions looks.
    fn has_library(&self, name: &str) -> bool {
        let multiarch = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
        ["lib64", "lib", multiarch.as_str()].iter().any(|dir| {
            self.has(&format!("usr/{dir}/{name}"), FileType::RegularFile)
                || self.has(&format!("{dir}/{name}"), FileType::RegularFile)
        })
    }
}

/// Directories of Java VMs that are looked into.
const JVMS_MAX: usize = 16;

/// Java VMs in the places of Debian, Red Hat and the images of OpenJDK.
fn jvms(files: &mut Files) -> Result<Vec<Jvm>, Error> {
    let mut homes = vec!["opt/java/openjdk".to_owned()];
    if let Ok(fd) = files.open_inside("usr/lib/jvm", OFlags::RDONLY | OFlags::DIRECTORY)
        && let Ok(dir) = rustix::fs::Dir::read_from(&fd)
    {
        let mut names: Vec<String> = dir
            .take(4 * JVMS_MAX)
            .flatten()
            .filter(|entry| entry.file_type() == FileType::Directory)
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
            .filter(|name| !name.starts_with('.'))
            .collect();
        names.sort();
        homes.extend(names.into_iter().map(|name| format!("usr/lib/jvm/{name}")));
    }
    let mut found = Vec::new();
    for home in homes.iter().take(JVMS_MAX) {
        let path = format!("{home}/conf/security/java.security");
        let Some(file) = files.read(&path)? else { continue };
        let text = String::from_utf8_lossy(&file);
        let property = |name: &str| {
            let values = text.lines().filter_map(|line| line.trim_start().strip_prefix(name));
            let mut values = values.filter_map(|rest| rest.trim_start().strip_prefix(['=', ':']));
            values.next_back().map(|value| value.trim().chars().take(20).collect())
        };
        found.push(Jvm {
            path: format!("/{path}"),
            ttl: property("networkaddress.cache.ttl"),
            negative_ttl: property("networkaddress.cache.negative.ttl"),
        });
    }
    Ok(found)
}

/// glibc 2.36, `nscd/nscd_conf.c`: without a line for hosts it does not cache them.
fn nscd(conf: &[u8]) -> Option<Nscd> {
    let text = String::from_utf8_lossy(conf);
    let (mut is_enabled, mut nscd) = (false, Nscd { negative_ttl_s: 20 });
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("enable-cache"), Some("hosts"), Some(value)) => is_enabled = value == "yes",
            (Some("negative-time-to-live"), Some("hosts"), Some(value)) => {
                nscd.negative_ttl_s = value.parse().unwrap_or(nscd.negative_ttl_s);
            }
            _ => {}
        }
    }
    is_enabled.then_some(nscd)
}

/// What may stand in the name of a library or of an interface.
fn is_plain(name: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '.';
    !name.is_empty() && name.len() <= 64 && name.chars().all(is_fine) && !name.starts_with('.')
}

/// Names of interfaces in `nameserver fe80::1%eth0`.
fn zones(resolv_conf: Option<&[u8]>) -> Vec<String> {
    let text = String::from_utf8_lossy(resolv_conf.unwrap_or_default());
    let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("nameserver"));
    let zones = lines.filter_map(|rest| rest.trim().split_once('%'));
    let zones = zones.filter_map(|(_, zone)| zone.split_ascii_whitespace().next());
    zones.filter(|zone| is_plain(zone)).take(super::resolv_conf::SERVERS_MAX).map(str::to_owned).collect()
}

fn first_word(file: Option<&[u8]>) -> String {
    let text = String::from_utf8_lossy(file.unwrap_or_default());
    text.split_ascii_whitespace().next().unwrap_or_default().chars().take(255).collect()
}

/// `/proc/net/fib_trie` has each local address above a line `/32 host LOCAL`. glibc's
/// `AI_ADDRCONFIG` does not count 127.0.0.1.
fn has_ipv4(fib_trie: &[u8]) -> bool {
    let text = String::from_utf8_lossy(fib_trie);
    let mut address = "";
    for line in text.lines() {
        let line = line.trim_start();
        if let Some(leaf) = line.strip_prefix("|-- ") {
            address = leaf;
        } else if line.starts_with("/32 host LOCAL") && address != "127.0.0.1" {
            return true;
        }
    }
    false
}

/// Lines of `/proc/net/if_inet6` begin with the address in 32 digits.
fn has_ipv6(if_inet6: &[u8]) -> bool {
    let text = String::from_utf8_lossy(if_inet6);
    text.lines().any(|line| line.len() > 32 && !line.starts_with("00000000000000000000000000000001"))
}

/// The second column of `/proc/net/if_inet6` is an interface's index, the last one its name.
fn interface_index(if_inet6: &[u8], name: &str) -> Option<u32> {
    let text = String::from_utf8_lossy(if_inet6);
    let line = text.lines().find(|line| line.split_ascii_whitespace().next_back() == Some(name))?;
    u32::from_str_radix(line.split_ascii_whitespace().nth(1)?, 16).ok()
}

/// Columns of destination, mask and router.
type RouteColumns = [usize; 3];
/// Of `/proc/net/route`.
const ROUTE: RouteColumns = [1, 7, 2];
/// Of `/proc/net/ipv6_route`, where a mask is a number of bits.
const IPV6_ROUTE: RouteColumns = [0, 1, 4];

/// Default routes that lead to a router.
fn routers(routes: &[u8], [destination, mask, router]: RouteColumns) -> u32 {
    let text = String::from_utf8_lossy(routes);
    let is_zero = |word: Option<&&str>| word.is_some_and(|word| word.bytes().all(|byte| byte == b'0'));
    let mut count: u32 = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().take(8).collect();
        let is_default = is_zero(words.get(destination)) && is_zero(words.get(mask));
        let has_router = words.get(router).is_some() && !is_zero(words.get(router));
        count = count.saturating_add(u32::from(is_default && has_router));
    }
    count
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_stay_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("run/stub.conf", "nameserver 10.1.2.3\n");
        write("etc/nsswitch.conf", "hosts: files myhostname ../evil dns\n");
        write("usr/lib64/libnss_myhostname.so.2", "");
        write("etc/hostname", "box\n");
        write(
            "usr/lib/jvm/java-17/conf/security/java.security",
            "#networkaddress.cache.ttl=-1\nnetworkaddress.cache.negative.ttl=10\n",
        );
        symlink("/run/stub.conf", root.path().join("etc/resolv.conf")).unwrap();
        symlink("../../../../etc/hostname", root.path().join("etc/hosts")).unwrap();
        let host = Host::read(root.path(), Environment::default()).unwrap();
        assert!(host.is_elsewhere && !host.has_multi);
        assert_eq!(host.resolv_conf.as_deref(), Some(b"nameserver 10.1.2.3\n".as_slice()));
        assert_eq!(host.hosts.as_deref(), Some(b"box\n".as_slice()));
        assert_eq!(host.hostname, "box");
        assert_eq!(host.modules.iter().collect::<Vec<_>>(), ["myhostname"]);
        assert_eq!((host.has_ipv4, host.has_ipv6, host.syn_retries), (None, None, None));
        assert_eq!(host.jvms[0].ttl, None);
        assert_eq!(host.jvms[0].negative_ttl.as_deref(), Some("10"));
    }

    #[test]
    fn default_routes() {
        let route = b"Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
            d0\t00000000\t0201010A\t0003\t0\t0\t0\t00000000\t0\n\
            d1\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\n\
            d0\t0001010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n";
        assert_eq!(
            (routers(route, ROUTE), routers(b"", ROUTE), routers(b"a\n0 0 0\n", IPV6_ROUTE)),
            (1, 0, 0)
        );
        let zeros = "0".repeat(32);
        let lines = format!(
            "{zeros} 00 {zeros} 00 fd000000000000000000000000000006 00000400 00000001 00000000 00000003 d0\n\
             {zeros} 00 {zeros} 00 {zeros} ffffffff 00000001 00000000 00200200 lo\n"
        );
        assert_eq!(routers(lines.as_bytes(), IPV6_ROUTE), 1);
    }

    #[test]
    fn nscd_caches_hosts_if_it_is_told() {
        let conf = b"# hosts\n\tenable-cache\t\thosts\t\tyes\n\tnegative-time-to-live hosts 7 # s\n";
        assert_eq!(nscd(conf), Some(Nscd { negative_ttl_s: 7 }));
        assert_eq!(nscd(b"enable-cache hosts yes\n"), Some(Nscd { negative_ttl_s: 20 }));
        for off in ["", "enable-cache passwd yes\n", "#enable-cache hosts yes\n", "enable-cache hosts no\n"] {
            assert_eq!(nscd(off.as_bytes()), None, "{off}");
        }
    }

    #[test]
    fn addresses_of_interfaces() {
        let loopback = b"  |-- 127.0.0.0\n   /8 host LOCAL\n  |-- 127.0.0.1\n   /32 host LOCAL\n";
        assert!(!has_ipv4(loopback));
        assert!(has_ipv4(b"  |-- 10.0.0.5\n     /32 host LOCAL\n"));
        assert!(!has_ipv6(b"00000000000000000000000000000001 01 80 10 80       lo\n"));
        let eth0 = b"fe8000000000000000fc00fffe000001 1f 40 20 80     eth0\n";
        assert!(has_ipv6(eth0));
        assert_eq!((interface_index(eth0, "eth0"), interface_index(eth0, "eth1")), (Some(31), None));
    }
}
