//! One simulated machine: its traits, and the documents that follow from them.

use mitra_search::document::{Document, Facts, Flag, Kind, Stat, Value};

use super::noise::Noise;

/// The number of machines without zsh.
pub const WITHOUT_ZSH: u32 = 12;
/// The number of machines without a package list, for which it is unknown whether they have zsh.
pub const WITHOUT_LIST: u32 = 2;
/// The number of machines with an old kernel. Some of them get a new one.
const OLD_KERNEL: u32 = 30;
/// The number of machines with a long `/etc/hosts`.
const LONG_HOSTS: u32 = 9;

const OLD_KERNELS: &[&str] = &["4.4.0-210-generic", "4.4.0-201-generic"];
const KERNELS: &[&str] = &["5.15.0-91-generic", "6.1.0-18-amd64"];

/// Files that differ between machines only in their number of edits.
const PLAIN: &[(&str, &str)] = &[
    ("/etc/resolv.conf", "nameserver 10.0.0.53\nsearch example.org\noptions timeout:2\n"),
    ("/etc/ssh/sshd_config", "Port 22\nPermitRootLogin no\nPasswordAuthentication no\nX11Forwarding no\n"),
    ("/etc/nsswitch.conf", "passwd: files systemd\ngroup: files systemd\nhosts: files dns\n"),
    ("/etc/login.defs", "UMASK 022\nPASS_MAX_DAYS 99999\nENCRYPT_METHOD YESCRYPT\n"),
    ("/etc/rsyslog.conf", "module(load=\"imuxsock\")\n*.* @loghost.example.org:514\n"),
    ("/etc/logrotate.conf", "weekly\nrotate 4\ncreate\ncompress\ninclude /etc/logrotate.d\n"),
    ("/etc/security/limits.conf", "* soft nofile 65536\n* hard nofile 65536\n"),
    ("/etc/default/grub", "GRUB_DEFAULT=0\nGRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX=\"\"\n"),
    (
        "/etc/crontab",
        "17 * * * * root run-parts /etc/cron.hourly\n25 6 * * * root run-parts /etc/cron.daily\n",
    ),
    ("/etc/nginx/nginx.conf", "worker_processes auto;\nevents { worker_connections 768; }\n"),
    (
        "/etc/chrony/chrony.conf",
        "pool ntp.example.org iburst\ndriftfile /var/lib/chrony/drift\nmakestep 1 3\n",
    ),
    ("/etc/apt/sources.list", "deb http://deb.example.org/debian bookworm main\n"),
    ("/etc/environment", "PATH=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin\"\n"),
];
/// The one of these files that some machines lose.
const LOSABLE: &str = "/etc/chrony/chrony.conf";

/// The traits of a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// The host name.
    pub host: String,
    /// Its number in the fleet.
    pub number: u32,
    /// Whether it has a package list.
    pub list: bool,
    /// Whether it has zsh.
    pub zsh: bool,
    /// `uname -r`.
    pub release: String,
    /// `vm.swappiness`.
    pub swappiness: u32,
    /// Whether its `/etc/hosts` is larger than 4 KiB.
    pub long_hosts: bool,
    /// The type of its file systems.
    pub fs: &'static str,
    /// The version of its libssl.
    pub ssl: u32,
    /// Whether it has `/etc/chrony/chrony.conf`.
    pub chrony: bool,
    /// `MemFree` of `/proc/meminfo`.
    pub memory_free_kb: u64,
    /// How often each of the other documents was edited.
    edits: Vec<(&'static str, u32)>,
}

impl Machine {
    /// Creates a machine. Its number decides whether it is special.
    pub(super) fn new(number: u32, noise: &mut Noise) -> Self {
        let role = ["web", "db", "cache", "build"][number as usize % 4];
        // The ranges of special machines are disjoint, so that none is special in several ways.
        let among = |first: u32, count: u32| (first..first + count).contains(&number);
        let old = among(30, OLD_KERNEL);
        let swappiness = match number {
            7 => 100,
            77 => 0,
            177 => 133,
            _ if role == "db" => 10,
            _ => 60,
        };
        Self {
            host: format!("{role}-{number:03}.example.org"),
            number,
            list: !among(0, WITHOUT_LIST),
            zsh: !among(10, WITHOUT_ZSH),
            release: noise.pick(if old { OLD_KERNELS } else { KERNELS }).to_owned(),
            swappiness,
            long_hosts: among(100, LONG_HOSTS),
            fs: if role == "db" { "xfs" } else { "ext4" },
            ssl: 11,
            chrony: true,
            memory_free_kb: 0,
            edits: EDITED.iter().chain(PLAIN.iter().map(|(name, _)| name)).map(|name| (*name, 0)).collect(),
        }
    }

    /// Changes `per_thousand` thousandths of its documents.
    pub(super) fn change(&mut self, per_thousand: u64, noise: &mut Noise) {
        for (name, edits) in &mut self.edits {
            if noise.below(1_000) >= per_thousand {
                continue;
            }
            *edits += 1;
            match *name {
                "@packages/dpkg" => self.ssl += 1,
                "@kernel" if self.release.starts_with("4.4") && noise.one_in(3) => {
                    self.release = KERNELS[0].to_owned();
                }
                "@sysctl" if noise.one_in(8) => self.swappiness = if self.swappiness == 60 { 30 } else { 60 },
                LOSABLE => self.chrony = !self.chrony,
                _ => {}
            }
        }
    }

    /// How often a document was edited.
    #[must_use]
    pub fn edits(&self, name: &str) -> u32 {
        self.edits.iter().find(|(n, _)| *n == name).map_or(0, |(_, edits)| *edits)
    }
}

/// Documents that depend on more than their number of edits.
const EDITED: &[&str] = &[
    "/etc/hosts",
    "/etc/fstab",
    "/etc/sysctl.conf",
    "@sysctl",
    "@packages/dpkg",
    "@kernel",
    "@cmdline",
    "@mount/root",
    "@mount/data",
    "@disk/sda",
    "@nic/eth0",
    "@sockets",
    "@users",
    "@units",
    "@cpu",
    "/etc/os-release",
];

/// All documents of a machine at a time.
pub(super) fn documents(machine: &Machine, at_ns: i64) -> Vec<Document> {
    let mut all = vec![meminfo(machine)];
    for (name, text) in PLAIN {
        if *name != LOSABLE || machine.chrony {
            all.push(file(machine, name, (*text).to_owned()));
        }
    }
    for name in EDITED {
        match *name {
            "/etc/hosts" => all.push(file(machine, name, hosts(machine))),
            "/etc/fstab" => all.push(file(machine, name, fstab(machine))),
            "/etc/sysctl.conf" => {
                all.push(file(machine, name, format!("vm.swappiness = {}\n", machine.swappiness)));
            }
            "/etc/os-release" => all.push(file(machine, name, "ID=debian\nVERSION_ID=\"12\"\n".to_owned())),
            "@packages/dpkg" if !machine.list => {}
            _ => all.push(collected(machine, name)),
        }
    }
    for document in &mut all {
        document.host.clone_from(&machine.host);
        document.since_ns = at_ns;
    }
    all
}

fn hosts(machine: &Machine) -> String {
    let mut text = format!("127.0.0.1 localhost\n127.0.1.1 {}\n", machine.host);
    if machine.long_hosts {
        for n in 0..200 {
            text.push_str(&format!("10.1.{}.{} node-{n:03}.example.org\n", n / 100, n % 100));
        }
    }
    text
}

fn fstab(machine: &Machine) -> String {
    format!(
        "/dev/sda1 / {0} defaults 0 1\n/dev/sda2 /data {0} noatime 0 2\n/dev/sda3 none swap sw 0 0\n",
        machine.fs
    )
}

fn meminfo(machine: &Machine) -> Document {
    let text = format!("MemTotal: 16384000 kB\nMemFree: {} kB\n", machine.memory_free_kb);
    let mut made = blank("/proc/meminfo", Kind::File, text);
    made.stat = Some(Stat { mode: 0o444, user: Some("root".to_owned()), ..Stat::default() });
    made.flag(Flag::Volatile);
    made
}

fn file(machine: &Machine, name: &str, mut text: String) -> Document {
    for n in 1..=machine.edits(name) {
        text.push_str(&format!("# revision {n} by deploy\n"));
    }
    let changed = i64::from(machine.edits(name)) * 1_000_000_123;
    let stat = Stat {
        size: text.len() as u64,
        mode: 0o644,
        user: Some("root".to_owned()),
        group: Some("root".to_owned()),
        inode: 1_000 + u64::from(machine.number),
        mtime_ns: 1_700_000_000_000_000_000 + changed,
        ctime_ns: 1_700_000_000_000_000_000 + changed,
        ..Stat::default()
    };
    Document { stat: Some(stat), ..blank(name, Kind::File, text) }
}

/// The document of a collector.
fn collected(machine: &Machine, name: &str) -> Document {
    let mut facts = Facts::new();
    let word = |text: &str| vec![Value::Text(text.to_owned())];
    let number = |number: u32| vec![Value::Number(f64::from(number))];
    let edits = machine.edits(name);
    let mut set = |name: &str, values: Vec<Value>| {
        facts.insert(name.to_owned(), values);
    };
    let kind = match name {
        "@sysctl" => {
            set("sysctl.vm.swappiness", number(machine.swappiness));
            set("sysctl.net.core.somaxconn", number(4_096 + edits));
            set("sysctl.kernel.core_pattern", word("core"));
            Kind::Sysctl
        }
        "@packages/dpkg" => {
            if machine.zsh {
                set("package.zsh", word("5.9-4+b2"));
            }
            set("package.libssl3", word(&format!("3.0.{}-1", machine.ssl)));
            set("package.bash", word("5.2.15-2+b2"));
            set("package.python3_11", word("3.11.2-6"));
            Kind::Package
        }
        "@kernel" => {
            set("kernel.release", word(&machine.release));
            set("kernel.tainted", number(edits));
            Kind::Kernel
        }
        "@cmdline" => {
            set("cmdline.mitigations", word(&format!("auto{edits}")));
            Kind::Cmdline
        }
        "@mount/root" | "@mount/data" => {
            set("fs.type", word(machine.fs));
            set("fs.mountpoint", word(if name == "@mount/root" { "/" } else { "/data" }));
            set("fs.size", vec![Value::Number(1e12 + f64::from(edits))]);
            Kind::Mount
        }
        "@disk/sda" => {
            set("disk.scheduler", word("none"));
            set("disk.nr_requests", number(256 + edits));
            Kind::Disk
        }
        "@nic/eth0" => {
            set("nic.driver", word("virtio_net"));
            set("nic.mtu", number(1_500 + edits));
            Kind::Nic
        }
        "@sockets" => {
            set("socket.port", vec![Value::Number(22.0), Value::Number(f64::from(8_000 + edits))]);
            Kind::Socket
        }
        "@users" => {
            set("account.user", (0..=edits).map(|n| Value::Text(format!("user{n}"))).collect());
            Kind::User
        }
        "@units" => {
            set("unit.enabled", (0..=edits).map(|n| Value::Text(format!("unit{n}.service"))).collect());
            Kind::Unit
        }
        _ => {
            set("cpu.model", word("Virtual CPU"));
            set("cpu.count", number(8 + edits));
            Kind::Cpu
        }
    };
    let text = lines(&facts);
    Document { facts, ..blank(name, kind, text) }
}

fn lines(facts: &Facts) -> String {
    let mut text = String::new();
    for (name, values) in facts {
        for value in values {
            match value {
                Value::Text(word) => text.push_str(&format!("{name} = {word}\n")),
                Value::Number(number) => text.push_str(&format!("{name} = {number}\n")),
                Value::Time(_) => {}
            }
        }
    }
    text
}

fn blank(name: &str, kind: Kind, text: String) -> Document {
    Document { content: Some(text), ..Document::new("", name, kind) }
}
