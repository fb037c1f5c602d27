//! The language: what it reads, what it refuses and where, and that printing and reading go together.

use mitra_rules::ast::{
    Expression, Function, GroupBy, Kind, Literal, LogPattern, LogSource, Match, Node, Operator, Place, UNITS,
};
use mitra_rules::{Rule, parse};
use proptest::prelude::*;

#[test]
fn good_ones() {
    for (text, printed) in [
        ("task.cpu_system{comm=\"haproxy\"} > 30% for 2s", "task.cpu_system{comm=haproxy} > 30% for 2s"),
        ("sys.forks > 500/s for 3s", "sys.forks > 500/s for 3s"),
        (
            "psi.io_some > 0.5 and disk.io_time{vda} < 0.2 for 3s",
            "psi.io_some > 0.5 and disk.io_time{vda} < 0.2 for 3s",
        ),
        ("mem.available / mem.total < 5%", "mem.available / mem.total < 5%"),
        ("rate(mem.slab) > 10 MiB/s", "rate(mem.slab) > 10MiB/s"),
        ("max(disk.io_time) < 20 %", "max(disk.io_time) < 20%"),
        ("sum(task.minflt) by pid > 4e4 / s", "sum(task.minflt) by pid > 40000/s"),
        ("not (sys.forks > 1 or any(task.fds > 1_000))", "not (sys.forks > 1 or any(task.fds > 1000))"),
        (
            "disk.read_bytes{vd*} > 2 * (disk.write_bytes + 1MB/s)",
            "disk.read_bytes{vd*} > 2 * (disk.write_bytes + 1MB/s)",
        ),
        ("fs.avail_bytes{/mnt/\"x\"", ""),
        (
            "fs.avail_bytes{\"/mnt/a b\", type!=tmpfs} < 1GiB",
            "fs.avail_bytes{\"/mnt/a b\", type!=tmpfs} < 1GiB",
        ),
        ("bytes(task.rss_anon) > 1GiB", "bytes(task.rss_anon) > 1GiB"),
        ("task.system_time{pid=1, !=sh} > 1", "task.system_time{pid=1, !=sh} > 1"),
        ("sys.load1 - -2 > 0 for 1min", "sys.load1 - -2 > 0 for 1min"),
        ("psi.io_some > 500ms/s", "psi.io_some > 500ms/s"),
        (
            "log{file=\"/var/log/app.log\"} =~ \"timeout\" > 5/s for 10s",
            "log{file=/var/log/app.log} =~ \"timeout\" > 5/s for 10s",
        ),
        (
            r#"log { unit = nginx.service }=~"\[(alert|crit)\] \"x\"" > 0 and sys.load1 > 1"#,
            r#"log{unit=nginx.service} =~ "\[(alert|crit)\] \"x\"" > 0 and sys.load1 > 1"#,
        ),
        (
            r#"log{file="/var/log/a b,{1}.log"} =~ "\\" / log{file=/x} =~ "" > 5%"#,
            r#"log{file="/var/log/a b,{1}.log"} =~ "\\" / log{file=/x} =~ "" > 5%"#,
        ),
    ] {
        if printed.is_empty() {
            assert!(parse(text).is_err(), "{text}");
            continue;
        }
        let rule = Rule::new("x", text).unwrap_or_else(|m| panic!("{m}\n{}", m.caret(text)));
        assert_eq!(rule.expression.to_string(), printed);
        assert_eq!(parse(printed).unwrap(), rule.expression);
    }
}

#[test]
fn bad_ones_say_what_and_where() {
    for (text, at, says) in [
        ("", "", "ends here"),
        ("sys.fork > 1", "sys.fork", "sys.forks"),
        ("sys.forks", "sys.forks", "this is a number"),
        ("sys.forks > 1 && sys.ctxt > 1", "&", "write `and`"),
        ("sys.forks > 1 for", "", "a time such as 3s"),
        ("sys.forks > 1 for 3MB", "3MB", "no time"),
        ("sys.forks > 1 for 3", "3", "no time"),
        ("(sys.forks > 1", "", "column 1 opened"),
        ("sys.forks = 1", "=", "compare with `==`"),
        ("mem.free > 5%", "mem.free > 5%", "bytes"),
        ("mem.free > 5s", "mem.free > 5s", "the left side is bytes, the right side s"),
        ("task.rss_anon > 1GiB", "task.rss_anon > 1GiB", "bytes(…)"),
        ("task.comm > 1", "task.comm", "{comm="),
        ("sum(sys.forks) > 1", "sys.forks", "one value"),
        ("task.fds > 1 and disk.io_time > 1", "task.fds > 1 and disk.io_time > 1", "each task"),
        ("sys.forks{vda} > 1", "sys.forks{vda}", "nothing to select"),
        ("task.fds{color=red} > 1", "task.fds{color=red}", "has no `color`"),
        ("task.fds{pid=x} > 1", "task.fds{pid=x}", "no number"),
        ("task.fds{comm=systemd-resolved} > 1", "task.fds{comm=systemd-resolved}", "are \"systemd-resolve\""),
        ("sum(task.fds{systemd-resolved}) > 1", "task.fds{systemd-resolved}", "keeps 15 bytes"),
        ("exited.count{systemd-resolved} > 1", "exited.count{systemd-resolved}", "keeps 15 bytes"),
        // The second byte of what is cut in two is not kept alone.
        (
            "task.fds{comm=\"fourteen bytesä\"} > 1",
            "task.fds{comm=\"fourteen bytesä\"}",
            "\"fourteen bytes\"",
        ),
        ("task.fds{comm=systemd-resolve} > 1", "", ""),
        ("task.fds{comm=systemd-resolve*} > 1", "", ""),
        ("task.fds{cgroup=/system.slice/nginx.service} > 1", "", ""),
        ("disk.io_time{nvme0c0n1-a-long-name} > 1", "", ""),
        ("median(task.fds) > 1", "median", "there are sum, max"),
        ("sum(task.fds) by color > 1", "color", "pid, comm or cgroup"),
        ("sum(disk.io_time) by pid > 1", "sum(disk.io_time) by pid", "only tasks"),
        ("rate(1) > 1", "1", "wanted a metric"),
        ("free > 1", "free", "mem.free"),
        ("sys.forks > 1 > 2", ">", "an operator, `for` or the end"),
        ("sys.forks > 1e999", "1e999", "no number"),
        ("fs.avail_bytes{\"x} < 1", "\"x} < 1", "does not end"),
        ("log > 1", ">", "`{file=…}` or `{unit=…}`"),
        ("log{path=/x} =~ \"a\" > 1", "path", "`file` or `unit`"),
        ("log{file=/x} > 1", ">", "a regular expression in quotes"),
        ("log{file=/x} =~ a > 1", "a", "a regular expression in quotes"),
        ("log{file=/x} =~ \"a > 1", "\"a > 1", "does not end"),
        ("log{file=/x =~ \"a\" > 1", "=", "column 4 opened"),
        ("log{file=x.log} =~ \"a\" > 1", "log{file=x.log} =~ \"a\"", "whole path"),
        ("log{file=/x/../y} =~ \"a\" > 1", "log{file=/x/../y} =~ \"a\"", "whole path"),
        ("log{file=/x/} =~ \"a\" > 1", "log{file=/x/} =~ \"a\"", "whole path"),
        ("log{file=/x/*.log} =~ \"a\" > 1", "log{file=/x/*.log} =~ \"a\"", "one file"),
        ("log{unit=nginx} =~ \"a\" > 1", "log{unit=nginx} =~ \"a\"", "nginx.service"),
        ("log{unit=\"a*.service\"} =~ \"a\" > 1", "log{unit=\"a*.service\"} =~ \"a\"", "one unit"),
        ("log{file=/x} =~ \"(a\" > 1", "log{file=/x} =~ \"(a\"", "unclosed group"),
        (
            "log{file=/x} =~ \"(a{1000}){1000}\" > 1",
            "log{file=/x} =~ \"(a{1000}){1000}\"",
            "no regular expression",
        ),
        ("log{file=/x} =~ \"a\" > 1MB/s", "log{file=/x} =~ \"a\" > 1MB/s", "bytes"),
        ("sum(log{file=/x} =~ \"a\") > 1", "log{file=/x} =~ \"a\"", "one value"),
        ("log{file=/x} =~ \"a\"", "log{file=/x} =~ \"a\"", "this is a number"),
        ("not sys.forks > 1", "", ""),
        ("sys.forks > 1 or not sys.ctxt", "sys.ctxt", "compare it"),
    ] {
        let found = Rule::new("x", text);
        if says.is_empty() {
            assert!(found.is_ok(), "{text}");
            continue;
        }
        let mistake = found.expect_err(text);
        assert_eq!(text.get(mistake.at.clone()), Some(at), "{text}: {mistake}");
        assert!(mistake.message.contains(says), "{text}: {mistake}");
    }
    let deep = format!("{}sys.forks > 1{}", "(".repeat(200), ")".repeat(200));
    assert!(parse(&deep).unwrap_err().message.contains("levels"));
    let wide = format!("1{} > 0", "+1".repeat(1000));
    assert!(parse(&wide).unwrap_err().message.contains("parts"));
    assert!(parse(&"x".repeat(5000)).unwrap_err().message.contains("longer"));
}

#[test]
fn whose_process() {
    let mut rule = Rule::new("x", "sys.forks > 1").unwrap();
    assert!(rule.set_pid_of("culprit").unwrap_err().message.contains("not about tasks"));
    assert!(rule.set_pid_of("sys.forks").unwrap_err().message.contains("of each task"));
    assert!(rule.set_pid_of("task.minflt for 2s").is_err());
    rule.set_pid_of("sum(task.system_time) by pid").unwrap();
    let mut rule = Rule::new("x", "task.fds > 1").unwrap();
    rule.set_pid_of("culprit").unwrap();
    assert!(rule.is_of_pid && rule.choice.is_none());
}

fn name() -> impl Strategy<Value = String> {
    "[a-z]{1,6}\\.[a-zA-Z0-9_]{1,6}"
}

fn literal() -> impl Strategy<Value = Literal> {
    (0.0..1e12f64, prop::option::of(0..UNITS.len()), any::<bool>())
        .prop_map(|(number, unit, per_second)| Literal { number, unit: unit.map(|i| UNITS[i]), per_second })
}

fn one_match() -> impl Strategy<Value = Match> {
    (prop::option::of("[a-z_]{1,5}"), any::<bool>(), "[ -~äµ]{0,8}")
        .prop_map(|(attribute, negated, pattern)| Match { attribute, negated, pattern })
}

fn node(kind: Kind) -> Node {
    Node { place: Place::default(), kind }
}

fn tree() -> impl Strategy<Value = Node> {
    const OPERATORS: [Operator; 12] = [
        Operator::Or,
        Operator::And,
        Operator::Less,
        Operator::LessOrEqual,
        Operator::Greater,
        Operator::GreaterOrEqual,
        Operator::Equal,
        Operator::NotEqual,
        Operator::Add,
        Operator::Subtract,
        Operator::Multiply,
        Operator::Divide,
    ];
    let leaf = prop_oneof![
        literal().prop_map(|l| node(Kind::Literal(l))),
        ("[ -~äµ]{0,8}", "[ -\\[\\]-~ä]{0,8}", any::<bool>()).prop_map(|(name, pattern, is_file)| {
            let log = if is_file { LogSource::File(name) } else { LogSource::Unit(name) };
            node(Kind::Log(LogPattern { log, pattern }))
        }),
        (name(), prop::collection::vec(one_match(), 0..3))
            .prop_map(|(name, matches)| node(Kind::Metric { name, matches })),
    ];
    leaf.prop_recursive(5, 40, 3, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        prop_oneof![
            boxed.clone().prop_map(|of| node(Kind::Negative(of))),
            boxed.clone().prop_map(|of| node(Kind::Not(of))),
            (0..OPERATORS.len(), boxed.clone(), boxed.clone()).prop_map(|(i, l, r)| node(Kind::Binary(
                OPERATORS[i],
                l,
                r
            ))),
            (0..Function::ALL.len(), boxed, prop::option::of(0..GroupBy::ALL.len())).prop_map(
                |(f, argument, by)| node(Kind::Call {
                    function: Function::ALL[f].1,
                    argument,
                    by: by.map(|i| GroupBy::ALL[i].1),
                })
            ),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_printed_is_read_again(
        root in tree(),
        hold in prop::option::of((0.0..1e6f64, 10..16usize)),
    ) {
        let hold = hold.map(|(number, i)| Literal { number, unit: Some(UNITS[i]), per_second: false });
        let expression = Expression { root, hold };
        let text = expression.to_string();
        if text.len() <= mitra_rules::parser::BYTES_MAX {
            let back = parse(&text).map_err(|m| TestCaseError::fail(format!("{m}\n{}", m.caret(&text))))?;
            prop_assert_eq!(back, expression, "{}", text);
        }
    }

    #[test]
    fn nothing_makes_it_panic(text in "\\PC{0,60}") {
        check(&text);
    }

    #[test]
    fn nothing_like_an_expression_makes_it_panic(
        words in prop::collection::vec(prop::sample::select(vec![
            "sys.forks", "task.fds", "disk.io_time", "{", "}", "(", ")", "not", "and", "or", "for", "by", "pid",
            "sum(", "max(", "rate(", "any(", "5", "3s", "%", "/s", "/", "*", "-", "+", "<", ">=", "==", "\"", "\\",
            "comm=", "vd*", ",", "µs", "1e", ".", "é", "bytes(",
        ]), 0..24),
        gap in prop::sample::select(vec!["", " "]),
    ) {
        check(&words.join(gap));
    }
}

fn check(text: &str) {
    match Rule::new("x", text) {
        Ok(rule) => assert_eq!(parse(&rule.expression.to_string()).as_ref(), Ok(&rule.expression), "{text}"),
        Err(mistake) => {
            assert!(!mistake.message.is_empty());
            assert!(mistake.caret(text).contains('^'));
        }
    }
}
