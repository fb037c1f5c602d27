//! Random queries, mostly for words and values in the corpus.

use crate::noise::Noise;

/// Maximum nesting of groups.
const DEPTH: u32 = 3;

const WORDS: &[&str] = &[
    "ext4",
    "xfs",
    "swap",
    "quick",
    "brown",
    "fox",
    "the",
    "lazy",
    "localhost",
    "vm.swappiness",
    "60",
    "error",
    "aaa",
    "abab",
    "kernel",
    "größe",
    "STRASSE",
    "café",
    "istanbul",
    "日本",
    "日",
    "foo_bar",
    "foo,bar",
    "web1",
    "web1.example.org",
    "127.0.0.1",
    "nothing",
    "AND",
    "a",
    "to",
    "c++",
    "-42",
    "1,000.50",
    "o'neill",
    "😀",
    "root",
    "noatime",
    "c:\\\\windows",
    "\\u0061aa",
    "\\*",
    "be\\ or",
    "σίσυφος",
    "ภาษา",
    "1e3",
];
const PATTERNS: &[&str] = &[
    "ex*",
    "*fs",
    "sw?p",
    "l?n*x",
    "*",
    "?",
    "??",
    "*o*",
    "VM.*",
    "foo_*",
    "qu*k",
    "10.0.0.1*",
    "a*b",
    "\\**",
    "日*",
    "GR?SSE",
    "*\\ *",
    "err*r",
];
const REGEXES: &[&str] = &[
    "/ext[34]/",
    "/l[iu]n[iu]x/",
    "/a{2,3}b*/",
    "/(aaa|bbb)/",
    "/~(a.*)/",
    "/<1-100>/",
    "/.*@.*/",
    "/s.*ss&w.*/",
    "/err.r?/",
    "/[^a-z]+/",
    "/\\d+/",
    "/\"a.b\"/",
    "/GR.SSE/",
    "/10\\.0\\.0\\.[0-9]+/",
    "/()/",
    "/#/",
    "/a(b/",
];
const PHRASES: &[&str] = &[
    "quick brown fox",
    "brown quick",
    "the lazy",
    "to be",
    "be to be",
    "or not to be",
    "hello world",
    "UUID 0a1b",
    "/etc/fstab",
    "vm.swappiness = 60",
    "...",
    "quick fox",
    "a b c",
    "c a",
    "fox",
    "brown brown quick",
    "일본",
    "127.0.0.1 localhost",
];
/// Field names with values.
const FIELDS: &[(&str, &[&str])] = &[
    (
        "host",
        &[
            "web1",
            "Web1",
            "web*",
            "w?b1",
            "/web[0-9]+/",
            "web1~",
            "web~1",
            "\"a b\"",
            "a\\ b",
            "a\\*b",
            "[web1 TO web2]",
            "{web1 TO *]",
            ">web",
            "*",
            "größe",
            "日本",
            "AND",
        ],
    ),
    ("hostname", &["web1", "db*"]),
    (
        "filename",
        &[
            "\"/etc/hosts\"",
            "\\/etc\\/*",
            "*.conf",
            "*TXT",
            "/.*etc.*/",
            "@sysctl",
            "\"@sysctl\"",
            "[\\/etc TO \\/f]",
            "\"/srv/ünïcode/Datei.TXT\"",
        ],
    ),
    ("kind", &["file", "package", "fil*", "(file OR sysctl)", "(file sysctl)", "files~"]),
    (
        "size",
        &[
            ">4096",
            ">=4096",
            "<221",
            "4096",
            "[221 TO 4096]",
            "{221 TO 4096}",
            "[* TO 1000]",
            "4096.0",
            "(>1 AND <5000)",
            "*",
            "1e3",
            "-1",
            ">-1",
        ],
    ),
    ("mode", &["0644", "4755", "06*", "[0600 TO 0700]"]),
    ("uid", &["0", "33", ">0", "(0 OR 33)", "<=1000"]),
    ("user", &["root", "Root", "r*t", "*", "www\\-data", "www-data"]),
    (
        "mtime",
        &[
            "1970-01-01",
            "[1969-12-31 TO 1970-01-02]",
            ">2026-11-17",
            "<=2026-11-18",
            "\"2026-11-17\"",
            "[2026-11-17 TO 2026-11-18}",
            ">now",
            "{2026-11-17 TO 2026-11-18]",
            "[2026-11-17||/M TO 2026-11-17||+1d/d]",
            "1794873600000",
            "2000",
            ">=2026-11-18T00\\:00\\:00.001",
            "yesterday",
        ],
    ),
    ("time", &[">=2026-11-19", "2026-11-18", "\"2026-11-18T02\"", "[2026-11-18T03 TO 2026-11-18T05]"]),
    ("day", &["2026-11-18", ">2026-11-18", "[2026-11-19 TO *]", "{2026-11-18 TO 2026-11-20}", "2026-11"]),
    ("sysctl.vm.swappiness", &["60", "60.0", "[1 TO 10]", "<1", "*", ">=0.5", "-1", "\\-1"]),
    ("sysctl.net.ipv4.tcp_mem", &["2", "200", ">250", "[3 TO 100]"]),
    ("sysctl.kernel.core_pattern", &["core", "*crash*", "\"|/usr/share/apport/apport %p\""]),
    ("package.zsh", &["*", "5.9*", "\"5.8-6\"", ">5.8", "5.9-4\\+b2"]),
    ("package.python3_11", &["3.11*", "*"]),
    ("kernel.release", &["4.4*", "4.4.302", "/[45]\\..*/", "[4.4 TO 4.9]", "*generic"]),
    ("kernel.module", &["xfs", "(xfs OR btrfs)", "nf_*"]),
    ("kernel.\\*", &["4.4*", "0", "xfs"]),
    ("cmdline.quiet", &["*", "\"\"", "1"]),
    ("fs.type", &["ext4", "ext?", "XFS", "xfs~", "ext4~1"]),
    ("fs.options", &["noatime", "data=ordered", "*atime"]),
    ("socket.port", &["80", "22", "[100 TO 500]", ">443"]),
    ("incident.onset", &["2000-02-28", "<1970", ">2026-11-18", "[2026-11-17 TO 2026-11-20]"]),
    ("withheld.key", &["db.password", "db*"]),
    ("flags", &["redacted", "gone", "(gone OR link)", "*"]),
    ("link", &["*", "\"/run/systemd/resolve/stub-resolv.conf\""]),
    ("_exists_", &["size", "content", "package.zsh", "hostname", "fs", "nothing", "cmdline.quiet"]),
    ("nothing", &["x", "*", "[1 TO 2]"]),
    (
        "content",
        &["ext4", "sw*", "(quick brown)", "(+quick -lazy)", "\"to be\"", "[a TO b]", "/l.*x/", "swapiness~"],
    ),
    ("*", &["*", "web1", "4096"]),
];
/// Fragments that hardly ever form a valid query.
const SOUP: &[&str] = &[
    "AND", "OR", "NOT", "+", "-", "!", "(", ")", ":", "host:", "size:", "*", "?", "\"", "~", "~1", "^2", "^",
    "/", "[", "{", "]", "}", " TO ", "\\", "fox", "quick", " ", "&&", "||", "ext4", "\u{3000}", ">", "<=",
];

/// A random query.
pub fn query(noise: &mut Noise) -> String {
    if noise.one_in(8) {
        let mut text = String::new();
        for _ in 0..2 + noise.below(6) {
            text.push_str(noise.pick(SOUP));
            text.push_str(if noise.one_in(2) { " " } else { "" });
        }
        return text;
    }
    group(noise, 0)
}

fn group(noise: &mut Noise, depth: u32) -> String {
    let mut text = String::new();
    for nth in 0..1 + noise.below(4) {
        if nth > 0 {
            text.push_str(noise.pick(&[" ", " AND ", " OR ", " && ", " || ", " ", "  "]));
        }
        text.push_str(noise.pick(&["", "", "", "", "", "+", "-", "NOT ", "!"]));
        text.push_str(&clause(noise, depth));
    }
    text
}

fn clause(noise: &mut Noise, depth: u32) -> String {
    let boost = noise.pick(&["", "", "", "", "^2", "^0.5"]);
    let (field, values) = noise.pick(FIELDS);
    match noise.below(14) {
        0 | 1 if depth < DEPTH => format!("({}){boost}", group(noise, depth + 1)),
        2 if depth < DEPTH => {
            format!("{}:({}){boost}", noise.pick(&["content", "host", "kind"]), group(noise, depth + 1))
        }
        3 => noise.pick(PATTERNS).to_owned() + boost,
        4 => noise.pick(REGEXES).to_owned(),
        5 | 6 => {
            format!("\"{}\"{}{boost}", noise.pick(PHRASES), noise.pick(&["", "", "~1", "~2", "~3", "~10"]))
        }
        7 => format!("{}{}", noise.pick(WORDS), noise.pick(&["~", "~1", "~2", "~0", "~0.7"])),
        8 => range(noise),
        9..12 => format!("{field}:{}{boost}", noise.pick(values)),
        _ => noise.pick(WORDS).to_owned() + boost,
    }
}

fn range(noise: &mut Noise) -> String {
    let ends = ["a", "Fox", "quick", "*", "0", "60", "z", "\"be or\"", "日本"];
    let (open, close) = (noise.pick(&["[", "{"]), noise.pick(&["]", "}"]));
    format!("{open}{} TO {}{close}", noise.pick(&ends), noise.pick(&ends))
}
