//! Dropped packets, resets, segments sent again, sockets that are full.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use mitra_model::Entity;

use super::Bench;
use super::space::{Space, run};

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_slow_reader_of_udp_loses_packets_for_a_reason() {
    let Some(mut bench) = Bench::open() else { return };
    if !bench.has("probe.packet_drops") || !bench.has("probe.full_sockets") {
        return;
    }
    let reader = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = reader.local_addr().unwrap();
    bench.sample();
    let drops = |bench: &Bench| bench.cell(Entity::Drop, "socket_rcvbuff", "drop.packets").unwrap_or(0);
    let full = |bench: &Bench| bench.cell(Entity::System, "", "probe.udp_fail_queue_rcv").unwrap();
    let (drops_before, full_before) = (drops(&bench), full(&bench));
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sent = 2_000;
    for _ in 0..sent {
        sender.send_to(&[0; 1_000], to).unwrap();
    }
    bench.sample();
    // The buffer of 212,992 bytes takes some 160 packets with what the kernel adds to each.
    let dropped = drops(&bench) - drops_before;
    assert!((1_000..=sent).contains(&dropped), "{dropped} of {sent}; {:?}", bench.names(Entity::Drop));
    assert_eq!(full(&bench) - full_before, dropped);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn resets_have_a_peer() {
    let Some(mut bench) = Bench::open() else { return };
    if !bench.has("probe.tcp_peers") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:4344").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = || TcpStream::connect(("127.0.0.1", port));
    // Closed with data unread: the listening side resets.
    for _ in 0..3 {
        let mut client = connect().unwrap();
        client.write_all(b"never read").unwrap();
        std::thread::sleep(Duration::from_millis(5));
        drop(listener.accept().unwrap());
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(listener);
    // Nobody listens: the kernel resets by itself.
    for _ in 0..2 {
        assert!(connect().is_err());
    }
    bench.sample();
    let seen = |name: &str, metric: &str| bench.cell(Entity::Peer, name, metric).unwrap_or(0);
    // The clients' ports are the higher ones, so the server is a peer with its port and they are all one.
    let server = format!("127.0.0.1:{port}");
    let (in_server, in_clients) =
        (seen(&server, "peer.resets_received"), seen("127.0.0.1:*", "peer.resets_received"));
    let sent = seen(&server, "peer.resets_sent") + seen("127.0.0.1:*", "peer.resets_sent");
    assert!(in_server + in_clients >= 5, "{in_server} + {in_clients}: {:?}", bench.names(Entity::Peer));
    assert!(sent >= 5, "{sent}: {:?}", bench.names(Entity::Peer));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn segments_sent_again_have_a_peer() {
    let Some(mut bench) = Bench::open() else { return };
    let Some(space) = Space::make("again", 11) else { return };
    if !bench.has("probe.tcp_peers") || !space.run("nft add table inet t") {
        return;
    }
    let server = space.start("python3", &["-c", "import socket\ns=socket.create_server(('0.0.0.0',4343))\nc=s.accept()[0]\nc.recv(9)\nimport time\ntime.sleep(30)"]);
    let to = (space.address.as_str(), 4343);
    let mut client = (0..50).find_map(|_| {
        std::thread::sleep(Duration::from_millis(100));
        TcpStream::connect(to).ok()
    });
    let client = client.as_mut().expect("a connection");
    assert!(space.run("nft add chain inet t c { type filter hook input priority 0 ; policy drop ; }"));
    client.write_all(b"lost").unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    bench.sample();
    let again = bench.cell(Entity::Peer, "10.199.11.2:4343", "peer.retransmits");
    assert!(again.is_some_and(|n| (2..20).contains(&n)), "{again:?} {:?}", bench.names(Entity::Peer));
    let dropped = bench.cell(Entity::Drop, "netfilter_drop", "drop.packets");
    assert!(dropped >= again, "{dropped:?}");
    drop(server);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_queue_that_is_too_short_drops() {
    let Some(mut bench) = Bench::open() else { return };
    let Some(space) = Space::make("tbf", 12) else { return };
    let limit = "rate 1mbit burst 4kb limit 8kb";
    if !bench.has("probe.packet_drops")
        || !run(&format!("tc qdisc add dev {} root tbf {limit}", space.device))
    {
        return;
    }
    let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
    for _ in 0..200 {
        // A full queue is an error to some senders, and no matter here.
        drop(sender.send_to(&[0; 1_000], (space.address.as_str(), 9)));
    }
    bench.sample();
    let dropped: i64 = ["qdisc_drop", "qdisc_overlimit"]
        .iter()
        .filter_map(|reason| bench.cell(Entity::Drop, reason, "drop.packets"))
        .sum();
    assert!((150..=200).contains(&dropped), "{dropped} {:?}", bench.names(Entity::Drop));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_socket_that_drops_has_a_row_and_an_owner() {
    let Some(mut bench) = Bench::open() else { return };
    if !bench.has("netlink.own") {
        return;
    }
    let reader = UdpSocket::bind("127.0.0.1:0").unwrap();
    let row = format!("{}/udp", reader.local_addr().unwrap());
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    bench.sample();
    // The first samples find that datagrams are dropped, the next ones where, and then whose socket it is.
    for _ in 0..6 {
        for _ in 0..1_000 {
            drop(sender.send_to(&[0; 500], reader.local_addr().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(100));
        bench.sample();
    }
    let drops = bench.cell(Entity::Listener, &row, "listener.drops");
    assert!(drops.is_some_and(|n| n >= 1_000), "{row} {drops:?}");
    let pid = bench.cell(Entity::Listener, &row, "listener.pid");
    assert_eq!(pid, Some(i64::from(std::process::id())));
}
