//! Other network namespaces: their counters, the queues of their devices, their listening sockets.

use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use mitra_model::Entity;

use super::Bench;
use super::space::{Space, run};

/// A slow tick, on which namespaces are looked for, comes with the first sample.
fn bench_with(name: &str, number: u8) -> Option<(Bench, Space)> {
    let bench = Bench::open()?;
    let space = Space::make(name, number)?;
    Some((bench, space))
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn counters_of_a_namespace_are_those_that_it_prints() {
    let Some((mut bench, space)) = bench_with("count", 31) else { return };
    // The file is only there for a process inside.
    let _inside = space.start("sleep", &["60"]);
    std::thread::sleep(Duration::from_millis(300));
    bench.sample();
    let row = space.name.clone();
    let no_ports = |bench: &Bench| bench.cell(Entity::Netns, &row, "netns.udp_NoPorts");
    let before = no_ports(&bench).expect("a row");
    let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
    for _ in 0..7 {
        sender.send_to(b"nobody", (space.address.as_str(), 9)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    bench.sample();
    assert_eq!(no_ports(&bench), Some(before + 7));
    let device = format!("{}@{}", space.inside, space.name);
    assert!(bench.cell(Entity::Nic, &device, "nic.rx_packets").is_some_and(|n| n >= 7), "{device}");
    assert!(bench.cell(Entity::Netns, &row, "netns.pid").is_some_and(|pid| pid > 1));
    assert_eq!(bench.text(Entity::Netns, &row, "netns.comm").as_deref(), Some("sleep"));
    assert!(bench.cell(Entity::System, "", "sys.netns_count").is_some_and(|n| n >= 2));
    assert_eq!(bench.cell(Entity::System, "", "sys.netns_left_out"), Some(0));
    if bench.has("netns.inside") {
        let range = bench.text(Entity::Netns, &row, "netns.sysctl_net_ipv4_ip_local_port_range");
        assert!(range.as_deref().is_some_and(|range| range.split(' ').count() == 2), "{range:?}");
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_namespace_without_a_process_is_read_from_inside() {
    let Some((mut bench, space)) = bench_with("bare", 36) else { return };
    // The first sample finds it, and from the next on it is looked into.
    bench.sample();
    if !bench.has("netns.inside") {
        return;
    }
    bench.sample();
    let device = format!("{}@{}", space.inside, space.name);
    let seen = |bench: &Bench| {
        let came = bench.cell(Entity::Nic, &device, "nic.rx_packets");
        (came, bench.cell(Entity::Netns, &space.name, "netns.udp_NoPorts"))
    };
    let (Some(came), Some(no_ports)) = seen(&bench) else { panic!("{:?}", seen(&bench)) };
    let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
    for _ in 0..7 {
        sender.send_to(b"nobody", (space.address.as_str(), 9)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    bench.sample();
    let (Some(came_now), Some(no_ports_now)) = seen(&bench) else { panic!("{:?}", seen(&bench)) };
    assert!(came_now >= came + 7, "{came} {came_now}");
    assert_eq!(no_ports_now, no_ports + 7);
    assert_eq!(bench.cell(Entity::Netns, &space.name, "netns.pid"), None, "nobody is in it");
    // As it stays when nothing comes.
    bench.sample();
    assert_eq!(seen(&bench).1, Some(no_ports_now));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_namespace_that_vanishes_loses_its_row_and_nothing_else() {
    let Some((mut bench, space)) = bench_with("gone", 32) else { return };
    let inside = space.start("sleep", &["60"]);
    std::thread::sleep(Duration::from_millis(300));
    bench.sample();
    assert!(bench.names(Entity::Netns).contains(&space.name));
    drop(inside);
    let name = space.name.clone();
    drop(space);
    bench.sample();
    bench.sample();
    bench.sample();
    assert!(!bench.names(Entity::Netns).contains(&name), "{:?}", bench.names(Entity::Netns));
    assert!(bench.cell(Entity::System, "", "udp.InDatagrams").is_some());
    assert!(bench.cell(Entity::Nic, "lo", "nic.rx_packets").is_some());
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn queues_of_devices_here_and_there() {
    let Some((mut bench, space)) = bench_with("queue", 33) else { return };
    let limit = "rate 1mbit burst 4kb limit 8kb";
    let made = run(&format!("tc qdisc add dev {} root tbf {limit}", space.device))
        && run(&format!("tc -n {} qdisc add dev {} root tbf {limit}", space.name, space.inside));
    if !made || !bench.has("netlink.own") {
        return;
    }
    // The first sample finds the namespace, and from the next on it is looked into.
    bench.sample();
    let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
    for _ in 0..200 {
        // A full queue is an error to some senders, and no matter here.
        drop(sender.send_to(&[0; 1_000], (space.address.as_str(), 9)));
    }
    // In the other direction from inside.
    let script = "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\nfor i in range(200):\n try: s.sendto(b'0'*1000,('10.199.33.1',9))\n except OSError: pass";
    let _sent = std::process::Command::new("ip")
        .args(["netns", "exec", &space.name, "python3", "-c", script])
        .status();
    bench.sample();
    let dropped = |bench: &Bench, device: &str| bench.cell(Entity::Nic, device, "nic.qdisc_dropped");
    let here = dropped(&bench, &space.device).expect("a real queue");
    assert!((150..=200).contains(&here), "{here}");
    assert!(bench.cell(Entity::Nic, &space.device, "nic.qdisc_overlimits").is_some_and(|n| n > 0));
    assert_eq!(dropped(&bench, "lo"), None, "a device without a queue");
    if bench.has("netns.inside") {
        let there = dropped(&bench, &format!("{}@{}", space.inside, space.name)).expect("a real queue");
        assert!((150..=200).contains(&there), "{there}");
    }
}

/// Listens and never accepts.
const DEAF: &str = "import socket,sys,time\ns=socket.socket()\ns.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1)\ns.bind((sys.argv[1],4545))\ns.listen(4)\nprint('ready',flush=True)\ntime.sleep(60)";

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_listener_that_does_not_accept_has_a_row_and_an_owner() {
    let Some((mut bench, space)) = bench_with("deaf", 34) else { return };
    let server = space.start_ready("python3", &["-c", DEAF, &space.address]);
    bench.sample();
    let row = format!("{}:4545@{}", space.address, space.name);
    assert_eq!(bench.cell(Entity::Listener, &row, "listener.queue"), None, "it is empty");
    let to = format!("{}:4545", space.address).parse().unwrap();
    let clients: Vec<_> =
        (0..5).filter_map(|_| TcpStream::connect_timeout(&to, Duration::from_secs(1)).ok()).collect();
    assert_eq!(clients.len(), 5, "one more than the backlog");
    if !bench.has("netns.inside") {
        return;
    }
    bench.sample();
    assert_eq!(
        bench.cell(Entity::Listener, &row, "listener.queue"),
        Some(5),
        "{:?}",
        bench.names(Entity::Listener)
    );
    assert_eq!(bench.cell(Entity::Listener, &row, "listener.backlog"), Some(4));
    assert_eq!(bench.cell(Entity::Netns, &space.name, "netns.sock_listen_queue_max"), Some(5));
    std::thread::sleep(Duration::from_millis(300));
    bench.sample();
    let pid = bench.cell(Entity::Listener, &row, "listener.pid");
    let comm = bench.text(Entity::Listener, &row, "listener.comm");
    assert_eq!((pid, comm.as_deref()), (Some(i64::from(server.0.id())), Some("python3")));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn connections_tracked_inside_are_counted() {
    let Some((mut bench, space)) = bench_with("track", 35) else { return };
    let chain = "nft add chain inet t c { type filter hook input priority 0 ; }";
    let made = space.run("nft add table inet t")
        && space.run(chain)
        && space.run("nft add rule inet t c ct state established counter");
    if !made {
        return println!("skipped: no connection tracking");
    }
    let _inside = space.start("sleep", &["60"]);
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..5 {
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        sender.send_to(b"tracked", (space.address.as_str(), 9)).unwrap();
    }
    bench.sample();
    bench.sample();
    let count = bench.cell(Entity::Netns, &space.name, "netns.conntrack_count");
    assert!(count.is_some_and(|n| (5..100).contains(&n)), "{count:?}");
    assert_eq!(bench.cell(Entity::Netns, &space.name, "netns.conntrack_drop"), Some(0));
    let most = bench.cell(Entity::System, "", "conntrack.max");
    assert!(most.is_some_and(|n| n > 0), "{most:?}");
    if bench.has("netns.inside") {
        assert_eq!(bench.cell(Entity::Netns, &space.name, "netns.conntrack_max"), most);
    }
}
