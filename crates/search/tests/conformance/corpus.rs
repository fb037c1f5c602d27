//! A deterministic corpus of some hundred documents on three days, made to distinguish queries.
//!
//! It has words of many scripts, numbers and dates at the edges of ranges, names with special
//! characters of the query syntax, and fields with no value, an empty value and several values.
//! Documents stay, change or disappear from day to day.

use crate::noise::Noise;
use mitra_search::document::Flag;
use mitra_search::{Day, Document, Facts, Kind, Stat, Value, Withheld};

/// The first day: 2026-11-18.
pub const FIRST: Day = Day(20_775);
/// The number of days.
pub const DAYS: i32 = 3;

const HOUR: i64 = 3_600_000_000_000;

/// Host names.
const HOSTS: &[&str] = &[
    "web1",
    "web2",
    "web10",
    "Web1",
    "web-01.example.org",
    "db1",
    "db2",
    "db-master",
    "größe",
    "a b",
    "a*b",
    "AND",
    "mail+relay",
    "x:y",
    "-",
    "日本",
];

/// File names with their kinds.
const FILES: &[(&str, Kind)] = &[
    ("/etc/hosts", Kind::File),
    ("/etc/fstab", Kind::File),
    ("/etc/sysctl.conf", Kind::File),
    ("/etc/my app/config.d/10 main.conf", Kind::File),
    ("/srv/ünïcode/Datei.TXT", Kind::File),
    ("@sysctl", Kind::Sysctl),
    ("@packages/dpkg", Kind::Package),
    ("@kernel", Kind::Kernel),
    ("@mount/data", Kind::Mount),
    ("@sockets", Kind::Socket),
    ("@incident/1", Kind::Incident),
];

/// The lines that texts are made of.
pub const LINES: &[&str] = &[
    "vm.swappiness = 60",
    "vm.swappiness = 10 # lower for databases",
    "net.core.somaxconn=4096",
    "UUID=0a1b-2c3d /data ext4 defaults,noatime 0 2",
    "/dev/sda1 / xfs rw,relatime 0 1",
    "/dev/sdb1 swap swap sw 0 0",
    "127.0.0.1 localhost localhost.localdomain",
    "192.168.1.10 web1.example.org web1",
    "192.168.1.11 web2.example.org web2",
    "10.0.0.1:9200 10.0.0.2:9200",
    "fe80::1 ip6-allnodes",
    "PermitRootLogin no",
    "permitrootlogin YES",
    "foo_bar baz-qux foo.bar foo,bar foo;bar",
    "it's O'Neill’s 1,000.50 euro, 3.14 or 2.5e3",
    "Größe der Straße",
    "GRÖSSE GROESSE grosse",
    "naïve café cafe\u{301}",
    "İstanbul ISTANBUL istanbul",
    "ΣΊΣΥΦΟΣ σίσυφος σίσυφοσ",
    "日本語 テキスト ひらがな",
    "한국어 문서",
    "ภาษาไทย",
    "emoji 😀 👩‍💻 here 🇩🇪",
    "the quick brown fox jumps over the lazy dog",
    "the lazy fox was quick and brown",
    "quick quick brown brown fox",
    "to be or not to be",
    "AND OR NOT TO",
    "c++ c# .net a+b",
    "http://example.org/path?q=1#frag user@example.org",
    "*/5 * * * * root /usr/local/bin/backup --all",
    r"C:\Windows\System32 \\server\share",
    "swap swapp swappiness swapiness swappines wsappiness",
    "say \"hello world\" loudly",
    "linux lunix linus minix unix",
    "aaa aab abb bbb abab",
    "a b c d e f",
    "kernel panic: not syncing",
    "error ERROR Error errors terror",
    "0644 0x1F 1e3 007 42 -42",
    "TO [1 TO 2] {a TO b}",
    "tab\there and\u{a0}there and\u{3000}there",
];

const CORE_PATTERNS: &[&str] = &["core", "|/usr/share/apport/apport %p", "/var/crash/core.%e"];
const RELEASES: &[&str] =
    &["4.4.0-210-generic", "4.4.302", "4.15.0-20-generic", "5.15.0-91-generic", "6.1.0-18-amd64"];
const SWAPPINESS: &[f64] = &[0.0, 1.0, 10.0, 60.0, 60.0, 60.0, 100.0, 0.5, -1.0];
const SIZES: &[u64] = &[0, 1, 221, 1000, 1024, 4095, 4096, 4097, 5000, 1 << 20, 5 << 30];
const MODES: &[u32] = &[0o644, 0o600, 0o755, 0o4755];
/// Milliseconds around midnight, and extreme values.
const TIMES_MS: &[i64] = &[
    0,
    -1,
    951_782_400_000,
    1_794_873_600_000,
    1_794_873_599_999,
    1_794_873_600_001,
    1_794_922_205_250,
    1_795_046_399_999,
    1_795_132_800_000,
    7_258_118_400_000,
];

/// One pass over a host.
#[derive(Debug)]
pub struct Look {
    /// The host.
    pub host: &'static str,
    /// The time of the pass.
    pub at_ns: i64,
    /// All of its documents.
    pub documents: Vec<Document>,
    /// The documents that disappeared.
    pub gone: Vec<String>,
}

/// All passes in chronological order.
pub fn looks() -> Vec<Look> {
    let mut noise = Noise::new(5);
    let mut looks = Vec::new();
    let mut states: Vec<Vec<Option<Document>>> = HOSTS.iter().map(|_| Vec::new()).collect();
    for day in 0..DAYS {
        for (host, known) in (0i64..).zip(&mut states) {
            let name = HOSTS[host as usize];
            // A host that is down for a day has no documents on it.
            if day == 1 && noise.one_in(9) {
                continue;
            }
            let at_ns = Day(FIRST.0 + day).start_ns() + (3 + host) * HOUR / 2 + 123_456_789;
            let mut gone = Vec::new();
            for (i, (file, kind)) in FILES.iter().enumerate() {
                // An incident is sent only once.
                if *kind == Kind::Incident && day > 0 {
                    known[i] = None;
                }
                if day == 0 {
                    known.push((!noise.one_in(8)).then(|| document(name, file, *kind, at_ns, &mut noise)));
                } else if known[i].is_some() && noise.one_in(9) {
                    known[i] = None;
                    gone.push((*file).to_owned());
                } else if noise.one_in(3) {
                    known[i] = Some(document(name, file, *kind, at_ns, &mut noise));
                }
            }
            looks.push(Look {
                host: name,
                at_ns,
                documents: known.iter().flatten().cloned().collect(),
                gone,
            });
        }
    }
    looks
}

fn document(host: &str, file: &str, kind: Kind, since_ns: i64, noise: &mut Noise) -> Document {
    let mut made = Document {
        content: text(noise),
        facts: facts(kind, noise),
        since_ns,
        ..Document::new(host, file, kind)
    };
    if kind == Kind::File {
        made.stat = Some(stat(noise));
        if noise.one_in(9) {
            made.link = Some("/run/systemd/resolve/stub-resolv.conf".to_owned());
            made.flag(Flag::Link);
        }
        if noise.one_in(5) {
            made.withheld = Withheld {
                count: 1 + noise.below(3) as u32,
                reasons: vec!["password".to_owned(), "token".to_owned()],
                keys: vec!["db.password".to_owned()],
            };
            made.flag(Flag::Redacted);
        }
    }
    made
}

/// A few lines, sometimes an empty text or none.
fn text(noise: &mut Noise) -> Option<String> {
    match noise.below(16) {
        0 => return None,
        1 => return Some(String::new()),
        2 => return Some(format!("{} ünd x", "long".repeat(70))),
        _ => {}
    }
    let mut text = String::new();
    for _ in 0..1 + noise.below(5) {
        text.push_str(noise.pick(LINES));
        text.push('\n');
    }
    Some(text)
}

fn stat(noise: &mut Noise) -> Stat {
    let name = |noise: &mut Noise, names: &[&str]| {
        let name = noise.pick(names);
        (!name.is_empty()).then(|| name.to_owned())
    };
    let ms = noise.pick(TIMES_MS);
    Stat {
        size: noise.pick(SIZES),
        mode: noise.pick(MODES),
        uid: noise.pick(&[0, 33, 1000]),
        gid: noise.pick(&[0, 33, 1000]),
        user: name(noise, &["root", "www-data", "Root", ""]),
        group: name(noise, &["root", "adm", ""]),
        inode: noise.pick(&[1, 262_145, 1 << 40]),
        mtime_ns: ms * 1_000_000 + noise.below(1_000_000) as i64,
        ctime_ns: noise.pick(TIMES_MS) * 1_000_000,
    }
}

fn facts(kind: Kind, noise: &mut Noise) -> Facts {
    let mut facts = Facts::new();
    let mut set = |name: &str, values: Vec<Value>| {
        facts.insert(name.to_owned(), values);
    };
    let word = |text: &str| Value::Text(text.to_owned());
    match kind {
        Kind::Sysctl => {
            set("sysctl.vm.swappiness", vec![Value::Number(noise.pick(SWAPPINESS))]);
            if noise.one_in(2) {
                set("sysctl.vm.dirty_ratio", vec![Value::Number(noise.pick(&[10.0, 20.0, 40.0]))]);
            }
            set("sysctl.kernel.core_pattern", vec![word(noise.pick(CORE_PATTERNS))]);
            let memory = [[1.0, 2.0, 3.0], [100.5, 200.0, 300.0]];
            set("sysctl.net.ipv4.tcp_mem", noise.pick(&memory).map(Value::Number).to_vec());
            set(
                "sysctl.kernel.shmall",
                vec![Value::Number(noise.pick(&[1.844_674_407_369_277_4e19, 4096.0]))],
            );
        }
        Kind::Package => {
            for (name, versions) in [
                ("package.zsh", ["5.8-6", "5.9-4+b2"]),
                ("package.python3_11", ["3.11.2-6", "3.11.4"]),
                ("package.libstdc++6", ["12.2.0-14", "1:13~rc1"]),
            ] {
                if !noise.one_in(3) {
                    set(name, vec![word(noise.pick(&versions))]);
                }
            }
        }
        Kind::Kernel => {
            set("kernel.release", vec![word(noise.pick(RELEASES))]);
            set("kernel.tainted", vec![Value::Number(noise.pick(&[0.0, 1.0, 4096.0]))]);
            set("kernel.module", vec![word("ext4"), word("nf_tables"), word(noise.pick(&["xfs", "btrfs"]))]);
            // A kernel argument without a value (an empty text), or with the value 1.
            set("cmdline.quiet", vec![word(noise.pick(&["", "1"]))]);
        }
        Kind::Mount => {
            set("fs.type", vec![word(noise.pick(&["ext4", "ext3", "xfs", "XFS", "btrfs"]))]);
            set("fs.mountpoint", vec![word(noise.pick(&["/", "/data", "/srv/my data"]))]);
            set("fs.options", vec![word("rw"), word(noise.pick(&["noatime", "relatime", "data=ordered"]))]);
            set("fs.size", vec![Value::Number(noise.pick(&[1e12, 1_099_511_627_776.0, 5e9]))]);
        }
        Kind::Socket => {
            let more = noise.pick(&[80.0, 443.0, 8080.0]);
            set("socket.port", vec![Value::Number(22.0), Value::Number(more)]);
            set("socket.process", vec![word("sshd"), word(noise.pick(&["nginx", "haproxy"]))]);
        }
        Kind::Incident => {
            set("incident.root", vec![word(noise.pick(&["streaming-read-flood", "cpu-quota-throttled"]))]);
            set("incident.confidence", vec![Value::Number(noise.pick(&[0.25, 0.5, 0.9]))]);
            set("incident.onset", vec![Value::Time(noise.pick(TIMES_MS) * 1_000_000 + 999_999)]);
        }
        _ => {}
    }
    facts
}
