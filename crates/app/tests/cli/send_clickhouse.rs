//! `mitra send` and ClickHouse: a real server has each incident and finding once, however often it is sent, and its views of top
//! lists count what the recording has.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{good, wait_until};
use crate::send::{Place, Store, free_port};
use crate::send_logs::{messages, recorded};

/// Debian's place, which not every user has on the path.
const SERVER: &str = "/usr/sbin/clickhouse-server";
const PASSWORD: &str = "sesame";
/// `mitra:sesame`.
const BASIC: &str = "bWl0cmE6c2VzYW1l";
const USERS: &str = "<yandex><profiles><default/></profiles><quotas><default/></quotas><users><mitra><password>sesame</password>\
    <networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></mitra></users></yandex>\n";

/// A server whose time zone is not that of the columns.
fn server(dir: &Path, port: u16) -> Option<Store> {
    std::fs::create_dir_all(dir).unwrap();
    let path = |name: &str| dir.join(name).display().to_string();
    let config = format!(
        "<yandex><logger><level>warning</level><log>{}</log><errorlog>{}</errorlog></logger>\
         <http_port>{port}</http_port><listen_host>127.0.0.1</listen_host><timezone>America/New_York</timezone>\
         <path>{}/</path><tmp_path>{}/</tmp_path><users_config>{}</users_config><mark_cache_size>5242880</mark_cache_size>\
         <default_profile>default</default_profile><default_database>default</default_database></yandex>\n",
        path("log"),
        path("errors"),
        path("data"),
        path("tmp"),
        path("users.xml")
    );
    std::fs::write(dir.join("users.xml"), USERS).unwrap();
    std::fs::write(dir.join("config.xml"), config).unwrap();
    let program = if Path::new(SERVER).exists() { SERVER } else { "clickhouse-server" };
    Store::start(program, &[format!("--config-file={}", path("config.xml"))], port, "/ping")
}

fn ask(port: u16, sql: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let length = sql.len();
    let request = format!(
        "POST / HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: Basic {BASIC}\r\nContent-Length: {length}\r\n\r\n{sql}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn rows(port: u16, select: &str) -> Vec<Value> {
    let (status, body) = ask(port, &format!("{select} FORMAT JSONEachRow"));
    assert_eq!(status, 200, "{select}: {body}");
    body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Makes the tables as `mitra send --schema clickhouse` prints them.
fn install(port: u16) {
    let (_, version) = ask(port, "SELECT version()");
    let mut parts = version.split('.').map(|part| part.trim().parse::<u32>().unwrap());
    let has_ttl = (parts.next().unwrap(), parts.next().unwrap()) >= (19, 6);
    let schema = good(&["send", "--schema", "clickhouse"]);
    let text: Vec<&str> = schema.lines().filter(|line| !line.starts_with("--")).collect();
    // The recording gets older than rows are kept.
    let text = text.join("\n").replace("400 DAY", "20000 DAY");
    for statement in text.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
        let (status, said) = ask(port, statement);
        let is_refused = !has_ttl && statement.contains("MODIFY TTL");
        assert_eq!(status == 200, !is_refused, "{version}{statement}: {said}");
    }
}

/// Incidents and their cost, by name.
fn tally(each: impl Iterator<Item = (String, u64, f64)>) -> BTreeMap<String, String> {
    let mut sums: BTreeMap<String, (u64, f64)> = BTreeMap::new();
    for (name, incidents, cost) in each {
        let sum = sums.entry(name).or_default();
        *sum = (sum.0 + incidents, sum.1 + cost);
    }
    sums.into_iter().map(|(name, (incidents, cost))| (name, format!("{incidents} {cost:.3}"))).collect()
}

/// A text of a message; empty where it has none, as in a table.
fn text<'a>(message: &'a Value, pointer: &str) -> &'a str {
    message.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// What a view has, by these columns.
fn top(port: u16, view: &str, columns: &[&str]) -> BTreeMap<String, String> {
    let all = rows(port, &format!("SELECT *, toUInt8(incidents) AS n, toUInt8(hosts) AS m FROM {view}"));
    tally(all.iter().map(|row| {
        assert_eq!(row["m"], 1, "{row}");
        let names: Vec<&str> = columns.iter().map(|column| row[*column].as_str().unwrap()).collect();
        (names.join("/"), row["n"].as_u64().unwrap(), row["lost_seconds"].as_f64().unwrap_or(0.0))
    }))
}

/// The same of messages.
fn wanted_top(messages: &[Value], pointers: &[&str]) -> BTreeMap<String, String> {
    let incidents = messages.iter().filter(|message| message["event"] != "finding");
    tally(incidents.map(|message| {
        let names: Vec<&str> = pointers.iter().map(|pointer| text(message, pointer)).collect();
        let cost = message.pointer("/facts/cost_seconds").and_then(Value::as_f64);
        (format!("{}/{}", &text(message, "/since")[..10], names.join("/")), 1, cost.unwrap_or(0.0))
    }))
}

/// Compares what the tables have with what messages say.
fn same(port: u16, messages: &[Value]) {
    for (table, is_finding) in [("mitra_incidents", false), ("mitra_findings", true)] {
        let all = rows(port, &format!("SELECT * FROM {table} FINAL"));
        let wanted: Vec<&Value> =
            messages.iter().filter(|m| (m["event"] == "finding") == is_finding).collect();
        assert_eq!(all.len(), wanted.len(), "{all:?} {wanted:?}");
        for message in wanted {
            let row = all.iter().find(|row| row["id"] == message["id"]).unwrap();
            for (column, pointer) in [
                ("host", "/host"),
                ("root", "/condition"),
                ("line", "/headline"),
                ("culprit", "/culprit"),
                ("culprit_kind", "/facts/culprit_kind"),
                ("culprit_name", "/facts/culprit_name"),
                ("culprit_group", "/facts/culprit_group"),
            ] {
                assert_eq!(row[column], text(message, pointer), "{column}: {row} {message}");
            }
            assert_eq!(row["label_names"][0], "site", "{row}");
            assert_eq!(row["label_values"][0], "berlin", "{row}");
            if is_finding {
                assert_eq!(row["day"].as_str().unwrap(), &row["seen"].as_str().unwrap()[..10]);
                continue;
            }
            for (column, name) in [("onset", "since"), ("ended", "until")] {
                let time = message[name].as_str().map(|time| time[..19].replace('T', " "));
                assert_eq!(row[column].as_str(), time.as_deref(), "{column}: {row} {message}");
            }
            assert_eq!(row["unexplained"] == 1, message["unexplained"] == true, "{row} {message}");
            for (column, pointer) in [
                ("confidence", "/confidence"),
                ("strength", "/facts/strength"),
                ("cost_seconds", "/facts/cost_seconds"),
            ] {
                let wanted = message.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::INFINITY);
                let got = row[column].as_f64().unwrap_or(f64::INFINITY);
                assert!(got == wanted || (got - wanted).abs() < 1e-6, "{column}: {row} {message}");
            }
        }
    }
    let roots = top(port, "mitra_top_roots", &["day", "root"]);
    assert_eq!(roots, wanted_top(messages, &["/condition"]));
    let pointers = ["/facts/culprit_kind", "/facts/culprit_name", "/facts/culprit_group"];
    let culprits = top(port, "mitra_top_culprits", &["day", "culprit_kind", "culprit_name", "culprit_group"]);
    assert_eq!(culprits, wanted_top(messages, &pointers));
}

#[test]
fn a_server_has_every_incident_once_however_often_it_is_sent() {
    let (place, port) = (recorded(Place::new("")), free_port());
    let data = place.path("clickhouse");
    let Some(store) = server(&data, port) else { return };
    let password = place.path("password");
    let write = |text: &str| {
        std::fs::write(&password, text).unwrap();
        std::fs::set_permissions(&password, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    place.configure(&format!(
        "[[output]]\nto = \"clickhouse\"\nurl = \"http://127.0.0.1:{port}/?database=default\"\nuser = \"mitra\"\n\
         password-file = \"{}\"\nlabels = {{ site = \"berlin\" }}\n",
        password.display()
    ));
    // What can be mended is waited for: a wrong password, and tables that are not there yet.
    write("wrong");
    let said = place.send(&["--test"]);
    assert!(said.code != 0 && said.out.contains("would be tried again: HTTP 40"), "{}", said.out);
    write(PASSWORD);
    let said = place.send(&["--test"]);
    assert!(said.out.contains("would be tried again: HTTP 404"), "{}", said.out);
    install(port);
    let said = place.send(&["--test"]);
    assert!(said.code == 0 && said.out.contains("clickhouse  taken: HTTP 200"), "{}{}", said.out, said.err);
    same(port, &[]);

    let said = place.send(&["--once"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let messages = messages(&place);
    assert_eq!(place.tally("clickhouse", "sent"), messages.len() as u64);
    same(port, &messages);
    let all = |table: &str| rows(port, &format!("SELECT * FROM {table} FINAL ORDER BY id"));
    let before = [all("mitra_incidents"), all("mitra_findings")];

    // All of it once more, while the server is away and comes back.
    std::fs::remove_dir_all(place.path("state")).unwrap();
    store.end(Signal::TERM);
    let sending = place.started(&["--once"]);
    wait_until("it is noticed", || place.tally("clickhouse", "failed") > 0);
    let _store = server(&data, port).unwrap();
    let (status, err) = sending.wait();
    assert!(status.success() && err.contains("takes records again"), "{err}");
    assert_eq!(place.tally("clickhouse", "sent"), messages.len() as u64, "they are sent again");
    same(port, &messages);
    assert_eq!([all("mitra_incidents"), all("mitra_findings")], before);

    // The clock is set while an incident goes on: its onset moves, over the border of a partition as well.
    for (onset, seen) in [("2026-11-29 10:00:00", 1), ("2026-11-29 11:00:00", 2), ("2026-12-29 11:00:00", 3)]
    {
        let row = format!("('mitra.incident', 'web2', 'web2-1', '{onset}', {seen})");
        let (status, said) =
            ask(port, &format!("INSERT INTO mitra_records (event, host, id, onset, seen) VALUES {row}"));
        assert_eq!(status, 200, "{said}");
        let all = rows(port, "SELECT * FROM mitra_incidents FINAL WHERE host = 'web2'");
        assert!(all.len() == 1 && all[0]["onset"] == onset, "{all:?}");
    }

    // Tables of an earlier schema.
    for sql in [
        "DROP TABLE mitra_incidents_from_records",
        "DROP TABLE mitra_findings_from_records",
        "DROP TABLE mitra_incident_days_from_records",
        "DROP TABLE mitra_records",
        "CREATE TABLE mitra_records (event String, host String) ENGINE = Null",
    ] {
        let (status, said) = ask(port, sql);
        assert_eq!(status, 200, "{sql}: {said}");
    }
    let said = place.send(&["--test"]);
    assert!(said.code == 0 && said.out.contains("clickhouse  taken: HTTP 200"), "{}{}", said.out, said.err);
}
