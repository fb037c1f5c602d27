//! `mitra serve` for other machines: openssl makes certificates, curl asks.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::harness::{Running, command, run};
use crate::serve::recording;

pub const TOKEN: &str = "0123456789abcdef0123";

/// A folder with two authorities, a certificate of the server for `web1.example`, one of a client, and a token.
pub struct Keys(tempfile::TempDir);

impl Keys {
    /// `None` where openssl or curl are missing.
    pub fn make() -> Option<Keys> {
        let has = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
        if !has("curl") || Command::new("openssl").arg("version").output().is_err() {
            println!("skipped: openssl or curl is not installed");
            return None;
        }
        let keys = Keys(tempfile::tempdir().unwrap());
        for ca in ["ca", "other"] {
            keys.openssl(&format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={ca} -keyout {ca}.key -out {ca}.pem"
            ));
        }
        for (name, more) in [
            ("server", "subjectAltName=DNS:web1.example,IP:127.0.0.1"),
            ("client", "subjectAltName=DNS:laptop"),
        ] {
            keys.openssl(&format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name} -addext {more} \
                 -addext basicConstraints=critical,CA:FALSE -CA ca.pem -CAkey ca.key -keyout {name}.key -out {name}.pem"
            ));
        }
        std::fs::write(keys.path("token"), TOKEN).unwrap();
        for secret in ["token", "server.key"] {
            keys.mode(secret, 0o600);
        }
        Some(keys)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn openssl(&self, line: &str) {
        let output =
            Command::new("openssl").args(line.split(' ')).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn serve(&self, more: &[&str]) -> (Running, u16) {
        let (cert, key, token) = (self.text("server.pem"), self.text("server.key"), self.text("token"));
        let recording = recording();
        let args = [
            "serve",
            "--archive",
            &recording,
            "--tls-cert",
            &cert,
            "--tls-key",
            &key,
            "--token-file",
            &token,
        ];
        let mut running = Running::start(command(&args).args(more));
        let line = running.line();
        let port = line
            .trim()
            .strip_prefix("https://")
            .and_then(|rest| rest.trim_end_matches('/').rsplit(':').next()?.parse().ok());
        (running, port.unwrap_or_else(|| panic!("no address: {line}")))
    }

    /// The status of an answer; 0 where there is none.
    fn ask(&self, port: u16, path: &str, more: &[&str]) -> (u16, String) {
        let output = Command::new("curl")
            .args(["--silent", "--max-time", "20", "--write-out", "\n%{http_code}", "--resolve"])
            .arg(format!("web1.example:{port}:127.0.0.1"))
            .args(more)
            .arg(format!("https://web1.example:{port}{path}"))
            .current_dir(self.0.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = said.rsplit_once('\n').unwrap_or(("", "0"));
        (status.parse().unwrap_or(0), body.to_owned())
    }
}

#[test]
fn other_machines_get_answers_by_a_certificate_and_a_token() {
    let Some(keys) = Keys::make() else { return };
    // All addresses, as for other machines.
    let (_running, port) = keys.serve(&["--listen", "0.0.0.0:0"]);
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let trust = ["--cacert", "ca.pem"];
    let known = [&trust[..], &["--header", &bearer]].concat();
    let (status, body) = keys.ask(port, "/api/v1/recording", &known);
    assert!(status == 200 && body.contains("since"), "{status}: {body}");
    assert_eq!(keys.ask(port, "/api/v1/recording", &trust).0, 401);
    assert_eq!(keys.ask(port, "/", &trust).0, 200, "the page itself is no secret");
    assert_eq!(keys.ask(port, "/api/v1/recording", &["--cacert", "other.pem", "--header", &bearer]).0, 0);
    assert_eq!(keys.ask(port, "/api/v1/recording", &[&known[..], &["--tls-max", "1.1"]].concat()).0, 0);
    assert_eq!(keys.ask(port, "/api/v1/recording", &[&known[..], &["--tls-max", "1.2"]].concat()).0, 200);
    let foreign = [&known[..], &["--header", "Origin: https://evil.example"]].concat();
    assert_eq!(keys.ask(port, "/api/v1/recording", &foreign).0, 403);
    let own = format!("Origin: https://web1.example:{port}");
    assert_eq!(keys.ask(port, "/api/v1/recording", &[&known[..], &["--header", &own]].concat()).0, 200);
    let (status, head) = keys.ask(port, &format!("/?token={TOKEN}"), &[&trust[..], &["--head"]].concat());
    assert!(status == 303 && head.contains("; Secure"), "{status}: {head}");
    let plain = Command::new("curl")
        .args(["--silent", "--max-time", "20"])
        .arg(format!("http://127.0.0.1:{port}/"))
        .output();
    assert!(!plain.unwrap().status.success(), "it speaks nothing else");
}

#[test]
fn only_clients_of_the_named_authority_are_let_in() {
    let Some(keys) = Keys::make() else { return };
    let ca = keys.text("ca.pem");
    let (_running, port) = keys.serve(&["--listen", "127.0.0.1:0", "--tls-client-ca", &ca]);
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let known = ["--cacert", "ca.pem", "--header", &bearer];
    assert_eq!(keys.ask(port, "/api/v1/recording", &known).0, 0, "without a certificate");
    let client = [&known[..], &["--cert", "client.pem", "--key", "client.key"]].concat();
    assert_eq!(keys.ask(port, "/api/v1/recording", &client).0, 200);
    let other = [&known[..], &["--cert", "other.pem", "--key", "other.key"]].concat();
    assert_eq!(keys.ask(port, "/api/v1/recording", &other).0, 0, "of another authority");
}

#[test]
fn certificates_and_keys_that_cannot_be_used_are_named() {
    let Some(keys) = Keys::make() else { return };
    let tried = |cert: &str, key: &str| {
        let (cert, key) = (keys.text(cert), keys.text(key));
        let output = run(&[
            "serve",
            "--archive",
            &recording(),
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            &cert,
            "--tls-key",
            &key,
        ]);
        assert_eq!(output.code, 2, "{}", output.err);
        output.err
    };
    assert!(tried("none.pem", "server.key").contains("none.pem: No such file"));
    assert!(tried("server.key", "server.key").contains("server.key: no certificate in it"));
    assert!(tried("server.pem", "server.pem").contains("server.pem: everybody may read it"));
    let other = tried("server.pem", "ca.key");
    assert!(other.contains("server.pem: with"), "{other}");
    keys.mode("server.key", 0o644);
    assert!(tried("server.pem", "server.key").contains("everybody may read it (mode 0644)"));
}
