//! A process with a network, mounts and a host name of its own, and the programs that look names up in
//! it.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mitra_inspect::resolver::Caller;

use super::server::Servers;

/// Marks the process inside.
const INSIDE: &str = "MITRA_RESOLVER_INSIDE";

/// Runs the body of a test in namespaces of its own. The test starts itself again for that.
pub fn inside(test: &str, body: fn(&Space)) {
    if std::env::var_os(INSIDE).is_some() {
        // libtest has begun a line.
        println!();
        match Space::make() {
            Some(space) => body(&space),
            None => println!("skipped: /etc cannot be an overlay"),
        }
        return;
    }
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--uts", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        println!("skipped: there is no unshare");
        return;
    };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if err.contains("unshare failed") {
        println!("skipped: {}", err.trim());
        return;
    }
    println!("{out}{err}");
    assert!(output.status.success() && out.contains("1 passed"), "{test} did not run inside");
}

/// Where the files of a test are, and its servers.
pub struct Space {
    dir: tempfile::TempDir,
    pub servers: Arc<Servers>,
}

impl Space {
    /// With a `/run` without any socket of this machine, and an `/etc` that can be changed. `None` without overlayfs.
    fn make() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        assert!(ip(&["link", "set", "lo", "up"]));
        std::fs::write("/proc/sys/kernel/hostname", "box").unwrap();
        assert!(succeeds(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"])));
        for dir in ["/run/etc", "/run/work"] {
            std::fs::create_dir(dir).unwrap();
        }
        if !overlay("lowerdir=/etc,upperdir=/run/etc,workdir=/run/work", Path::new("/etc")) {
            return None;
        }
        for name in ["resolv.conf", "nsswitch.conf", "hosts", "nscd.conf"] {
            // It may be a link to a file that is not there any more.
            _ = std::fs::remove_file(Path::new("/etc").join(name));
        }
        Some(Space { dir, servers: Servers::start() })
    }

    /// Writes a file of `/etc`.
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(Path::new("/etc").join(name), text).unwrap();
    }

    /// Makes the network interface `d0` with these addresses, and returns its index.
    pub fn interface(&self, addresses: &[&str]) -> u32 {
        assert!(ip(&["link", "add", "d0", "type", "veth", "peer", "name", "d1"]));
        for name in ["d0", "d1"] {
            assert!(ip(&["link", "set", name, "up"]));
        }
        for address in addresses {
            let mut arguments = vec!["address", "add", *address, "dev", "d0"];
            if address.contains(':') {
                arguments.push("nodad");
            }
            assert!(ip(&arguments), "{address}");
        }
        let text = std::fs::read_to_string("/proc/net/dev_mcast").unwrap();
        let line = text.lines().find(|line| line.split_ascii_whitespace().nth(1) == Some("d0")).unwrap();
        line.split_ascii_whitespace().next().unwrap().parse().unwrap()
    }

    /// One more name server.
    pub fn add_server(&self, address: &str, scope_id: u32) {
        let address: Ipv6Addr = address.parse().unwrap();
        self.servers.add(SocketAddr::V6(SocketAddrV6::new(address, 53, 0, scope_id)));
    }

    /// Puts the modules of nss-mdns and of systemd beside those of glibc, without installing them. Returns whether
    /// there are any.
    pub fn add_modules(&self) -> bool {
        let multiarch = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
        let system = Path::new("/usr").join(&multiarch);
        let dirs = [unpacked().join(&multiarch), unpacked().join("usr").join(&multiarch), system.clone()];
        if !dirs.iter().all(|dir| dir.is_dir()) {
            return false;
        }
        let dirs = dirs.map(|dir| dir.display().to_string());
        overlay(&format!("lowerdir={}", dirs.join(":")), &system)
    }

    /// Starts a daemon that is installed or unpacked, and waits for its socket in a directory that belongs to `owner`.
    /// `None` if there is no such program.
    pub fn start(&self, program: &str, arguments: &[&str], socket: &str, owner: u32) -> Option<Daemon> {
        let paths = [PathBuf::from("/").join(program), unpacked().join(program)];
        let Some(path) = paths.iter().find(|path| path.is_file()) else {
            println!("skipped: there is no {program}");
            return None;
        };
        let socket = Path::new(socket);
        let dir = socket.parent().unwrap();
        // One that ended leaves its socket behind.
        _ = std::fs::remove_dir_all(dir);
        std::fs::create_dir_all(dir).unwrap();
        std::os::unix::fs::chown(dir, Some(owner), Some(owner)).unwrap();
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        let daemon = Daemon(command.spawn().unwrap());
        for _ in 0..500 {
            if UnixStream::connect(socket).is_ok() {
                return Some(daemon);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("skipped: {program} does not start here");
        None
    }

    /// The programs that this machine has.
    pub fn programs(&self) -> Programs {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/resolver");
        let built = |name: &str, command: &mut Command| {
            let path = self.dir.path().join(name);
            let is_built = succeeds(command.arg("-o").arg(&path));
            if !is_built {
                println!("left out: {name} cannot be built with {:?}", command.get_program());
            }
            is_built.then_some(path)
        };
        let c = sources.join("look.c");
        let go =
            ["go", "/usr/local/go/bin/go"].into_iter().find(|go| succeeds(Command::new(go).arg("version")));
        let mut build_go = Command::new(go.unwrap_or("go"));
        build_go
            .current_dir(self.dir.path())
            .env("CGO_ENABLED", "1")
            .env("GOTOOLCHAIN", "local")
            .arg("build");
        let copy = self.dir.path().join("look.go");
        std::fs::copy(sources.join("look.go"), &copy).unwrap();
        // The file comes behind -o.
        let path = self.dir.path().join("look-go");
        let has_go = succeeds(build_go.arg("-o").arg(&path).arg(&copy));
        if !has_go {
            println!("left out: there is no go with cgo");
        }
        let has_java = succeeds(Command::new("java").arg("-version"));
        if !has_java {
            println!("left out: there is no java");
        }
        Programs {
            glibc: built("look", Command::new("cc").arg(&c)),
            musl: built("look-musl", Command::new("musl-gcc").arg("-static").arg(&c)),
            go: has_go.then_some(path),
            java: has_java.then(|| sources.join("Look.java")),
        }
    }
}

/// A daemon inside. It ends with the test.
pub struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Where `tools/install-deps.sh` unpacks what would change the lookups of this machine if it were installed.
fn unpacked() -> PathBuf {
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = path("XDG_CACHE_HOME").or_else(|| path("HOME").map(|home| home.join(".cache")));
    path("MITRA_RESOLVERS").unwrap_or_else(|| cache.unwrap_or_default().join("mitra-resolvers"))
}

fn overlay(options: &str, target: &Path) -> bool {
    succeeds(Command::new("mount").args(["-t", "overlay", "overlay", "-o", options]).arg(target))
}

/// Runs `ip`.
pub fn ip(arguments: &[&str]) -> bool {
    succeeds(Command::new("ip").args(arguments))
}

fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}

/// Variables that change lookups.
const VARIABLES: [&str; 4] = ["LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES", "GODEBUG"];

/// What can look names up.
pub struct Programs {
    glibc: Option<PathBuf>,
    musl: Option<PathBuf>,
    go: Option<PathBuf>,
    java: Option<PathBuf>,
}

/// How a lookup ended, and after how long.
#[derive(Debug, PartialEq)]
pub struct Looked {
    pub took: Duration,
    pub is_found: bool,
    /// Ended by a signal.
    pub is_killed: bool,
}

/// The variable by which a Go program with cgo calls C, or does not.
pub fn godebug(caller: Caller) -> Option<&'static str> {
    match caller {
        Caller::Go => Some("netdns=go"),
        Caller::GoWithCgo => Some("netdns=cgo"),
        _ => None,
    }
}

impl Programs {
    /// Which way a Go program takes, as it says itself: `cgo`, or sources like `files,dns`. `None` without Go.
    pub fn go_order(&self, name: &str, environment: &[(&str, &str)], netdns: &str) -> Option<String> {
        let mut command = Command::new(self.go.as_ref()?);
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        command.arg(name).envs(environment.iter().copied()).env("GODEBUG", format!("netdns={netdns}"));
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let order = text.lines().find_map(|line| line.split_once(&format!("hostLookupOrder({name}) = ")));
        Some(order.unwrap_or_else(|| panic!("{output:?}")).1.to_owned())
    }

    /// Looks a name up as a caller does. `None` if the program is missing.
    pub fn look(&self, caller: Caller, name: &str, environment: &[(&str, &str)]) -> Option<Looked> {
        let mut command = match caller {
            Caller::Getaddrinfo | Caller::Gethostbyname => {
                let mut command = Command::new(self.glibc.as_ref()?);
                command.arg(if caller == Caller::Getaddrinfo { "gai" } else { "byname" });
                command
            }
            Caller::GetentAhosts => {
                let mut command = Command::new("getent");
                command.arg("ahosts");
                command
            }
            Caller::Musl => {
                let mut command = Command::new(self.musl.as_ref()?);
                command.arg("gai");
                command
            }
            Caller::Go | Caller::GoWithCgo => Command::new(self.go.as_ref()?),
            Caller::Jvm => {
                let mut command = Command::new("java");
                command.arg("-XX:TieredStopAtLevel=1").arg(self.java.as_ref()?);
                command
            }
        };
        command.arg(name).stdin(Stdio::null());
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        command.envs(environment.iter().copied()).envs(godebug(caller).map(|value| ("GODEBUG", value)));
        let start = Instant::now();
        let output = command.output().unwrap();
        let all = start.elapsed();
        let text = String::from_utf8_lossy(&output.stdout);
        if caller == Caller::GetentAhosts {
            return Some(Looked { took: all, is_found: output.status.success(), is_killed: false });
        }
        let is_killed = output.status.code().is_none();
        let mut words = text.split_ascii_whitespace();
        let took = words.next().and_then(|us| us.parse().ok()).map(Duration::from_micros);
        assert!(took.is_some() || is_killed, "{caller:?}: {output:?}");
        Some(Looked { took: took.unwrap_or(all), is_found: words.next() == Some("found"), is_killed })
    }
}
