//! `sockets`: what is in the queues is what was put there.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream, UdpSocket};

use mitra_collect::capture::{Capture, Request};

use crate::{number, one_row, table, text};

#[test]
#[ignore = "needs root: make test-kernel"]
fn queues_owners_and_drops_are_those_that_were_made() {
    let request = Request { pid: Some(std::process::id()), ..Request::new("sockets", 20.0, "test") };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut armed = match Capture::arm(&request) {
        Ok(armed) => armed,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    let mut sender = TcpStream::connect(at).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    let waiting = [TcpStream::connect(at).unwrap(), TcpStream::connect(at).unwrap()];
    sender.write_all(&[0; 5000]).unwrap();
    // More than any receive buffer holds that nobody has enlarged.
    for _ in 0..2000 {
        _ = sender_to(&udp);
    }
    assert!(armed.poll().is_none());
    let raw = armed.finish();
    let sockets = table(&raw, "sockets");
    let local = |socket: &TcpStream| socket.local_addr().unwrap().to_string();
    let row = one_row(sockets, &[("local", &at.to_string()), ("remote", &local(&sender))]);
    assert_eq!(number(sockets, row, "receive queue"), 5000.0);
    assert_eq!(number(sockets, row, "received"), 5000.0);
    assert_eq!(number(sockets, row, "pid"), f64::from(std::process::id()));
    assert_eq!(text(sockets, row, "state"), "ESTAB");
    let row = one_row(sockets, &[("local", &local(&sender)), ("remote", &at.to_string())]);
    // The handshake's own number counts as acknowledged.
    assert!((5000.0..=5001.0).contains(&number(sockets, row, "sent")), "{row:?}");
    assert!(number(sockets, row, "round trip") > 0.0 && number(sockets, row, "cwnd") >= 1.0);
    assert_eq!(number(sockets, row, "retransmitted"), 0.0);
    let row = one_row(sockets, &[("local", &at.to_string()), ("state", "LISTEN")]);
    assert_eq!(number(sockets, row, "receive queue"), 2.0, "two wait to be accepted");
    let row = one_row(sockets, &[("local", &udp.local_addr().unwrap().to_string()), ("protocol", "udp")]);
    let (queue, dropped) = (number(sockets, row, "receive queue"), number(sockets, row, "dropped"));
    assert!(queue > 0.0 && dropped > 100.0 && dropped < 2000.0, "{row:?}");
    assert!(raw.captured.tops.iter().any(|top| top.what.contains("LISTEN") && top.count == 2.0));
    drop((receiver, waiting));
}

/// A process elsewhere is looked at where it is, and its own namespace has not one socket.
#[test]
#[ignore = "needs root: make test-kernel"]
fn sockets_of_a_process_are_those_of_its_namespace() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let _here = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut elsewhere = std::process::Command::new("unshare").args(["-n", "sleep", "20"]).spawn().unwrap();
    let namespace = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let own = namespace(std::process::id());
    crate::wait_until("another namespace", || namespace(elsewhere.id()).is_some_and(|n| Some(n) != own));
    let seen = |pid| {
        let request = Request { pid: Some(pid), ..Request::new("sockets", 20.0, "test") };
        Capture::arm(&request).unwrap().finish().captured.events
    };
    let (there, here) = (seen(elsewhere.id()), seen(std::process::id()));
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();
    assert!(there == 0 && here >= 1, "{there} there, {here} here");
    assert_eq!(namespace(std::process::id()), own, "this process has not moved");
}

fn sender_to(to: &UdpSocket) -> std::io::Result<usize> {
    let from = UdpSocket::bind("127.0.0.1:0")?;
    from.send_to(&[0; 1000], to.local_addr()?)
}
