//! `mitra send` to stores behind TLS: a server of OpenSSL in Python, certificates by openssl.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Running, python};
use crate::send::Place;
use crate::tls::Keys;

/// A store with the certificate of `web1.example` and 127.0.0.1, and what it got.
struct Store {
    _running: Running,
    port: u16,
    received: PathBuf,
}

impl Store {
    fn start(python: &Path, keys: &Keys, kind: &str, received: PathBuf, client_ca: &[String]) -> Store {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/send_tls.py");
        let mut running = Running::start(
            Command::new(python)
                .arg(script)
                .args([kind, &keys.text("server.pem"), &keys.text("server.key")])
                .arg(&received)
                .args(client_ca),
        );
        let line = running.line();
        let port = line.trim().parse().unwrap_or_else(|_| panic!("no port: {line}"));
        Store { _running: running, port, received }
    }

    fn received(&self) -> Vec<u8> {
        std::fs::read(&self.received).unwrap_or_default()
    }

    fn lines(&self) -> Vec<String> {
        String::from_utf8(self.received()).unwrap().lines().map(str::to_owned).collect()
    }
}

fn tools() -> Option<(PathBuf, Keys)> {
    let Some(python) = python("ssl") else {
        println!("skipped: Python has no ssl");
        return None;
    };
    Some((python, Keys::make()?))
}

fn table(to: &str, url: &str, keys: &Keys, more: &str) -> String {
    let ca = keys.text("ca.pem");
    format!(
        "[[output]]\nto = \"{to}\"\nurl = \"{url}\"\nca-file = \"{ca}\"\nevery = \"1s\"\nmetrics = [\"sys.ctxt\"]\n{more}"
    )
}

fn identity(keys: &Keys, name: &str) -> String {
    let (cert, key) = (keys.text(&format!("{name}.pem")), keys.text(&format!("{name}.key")));
    format!("cert-file = \"{cert}\"\nkey-file = \"{key}\"\n")
}

#[test]
fn lines_and_pickles_go_through_tls() {
    let Some((python, keys)) = tools() else { return };
    let place = Place::new("").recorded(40);
    let store = |kind: &str, name: &str| Store::start(&python, &keys, kind, place.path(name), &[]);
    let (lines, pickles, put) = (store("tcp", "lines"), store("tcp", "pickles"), store("cut", "put"));
    let url = |store: &Store| format!("tls://127.0.0.1:{}", store.port);
    place.configure(
        &[
            table("graphite", &url(&lines), &keys, "name = \"lines\"\n"),
            table("graphite", &url(&pickles), &keys, "name = \"pickles\"\npickle = true\n"),
            table("opentsdb", &url(&put), &keys, "name = \"put\"\n"),
        ]
        .concat(),
    );
    let said = place.send(&["--once"]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let of_graphite = lines.lines();
    assert!(of_graphite.len() >= 39, "{of_graphite:?}");
    assert!(of_graphite.iter().all(|line| line.starts_with("mitra_sys_ctxt_total;host=simulated ")));
    let of_opentsdb = put.lines();
    assert_eq!(of_opentsdb.len(), of_graphite.len(), "a connection that is cut off is an end, too");
    assert!(of_opentsdb.iter().all(|line| line.starts_with("put mitra_sys_ctxt_total ")), "{of_opentsdb:?}");
    // Each pickle has its length before it.
    let (bytes, mut rest) = (pickles.received(), 0);
    while let Some(length) = bytes.get(rest..rest + 4) {
        rest += 4 + u32::from_be_bytes(length.try_into().unwrap()) as usize;
    }
    assert!(rest == bytes.len() && rest > 1_000, "{rest} of {}", bytes.len());
    for name in ["lines", "pickles", "put"] {
        assert_eq!((place.tally(name, "sent"), place.tally(name, "failed")), (of_graphite.len() as u64, 0));
    }
}

#[test]
fn nothing_is_sent_to_whom_the_certificate_does_not_name() {
    let Some((python, keys)) = tools() else { return };
    let place = Place::new("");
    let store = Store::start(&python, &keys, "tcp", place.path("got"), &[]);
    let (ca, other) = (keys.text("ca.pem"), keys.text("other.pem"));
    let (is, is_not) = (format!("tls://127.0.0.1:{}", store.port), format!("tls://localhost:{}", store.port));
    for (url, ca) in [(&is, &other), (&is_not, &ca)] {
        place.configure(&format!("[[output]]\nto = \"graphite\"\nurl = \"{url}\"\nca-file = \"{ca}\"\n"));
        let said = place.send(&["--test"]);
        assert_eq!(said.code, 2, "{}", said.out);
        assert!(
            said.out.contains("not taken, would be tried again") && said.out.contains("certificate"),
            "{}",
            said.out
        );
        assert_eq!(store.received(), b"");
    }
    place.configure(&table("graphite", &is, &keys, ""));
    let said = place.send(&["--test"]);
    assert_eq!((said.code, said.out.as_str()), (0, "graphite  taken: read to the end\n"), "{}", said.err);
    assert_eq!(store.lines().len(), 1);
    // A client without TLS brings nothing.
    place.configure(&format!("[[output]]\nto = \"graphite\"\nurl = \"{}\"\n", is.replace("tls:", "tcp:")));
    place.send(&["--test"]);
    assert_eq!(store.lines().len(), 1);
}

#[test]
fn a_store_that_wants_to_know_who_sends_gets_a_certificate() {
    let Some((python, keys)) = tools() else { return };
    let place = Place::new("");
    let client_ca = [keys.text("ca.pem")];
    for (kind, to, scheme, path) in [("tcp", "graphite", "tls", ""), ("http", "influx", "https", "/write")] {
        let store = Store::start(&python, &keys, kind, place.path(kind), &client_ca);
        let url = format!("{scheme}://127.0.0.1:{}{path}", store.port);
        for wrong in [String::new(), identity(&keys, "other")] {
            place.configure(&table(to, &url, &keys, &wrong));
            let said = place.send(&["--test"]);
            assert_eq!(said.code, 2, "{}", said.out);
            assert!(said.out.contains("not taken, would be tried again"), "{}", said.out);
            assert_eq!(store.received(), b"", "{to}");
        }
        place.configure(&table(to, &url, &keys, &identity(&keys, "client")));
        let said = place.send(&["--test"]);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
        let lines = store.lines();
        assert!(lines.len() == 1 && lines[0].starts_with("mitra_send"), "{lines:?}");
    }
}

#[test]
fn certificates_that_cannot_be_used_are_named_before_anything_is_sent() {
    let Some((_, keys)) = tools() else { return };
    let place = Place::new("");
    let mixed =
        format!("cert-file = \"{}\"\nkey-file = \"{}\"\n", keys.text("client.pem"), keys.text("other.key"));
    for (more, wanted) in [(identity(&keys, "none"), "none.pem: No such file"), (mixed, "client.pem: with")] {
        place.configure(&table("graphite", "tls://127.0.0.1:1", &keys, &more));
        let said = place.send(&["--test"]);
        assert!(said.code == 2 && said.out.contains(wanted), "{}{}", said.out, said.err);
    }
}
