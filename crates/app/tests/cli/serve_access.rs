//! Who may ask `mitra serve`, and for how long.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Running, command, run, wait_until};
use crate::serve::{Server, read, recording};

#[test]
fn other_sites_and_other_names_are_refused() {
    let server = Server::of_recording();
    let path = "/api/v1/recording";
    let own = format!("Origin: http://{}", server.address);
    assert_eq!(server.with(path, &[&own]).status, 200);
    for header in ["Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site"] {
        let answer = server.with(path, &[header]);
        assert_eq!((answer.status, answer.code().as_str()), (403, "bad_origin"), "{header}");
    }
    for host in ["evil.example", "127.0.0.1.evil.example"] {
        let answer = server.raw(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        assert_eq!((answer.status, answer.code().as_str()), (403, "bad_host"), "{host}");
    }
    let target =
        format!("GET http://evil.example{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(server.raw(&target).status, 403);
    for path in ["/", path, "/api/v1/nothing"] {
        let answer = server.get(path);
        assert!(answer.header("access-control-allow-origin").is_none());
        let policy = answer.header("content-security-policy").unwrap_or_default();
        assert!(
            policy.contains("default-src 'none'") && !policy.contains("unsafe-inline"),
            "{path}: {policy}"
        );
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
    }
    let page = server.get("/");
    let tag = page.header("etag").expect("it has one");
    let same = server.with("/", &[&format!("If-None-Match: {tag}")]);
    assert_eq!((same.status, same.body.len()), (304, 0));
}

#[test]
fn a_token_is_asked_for_and_a_port_of_the_network_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "0123456789abcdef0123\n").unwrap();
    let file = file.to_str().unwrap();
    let mode = |mode| std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    let refused = run(&["serve", "--listen", "127.0.0.1:0", "--archive", &recording(), "--token-file", file]);
    assert!(refused.code == 2 && refused.err.contains("chmod 600"), "{}", refused.err);
    mode(0o600);
    let server = Server::start(&["--archive", &recording(), "--token-file", file]);
    let answer = server.get("/api/v1/recording");
    assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(server.with("/metrics", &["Authorization: Bearer 0123456789abcdef0124"]).status, 401);
    assert_eq!(server.with("/api/v1/recording", &["Authorization: Bearer 0123456789abcdef0123"]).status, 200);
    assert_eq!(server.get("/").status, 200);
    assert_eq!(server.get("/?token=0123456789abcdef0124").status, 401);
    let opened = server.get("/?token=0123456789abcdef0123");
    assert_eq!((opened.status, opened.header("location")), (303, Some("/")));
    let cookie = opened.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    assert_eq!(server.with("/api/v1/recording", &[&cookie]).status, 200);
    // A token alone does not open a port to other machines.
    for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        for more in [&[][..], &["--token-file", file]] {
            let refused = run(&[&["serve", "--archive", &recording(), "--listen", open], more].concat());
            assert!(refused.code == 2 && refused.err.contains("--tls-cert"), "{open}: {}", refused.err);
        }
    }
}

#[test]
fn the_process_has_nothing_that_it_does_not_need() {
    let server = Server::of_recording();
    assert_eq!(server.get("/api/v1/incidents").status, 200);
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    assert!(
        status.contains("CapEff:\t0000000000000000\n") && status.contains("NoNewPrivs:\t1\n"),
        "{status}"
    );
    // Of all its threads.
    assert!(!cfg!(target_arch = "x86_64") || status.contains("Seccomp:\t2\n"), "{status}");
    assert!(server.running.end(Signal::TERM).0.success());
}

#[test]
fn a_unix_socket_is_for_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mitra.sock");
    let listen = format!("unix:{}", path.display());
    let start = || {
        let mut running =
            Running::start(&mut command(&["serve", "--archive", &recording(), "--listen", &listen]));
        assert_eq!(running.line().trim(), listen);
        running
    };
    let running = start();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream
        .write_all(b"GET /api/v1/recording HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    assert_eq!(read(&mut stream).status, 200);
    let second = run(&["serve", "--archive", &recording(), "--listen", &listen]);
    assert!(second.code == 2 && second.err.contains("another process"), "{}", second.err);
    assert!(running.end(Signal::TERM).0.success());
    // What it left there is taken over.
    assert!(start().end(Signal::INT).0.success());
}

#[test]
fn who_is_slow_is_dropped_and_a_thousand_connections_are_too_many() {
    let server = Server::of_recording();
    let mut slow = server.connect();
    slow.write_all(b"GET /api/v1/recording HTTP/1.1\r\nHost: local").unwrap();
    let start = Instant::now();
    let many: Vec<TcpStream> = (0..1000).filter_map(|_| TcpStream::connect(&server.address).ok()).collect();
    let is_closed = |stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        match (&mut &*stream).read(&mut [0; 64]) {
            Ok(0) => true,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
            Ok(_) => false,
        }
    };
    let closed = || many.iter().filter(|stream| is_closed(stream)).count();
    wait_until("those beyond 32 of one address are closed", || closed() >= many.len() - 32);
    assert!(start.elapsed() < Duration::from_secs(9), "at once, not by a timeout");
    let fds = std::fs::read_dir(format!("/proc/{}/fd", server.running.pid())).unwrap().count();
    assert!(fds < 80, "{fds} descriptors");
    drop(many);
    let mut rest = Vec::new();
    // Its head has not come within ten seconds.
    _ = slow.read_to_end(&mut rest);
    assert!((8..40).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    wait_until("others are answered again", || server.get("/api/v1/recording").status == 200);
}
