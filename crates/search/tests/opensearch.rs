//! The cluster back end against a real server.

mod engine;

use std::collections::BTreeSet;
use std::time::Duration;

use engine::Engine;
use mitra_search::backend::{Batch, Hit, Sink};
use mitra_search::document::Flag;
use mitra_search::opensearch::{Cluster, Writer};
use mitra_search::{Day, Document, Facts, Kind, Query, Scope, Stat, Value};

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3_600 * SECOND;

fn day(n: i32) -> Day {
    Day(20_700 + n)
}

/// An hour of a day, plus some nanoseconds that milliseconds cannot represent.
fn at(n: i32, hour: i64) -> i64 {
    day(n).start_ns() + hour * HOUR + 123_456_789
}

fn document(host: &str, filename: &str, content: &str, since_ns: i64) -> Document {
    Document {
        content: Some(content.into()),
        stat: Some(Stat {
            size: content.len() as u64,
            mode: 0o644,
            inode: u64::MAX - 7,
            mtime_ns: since_ns - 5,
            ..Stat::default()
        }),
        since_ns,
        ..Document::new(host, filename, Kind::File)
    }
}

fn sysctl(host: &str, swappiness: f64, since_ns: i64) -> Document {
    let mut facts = Facts::new();
    facts.insert("sysctl.vm.swappiness".into(), vec![Value::Number(swappiness)]);
    facts.insert("sysctl.kernel.core_pattern".into(), vec![Value::Text("core".into())]);
    facts.insert("sysctl.net.ipv4.tcp_mem".into(), vec![Value::Number(1.0), Value::Number(2.5)]);
    let content = format!("vm.swappiness = {swappiness}\n");
    Document { kind: Kind::Sysctl, stat: None, facts, ..document(host, "@sysctl", &content, since_ns) }
}

fn query(text: &str) -> Query {
    Query { text: text.into(), ..Query::all() }
}

fn put(writer: &mut Writer, host: &str, at_ns: i64, documents: &[Document], gone: &[&str]) {
    let gone: Vec<String> = gone.iter().map(|g| (*g).to_owned()).collect();
    writer.put(&Batch { host, at_ns, documents, gone: &gone }).expect("taken");
}

fn names(hits: &[Hit]) -> Vec<String> {
    hits.iter().map(|h| format!("{} {} {}", h.host, h.filename, h.day.0 - day(0).0)).collect()
}

fn found(cluster: &Cluster, text: &str, scope: Scope) -> Vec<String> {
    let page = cluster.search(&query(text), scope, 1_000).expect("an answer");
    assert_eq!(page.total, page.hits.len() as u64);
    names(&page.hits)
}

#[test]
#[ignore = "starts an OpenSearch: make test-search"]
fn against_a_real_opensearch() {
    let Some(engine) = Engine::start(1) else { return };
    the_story_of_two_hosts(&engine);
    many_pages(&engine);
    more_fields_than_an_index_takes(&engine);
    the_spool_is_delivered(&engine);
    old_days_go(&engine);
}

fn tell(engine: &Engine, prefix: &str) -> Writer {
    let mut writer = engine.writer(prefix, prefix);
    assert!(writer.needs_all("web1", at(0, 10)));
    let t = at(0, 10);
    let mut memory = document("web1", "/proc/meminfo", "MemFree: 1 kB", t);
    memory.flag(Flag::Volatile);
    put(
        &mut writer,
        "web1",
        t,
        &[
            document("web1", "/etc/fstab", "UUID=a / ext4 first", t),
            document("web1", "/etc/hosts", "127.0.0.1 localhost", t),
            sysctl("web1", 60.0, t),
            memory.clone(),
        ],
        &[],
    );
    assert!(!writer.needs_all("web1", at(0, 11)) && writer.needs_all("web1", at(1, 0)));
    put(
        &mut writer,
        "web2",
        t,
        &[document("web2", "/etc/fstab", "UUID=b / xfs", t), sysctl("web2", 10.0, t)],
        &[],
    );
    put(
        &mut writer,
        "web1",
        at(0, 11),
        &[document("web1", "/etc/fstab", "UUID=a / ext4 second", at(0, 11))],
        &[],
    );
    memory.content = Some("MemFree: 2 kB".into());
    memory.since_ns = at(0, 11) + 5;
    put(&mut writer, "web1", at(0, 11) + 5, &[memory], &[]);
    put(
        &mut writer,
        "web1",
        at(0, 12),
        &[document("web1", "/etc/fstab", "UUID=a / ext4 third", at(0, 12))],
        &["/etc/hosts"],
    );
    // On the next day the batch does not mention unchanged documents, and the other host has no
    // pass.
    put(&mut writer, "web1", at(1, 9), &[], &[]);
    put(&mut writer, "web1", at(1, 10), &[sysctl("web1", 100.0, at(1, 10))], &[]);
    writer.cluster().refresh().expect("refreshed");
    assert_eq!(writer.waiting(), 0);
    assert_eq!(writer.messages(), Vec::<String>::new());
    writer
}

fn the_story_of_two_hosts(engine: &Engine) {
    let mut writer = tell(engine, "story_");
    let cluster = engine.cluster("story_");
    days(&cluster);
    moments(&cluster);
    changes(&cluster);
    hosts_and_values(&cluster);
    whole_documents(&cluster);
    template(engine);
    a_writer_that_starts_again(engine, &cluster, &mut writer);
}

fn days(cluster: &Cluster) {
    let both = [
        "web1 /etc/fstab 0",
        "web1 /etc/hosts 0",
        "web1 /proc/meminfo 0",
        "web1 @sysctl 0",
        "web2 /etc/fstab 0",
        "web2 @sysctl 0",
    ];
    assert_eq!(found(cluster, "*:*", Scope::day(day(0))), both);
    assert_eq!(found(cluster, "flags:gone", Scope::day(day(0))), ["web1 /etc/hosts 0"]);
    let next = ["web1 /etc/fstab 1", "web1 /proc/meminfo 1", "web1 @sysctl 1"];
    assert_eq!(found(cluster, "", Scope::day(day(1))), next);
    let all = Scope::Days { first: day(-5), last: day(5) };
    assert_eq!(
        found(cluster, "filename:\"/etc/fstab\" AND content:ext4", all),
        ["web1 /etc/fstab 0", "web1 /etc/fstab 1"]
    );
    assert_eq!(found(cluster, "content:\"ext4 second\"", all), Vec::<String>::new());
    assert_eq!(found(cluster, "sysctl.vm.swappiness:>50", all), ["web1 @sysctl 0", "web1 @sysctl 1"]);
    assert_eq!(found(cluster, "sysctl.kernel.core_pattern:cor?", Scope::day(day(1))), ["web1 @sysctl 1"]);
    assert_eq!(
        found(cluster, "size:>18 AND mode:0644 AND NOT content:ext4", Scope::day(day(0))),
        ["web1 /etc/hosts 0"]
    );
    // With many days the cluster is asked which of them it has.
    assert_eq!(
        found(cluster, "content:xfs", Scope::Days { first: Day(0), last: Day(40_000) }),
        ["web2 /etc/fstab 0"]
    );
    let page = cluster.search(&query("*:*"), Scope::day(day(0)), 2).expect("an answer");
    assert_eq!((page.total, names(&page.hits)), (6, both[..2].iter().map(|s| (*s).to_owned()).collect()));
    assert_eq!(page.hits[0].since_ns, at(0, 12));
    assert_eq!((page.hits[0].size, page.hits[0].mtime_ns), (Some(19), Some(at(0, 12) - 5)));
    assert_eq!(cluster.search(&query("*:*"), Scope::day(day(0)), 0).expect("an answer").total, 6);
    let mistake =
        cluster.search(&query("content:["), Scope::day(day(0)), 1).expect_err("a mistake").to_string();
    assert!(mistake.contains("HTTP 400"), "{mistake}");
}

fn moments(cluster: &Cluster) {
    let ext4 = |ns: i64| {
        let page = cluster.search(&query("content:ext4"), Scope::At { ns }, 10).expect("an answer");
        page.hits.into_iter().map(|h| h.since_ns).collect::<Vec<_>>()
    };
    assert_eq!(ext4(at(0, 10) - 1), Vec::<i64>::new());
    assert_eq!(ext4(at(0, 10)), [at(0, 10)]);
    assert_eq!(ext4(at(0, 11) - 1), [at(0, 10)]);
    assert_eq!(ext4(at(0, 11)), [at(0, 11)]);
    assert_eq!(ext4(at(0, 13)), [at(0, 12)]);
    assert_eq!(ext4(at(1, 1)), [at(0, 12)], "before the first look of a day");
    let hosts_file = |ns: i64| found(cluster, "filename:\"/etc/hosts\"", Scope::At { ns }).len();
    assert_eq!((hosts_file(at(0, 12) - 1), hosts_file(at(0, 12)), hosts_file(at(1, 12))), (1, 0, 0));
    // For a host without a pass on a day, the states of the day before count.
    assert_eq!(
        found(cluster, "filename:\"@sysctl\"", Scope::At { ns: at(1, 12) }),
        ["web1 @sysctl 1", "web2 @sysctl 0"]
    );
    assert_eq!(found(cluster, "*:*", Scope::At { ns: at(3, 0) }), Vec::<String>::new());
}

fn changes(cluster: &Cluster) {
    let changed = |from: i64, to: i64| found(cluster, "*:*", Scope::Changed { since_ns: from, until_ns: to });
    assert_eq!(changed(at(0, 0), at(0, 11)), Vec::<String>::new(), "what is new with its host is no change");
    assert_eq!(changed(at(0, 10) + HOUR / 2, at(0, 11) + 1), ["web1 /etc/fstab 0"]);
    let day0 = ["web1 /etc/fstab 0", "web1 /etc/hosts 0", "web1 /proc/meminfo 0"];
    assert_eq!(changed(at(0, 0), day(1).start_ns()), day0);
    assert_eq!(changed(day(1).start_ns(), at(2, 0)), ["web1 @sysctl 1"]);

    let all = cluster.changes(Some("web1"), &Query::all(), at(0, 0), at(2, 0)).expect("changes");
    let text =
        |d: &Option<Document>| d.as_ref().and_then(|d| d.content.clone()).unwrap_or_else(|| "-".into());
    let told: Vec<(i64, Option<i64>, String, String)> =
        all.iter().map(|c| (c.at_ns, c.not_before_ns, text(&c.before), text(&c.after))).collect();
    let wanted = [
        (at(0, 11), Some(at(0, 10)), "UUID=a / ext4 first", "UUID=a / ext4 second"),
        (at(0, 11) + 5, Some(at(0, 11)), "-", "MemFree: 2 kB"),
        (at(0, 12), Some(at(0, 11) + 5), "UUID=a / ext4 second", "UUID=a / ext4 third"),
        (at(0, 12), Some(at(0, 11) + 5), "127.0.0.1 localhost", "-"),
        (at(1, 10), Some(at(1, 9)), "vm.swappiness = 60\n", "vm.swappiness = 100\n"),
    ];
    let wanted: Vec<_> = wanted.map(|(a, b, c, d)| (a, b, c.to_owned(), d.to_owned())).into();
    assert_eq!(told, wanted);
    // A change is found by the state before and by the state after.
    for word in ["first", "second"] {
        let some =
            cluster.changes(None, &query(&format!("content:{word}")), at(0, 0), at(0, 12)).expect("changes");
        assert_eq!(some.len(), 1, "{word}");
    }
    assert!(cluster.changes(Some("web2"), &Query::all(), at(0, 0), at(2, 0)).expect("changes").is_empty());
}

fn hosts_and_values(cluster: &Cluster) {
    let hosts = |text: &str, scope| {
        cluster.hosts(&query(text), scope).expect("hosts").into_iter().collect::<Vec<_>>()
    };
    assert_eq!(hosts("*:*", Scope::day(day(0))), ["web1", "web2"]);
    assert_eq!(hosts("content:ext4", Scope::day(day(0))), ["web1"]);
    assert_eq!(hosts("*:*", Scope::day(day(1))), ["web1"]);
    assert_eq!(hosts("*:*", Scope::At { ns: at(1, 12) }), ["web1", "web2"]);
    assert_eq!(hosts("*:*", Scope::day(day(9))), Vec::<String>::new());

    let values = |field: &str, scope| {
        let held = cluster.values(field, &query("*:*"), scope).expect("values");
        held.into_iter().map(|h| (h.value, h.hosts.join(" "))).collect::<Vec<_>>()
    };
    let (number, word) = (Value::Number, |t: &str| Value::Text(t.to_owned()));
    let swappiness = values("sysctl.vm.swappiness", Scope::day(day(0)));
    assert_eq!(swappiness, [(number(10.0), "web2".to_owned()), (number(60.0), "web1".to_owned())]);
    let memory = values("sysctl.net.ipv4.tcp_mem", Scope::day(day(0)));
    assert_eq!(memory, [(number(1.0), "web1 web2".to_owned()), (number(2.5), "web1 web2".to_owned())]);
    assert_eq!(values("host", Scope::day(day(0)))[1], (word("web2"), "web2".to_owned()));
    assert_eq!(
        values("kind", Scope::day(day(1))),
        [(word("file"), "web1".to_owned()), (word("sysctl"), "web1".to_owned())]
    );
    assert_eq!(
        values("mtime", Scope::day(day(1))).first(),
        Some(&(Value::Time(at(0, 10) - 5), "web1".to_owned()))
    );
    assert_eq!(values("day", Scope::day(day(1))), [(Value::Time(day(1).start_ns()), "web1".to_owned())]);
    assert!(
        values("nobody.knows", Scope::day(day(0))).is_empty()
            && values("package.zsh", Scope::day(day(0))).is_empty()
    );
    assert!(cluster.values("content", &query("*:*"), Scope::day(day(0))).is_err());
}

fn whole_documents(cluster: &Cluster) {
    let mut all = Vec::new();
    let mut take = |day: Day, document: Document| {
        all.push((day, document));
        Ok(())
    };
    cluster.each(&query("host:web1"), Scope::day(day(1)), &mut take).expect("documents");
    let sysctl_now = sysctl("web1", 100.0, at(1, 10));
    assert_eq!(all.iter().map(|(d, _)| *d).collect::<BTreeSet<_>>(), [day(1)].into());
    assert_eq!(all[0].1, document("web1", "/etc/fstab", "UUID=a / ext4 third", at(0, 12)));
    assert_eq!(all[2].1, sysctl_now);

    let get = |filename: &str, scope| cluster.get("web1", filename, scope).expect("an answer");
    assert_eq!(get("@sysctl", Scope::Days { first: day(-1), last: day(7) }), Some(sysctl_now));
    assert_eq!(get("@sysctl", Scope::day(day(0))), Some(sysctl("web1", 60.0, at(0, 10))));
    assert_eq!(get("@sysctl", Scope::day(day(2))), None);
    let gone = get("/etc/hosts", Scope::day(day(0))).expect("it is shown on its day");
    assert!(gone.is(Flag::Gone) && gone.content.is_some() && gone.since_ns == at(0, 12));
    let fstab = |ns| get("/etc/fstab", Scope::At { ns }).and_then(|d| d.content);
    assert_eq!(fstab(at(0, 11) + HOUR / 2).as_deref(), Some("UUID=a / ext4 second"));
    assert_eq!(fstab(at(0, 9)), None);
    assert_eq!(get("/etc/hosts", Scope::At { ns: at(0, 12) }), None);
    let changed = get("/etc/fstab", Scope::Changed { since_ns: at(0, 10) + 1, until_ns: at(0, 12) });
    assert_eq!(changed.and_then(|d| d.content).as_deref(), Some("UUID=a / ext4 second"));
    assert!(cluster.get("web2", "@sysctl", Scope::At { ns: at(1, 12) }).expect("an answer").is_some());
}

fn template(engine: &Engine) {
    let prefix = engine.settings("story_").prefix;
    let mapping: serde_json::Value =
        serde_json::from_str(&engine.raw("GET", &format!("/{prefix}{}/_mapping", day(0)), "")).expect("JSON");
    let properties = mapping
        .as_object()
        .and_then(|o| o.values().next())
        .expect("an index")
        .pointer("/mappings/properties");
    let kind = |at: &str| properties.and_then(|p| p.pointer(at)).and_then(|t| t.as_str()).map(str::to_owned);
    assert_eq!(kind("/sysctl/properties/vm/properties/swappiness/type").as_deref(), Some("double"));
    assert_eq!(kind("/sysctl/properties/kernel/properties/core_pattern/type").as_deref(), Some("keyword"));
    assert_eq!(kind("/content/type").as_deref(), Some("text"));
    assert_eq!(kind("/hostname/type").as_deref(), Some("alias"));
    let cluster = engine.cluster("story_");
    assert_eq!(found(&cluster, "hostname:web2 AND timestamp:*", Scope::day(day(0))).len(), 2, "older names");
}

/// The restarted writer reads everything for the first time, and nothing has changed.
fn a_writer_that_starts_again(engine: &Engine, cluster: &Cluster, before: &mut Writer) {
    let count = |scope| cluster.search(&Query::all(), scope, 0).expect("an answer").total;
    let changed = Scope::Changed { since_ns: at(0, 0), until_ns: at(5, 0) };
    let (had, had_changed) = (count(Scope::day(day(1))), count(changed));
    let mut writer = engine.writer("story_", "again");
    let wanted: BTreeSet<String> = ["/etc/fstab", "/proc/meminfo", "@sysctl"].map(str::to_owned).into();
    assert_eq!(writer.names("web1").expect("names"), wanted);
    assert_eq!(before.names("web1").expect("names"), wanted);
    assert!(writer.names("nobody").expect("names").is_empty());
    let t = at(1, 11);
    let again = [document("web1", "/etc/fstab", "UUID=a / ext4 third", t), sysctl("web1", 100.0, t)];
    // In this test the file's status depends on the time.
    let mut fstab = again[0].clone();
    fstab.stat = document("web1", "/etc/fstab", "UUID=a / ext4 third", at(0, 12)).stat;
    put(&mut writer, "web1", t, &[fstab, again[1].clone()], &[]);
    cluster.refresh().expect("refreshed");
    assert_eq!((count(Scope::day(day(1))), count(changed)), (had, had_changed));
    let still = cluster.get("web1", "@sysctl", Scope::day(day(1))).expect("an answer").expect("there");
    assert_eq!(still.since_ns, at(1, 10), "since when a state is known stands still");
}

fn many_pages(engine: &Engine) {
    let mut writer = engine.writer("pages_", "pages");
    let t = at(0, 1);
    let documents: Vec<Document> =
        (0..2_345).map(|n| document("web1", &format!("/etc/{n:05}"), &format!("number {n}"), t)).collect();
    put(&mut writer, "web1", t, &documents, &[]);
    let cluster = engine.cluster("pages_");
    cluster.refresh().expect("refreshed");
    let page = cluster.search(&query("content:number"), Scope::day(day(0)), 2_100).expect("an answer");
    assert_eq!((page.total, page.hits.len()), (2_345, 2_100));
    assert!(page.hits.windows(2).all(|two| two[0] < two[1]));
    let mut count = 0;
    let mut take = |_, _| {
        count += 1;
        Ok(())
    };
    cluster.each(&Query::all(), Scope::day(day(0)), &mut take).expect("documents");
    assert_eq!(count, 2_345);
    assert_eq!(cluster.values("filename", &Query::all(), Scope::day(day(0))).expect("values").len(), 2_345);
    put(&mut writer, "web1", at(1, 1), &[], &[]);
    cluster.refresh().expect("refreshed");
    assert_eq!(
        cluster.search(&Query::all(), Scope::day(day(1)), 0).expect("an answer").total,
        2_345,
        "carried to the next day"
    );
}

fn more_fields_than_an_index_takes(engine: &Engine) {
    let prefix = engine.settings("fields_").prefix;
    let mut writer = engine.writer("fields_", "fields");
    put(&mut writer, "web1", at(0, 1), &[document("web1", "/etc/hosts", "x", at(0, 1))], &[]);
    let set = engine.raw(
        "PUT",
        &format!("/{prefix}{}/_settings", day(0)),
        r#"{"index.mapping.total_fields.limit": 160}"#,
    );
    assert!(set.contains("acknowledged"), "{set}");
    let mut packages = document("web1", "@packages/dpkg", "zsh 5.9", at(0, 2));
    packages.facts = (0..200).map(|n| (format!("package.p{n}"), vec![Value::Text("1".into())])).collect();
    put(&mut writer, "web1", at(0, 2), std::slice::from_ref(&packages), &[]);
    let messages = writer.messages();
    assert!(
        messages.len() == 1
            && messages[0].contains("@packages/dpkg")
            && messages[0].contains("cannot be asked for"),
        "{messages:?}"
    );
    let has = engine.cluster("fields_").get("web1", "@packages/dpkg", Scope::day(day(0))).expect("an answer");
    assert_eq!(has, Some(packages), "all of it is kept");
}

/// Batches accepted while the cluster is down, by a writer that is then killed, are delivered in
/// order by the next writer.
fn the_spool_is_delivered(engine: &Engine) {
    let mut nowhere = engine.settings("spool_");
    nowhere.nodes = vec!["http://127.0.0.1:9".into()];
    let dir = engine.dir().join("spool");
    let mut writer = Writer::open(Cluster::connect(nowhere).expect("a client"), &dir).expect("a writer");
    for hour in 1..=5 {
        let text = format!("state {hour}");
        let documents =
            [document("web1", "/etc/a", &text, at(0, hour)), document("web1", "/etc/b", "stays", at(0, 1))];
        put(&mut writer, "web1", at(0, hour), &documents, &[]);
    }
    put(&mut writer, "web1", at(0, 6), &[], &["/etc/b"]);
    assert!(writer.waiting() > 0 && writer.names("web1").is_err());
    assert!(writer.messages()[0].contains("away"));
    assert!(writer.flush(Duration::from_millis(10)).is_err());
    drop(writer);
    let mut writer = engine.writer("spool_", "spool");
    writer.flush(Duration::from_secs(30)).expect("delivered");
    assert_eq!(writer.waiting(), 0);
    let cluster = engine.cluster("spool_");
    cluster.refresh().expect("refreshed");
    assert_eq!(found(&cluster, "*:*", Scope::day(day(0))), ["web1 /etc/a 0", "web1 /etc/b 0"]);
    let states: Vec<_> = (1..=5)
        .map(|hour| {
            cluster
                .get("web1", "/etc/a", Scope::At { ns: at(0, hour) })
                .expect("an answer")
                .and_then(|d| d.content)
        })
        .collect();
    assert_eq!(states, (1..=5).map(|hour| Some(format!("state {hour}"))).collect::<Vec<_>>());
    assert_eq!(cluster.get("web1", "/etc/b", Scope::At { ns: at(0, 6) }).expect("an answer"), None);
    assert_eq!(cluster.changes(None, &Query::all(), at(0, 0), at(1, 0)).expect("changes").len(), 5);
}

fn old_days_go(engine: &Engine) {
    let prefix = engine.settings("old_").prefix;
    let mut writer = engine.writer("old_", "old");
    for n in 0..4 {
        let t = at(n, 1);
        put(&mut writer, "web1", t, &[document("web1", "/etc/a", &n.to_string(), t)], &[]);
    }
    let other = format!("{prefix}lab_{}", day(0));
    engine.raw("PUT", &format!("/{other}"), "");
    // By the server's clock these days are long past, so a host that takes the last of them for
    // today may not delete.
    let done = writer.delete_before(day(2), day(3), 9).expect("an answer");
    assert!(matches!(done, mitra_search::backend::Deleted::Doubted(_)), "{done:?}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    let today = Day((now.as_secs() / 86_400) as i32);
    let done = writer.delete_before(day(2), today, 1).expect("deleted");
    assert_eq!(done, mitra_search::backend::Deleted::Some);
    let done = writer.delete_before(day(2), today, 9).expect("deleted");
    assert_eq!(done, mitra_search::backend::Deleted::All);
    let left = engine.raw("GET", &format!("/_cat/indices/{prefix}*?h=index&s=index"), "");
    for (index, stays) in [
        (format!("{prefix}{}", day(0)), false),
        (format!("{prefix}{}", day(1)), false),
        (format!("{prefix}history_{}", day(1)), false),
        (format!("{prefix}{}", day(2)), true),
        (format!("{prefix}history_{}", day(2)), true),
        (other, true),
    ] {
        assert_eq!(left.lines().any(|l| l.trim() == index), stays, "{index} in\n{left}");
    }
}
