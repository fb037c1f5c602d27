//! TLS, passwords and keys against a server in this test. openssl creates the certificates; without
//! it the test is skipped.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use mitra_http::rustls::{ServerConnection, StreamOwned};
use mitra_search::opensearch::{Cluster, Settings};
use mitra_search::{Day, Error, Query, Scope};

const ANSWER: &str =
    r#"{"responses":[{"status":200,"_shards":{"failed":0},"hits":{"total":{"value":0},"hits":[]}}]}"#;

/// A self-signed certificate for `localhost` and its key; `None` if openssl is missing.
fn certificate(dir: &Path, name: &str) -> Option<(PathBuf, PathBuf)> {
    let (cert, key) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
    let status = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        // This certificate is both the trust anchor and the server's, which are normally two.
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-out")
        .arg(&cert)
        .arg("-keyout")
        .arg(&key)
        .stderr(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Some((cert, key)),
        _ => {
            eprintln!("skipped: openssl is not there to make certificates");
            None
        }
    }
}

/// Runs a server until the test ends. Returns its address, and the `Authorization` headers that it
/// receives.
fn serve(cert: &Path, key: &Path) -> (String, Arc<Mutex<Vec<String>>>) {
    let config = mitra_http::server(cert, key, None).expect("a certificate with its key");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sent = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            let mut stream = BufReader::new(StreamOwned::new(connection, stream));
            // A client that does not trust the certificate closes the connection.
            let _ = answer(&mut stream, &sent);
        }
    });
    (format!("https://localhost:{port}"), seen)
}

fn answer<S: Read + Write>(stream: &mut BufReader<S>, sent: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let (mut length, mut authorization) = (0, String::new());
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.trim().split_once(": ") {
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap_or(0),
                "authorization" => authorization = value.to_owned(),
                _ => {}
            }
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let knows = authorization == "Basic bWl0cmE6c2VzYW1l" || authorization == "ApiKey a2V5OnNlc2FtZQ==";
    sent.lock().expect("a lock").push(authorization.clone());
    let (status, text) = if knows {
        ("200 OK", ANSWER.to_owned())
    } else {
        ("401 Unauthorized", format!("{{\"error\":\"{authorization}\"}}"))
    };
    write!(
        stream.get_mut(),
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )?;
    stream.get_mut().flush()
}

fn secret(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("set");
    path
}

fn ask(settings: &Settings) -> Result<u64, Error> {
    let scope = Scope::day(Day(20_700));
    Cluster::connect(settings.clone())?.search(&Query::all(), scope, 1).map(|page| page.total)
}

#[test]
fn who_is_trusted_and_who_asks() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some((cert, key)) = certificate(dir.path(), "server") else { return };
    let (url, seen) = serve(&cert, &key);
    let password = secret(dir.path(), "password", "sesame\n");
    let trusting = Settings {
        nodes: vec![url],
        ca_file: Some(cert),
        user: Some("mitra".into()),
        password_file: Some(password),
        ..Settings::default()
    };
    assert_eq!(ask(&trusting).expect("an answer"), 0);
    let api_key = secret(dir.path(), "key", "a2V5OnNlc2FtZQ==");
    let by_key =
        Settings { user: None, password_file: None, api_key_file: Some(api_key), ..trusting.clone() };
    assert_eq!(ask(&by_key).expect("an answer"), 0);
    assert_eq!(*seen.lock().expect("a lock"), ["Basic bWl0cmE6c2VzYW1l", "ApiKey a2V5OnNlc2FtZQ=="]);

    // The error for a wrong password does not contain it, although the server's answer does.
    let wrong = secret(dir.path(), "wrong", "opensesame");
    let error = ask(&Settings { password_file: Some(wrong), ..trusting.clone() }).expect_err("refused");
    assert!(matches!(error, Error::Refused(_)) && error.to_string().contains("401"), "{error}");
    assert!(!error.to_string().contains("b3BlbnNlc2FtZQ"), "{error}");

    // No other certificate is accepted, whether of the system or of another CA, and nothing is
    // sent.
    let before = seen.lock().expect("a lock").len();
    let (other, _) = certificate(dir.path(), "other").expect("as before");
    for ca_file in [Some(other), None] {
        match ask(&Settings { ca_file, ..trusting.clone() }) {
            Err(Error::Away(why)) => assert!(why.contains("certificate") || why.contains("rustls"), "{why}"),
            // A system without certificates gives an error.
            Err(Error::Cannot(why)) => assert!(why.contains("certificates"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen.lock().expect("a lock").len(), before);
}
