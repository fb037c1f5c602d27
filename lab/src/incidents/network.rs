//! Troubles of the network: packets lost in queues and on the way, servers that do not accept or do not read, limits of
//! the kernel. Each has two network namespaces of its own with a cable between them.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use super::common::trouble_from_full;
use crate::incident::{Incident, Need, Stop, Truth};
use crate::stage::{Isolation, Netns, Stage, Victim};

/// The incidents of this file.
pub const INCIDENTS: &[Incident] = &[
    Incident::new("shaped-link", "qdisc-drops", "network", shaped_link)
        .what("somebody sends more than the rate that is set for a device lets through, and its queue drops")
        .needs(&[Need::Tool("tc")]),
    Incident::new("slow-reader", "socket-buffer-overflow", "network", slow_reader)
        .what("a server of datagrams gets slower than they come, and its receive buffer overflows")
        .needs(&[Need::Tool("ip")]),
    Incident::new("no-accept", "listen-overflow", "network", no_accept)
        .what("a server accepts no more, or more slowly than its clients come")
        .needs(&[Need::Tool("ip")]),
    Incident::new("lossy-link", "retransmit-storm", "network", lossy_link)
        .what("packets are lost on the way to one server")
        .needs(&[Need::Tool("nft")]),
    Incident::new("tracking-full", "conntrack-full", "network", tracking_full)
        .what("connections that are held open fill the table of a firewall, and new ones are dropped")
        .needs(&[Need::Tool("nft"), Need::Path("/proc/sys/net/netfilter/nf_conntrack_max")]),
    Incident::new("no-ports", "port-exhaustion", "network", no_ports)
        .what("a client opens a connection for each request until no local port is left")
        .needs(&[Need::Tool("ip")]),
    Incident::new("orphans", "tcp-orphan-pressure", "network", orphans)
        .what("sockets that were closed with unsent data reach the limit of orphans, and answers are cut off")
        .needs(&[Need::Tool("ip"), Need::Path("/proc/sys/net/ipv4/tcp_max_orphans")]),
    Incident::new("tcp-memory", "tcp-memory-pressure", "network", tcp_memory)
        .what("a program that does not read its connections fills the memory that TCP may have")
        .needs(&[Need::Tool("ip"), Need::Path("/proc/sys/net/ipv4/tcp_mem")]),
    Incident::new("short-backlog", "nic-drops", "network", short_backlog)
        .what("bursts of packets are longer than the queue between device and network stack")
        .needs(&[
            Need::Tool("nft"),
            Need::Tool("taskset"),
            Need::Cpus(2),
            Need::Path("/proc/sys/net/core/netdev_max_backlog"),
        ]),
];

/// Two namespaces with a cable between them; clients on the left, servers on the right.
pub struct Cable {
    /// The namespace of the clients.
    pub left: Netns,
    /// The namespace of the servers.
    pub right: Netns,
    /// The device of the clients.
    pub left_device: String,
    /// The device of the servers.
    pub right_device: String,
    /// The address of the servers.
    pub server: Ipv4Addr,
}

/// Lays the cable.
pub fn cable(stage: &mut Stage) -> Result<Cable, Stop> {
    let (left, right) = (stage.netns()?, stage.netns()?);
    let (left_device, right_device, _, server) = stage.veth(&left, &right)?;
    Ok(Cable { left, right, left_device, right_device, server })
}

impl Cable {
    /// Starts a role on the left.
    pub fn client(&self, stage: &mut Stage, role: &'static str, argument: &str) -> Result<Victim, Stop> {
        let name = stage.draw().name();
        stage.role(&name, role, argument, &Isolation { netns: Some(&self.left), cgroup: None })
    }

    /// Starts a role on the right and gives it a moment to listen.
    pub fn serve(&self, stage: &mut Stage, role: &'static str, argument: &str) -> Result<Victim, Stop> {
        let name = stage.draw().name();
        let server =
            stage.role(&name, role, argument, &Isolation { netns: Some(&self.right), cgroup: None })?;
        stage.wait(Duration::from_millis(150))?;
        stage.must_run(server.handle(), role)?;
        Ok(server)
    }

    /// An address on the right with a port that is drawn.
    pub fn address(&self, stage: &mut Stage) -> String {
        let port = stage.draw().between(2_000, 30_000);
        format!("{}:{port}", self.server)
    }
}

/// A client that asks for something of a few kilobytes on one connection, and its server. Returns the address too.
fn asking(stage: &mut Stage, cable: &Cable) -> Result<(Victim, String), Stop> {
    let address = cable.address(stage);
    let (bytes, every_ms) = (stage.draw().between(500, 6_000), stage.draw().between(4, 12));
    cable.serve(stage, "tcp-answer", &format!("{address} {bytes}"))?;
    let victim = cable.client(stage, "tcp-ask", &format!("{address} {bytes} {every_ms}"))?;
    Ok((victim, address))
}

/// Runs `nft` in a namespace: a table with a chain of what arrives, and the rules.
fn firewall(stage: &mut Stage, netns: &Netns, rules: &[&str]) -> Result<(), Stop> {
    stage.run(netns.command("nft").args(["add", "table", "inet", "edge"]))?;
    let chain = "{ type filter hook input priority 0 ; }";
    stage.run(netns.command("nft").args(["add", "chain", "inet", "edge", "arriving", chain]))?;
    for rule in rules {
        let words = ["add", "rule", "inet", "edge", "arriving"].into_iter().chain(rule.split(' '));
        stage.run(netns.command("nft").args(words))?;
    }
    Ok(())
}

/// The device has a rate since long; somebody begins to send datagrams beyond it.
fn shaped_link(stage: &mut Stage) -> Result<Truth, Stop> {
    let cable = cable(stage)?;
    let mbit = stage.draw().between(5, 30);
    // Between 10 and 40 ms of the rate: what people set.
    let limit = (mbit as f64 * 125_000.0 * stage.draw().real(0.01, 0.04)).max(15_000.0) as u64;
    stage.run(
        Command::new("tc").args(["-n", cable.left.name(), "qdisc", "add", "dev", &cable.left_device]).args([
            "root",
            "tbf",
            "rate",
            &format!("{mbit}mbit"),
            "burst",
            "8000",
            "limit",
            &limit.to_string(),
        ]),
    )?;
    let (victim, _) = asking(stage, &cable)?;
    let sink = cable.address(stage);
    cable.serve(stage, "udp-swallow", &sink)?;
    let bytes = stage.draw().between(300, 1_300);
    let factor = stage.real((1.5, 4.0), (1.02, 1.12));
    // A packet on the wire has 42 bytes of headers.
    let per_s = (mbit as f64 * 125_000.0 * factor / (bytes + 42) as f64) as u64;
    stage.healthy()?;

    stage.trouble_starts();
    let sender = cable.client(stage, "udp-load", &format!("{sink} {per_s} {bytes} 4"))?;
    stage.trouble()?;
    stage.must_run(sender.handle(), "the sender")?;
    stage.suffered(&victim, stage.loud(5.0, 1.5))?;
    Ok(Truth { nic: Some(cable.left_device), ..Truth::default() })
}

/// The server takes longer over each datagram than they are apart.
fn slow_reader(stage: &mut Stage) -> Result<Truth, Stop> {
    let cable = cable(stage)?;
    let address = cable.address(stage);
    let (file, rcvbuf) = (stage.file("pace"), stage.draw().between(16 << 10, 128 << 10));
    fs::write(&file, "0")?;
    let server = cable.serve(stage, "udp-serve", &format!("{address} {rcvbuf} {file}"))?;
    let (per_s, bytes) = (stage.draw().between(100, 400), stage.draw().between(100, 1_000));
    cable.client(stage, "udp-load", &format!("{address} {per_s} {bytes} 1"))?;
    let victim = cable.client(stage, "udp-ask", &format!("{address} 20 400"))?;
    // Loud: it manages a third or less of what comes. Faint: it lacks a tenth.
    let pace_ms = stage.real((3.0, 8.0), (1.05, 1.25)) * 1000.0 / per_s as f64;
    stage.healthy()?;

    stage.trouble_starts();
    fs::write(&file, format!("{pace_ms:.3}"))?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(5.0, 1.5))?;
    Ok(Truth::of(&server))
}

/// Loud: the server stands still. Faint: it takes longer over each connection than they are apart.
fn no_accept(stage: &mut Stage) -> Result<Truth, Stop> {
    let cable = cable(stage)?;
    let address = cable.address(stage);
    let (file, backlog) = (stage.file("pace"), stage.draw().between(8, 64));
    fs::write(&file, "0")?;
    let server = cable.serve(stage, "tcp-serve", &format!("{address} {backlog} {file}"))?;
    let per_s = stage.between((30, 100), (20, 40));
    cable.client(stage, "tcp-crowd", &format!("{address} {per_s} 4000"))?;
    let victim = cable.client(stage, "tcp-visit", &format!("{address} 50 5000"))?;
    let slower = stage.draw().real(1.5, 2.5);
    let pace_ms = stage.loud(1e6, slower * 1000.0 / per_s as f64);
    stage.healthy()?;

    stage.trouble_starts();
    fs::write(&file, format!("{pace_ms:.3}"))?;
    stage.trouble()?;
    stage.suffered(&victim, 5.0)?;
    Ok(Truth { address: Some(address), ..Truth::of(&server) })
}

/// The right end loses a part of what arrives, by chance.
fn lossy_link(stage: &mut Stage) -> Result<Truth, Stop> {
    let cable = cable(stage)?;
    let (victim, address) = asking(stage, &cable)?;
    let per_mille = stage.between((60, 200), (15, 40));
    stage.healthy()?;

    stage.trouble_starts();
    let rule = format!("meta l4proto tcp numgen random mod 1000 < {per_mille} drop");
    firewall(stage, &cable.right, &[&rule])?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(5.0, 1.5))?;
    Ok(Truth { address: Some(address), ..Truth::default() })
}

/// The firewall on the right tracks; somebody holds as many connections open as it may have. Who holds them is not asked
/// for: the table counts connections, and the kernel keeps no process with them.
fn tracking_full(stage: &mut Stage) -> Result<Truth, Stop> {
    let max = stage.draw().between(500, 3_000);
    leaves_room("tracked connections", tracked(), max)?;
    stage.sysctl("net.netfilter.nf_conntrack_max", &max.to_string())?;
    let cable = cable(stage)?;
    firewall(stage, &cable.right, &["ct state invalid counter"])?;
    let (held, served) = (cable.address(stage), cable.address(stage));
    let file = stage.file("pace");
    cable.serve(stage, "tcp-mute", &held)?;
    cable.serve(stage, "tcp-serve", &format!("{served} 128 {file}"))?;
    let patient = cable.client(stage, "tcp-visit", &format!("{served} 200 4000"))?;
    stage.healthy()?;

    stage.trouble_starts();
    let per_s = stage.between((1_500, 2_500), (300, 500));
    cable.client(stage, "tcp-hold", &format!("{held} {} {per_s}", max + 50))?;
    trouble_from_full(stage, "room for tracked connections", || {
        Ok(cable.right.inside(tracked)?.is_some_and(|n| n >= max))
    })?;
    stage.suffered(&patient, 5.0)?;
    Ok(Truth { sysctl: Some("net.netfilter.nf_conntrack_max".into()), ..Truth::default() })
}

/// Loud: the ports are gone in a moment. Faint: in a few seconds, by a rate that is just above what they allow.
fn no_ports(stage: &mut Stage) -> Result<Truth, Stop> {
    let cable = cable(stage)?;
    let ports = stage.draw().between(500, 3_000);
    let low = stage.draw().between(20_000, 40_000);
    stage.sysctl_in(&cable.left, "net.ipv4.ip_local_port_range", &format!("{low} {}", low + ports - 1))?;
    let (address, file) = (cable.address(stage), stage.file("pace"));
    cable.serve(stage, "tcp-serve", &format!("{address} 512 {file}"))?;
    let victim = cable.client(stage, "tcp-visit", &format!("{address} 100 2000"))?;
    let seconds = stage.real((0.8, 1.5), (3.5, 4.5));
    let there =
        address.parse::<SocketAddr>().map_err(|_| Stop::Failed(format!("{address} is no address")))?;
    stage.healthy()?;

    stage.trouble_starts();
    let per_s = (ports as f64 / seconds) as u64;
    let churn = cable.client(stage, "tcp-churn", &format!("{address} {per_s}"))?;
    trouble_from_full(stage, "local ports", || no_port_is_left(&cable.left, there))?;
    stage.failed(&victim, stage.loud(5.0, 2.0))?;
    Ok(Truth { sysctl: Some("net.ipv4.ip_local_port_range".into()), ..Truth::of(&churn) })
}

/// Whether the next connection from a namespace finds no local port.
fn no_port_is_left(netns: &Netns, to: SocketAddr) -> Result<bool, Stop> {
    let tried = netns.inside(|| TcpStream::connect_timeout(&to, Duration::from_millis(50)))?;
    Ok(tried.is_err_and(|e| e.kind() == ErrorKind::AddrNotAvailable))
}

/// What TCP uses on the whole machine, by a word of `/proc/net/sockstat`.
fn tcp_use(word: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/net/sockstat").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("TCP:"))?;
    line.split_whitespace().skip_while(|w| *w != word).nth(1)?.parse().ok()
}

/// Connections that the firewall tracks in the namespace of who asks.
fn tracked() -> Option<u64> {
    fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").ok()?.trim().parse().ok()
}

/// A limit of the whole machine is not set near to what the machine itself uses.
fn leaves_room(what: &str, used: Option<u64>, limit: u64) -> Result<(), Stop> {
    match used {
        Some(used) if used > limit / 4 => {
            Err(Stop::Skipped(format!("the machine has {used} {what}, too near to {limit}")))
        }
        Some(_) => Ok(()),
        None => Err(Stop::Skipped(format!("how many {what} the machine has cannot be read"))),
    }
}

/// A program closes connections whose peer does not read; the answers of another one are cut off for it. The program is not
/// asked for: an orphan is a socket that no process has any more.
fn orphans(stage: &mut Stage) -> Result<Truth, Stop> {
    let most = stage.draw().between(64, 512);
    leaves_room("orphaned sockets", tcp_use("orphan"), most)?;
    stage.sysctl("net.ipv4.tcp_max_orphans", &most.to_string())?;
    let cable = cable(stage)?;
    let (held, served) = (cable.address(stage), cable.address(stage));
    cable.serve(stage, "tcp-mute", &held)?;
    cable.serve(stage, "tcp-push", &format!("{served} 400000"))?;
    let victim = cable.client(stage, "tcp-fetch", &format!("{served} 400000 50"))?;
    let (least, most_s) = stage.loud((2, 4), (5, 6));
    let seconds = stage.draw().between(least, most_s);
    stage.healthy()?;

    stage.trouble_starts();
    cable.client(stage, "tcp-abandon", &format!("{held} {}", (most / seconds).max(5)))?;
    trouble_from_full(stage, "room for orphans", || Ok(tcp_use("orphan").is_some_and(|n| n >= most)))?;
    stage.failed(&victim, stage.loud(0.5, 0.2))?;
    Ok(Truth { sysctl: Some("net.ipv4.tcp_max_orphans".into()), ..Truth::default() })
}

/// Somebody pours into connections that nobody reads; everybody's segments find no memory. Who pours is not asked for: the
/// kernel has one number of pages for all sockets, and no counter of a process has its part of it.
fn tcp_memory(stage: &mut Stage) -> Result<Truth, Stop> {
    let high = stage.between((4_000, 5_000), (4_000, 8_000));
    leaves_room("pages of TCP's memory", tcp_use("mem"), high)?;
    // The kernel slows down at the second number, and refuses at the third. Close together they are reached at once.
    let pressure = (high as f64 * stage.real((0.97, 0.995), (0.90, 0.98))) as u64;
    stage.sysctl("net.ipv4.tcp_mem", &format!("{} {pressure} {high}", high / 2))?;
    let cable = cable(stage)?;
    // Who asks for little is served from what its socket has already.
    let (held, served) = (cable.address(stage), cable.address(stage));
    let bytes = stage.draw().between(300_000, 900_000);
    cable.serve(stage, "tcp-answer", &format!("{served} {bytes}"))?;
    let victim = cable.client(stage, "tcp-ask", &format!("{served} {bytes} 30"))?;
    cable.serve(stage, "tcp-mute", &held)?;
    let (least, most) = stage.loud((1_200, 1_800), (250, 350));
    // Under pressure each socket keeps its fair share, so that only very many of them go on to the end: with two ends to
    // each connection, what is left for each is a page or two.
    let connections = stage.draw().between(least, most);
    stage.healthy()?;

    stage.trouble_starts();
    cable.client(stage, "tcp-pour", &format!("{held} {connections}"))?;
    trouble_from_full(stage, "the memory of TCP", || Ok(tcp_use("mem").is_some_and(|n| n >= pressure)))?;
    stage.suffered(&victim, stage.loud(3.0, 1.5))?;
    Ok(Truth { sysctl: Some("net.ipv4.tcp_mem".into()), ..Truth::default() })
}

/// Another CPU takes the packets of the device, through a firewall with many rules; its queue is shorter than the bursts
/// that come, although it idles most of the time.
fn short_backlog(stage: &mut Stage) -> Result<Truth, Stop> {
    let backlog = stage.draw().between(8, 40);
    stage.sysctl("net.core.netdev_max_backlog", &backlog.to_string())?;
    let cable = cable(stage)?;
    let (victim, _) = asking(stage, &cable)?;
    let sink = cable.address(stage);
    cable.serve(stage, "udp-swallow", &sink)?;
    long_firewall(stage, &cable.right)?;
    let sending = stage.draw().uniform(0, 1);
    let taking = 1 - sending;
    let steer = format!("echo {} > /sys/class/net/{}/queues/rx-0/rps_cpus", 1 << taking, cable.right_device);
    stage.run(cable.right.command("sh").args(["-c", &steer]))?;
    let (bytes, burst) = (stage.draw().between(60, 400), stage.draw().between(150, 300));
    let per_s = stage.between((35_000, 45_000), (11_000, 13_000));
    stage.healthy()?;

    stage.trouble_starts();
    let sender = cable.client(stage, "udp-load", &format!("{sink} {per_s} {bytes} {burst}"))?;
    stage.run(Command::new("taskset").args(["-pc", &sending.to_string(), &sender.pid().to_string()]))?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(3.0, 1.5))?;
    Ok(Truth { nic: Some(cable.right_device), ..Truth::default() })
}

/// A firewall whose rules are looked at one after the other: each packet costs its CPU some microseconds.
fn long_firewall(stage: &mut Stage, netns: &Netns) -> Result<(), Stop> {
    firewall(stage, netns, &[])?;
    let rules = stage.draw().between(300, 600);
    let file = stage.file("rules");
    let line =
        |i: u64| format!("add rule inet edge arriving ip saddr 192.0.2.{} counter drop\n", 1 + i % 250);
    fs::write(&file, (0..rules).map(line).collect::<String>())?;
    stage.run(netns.command("nft").args(["-f", &file]))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::leaves_room;
    use crate::incident::Stop;

    #[test]
    fn a_limit_is_lowered_only_where_it_is_known_to_leave_room() {
        let skipped = |used| matches!(leaves_room("orphans", used, 400), Err(Stop::Skipped(_)));
        assert!(!skipped(Some(0)) && !skipped(Some(100)));
        assert!(skipped(Some(101)) && skipped(None));
    }
}
