use super::*;

fn read(text: &str) -> Result<Config, Mistake> {
    Config::read(text, &|_, pattern| {
        if pattern.starts_with("nix") { Err("no metric".into()) } else { Ok(()) }
    })
}

#[test]
fn a_mistake_is_told_with_its_place() {
    for (text, at, says) in [
        ("to = \"pigeon\"", "\"pigeon\"", "unknown variant `pigeon`"),
        ("to = \"influx\"", "\"influx\"", "wanted url"),
        ("to = \"parquet\"", "\"parquet\"", "wanted folder"),
        ("to = \"parquet\"\nurl = \"http://a/\"", "\"parquet\"", "and no url"),
        ("to = \"parquet\"\nfolder = \"x\"", "\"x\"", "the whole path"),
        ("to = \"influx\"\nfolder = \"/x\"", "\"/x\"", "folder is only for parquet"),
        ("to = \"graphite\"\nurl = \"http://a:1\"", "\"http", "wanted an address with tcp://HOST:PORT"),
        ("to = \"graphite\"\nurl = \"tcp://a\"", "\"tcp", "wanted an address"),
        ("to = \"influx\"\nurl = \"tcp://a:1\"", "\"tcp", "wanted an address with http"),
        ("to = \"influx\"\nurl = \"a b\"", "\"a b", "not an address"),
        ("to = \"influx\"\nurl = \"http://u:p@a/\"", "\"http", "a password stands in a file"),
        ("to = \"influx\"\nurl = \"http://a/\"\ntoken-file = \"/t\"", "\"http", "in clear"),
        (
            "to = \"influx\"\nurl = \"http://127.0.0.1.evil.example/\"\ntoken-file = \"/t\"",
            "\"http",
            "in clear",
        ),
        ("to = \"opentsdb\"\nurl = \"tcp://a:1\"\ntoken-file = \"/t\"", "\"tcp", "no password"),
        ("to = \"graphite\"\nurl = \"tls://a\"", "\"tls", "wanted an address with tcp://HOST:PORT or tls"),
        ("to = \"graphite\"\nurl = \"tls://a:1\"\ntoken-file = \"/t\"", "\"tls", "tls:// has no password"),
        (
            "to = \"kafka\"\nurl = \"http://a:9092\"",
            "\"http",
            "wanted an address with tcp://HOST:PORT or tls",
        ),
        ("to = \"kafka\"\nurl = \"tcp://a:1\"\ntopic = \"a b\"", "\"a b", "wanted a topic"),
        ("to = \"kafka\"\nurl = \"tcp://a:1\"\ntopic = \"..\"", "\"..", "wanted a topic"),
        ("to = \"kafka\"\nurl = \"tcp://a:1\"\nformat = \"csv\"", "\"csv", "unknown variant `csv`"),
        ("to = \"kafka-logs\"\nurl = \"tcp://a:1\"\nformat = \"influx\"", "\"influx", "incidents are otlp"),
        ("to = \"influx\"\nurl = \"http://a/\"\ntopic = \"t\"", "\"t\"", "topic is only for kafka"),
        ("to = \"kafka\"\nurl = \"tls://a:1\"\nsasl = \"plain\"", "\"plain", "wanted user and password-file"),
        (
            "to = \"kafka\"\nurl = \"tls://a:1\"\ntoken-file = \"/t\"",
            "\"kafka",
            "wanted user and password-file",
        ),
        (
            "to = \"kafka\"\nurl = \"tcp://a:1\"\nuser = \"u\"\npassword-file = \"/p\"",
            "\"tcp",
            "in clear: wanted tls://",
        ),
        ("to = \"influx\"\nurl = \"tls://a:1\"", "\"tls", "wanted an address with http"),
        (
            "to = \"graphite\"\nurl = \"tls://a:1\"\ncert-file = \"/c\"",
            "\"/c\"",
            "both cert-file and key-file",
        ),
        ("to = \"influx\"\nurl = \"https://a/\"\nkey-file = \"/k\"", "\"/k\"", "both cert-file and key-file"),
        (
            "to = \"graphite\"\nurl = \"tcp://a:1\"\ncert-file = \"/c\"\nkey-file = \"/k\"",
            "\"/c\"",
            "by https:// and tls:// only",
        ),
        (
            "to = \"parquet\"\nfolder = \"/x\"\ncert-file = \"/c\"\nkey-file = \"/k\"",
            "\"parquet\"",
            "no certificate",
        ),
        ("to = \"influx\"\nurl = \"https://a/\"\nuser = \"u\"", "\"influx\"", "user and password-file"),
        (
            "to = \"influx\"\nurl = \"https://a/\"\nuser = \"u:v\"\npassword-file = \"/p\"",
            "\"u:v\"",
            "no colon",
        ),
        ("to = \"influx\"\nurl = \"http://a/\"\nversion = 2", "2", "version is only for prometheus"),
        ("to = \"prometheus\"\nurl = \"http://a/\"\nversion = 3", "3", "wanted 1 or 2"),
        ("to = \"influx\"\nurl = \"http://a/\"\nevery = \"5ms\"", "\"5ms\"", "from 1 s to 3600 s"),
        ("to = \"influx\"\nurl = \"http://a/\"\nkeep = \"99999999999999999999d\"", "\"9999", "wanted"),
        ("to = \"influx\"\nurl = \"http://a/\"\ntop = 101", "101", "at most 100"),
        ("to = \"influx\"\nurl = \"http://a/\"\nevery = \"11m\"\ntop = 3", "3", "every is at most 600 s"),
        ("to = \"otlp-logs\"\nurl = \"http://a/\"\ntop = 3", "3", "none for parquet and for incidents"),
        ("to = \"otlp-logs\"\nurl = \"http://a/\"\nmetrics = [\"mem.*\"]", "\"mem", "and no metrics"),
        ("to = \"otlp-logs\"\nurl = \"tcp://a:1\"", "\"tcp", "wanted an address with http"),
        ("to = \"clickhouse\"\nurl = \"tcp://a:9000\"", "\"tcp", "wanted an address with http"),
        ("to = \"otlp\"\nurl = \"http://a/\"\nfindings = true", "true", "only for otlp-logs"),
        ("to = \"influx\"\nurl = \"http://a/\"\nmetrics = [\"mem.*\", \"nix.*\"]", "\"nix", "no metric"),
        ("to = \"influx\"\nurl = \"http://a/\"\nlabels = { __x = \"1\" }", "\"1\"", "wanted at most"),
        ("to = \"influx\"\nurl = \"http://a/\"\nlabels = { a-b = \"1\" }", "\"1\"", "wanted at most"),
        ("to = \"influx\"\nurl = \"http://a/\"\nlabels = { a = \"\" }", "\"\"", "wanted a value"),
        ("to = \"otlp-logs\"\nurl = \"http://a/\"\nlabels = { mitra = \"1\" }", "\"1\"", "another name"),
        ("to = \"influx\"\nurl = \"http://a/\"\nname = \"../x\"", "\"../x\"", "wanted a name"),
        ("to = \"influx\"\nurl = \"http://a/\"\nevry = \"3s\"", "evry", "unknown field `evry`"),
        (
            "to = \"influx\"\nurl = \"http://a/\"\n[[output]]\nto = \"influx\"\nurl = \"http://b/\"",
            "[[output]]",
            "there is another output called influx",
        ),
    ] {
        let text = format!("[[output]]\n{text}\n");
        let mistake = read(&text).unwrap_err();
        assert!(mistake.message.contains(says), "{text}: {mistake:?}");
        assert!(text[mistake.at.clone()].starts_with(at), "{text}: {mistake:?}");
    }
}

#[test]
fn a_password_may_go_encrypted_or_to_this_machine() {
    for url in ["https://far.example/w", "http://localhost:1/w", "http://127.0.0.1:1/w", "http://[::1]:1/w"] {
        let text = format!("[[output]]\nto = \"influx\"\nurl = \"{url}\"\ntoken-file = \"/t\"");
        assert_eq!(read(&text).map(|config| config.outputs.len()), Ok(1), "{url}");
    }
    let far = "[[output]]\nto = \"influx\"\nurl = \"http://far.example/\"\n";
    assert!(read(&format!("{far}token-file = \"/t\"\ninsecure = true")).is_ok());
    assert!(read(far).is_ok(), "nothing is secret");
    assert!(read(&format!("{far}every = \"1h\"\ntop = 0")).is_ok(), "no process is sent");
}

#[test]
fn the_other_tables_are_for_others_and_the_usual_is_usual() {
    let text = "[index]\nfiles = []\n[[output]]\nto = \"graphite\"\nurl = \"tcp://[::1]:2003\"\n[[rule]]\nname = 1\n";
    let output = &read(text).unwrap().outputs[0];
    assert_eq!((output.every, output.keep, output.top), (EVERY, KEEP, 0));
    assert_eq!((output.name.as_str(), output.pickle), ("graphite", false));
    let logs = "[[output]]\nto = \"otlp-logs\"\nurl = \"http://[::1]:4318/v1/logs\"\n";
    let output = &read(logs).unwrap().outputs[0];
    assert_eq!((output.name.as_str(), output.every, output.findings), ("otlp-logs", EVERY_INCIDENTS, true));
    assert!(!read(&format!("{logs}findings = false")).unwrap().outputs[0].findings);
    assert_eq!(read("").unwrap(), Config::default());
}

#[test]
fn the_examples_of_the_package_and_of_the_page_are_right() {
    let shipped = include_str!("../../../../packaging/mitra.toml");
    let (_, examples) = shipped.split_once("\n# [[output]]\n").unwrap();
    let examples = examples.split("\n\n").next().unwrap();
    let lines = examples.lines().map(|line| line.trim_start_matches("# "));
    let tables: Vec<&str> = lines.filter(|line| line.starts_with('[') || line.contains(" = ")).collect();
    let config = read(&format!("[[output]]\n{}", tables.join("\n"))).unwrap();
    let kinds: Vec<Kind> = config.outputs.iter().map(|output| output.kind).collect();
    let all = [
        Kind::Prometheus,
        Kind::Otlp,
        Kind::OtlpLogs,
        Kind::Clickhouse,
        Kind::Influx,
        Kind::Opentsdb,
        Kind::Graphite,
        Kind::Kafka,
        Kind::KafkaLogs,
        Kind::Parquet,
    ];
    assert_eq!(kinds, all);
    // Each name is the one that a table has.
    for (kind, part) in all.iter().zip(tables.join("\n").split("[[output]]")) {
        assert!(part.contains(&format!("to = \"{}\"", kind.name())), "{part}");
    }
    let parts: Vec<&str> = include_str!("../../../../docs/outputs.md").split("```toml\n").skip(1).collect();
    assert!(!parts.is_empty());
    for part in parts {
        let text = part.split("```").next().unwrap();
        assert!(!read(text).unwrap().outputs.is_empty(), "{text}");
    }
}
