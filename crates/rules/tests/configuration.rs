//! The configuration file: what it may say, and where a mistake is.

use mitra_model::Suspicion;
use mitra_rules::config::read;
use mitra_rules::{Config, ConfigError, Known, Probe};

const KNOWN: Known<'_> = Known {
    probes: &[("offcpu", &["d-only", "min"]), ("oncpu", &[]), ("trace", &[])],
    check: of_one_process,
    conditions: &["io-throttled"],
    suspicions: &[
        Suspicion { name: "fork-rate", when: "sys.forks > 300/s", ..Suspicion::NONE },
        Suspicion { name: "fault-rate", when: "vm.pgfault > 80000/s", ..Suspicion::NONE },
    ],
};

fn of_one_process(probe: &Probe, is_of_pid: bool) -> Result<(), String> {
    if probe.kind == "trace" && !is_of_pid { Err("whose calls?".to_owned()) } else { Ok(()) }
}

fn config(text: &str) -> Result<Config, ConfigError> {
    read("mitra.toml", text, &KNOWN)
}

const GOOD: &str = r#"
[escalation]
seconds-per-hour = 60
off = ["fork-rate"]

[[rule]]
name = "proxy-system-time"
when = 'task.system_time{comm="haproxy"} > 30%'
for = "2s"
suspects = "io-throttled"
why = "It spends its time in the kernel."
arm = ["offcpu --d-only min=1ms", "oncpu"]
pid-of = "culprit"
seconds = 5
command = ["/usr/bin/strace", "-c", "-p", "{pid}"]
timeout = "5s"
output = "256KiB"
per-hour = 3
cool-down = "2min"

[[rule]]
name = "little-memory"
when = "mem.available / mem.total < 5% for 3s"
"#;

#[test]
fn a_whole_file() {
    let config = config(GOOD).unwrap_or_else(|e| panic!("{e}"));
    let rule = &config.rules[0];
    assert_eq!(rule.expression.to_string(), "task.system_time{comm=haproxy} > 30% for 2s");
    assert_eq!(rule.program.hold_s, 2.0);
    assert_eq!(rule.actions(), ["offcpu d-only min=1ms", "oncpu", "/usr/bin/strace -c -p {pid}"]);
    assert_eq!((rule.seconds, rule.timeout_s, rule.cool_down_s), (5.0, 5.0, 120.0));
    assert_eq!((rule.output_bytes, rule.per_hour, rule.is_of_pid), (256 * 1024, 3, true));
    assert_eq!(config.rules[1].name, "little-memory");
    assert!(config.rules[1].actions().is_empty());
    assert_eq!((config.budget_s, config.arm), (60.0, true));
    // The built-in rules follow, without those that were switched off.
    assert_eq!(config.rules.len(), 2 + KNOWN.suspicions.len() - 1);
    assert!(config.rules.iter().all(|rule| rule.name != "fork-rate"));
}

#[test]
fn mistakes_have_a_line() {
    let rule = |more: &str| format!("[[rule]]\nname = \"a\"\nwhen = \"sys.forks > 1/s\"\n{more}\n");
    let little = |more: &str| format!("[escalation]\nseconds-per-hour = 2\n{}", rule(more));
    for (text, line, column, says) in [
        (rule("colour = 1"), 4, 1, "unknown field `colour`"),
        ("[[rule]]\nname = \"a\"\n".to_owned(), 1, 1, "missing field `when`"),
        ("[rul]\n".to_owned(), 1, 2, "unknown field"),
        ("[[rule]]\nname = \"a\"\nwhen = 'sys.fork > 1'\n".to_owned(), 3, 9, "did you mean sys.forks?"),
        (
            "[[rule]]\nname = \"a\"\nwhen = '''\nsys.forks > 1 and\n sys.x > 1'''\n".to_owned(),
            5,
            2,
            "no metric",
        ),
        (
            "[[rule]]\nname = \"a\"\nwhen = \"task.fds{\\\"a\\\"} > 1s\"\n".to_owned(),
            3,
            8,
            "the right side s",
        ),
        (rule("for = \"2MB\""), 4, 7, "no time"),
        (rule("for = 2"), 4, 7, "invalid type"),
        (
            rule("arm = [\"oncpu\", \"xray\"]"),
            4,
            17,
            "no probe is called xray; there are offcpu, oncpu, trace",
        ),
        (rule("arm = [\"offcpu color\"]"), 4, 8, "has no option color"),
        (rule("arm = [\"oncpu\", \"trace\"]"), 4, 17, "whose calls?"),
        (rule("pid-of = \"culprit\""), 4, 11, "not about tasks"),
        (rule("pid-of = \"task.fdz\""), 4, 11, "no metric"),
        (rule("suspects = \"gremlins\""), 4, 12, "no condition"),
        (rule("seconds = 600"), 4, 11, "wanted 0.1 to 60"),
        (rule("seconds = \"5MB\""), 4, 11, "a time such as 3s"),
        (rule("output = \"1GiB\""), 4, 10, "wanted 0 to"),
        (rule("per-hour = 0"), 4, 12, "wanted 1 to"),
        (rule("cool-down = \"1s\""), 4, 13, "wanted 5 to"),
        (rule("command = [\"strace\"]"), 4, 12, "whole path"),
        (rule("command = [\"/bin/sh\", \"-c\", \"kill {pid}\"]"), 4, 29, "an argument by itself"),
        (rule("command = [\"/bin/x\", \"{tid}\"]"), 4, 22, "no such placeholder"),
        (rule("[[rule]]\nname = \"a\"\nwhen = \"sys.forks > 1\""), 5, 8, "another rule called a"),
        (
            "[[rule]]\nname = \"fork-rate\"\nwhen = \"sys.forks > 1\"".to_owned(),
            2,
            8,
            "a built-in rule is called so",
        ),
        (
            "[escalation]\noff = [\"fork-rate\"]\n[[rule]]\nname = \"fork-rate\"\nwhen = \"sys.forks > 1\""
                .to_owned(),
            4,
            8,
            "even where it is off; take another name",
        ),
        ("[[rule]]\nname = \"A b\"\nwhen = \"sys.forks > 1\"".to_owned(), 2, 8, "wanted a name"),
        ("[escalation]\noff = [\"x\"]".to_owned(), 2, 8, "no built-in rule"),
        ("[escalation]\nseconds-per-hour = 1e9".to_owned(), 2, 20, "0 to 3600"),
        (little("arm = [\"oncpu\"]\nseconds = 60"), 7, 11, "for 60 s, and all together may be for 2 s"),
        (little("arm = [\"oncpu\"]"), 6, 8, "for 3 s, and all together may be for 2 s"),
        ("a = \"".to_owned(), 1, 6, ""),
    ] {
        let error = config(&text).map(|_| ()).expect_err(&text);
        assert_eq!((error.line, error.column), (line, column), "{text}\n{error}");
        assert!(error.message.contains(says), "{text}\n{error}");
        assert!(error.to_string().starts_with(&format!("mitra.toml:{line}:{column}: ")), "{error}");
        assert!(error.excerpt.contains('^'), "{error}");
    }
}

#[test]
fn one_mistake_as_it_is_printed() {
    let error = config("[[rule]]\nname = \"a\"\nwhen = 'sys.fork > 500/s'\n").map(|_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "mitra.toml:3:9: no metric is called sys.fork; did you mean sys.forks?\n  when = 'sys.fork > 500/s'\n          ^^^^^^^^"
    );
}

#[test]
fn what_can_be_armed_is_taken() {
    let when = "when = 'sum(task.fds) by pid > 9'";
    for (escalation, more) in [
        // Who allows no second of probes wants none, and may run commands all the same.
        ("seconds-per-hour = 0", "arm = [\"oncpu\"]\ncommand = [\"/bin/true\"]"),
        ("seconds-per-hour = 3", "arm = [\"oncpu\"]"),
        // Nothing is armed, whatever the seconds.
        ("seconds-per-hour = 2", "seconds = 60"),
        ("", "arm = [\"trace\"]\npid-of = \"culprit\""),
    ] {
        let text = format!("[escalation]\n{escalation}\n[[rule]]\nname = \"a\"\n{when}\n{more}\n");
        config(&text).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn everything_can_be_switched_off() {
    let config = config("[escalation]\nbuiltin = false\narm = false\n").unwrap();
    assert!(config.rules.is_empty() && !config.arm);
}

#[test]
fn there_are_only_so_many_patterns_of_logs() {
    let rules = |count: usize| -> String {
        let rule = |nth| {
            format!(
                "[[rule]]\nname = \"r{nth}\"\nwhen = 'log{{file=/x}} =~ \"a{nth}\" > log{{file=/x}} =~ \"b\"'\n"
            )
        };
        (0..count).map(rule).collect()
    };
    // Two terms each, one of which they share.
    assert_eq!(config(&rules(63)).unwrap().rules.len(), 63 + 2);
    let error = config(&rules(64)).unwrap_err();
    assert!(error.message.contains("more than 64 patterns") && error.line == 192, "{error}");
}
