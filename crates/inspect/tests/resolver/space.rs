//! A process with a network, mounts and a host name of its own, and the programs that look names up in
//! it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mitra_inspect::resolver::Caller;

use super::server::Servers;

/// Marks the process inside.
const INSIDE: &str = "MITRA_RESOLVER_INSIDE";

/// Runs the body of a test in namespaces of its own. The test starts itself again for that.
pub fn inside(test: &str, body: fn(&Space)) {
    if std::env::var_os(INSIDE).is_some() {
        body(&Space::make());
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
    fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        assert!(succeeds(Command::new("ip").args(["link", "set", "lo", "up"])));
        std::fs::write("/proc/sys/kernel/hostname", "box").unwrap();
        for name in ["resolv.conf", "nsswitch.conf", "hosts"] {
            let file = dir.path().join(name);
            std::fs::write(&file, "").unwrap();
            let target = std::fs::canonicalize(Path::new("/etc").join(name)).unwrap();
            assert!(succeeds(Command::new("mount").arg("--bind").arg(&file).arg(target)), "{name}");
        }
        Space { dir, servers: Servers::start() }
    }

    /// Rewrites a file of `/etc` in place: it is mounted.
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
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

fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}

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
        for variable in ["LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES", "GODEBUG"] {
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
