//! The meaning of queries.

use super::*;

fn check_all(table: &[(&str, &str)], all_words: bool) {
    let mut wrong = Vec::new();
    for (text, wanted) in table {
        let query = Query::parse(text, settings(all_words));
        let found = query.map_or_else(|e| format!("{e} at {:?}", e.at), |q| shown(&q.set));
        if found != *wanted {
            wrong.push(format!("{text}\n   wanted {wanted}\n   found  {found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn operators_have_no_precedence() {
    let table = [
        ("a", r#""a""#),
        ("a b", r#""a" OR "b""#),
        ("a b c d", r#""a" OR "b" OR "c" OR "d""#),
        ("a AND b", r#""a" AND "b""#),
        ("a OR b", r#""a" OR "b""#),
        ("a OR b OR c", r#""a" OR "b" OR "c""#),
        ("a OR b AND c", r#""b" AND "c""#),
        ("a AND b OR c", r#""a" AND "b""#),
        ("a AND b OR c AND d", r#""a" AND "b" AND "c" AND "d""#),
        ("a OR b AND c OR d", r#""b" AND "c""#),
        ("a && b", r#""a" AND "b""#),
        ("a || b", r#""a" OR "b""#),
        ("a && b || !c", r#""a" AND "b" AND NOT "c""#),
        ("+a b", r#""a""#),
        ("a +b", r#""b""#),
        ("+a +b c", r#""a" AND "b""#),
        ("+a -b c", r#""a" AND NOT "b""#),
        ("a -b", r#""a" AND NOT "b""#),
        ("-a", r#"NOT "a""#),
        ("-a -b", r#"NOT "a" AND NOT "b""#),
        ("NOT a", r#"NOT "a""#),
        ("!a", r#"NOT "a""#),
        ("NOT a OR b", r#""b" AND NOT "a""#),
        ("NOT a AND b", r#""b" AND NOT "a""#),
        ("a NOT b", r#""a" AND NOT "b""#),
        ("a AND NOT b", r#""a" AND NOT "b""#),
        ("a OR NOT b", r#""a" AND NOT "b""#),
        ("a AND -b", r#""a" AND NOT "b""#),
        ("a AND +b", r#""a" AND "b""#),
        ("a OR +b", r#""b""#),
        ("a b AND c", r#""b" AND "c""#),
        ("a b c AND d", r#""c" AND "d""#),
        ("a AND b c", r#""a" AND "b""#),
        ("a AND b c d", r#""a" AND "b""#),
        ("a and b", r#""a" OR "and" OR "b""#),
        ("ANDa", r#""anda""#),
    ];
    check_all(&table, false);
}

#[test]
fn groups_stand_for_themselves() {
    let table = [
        ("(a)", r#""a""#),
        ("((a))", r#""a""#),
        ("(a b) c", r#""a" OR "b" OR "c""#),
        ("(a OR b) AND c", r#"("a" OR "b") AND "c""#),
        ("a AND (b OR c)", r#""a" AND ("b" OR "c")"#),
        ("a OR (b AND c)", r#""a" OR ("b" AND "c")"#),
        ("(a AND b) OR (c AND d)", r#"("a" AND "b") OR ("c" AND "d")"#),
        ("+(a b) -(c d)", r#"("a" OR "b") AND NOT ("c" OR "d")"#),
        ("a (-b)", r#""a" OR NOT "b""#),
        ("a AND (-b)", r#""a" AND NOT "b""#),
        ("(-a) AND b", r#"NOT "a" AND "b""#),
        ("-(-a)", r#""a""#),
        ("-(a -b)", r#"NOT ("a" AND NOT "b")"#),
        ("(a)(b)", r#""a" OR "b""#),
        ("(a)^2.5 OR b^0", r#""a" OR "b""#),
        ("a^2~ b~^2 \"c d\"~1^3 \"e f\"^3~1", r#""a" OR "b" OR "c"+"d"~1 OR "e"+"f"~1"#),
    ];
    check_all(&table, false);
}

#[test]
fn what_analysis_leaves_nothing_of_is_dropped() {
    let table = [
        ("\"...\"", "nothing"),
        ("\"\"", "nothing"),
        ("NOT \"...\"", "nothing"),
        ("(\"...\")", "nothing"),
        ("a \"...\"", r#""a""#),
        ("\"...\" AND a", r#""a""#),
        ("a AND \"...\"", r#""a""#),
        ("a AND (\"...\")", r#""a""#),
        ("a OR b AND \"...\"", r#""b""#),
        // The last word of the run is required, because the text between is dropped.
        ("a b \"...\" AND d", r#""b" AND "d""#),
        ("a - b", r#""a" OR "b""#),
        ("a ! b", r#""a" OR "b""#),
        ("a AND - b", r#""a""#),
        ("host:- b", r#"host:"-" OR "b""#),
        (r"\*", "nothing"),
        ("... ,,,", "nothing"),
        (">", "nothing"),
    ];
    check_all(&table, false);
}

#[test]
fn texts_become_words() {
    let table = [
        ("EXT4", r#""ext4""#),
        ("vm.swappiness", r#""vm.swappiness""#),
        ("a,b", r#""a" OR "b""#),
        ("a,b AND c", r#"("a" OR "b") AND "c""#),
        ("-a,b", r#"NOT ("a" OR "b")"#),
        ("foo!bar", r#""foo" AND NOT "bar""#),
        ("foo-bar", r#""foo" OR "bar""#),
        (r"\u0041b", r#""ab""#),
        (r"a\ b", r#""a" OR "b""#),
        ("\"a b\"", r#""a"+"b""#),
        ("\"a\"", r#""a""#),
        ("\"A B\"~2", r#""a"+"b"~2"#),
        ("\"a b\"~", r#""a"+"b""#),
        ("\"a b\"~1.9", r#""a"+"b"~1"#),
        ("\"a b\"~x", r#""a"+"b""#),
        ("\"a b\"~-1", "nothing"),
        ("\"a\"~-1", r#""a""#),
        ("\"/etc/fstab\"", r#""etc"+"fstab""#),
        ("\"a\"\"b\"", r#""a" OR "b""#),
        (r#""say \"a\" b""#, r#""say"+"a"+"b""#),
    ];
    check_all(&table, false);
}

#[test]
fn fields_hold_for_what_follows_them() {
    let table = [
        ("host:web1", r#"host:"web1""#),
        ("host:Web1 content:Web1", r#"host:"Web1" OR "web1""#),
        ("host: web1", r#"host:"web1""#),
        ("host :web1", r#"host:"web1""#),
        ("host:a b", r#"host:"a" OR "b""#),
        ("host:(a OR b)", r#"host:"a" OR host:"b""#),
        ("host:(a b)", r#"host:"a b""#),
        ("host:(a b AND c)", r#"host:"b" AND host:"c""#),
        ("host:(a b c AND d)", r#"host:"c" AND host:"d""#),
        ("host:(a b \"c\" d)", r#"host:"a b" OR host:"c" OR host:"d""#),
        ("host:(a b *)", r#"host:"a" OR host:"b" OR host:*"#),
        ("host:(a content:b c)", r#"host:"a" OR "b" OR host:"c""#),
        ("host:(a AND (b OR content:c))", r#"host:"a" AND (host:"b" OR "c")"#),
        ("content:(+a -host:b)", r#""a" AND NOT host:"b""#),
        ("-host:a", r#"NOT host:"a""#),
        ("NOT host:a", r#"NOT host:"a""#),
        ("hostname:x", r#"host:"x""#),
        (r"host:a\ b", r#"host:"a b""#),
        ("host:\"a  B\"~2", r#"host:"a  B""#),
        ("host:\"\"", r#"host:"""#),
        (r"host:\AND", r#"host:"AND""#),
        (r"filename:\/etc\/fstab", r#"filename:"/etc/fstab""#),
        ("filename:\"/etc/fstab\" AND content:ext4", r#"filename:"/etc/fstab" AND "ext4""#),
        ("package.zsh:5.9", r#"package.zsh:"5.9""#),
        ("package.python3.11:3.11", r#"package.python3_11:"3.11""#),
        ("kernel.release:4.4*", "kernel.release:/4.4…/"),
        ("nothing:x", "nothing"),
        ("a nothing:x", r#""a""#),
        ("a AND nothing:x", "nothing"),
        ("-nothing:x", "*:*"),
        ("nothing:(a b)", "nothing"),
        ("kernel:4.4", "nothing"),
    ];
    check_all(&table, false);
}

#[test]
fn stars_ask_whether_there_is_anything() {
    let table = [
        ("*:*", "*:*"),
        ("*", "*"),
        ("*:* -host:a", r#"NOT host:"a""#),
        ("-*:*", "nothing"),
        ("a *:*", "*:*"),
        ("*:(*)", "*:*"),
        ("host:*", "host:*"),
        ("hostname:*", "host:*"),
        ("host:(* NOT a)", r#"host:* AND NOT host:"a""#),
        ("_exists_:host", "host:*"),
        ("_exists_:hostname", "host:*"),
        ("_exists_:\"host\"", "host:*"),
        ("NOT _exists_:size", "NOT size:*"),
        ("_exists_:nothing", "nothing"),
        ("_exists_:ho*", "nothing"),
        ("_exists_:*", "nothing"),
        ("_exists_:(host size)", "nothing"),
        ("_exists_:(host OR size)", "host:* OR size:*"),
        (r"_exists_:h\*", "host:* OR hash:*"),
        (r"_exists_:hostn\*", "host:*"),
        ("withheld:*", "withheld.count:* OR withheld.reason:* OR withheld.key:*"),
        ("_exists_:os", "os.id:* OR os.version:* OR os.name:*"),
        ("package.zsh:*", "package.zsh:*"),
        ("sysctl.vm.swappiness:*", "sysctl.vm.swappiness:* OR sysctl.vm.swappiness.*:*"),
        ("package:*", r#"kind:"package""#),
        ("-_exists_:sysctl", r#"NOT kind:"sysctl""#),
        ("cpu.mitigation:*", "cpu.mitigation.*:*"),
        ("nothing:*", "nothing"),
        ("package:*~2", r#"kind:"package""#),
        (r"_exists_:\*", "*:*"),
        ("_exists_:(NOT \"**\")", "nothing"),
    ];
    check_all(&table, false);
}

#[test]
fn names_of_fields_may_have_stars() {
    let table = [
        (r"host\*:a", r#"host:"a""#),
        (
            r"kernel.\*:4",
            r#"kernel.release:"4" OR kernel.version:"4" OR kernel.machine:"4" OR kernel.tainted:4 OR kernel.module:"4""#,
        ),
        (r"fs.s\*:>4", "fs.size:{4 TO *] OR fs.sunit:{4 TO *] OR fs.swidth:{4 TO *]"),
        (r"package.\*:5.9", r#"package.*:"5.9""#),
        (r"sysctl.vm.\*:1", r#"sysctl.vm.*:"1" OR sysctl.vm.*:1"#),
        (r"con\*:...", "nothing"),
        (r"con\*:(a b)", r#""a" OR "b""#),
        (r"nothing.\*:a", "nothing"),
        (r"\*pth:*", "*pth:*"),
        (r"kernel.m\*:*", "kernel.machine:* OR kernel.module:*"),
        (r"package.\*:*", r#"kind:"package""#),
    ];
    check_all(&table, false);
    let all = shown(&read("*:web1").set);
    assert!(
        all.contains(r#"host:"web1""#) && all.contains(r#"OR "web1""#) && all.contains(r#"*:"web1""#),
        "{all}"
    );
}

#[test]
fn numbers_are_compared_as_numbers() {
    let table = [
        ("size:4096", "size:4096"),
        ("size:\"4096\"", "size:4096"),
        ("size:4k", "size:4096"),
        ("size:>4096", "size:{4096 TO *]"),
        ("size:>=4096", "size:[4096 TO *]"),
        ("size:<4096", "size:[* TO 4096}"),
        ("size:<=4096", "size:[* TO 4096]"),
        ("size:>4k", "size:{4096 TO *]"),
        ("filename:\"/etc/hosts\" AND size:>4k", r#"filename:"/etc/hosts" AND size:{4096 TO *]"#),
        ("size:(>1k AND <1M)", "size:{1024 TO *] AND size:[* TO 1048576}"),
        ("size:[1 TO 5]", "size:[1 TO 5]"),
        ("size:{1 TO 5}", "size:{1 TO 5}"),
        ("size:[1 TO 5}", "size:[1 TO 5}"),
        ("size:{* TO 5]", "size:[* TO 5]"),
        ("size:[* TO *]", "size:[* TO *]"),
        ("size:[\"1\" TO \"*\"]", "size:[1 TO *]"),
        (r"size:[\* TO 5]", "size:[* TO 5]"),
        (r"size:\-5", "size:-5"),
        ("size:>-5", "size:{-5 TO *]"),
        ("size:1e3", "size:1000"),
        ("size:1.0", "size:1"),
        ("size:1.5", "nothing"),
        ("size:>1.5", "size:{1.5 TO *]"),
        ("size:abc", "nothing"),
        ("size:>abc", "nothing"),
        ("size:[1 TO b]", "nothing"),
        ("size:1e30", "nothing"),
        ("size:>", "nothing"),
        ("size:(1 2)", "nothing"),
        ("size:(1 OR 2)", "size:1 OR size:2"),
        ("size:4*", "nothing"),
        ("size:?", "nothing"),
        ("size:/4/", "nothing"),
        ("size:4~", "nothing"),
        ("sysctl.vm.swappiness:60", "sysctl.vm.swappiness:60"),
        ("sysctl.vm.swappiness:60.0", "sysctl.vm.swappiness:60"),
        ("sysctl.vm.swappiness:0.5", "sysctl.vm.swappiness:0.5"),
        ("sysctl.vm.swappiness:1e400", "nothing"),
        ("sysctl.kernel.core_pattern:core", r#"sysctl.kernel.core_pattern:"core""#),
    ];
    check_all(&table, false);
}

#[test]
fn dates_are_spans() {
    let table = [
        ("day:2026-11-21", "day:[2026-11-21T00:00:00Z TO 2026-11-21T23:59:59.999Z]"),
        ("day:\"2026-11-21\"", "day:[2026-11-21T00:00:00Z TO 2026-11-21T23:59:59.999Z]"),
        ("day:>2026-11-20", "day:[2026-11-21T00:00:00Z TO *]"),
        ("day:<2026-11-20", "day:[* TO 2026-11-19T23:59:59.999Z]"),
        ("day:\"now/d\"", "day:[2026-11-22T00:00:00Z TO 2026-11-22T23:59:59.999Z]"),
        ("day:2026-11", "day:[2026-11-01T00:00:00Z TO 2026-11-01T23:59:59.999Z]"),
        ("time:2026-11-21T10", "time:[2026-11-21T10:00:00Z TO 2026-11-21T10:59:59.999Z]"),
        (r"time:2026-11-21T10\:30", "time:[2026-11-21T10:30:00Z TO 2026-11-21T10:30:59.999Z]"),
        ("time:\"2026-11-21T10:30:05\"", "time:[2026-11-21T10:30:05Z TO 2026-11-21T10:30:05.999Z]"),
        ("time:2026-11", "time:[2026-11-01T00:00:00Z TO 2026-11-01T23:59:59.999Z]"),
        (r"time:>=now-1d\/d", "time:[2026-11-21T00:00:00Z TO *]"),
        ("time:[now-1d/d TO *]", "time:[2026-11-21T00:00:00Z TO *]"),
        ("timestamp:<now-1h", "time:[* TO 2026-11-22T07:30:15.249Z]"),
        ("mtime:[2026-11-20 TO 2026-11-21]", "mtime:[2026-11-20T00:00:00Z TO 2026-11-21T23:59:59.999Z]"),
        ("mtime:[2026-11-20 TO 2026-11-21}", "mtime:[2026-11-20T00:00:00Z TO 2026-11-20T23:59:59.999Z]"),
        ("mtime:{2026-11-20 TO *}", "mtime:[2026-11-21T00:00:00Z TO *]"),
        ("mtime:[* TO *]", "mtime:[* TO *]"),
        ("mtime:[2026-11-01T10:00:00 TO now]", "mtime:[2026-11-01T10:00:00Z TO 2026-11-22T08:30:15.25Z]"),
        (
            "mtime:[2026-11-21||-1w TO 2026-11-21||/M]",
            "mtime:[2026-11-14T00:00:00Z TO 2026-11-30T23:59:59.999Z]",
        ),
        ("mtime:{2026-11-21 TO 2026-11-21}", "nothing"),
        ("time:0", "time:[1970-01-01T00:00:00Z TO 1970-01-01T00:00:00Z]"),
        ("time:yesterday", "nothing"),
        ("time:2026*", "nothing"),
        ("time:2026~", "nothing"),
        ("time:(2026-11-20 2026-11-21)", "nothing"),
    ];
    check_all(&table, false);
}

#[test]
fn words_have_ranges() {
    let table = [
        ("[a TO b]", r#"["a" TO "b"]"#),
        ("{A TO B}", r#"{"a" TO "b"}"#),
        ("[A TO *]", r#"["a" TO *]"#),
        ("[* TO *]", "[* TO *]"),
        ("host:[A TO b}", r#"host:["A" TO "b"}"#),
        ("host:{a TO *}", r#"host:{"a" TO *]"#),
        ("host:[\"a b\" TO TO]", r#"host:["a b" TO "TO"]"#),
        ("host:>web1", r#"host:{"web1" TO *]"#),
        ("host:<=web1", r#"host:[* TO "web1"]"#),
        (">ABC", r#"{"abc" TO *]"#),
        (">=", r#"{"=" TO *]"#),
        ("host:(>a AND <b)", r#"host:{"a" TO *] AND host:[* TO "b"}"#),
        ("host:\">a\"", r#"host:">a""#),
        ("host:[a TO b]^2 c", r#"host:["a" TO "b"] OR "c""#),
    ];
    check_all(&table, false);
}

#[test]
fn all_words_is_another_operator() {
    let table = [
        ("a b", r#""a" AND "b""#),
        ("a b c", r#""a" AND "b" AND "c""#),
        ("a OR b", r#""a" OR "b""#),
        ("a b OR c", r#""a""#),
        ("a b c OR d", r#""a" AND "b""#),
        ("a OR b c", r#""c""#),
        ("a AND b OR c", r#""a""#),
        ("+a OR b", r#""a" OR "b""#),
        ("a OR +b", r#""a" OR "b""#),
        ("a -b", r#""a" AND NOT "b""#),
        ("-a OR b", r#""b" AND NOT "a""#),
        ("-a", r#"NOT "a""#),
        ("a,b", r#""a" AND "b""#),
        ("a,b OR c", r#"("a" AND "b") OR "c""#),
        ("host:(a b)", r#"host:"a b""#),
        ("(a b) OR c", r#"("a" AND "b") OR "c""#),
        (r"fs.s\*:4", "fs.size:4 OR fs.sunit:4 OR fs.swidth:4"),
    ];
    check_all(&table, true);
}

#[test]
fn patterns_take_what_they_should() {
    for (text, field, takes, leaves) in [
        ("vm.swap*", "content", vec!["vm.swap", "vm.swappiness"], vec!["vm.swa", "xvm.swap"]),
        ("VM.Swap*", "content", vec!["vm.swappiness"], vec!["VM.Swappiness"]),
        ("host:Web*", "host", vec!["Web1"], vec!["web1"]),
        (r"filename:\/etc\/*", "filename", vec!["/etc/", "/etc/x"], vec!["/et"]),
        ("*ness", "content", vec!["ness", "swappiness"], vec!["nessy"]),
        ("Vm.*N?ss", "content", vec!["vm.swappiness", "vm.nxss"], vec!["vm.nss", "Vm.Ness"]),
        (r"host:a\*b*c", "host", vec!["a*bc", "a*bxc"], vec!["axbc"]),
        // Escaped characters keep their case.
        (r"\Ab*c", "content", vec!["Abc"], vec!["abc"]),
        ("host:**", "host", vec!["", "a"], vec![]),
        ("/Sw.*ss/", "content", vec!["swappiness", "swss"], vec!["swap", "xswss"]),
        ("host:/web[0-9]+/", "host", vec!["web1", "web10"], vec!["web", "web1x"]),
        (r"filename:/\/etc\/.*/", "filename", vec!["/etc/fstab"], vec!["/var/x"]),
        ("swapiness~1", "content", vec!["swappiness", "swapiness"], vec!["swappines"]),
        ("host:web~", "host", vec!["wab", "wbe", "web"], vec!["Wab"]),
        ("swappiness~7", "content", vec!["swppines"], vec!["swppine"]),
        ("- ~2", "content", vec!["a"], vec!["abcd"]),
    ] {
        let query = read(text);
        let Set::Leaf { field: found, leaf: Leaf::Terms(matcher) } = &query.set else {
            panic!("{text}: {}", query.set)
        };
        assert_eq!(found, field, "{text}");
        takes.iter().for_each(|term| assert!(matcher.takes(term), "{text} takes {term}"));
        leaves.iter().for_each(|term| assert!(!matcher.takes(term), "{text} takes {term}"));
    }
    check_all(
        &[
            ("ab~", r#""ab""#),
            ("Abc~0", r#""abc""#),
            ("host:Abc~0.9", r#"host:"Abc""#),
            ("abc~-1", "nothing"),
        ],
        false,
    );
}

#[test]
fn the_text_for_a_cluster_and_the_fields_are_kept() {
    let query = read("hostname:a AND size:>4k OR package:* b -content:(x host:y _exists_:mtime)");
    assert_eq!(query.text, "host:a AND size:>4096 OR kind:\"package\" b -content:(x host:y _exists_:mtime)");
    assert_eq!(query.fields, ["host", "size", "package", "content", "mtime"]);
    for empty in ["", "  ", "\n\t", "\u{3000}"] {
        let query = read(empty);
        assert_eq!((query.text.as_str(), query.set.to_string().as_str()), ("*:*", "*:*"));
    }
}
