//! What stands below the flags in the help: notes, exit codes, and examples.
//!
//! The manual has the same in sections of its own.

use std::fmt::Write;

use crate::errors::EXIT_CODES;

/// The heading of the examples, which are the last part of each help.
pub const HEADING: &str = "Examples:";

/// The forms of `--since`, `--until` and other times.
pub const TIMES: &[(&str, &str)] = &[
    ("2h, -2h, 1h30m, '2 hours ago'", "before now, in ms, s, m, h, d, w or words"),
    ("14:03, 14:03:07", "the last time that the clock showed it"),
    ("now, today, yesterday", "today and yesterday begin at midnight"),
    ("2026-11-21, '2026-11-21 14:03'", "from midnight on; also 'yesterday 14:03'"),
    ("2026-11-21T14:03:07+01:00", "RFC 3339"),
    ("@1795232527", "seconds since 1970 UTC"),
];

/// What is taken from the environment.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("MITRA_ARCHIVE", "the archive where --archive is not given"),
    ("MITRA_PAGER, PAGER", "the pager [default: less -FRX]; cat for none"),
    ("AWS_ACCESS_KEY_ID …", "the keys of s3:// where no file has them"),
    ("NO_COLOR", "no colours, unless --color says otherwise"),
    ("TZ", "the time zone of times that are typed and printed"),
    ("XDG_CACHE_HOME", "what was fetched of other hosts, in mitra/archives"),
    ("XDG_STATE_HOME", "the archives of users other than root, in mitra"),
];

/// Where things are.
pub const FILES: &[(&str, &str)] = &[
    ("/var/lib/mitra", "the archive of root and of the system service"),
    ("~/.local/state/mitra", "the archive of another user"),
    ("/var/lib/mitra/index", "the index of files and settings"),
    ("/etc/mitra/mitra.toml", "the configuration: rules of one's own, databases, what is indexed"),
    ("~/.config/mitra/mitra.toml", "tables [[remote]] of a user: how hosts and object stores are asked"),
    (
        "/etc/mitra/index.yaml",
        "the same for mitra index as the first Mitra had it; read in place of [index] where it is",
    ),
];

/// A command line, and what it is for.
pub type Example = (&'static str, &'static str);

/// Per command; a subcommand has both names, and the program has none.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "",
        &[
            ("mitra live", "record, and explain incidents as they happen"),
            ("mitra explain --since 2h", "why the machine was slow in the last two hours"),
            ("mitra explain ./sos-report", "the same from what other tools have printed"),
        ],
    ),
    (
        "demo",
        &[
            ("mitra demo", "what a report looks like"),
            ("mitra demo disk-hog --keep ./disk-hog", "a recording to try other commands on"),
        ],
    ),
    (
        "record",
        &[
            ("mitra record", "record until Ctrl-C, as root with BPF programs"),
            (
                "mitra record --archive ./incident --interval 500ms --max-bytes 500M",
                "small, and twice a second",
            ),
        ],
    ),
    (
        "explain",
        &[
            ("mitra explain --since '2 hours ago'", "the last two hours of this machine"),
            ("mitra explain --since 14:00 --until 14:30 -o report.html", "half an hour, as a page"),
            ("mitra explain ./sos-report --baseline ./sos-report-of-a-good-day", "files of other tools"),
            ("mitra explain --since 1h --exit-code", "for scripts: exits with 1 if there was an incident"),
            (
                "mitra explain --archive https://web17:6174 --since -1h",
                "the last hour of a host that runs mitra serve",
            ),
            (
                "mitra explain --archive s3://recordings/web17 --since 14:00 --until 15:00",
                "an hour that mitra upload stored",
            ),
        ],
    ),
    (
        "replay",
        &[
            ("mitra replay", "the last day of this machine, from its first incident on"),
            ("mitra replay ./incident --at 14:03", "another recording, at a time of its last day"),
        ],
    ),
    (
        "compare",
        &[
            ("mitra compare 3h..2h 1h..now", "what differs between two times of the recording"),
            ("mitra compare ./monday ./friday", "what differs between two folders of other tools' output"),
        ],
    ),
    (
        "experiment",
        &[
            ("mitra experiment ./swappiness.toml", "the file says what differs and what is measured"),
            ("mitra experiment --resume ./experiment-1", "goes on after an interruption"),
            ("mitra experiment --report ./experiment-1 -o page.html", "the report again, as a page"),
        ],
    ),
    (
        "import",
        &[
            ("mitra import ./sos-report --archive ./imported", "then: mitra explain ./imported --since @0"),
            ("mitra import sar.txt --archive ./imported --date 2026-11-21", "a file without a date"),
        ],
    ),
    (
        "live",
        &[
            ("mitra live", "record, watch, and explain"),
            (
                "mitra live --plain --archive ./incident",
                "lines instead of a screen, into an archive of its own",
            ),
        ],
    ),
    (
        "capture",
        &[
            ("mitra capture offcpu --pid 4242 --seconds 30", "where a process waits"),
            ("mitra capture oncpu --flame cpu.html", "where the CPU time goes, as a flame graph"),
        ],
    ),
    (
        "inspect",
        &[
            ("mitra inspect memory 4242", "what the memory of a process is made of"),
            ("mitra inspect heap 4242 --strings", "what is in its heap, with the strings"),
            ("mitra inspect heap 4242 --save before.json", "a snapshot to compare with"),
            ("mitra inspect heap 4242 --diff before.json", "what grew since"),
            ("mitra inspect heap 4242 --watch 10m --count 6", "what grows within an hour"),
            ("mitra inspect diff monday.json friday.json", "what grew between two saved snapshots"),
            (
                "mitra inspect resolver api.example.com",
                "what is asked for a name, and what a dead server costs",
            ),
        ],
    ),
    (
        "inspect memory",
        &[
            ("mitra inspect memory 4242", "what the resident memory is made of"),
            ("mitra inspect memory 4242 --smaps --limit 40", "with what is dirty and shared, in long tables"),
        ],
    ),
    (
        "inspect heap",
        &[
            ("mitra inspect heap 4242 --save before.json", "a snapshot to compare with"),
            ("mitra inspect heap 4242 --diff before.json", "what grew since"),
        ],
    ),
    (
        "inspect diff",
        &[
            ("mitra inspect diff monday.json friday.json", "what grew between two snapshots"),
            ("mitra inspect diff 1.json 2.json 3.json", "three snapshots tell a leak from a warm-up"),
        ],
    ),
    (
        "inspect resolver",
        &[
            (
                "mitra inspect resolver api.example.com",
                "what is asked for a name, and what each server answers",
            ),
            ("mitra inspect resolver db --root /proc/4242/root", "with the configuration of a container"),
            ("mitra inspect resolver db --no-queries --json", "the prediction alone, for a program"),
        ],
    ),
    (
        "index",
        &[
            ("mitra index --dry-run", "what would be read, and what withheld"),
            ("mitra index --service", "go on when files change"),
        ],
    ),
    (
        "search",
        &[
            ("mitra search --hosts --count 'kernel.release:4.4*'", "how many hosts have such a kernel"),
            ("mitra search --hosts-without 'package.zsh:*'", "which hosts lack a package"),
            ("mitra search --hosts 'filename:\"/etc/hosts\" AND size:>4k'", "where a file is large"),
            ("mitra search --values sysctl.vm.swappiness", "which values there are, and the odd ones"),
            ("mitra search --changed --on yesterday 'filename:\"/etc/fstab\"'", "what changed on a day"),
        ],
    ),
    (
        "show",
        &[
            ("mitra show web-1 /etc/fstab --at '2 days ago'", "what a file said"),
            ("mitra show web-1 @sysctl", "what a collector says"),
        ],
    ),
    (
        "diff",
        &[
            ("mitra diff web-1 /etc/fstab --since yesterday", "what changed"),
            ("mitra diff web-1 web-2 --file /etc/fstab", "what differs between two hosts"),
        ],
    ),
    (
        "outliers",
        &[
            ("mitra outliers --by os.version --limit 20", "hosts that differ from others of one system"),
            ("mitra outliers 'filename:\"/etc/ssh/sshd_config\"'", "whose configuration of sshd is odd"),
        ],
    ),
    (
        "fleet",
        &[
            ("mitra fleet roots --since 24h", "which root causes are on how many hosts since yesterday"),
            ("mitra fleet why disk-hog", "what the hosts with this root cause have in common"),
        ],
    ),
    (
        "fleet setup",
        &[
            ("mitra fleet setup --dry-run", "the template and the policy, for somebody who may install them"),
            ("mitra fleet setup --keep-days 90", "install them; incidents are deleted after 90 days"),
        ],
    ),
    (
        "fleet incidents",
        &[
            ("mitra fleet incidents --since 2h", "what happened on all hosts in the last two hours"),
            ("mitra fleet incidents --root oom-kill --json", "of one root cause, for a program"),
            ("mitra fleet incidents --since 7d --by kernel", "on how many hosts of each kernel release"),
        ],
    ),
    (
        "fleet findings",
        &[
            ("mitra fleet findings", "what becomes an incident, and on how many hosts"),
            ("mitra fleet findings --host web-7", "of one host"),
            ("mitra fleet findings --since 30d --by culprit", "who will be in trouble on how many hosts"),
        ],
    ),
    (
        "fleet roots",
        &[
            ("mitra fleet roots --since 14:00", "the same root on many hosts since 14:00?"),
            ("mitra fleet roots --since 30d --until 7d", "before last week"),
            (
                "mitra fleet roots --root oom-kill --by package:openssl",
                "which version of a package the hosts had then",
            ),
            (
                "mitra fleet roots --root disk-hog --by change",
                "what changed on how many of them in the day before",
            ),
        ],
    ),
    (
        "fleet why",
        &[
            ("mitra fleet why disk-hog --since 2h", "a package, a setting or a file that others lack"),
            ("mitra fleet why disk-hog --json", "with each property of a group and its numbers"),
        ],
    ),
    (
        "services",
        &[
            ("mitra services --since 14:00 --until 14:10", "what each service answered, and how fast"),
            ("mitra services orders-api --map", "who calls it, and whom it calls"),
        ],
    ),
    (
        "serve",
        &[
            ("mitra serve", "this machine's recording at http://127.0.0.1:6174/"),
            ("mitra serve ./incident --listen 127.0.0.1:0", "another one, on a port that is free"),
            ("mitra serve --listen unix:/run/mitra.sock", "for its owner only: curl --unix-socket"),
        ],
    ),
    (
        "dbus",
        &[
            ("mitra dbus", "for this machine's recording; mitra-dbus.service does it when it is asked"),
            ("mitra dbus ./incident", "for another one"),
        ],
    ),
    (
        "notify",
        &[
            ("mitra notify --test", "does each receiver of /etc/mitra/mitra.toml get a message?"),
            ("mitra notify ./incident --dry-run", "what would have been told at its end"),
        ],
    ),
    (
        "send",
        &[
            ("mitra send --test", "does each store of /etc/mitra/mitra.toml take a sample or a log record?"),
            ("mitra send ./incident --once", "the last hours of a recording, to all of them"),
            ("mitra send --schema clickhouse | clickhouse-client --multiquery", "the tables in ClickHouse"),
        ],
    ),
    (
        "mcp",
        &[
            ("mitra mcp", "this machine's recording, for an assistant that runs here"),
            ("mitra mcp ./incident", "another one; of another machine: ssh HOST mitra mcp"),
        ],
    ),
    (
        "dump",
        &[
            ("mitra dump --metric 'mem.*' --since 10m", "values as a table"),
            ("mitra dump --metric disk.io_time --row sda --format csv", "one disk, for a spreadsheet"),
        ],
    ),
    (
        "status",
        &[
            ("mitra status", "whether this machine is recorded, and what it costs"),
            ("mitra status --archive ./incident", "what is recorded, and what is missing"),
            ("mitra status --alive", "in a script: ends with 2 unless it records"),
        ],
    ),
    (
        "export",
        &[
            ("mitra export --parquet . --since yesterday --until today", "a day for DuckDB or pandas"),
            ("mitra export --parquet disks.parquet --metric 'disk.*'", "all that is known of disks"),
            ("mitra export --sadf-json - --since yesterday --every 10m", "for what reads sysstat"),
            (
                "mitra export --pcp ./web17 --since yesterday --every 10s",
                "then: pmrep -a ./web17 mitra.disk.read_bytes",
            ),
            ("mitra export --trace . --since -1h", "an hour for https://ui.perfetto.dev"),
        ],
    ),
    (
        "load",
        &[
            (
                "mitra load http://127.0.0.1:8080/ --rate 500/s --duration 60s",
                "how fast it answers at this rate",
            ),
            ("mitra load http://web17/ --rate 100..5000/s --find-knee", "up to which rate it follows"),
            ("mitra load https://web17/ --replay access.log --speed 2", "what was asked, twice as fast"),
        ],
    ),
    (
        "load merge",
        &[
            ("mitra load merge a.json b.json", "what several machines saw together"),
            ("mitra load merge a.json b.json --json > both.json", "the same for programs"),
        ],
    ),
    (
        "upload",
        &[
            ("mitra upload", "store each segment when it is sealed, as mitra-upload.service does"),
            ("mitra upload --to s3://recordings/mitra", "in this bucket"),
            ("mitra upload ./incident --to s3://recordings/mitra --once", "store another recording"),
        ],
    ),
    (
        "doctor",
        &[
            ("mitra doctor", "what works here, and what does not"),
            ("mitra doctor --json", "the same for programs"),
        ],
    ),
    (
        "conditions",
        &[
            ("mitra conditions cpu-hog", "the manual page of one"),
            ("mitra conditions --graph=dot", "which can cause which, for Graphviz"),
        ],
    ),
    (
        "metrics",
        &[
            ("mitra metrics 'psi.*'", "what is measured of pressure"),
            ("mitra metrics --json", "everything, for programs"),
        ],
    ),
    (
        "completions",
        &[
            ("mitra completions bash > /etc/bash_completion.d/mitra", "for all users of bash"),
            ("mitra completions fish > ~/.config/fish/completions/mitra.fish", "for fish"),
        ],
    ),
    (
        "man",
        &[
            ("mitra man --out /usr/local/share/man/man1", "one page for each command"),
            ("mitra man | man -l -", "read the page of the program"),
        ],
    ),
    (
        "rules",
        &[
            ("mitra rules list", "which rules hold"),
            ("mitra rules check ./mitra.toml", "whether a file is valid"),
        ],
    ),
    (
        "rules check",
        &[
            ("mitra rules check", "the file of this machine"),
            ("mitra rules check ./mitra.toml", "another one, before it is installed"),
        ],
    ),
    (
        "rules list",
        &[
            ("mitra rules list", "all of them, with what they start"),
            ("mitra rules list fork-rate", "one, with why it is there"),
        ],
    ),
    (
        "rules test",
        &[
            ("mitra rules test --rule fork-rate --since 1d", "when a rule would have held"),
            ("mitra rules test --when 'sys.forks > 500/s for 3s'", "the same of an expression"),
        ],
    ),
    (
        "xfs-geometry",
        &[
            ("mitra xfs-geometry --level raid6 --disks 12 --stripe-unit 256k", "options of mkfs.xfs"),
            ("mitra xfs-geometry --level 10 --disks 8 --stripe-unit 64k --size 16t", "and allocation groups"),
        ],
    ),
];

/// The examples of a command.
pub fn of(command: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(name, _)| *name == command).map_or(&[], |(_, examples)| examples)
}

/// What stands below the flags of a command.
pub fn below(command: &str, notes: &str) -> String {
    let mut out = notes.to_owned();
    let examples = of(command);
    if examples.is_empty() {
        return out;
    }
    if !out.is_empty() {
        out.push_str("\n\n");
    }
    out.push_str(HEADING);
    for (line, what) in examples {
        _ = write!(out, "\n  {line}\n      {what}");
    }
    out
}

/// The notes of the program itself.
pub fn of_all() -> String {
    let mut out = "Exit codes:".to_owned();
    for (code, what) in EXIT_CODES {
        _ = write!(out, "\n  {code:<3}  {what}");
    }
    for (heading, rows) in [("Times:", TIMES), ("Environment:", ENVIRONMENT)] {
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        _ = write!(out, "\n\n{heading}");
        for (name, what) in rows {
            _ = write!(out, "\n  {name:<width$}  {what}");
        }
    }
    below("", &out)
}

#[cfg(test)]
mod tests;
