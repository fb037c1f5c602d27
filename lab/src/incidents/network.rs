//! Network incidents: packets lost in queues and on the way, servers that do not accept or read,
//! kernel limits. Each has two network namespaces of its own with a veth pair between them.

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

/// Two namespaces with a veth pair between them: clients on the left, servers on the right.
pub struct Cable {
    /// The clients' namespace.
    pub left: Netns,
    /// The servers' namespace.
    pub right: Netns,
    /// The clients' device.
    pub left_device: String,
    /// The servers' device.
    pub right_device: String,
    /// The servers' address.
    pub server: Ipv4Addr,
}

/// Creates the namespaces and the veth pair.
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

    /// An address on the right with a drawn port.
    pub fn address(&self, stage: &mut Stage) -> String {
        let port = stage.draw().between(2_000, 30_000);
        format!("{}:{port}", self.server)
    }
}

/// A client that requests a few kilobytes on one connection, and its server. Returns the address
/// too.
fn asking(stage: &mut Stage, cable: &Cable) -> Result<(Victim, String), Stop> {
    let address = cable.address(stage);
    let (bytes, every_ms) = (stage.draw().between(500, 6_000), stage.draw().between(4, 12));
    cable.serve(stage, "tcp-answer", &format!("{address} {bytes}"))?;
    let victim = cable.client(stage, "tcp-ask", &format!("{address} {bytes} {every_ms}"))?;
    Ok((victim, address))
}

/// Adds a table to a namespace with `nft`: an input chain and the rules.
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

/// The device has had its rate for long. A program begins to send datagrams beyond it.
fn shaped_link(stage: &mut Stage) -> Result<Truth, Stop> {
    let cable = cable(stage)?;
    let mbit = stage.draw().between(5, 30);
    // Between 10 and 40 ms of the rate, as is usual.
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
    // Headers add 42 bytes to a packet on the wire.
    let per_s = (mbit as f64 * 125_000.0 * factor / (bytes + 42) as f64) as u64;
    stage.healthy()?;

    stage.trouble_starts();
    let sender = cable.client(stage, "udp-load", &format!("{sink} {per_s} {bytes} 4"))?;
    stage.trouble()?;
    stage.must_run(sender.handle(), "the sender")?;
    stage.suffered(&victim, stage.loud(5.0, 1.5))?;
    Ok(Truth { nic: Some(cable.left_device), ..Truth::default() })
}

/// The server takes longer over each datagram than the interval between two.
fn slow_reader(stage: &mut Stage) -> Result<Truth, Stop> {
    let cable = cable(stage)?;
    let address = cable.address(stage);
    let (file, rcvbuf) = (stage.file("pace"), stage.draw().between(16 << 10, 128 << 10));
    fs::write(&file, "0")?;
    let server = cable.serve(stage, "udp-serve", &format!("{address} {rcvbuf} {file}"))?;
    let (per_s, bytes) = (stage.draw().between(100, 400), stage.draw().between(100, 1_000));
    cable.client(stage, "udp-load", &format!("{address} {per_s} {bytes} 1"))?;
    let victim = cable.client(stage, "udp-ask", &format!("{address} 20 400"))?;
    // Loud: the server reads a third or less of the datagrams. Faint: it misses a tenth.
    let pace_ms = stage.real((3.0, 8.0), (1.05, 1.25)) * 1000.0 / per_s as f64;
    stage.healthy()?;

    stage.trouble_starts();
    fs::write(&file, format!("{pace_ms:.3}"))?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(5.0, 1.5))?;
    Ok(Truth::of(&server))
}

/// Loud: the server accepts nothing. Faint: each connection takes it longer than the interval
/// between two.
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

/// The right end drops a random share of the arriving packets.
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

/// The firewall on the right tracks connections; a program holds as many open as the table allows.
/// The truth names no process: conntrack stores none with a connection.
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

/// Loud: the ports are used up within a second or so. Faint: within a few seconds.
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

/// TCP usage of the whole machine, by a word of `/proc/net/sockstat`.
fn tcp_use(word: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/net/sockstat").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("TCP:"))?;
    line.split_whitespace().skip_while(|w| *w != word).nth(1)?.parse().ok()
}

/// Connections that netfilter tracks in the caller's namespace.
fn tracked() -> Option<u64> {
    fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").ok()?.trim().parse().ok()
}

/// Refuses a limit that is near to what the machine itself uses.
fn leaves_room(what: &str, used: Option<u64>, limit: u64) -> Result<(), Stop> {
    match used {
        Some(used) if used > limit / 4 => {
            Err(Stop::Skipped(format!("the machine has {used} {what}, too near to {limit}")))
        }
        Some(_) => Ok(()),
        None => Err(Stop::Skipped(format!("how many {what} the machine has cannot be read"))),
    }
}

/// A program closes connections whose peer does not read, and the answers of another program are
/// cut off for it. The truth names no process: an orphan is a socket that no process owns any more.
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

/// A program fills connections that nobody reads, and no socket of the machine gets memory for its
/// segments. The truth names no process: the kernel has one page count for all sockets and none for
/// each process.
fn tcp_memory(stage: &mut Stage) -> Result<Truth, Stop> {
    let high = stage.between((4_000, 5_000), (4_000, 8_000));
    leaves_room("pages of TCP's memory", tcp_use("mem"), high)?;
    // The kernel is under pressure at the second number and refuses memory at the third. With both
    // close together, one soon follows the other.
    let pressure = (high as f64 * stage.real((0.97, 0.995), (0.90, 0.98))) as u64;
    stage.sysctl("net.ipv4.tcp_mem", &format!("{} {pressure} {high}", high / 2))?;
    let cable = cable(stage)?;
    // The victim moves much data: small transfers are served from memory that the socket already
    // has.
    let (held, served) = (cable.address(stage), cable.address(stage));
    let bytes = stage.draw().between(300_000, 900_000);
    cable.serve(stage, "tcp-answer", &format!("{served} {bytes}"))?;
    let victim = cable.client(stage, "tcp-ask", &format!("{served} {bytes} 30"))?;
    cable.serve(stage, "tcp-mute", &held)?;
    let (least, most) = stage.loud((1_200, 1_800), (250, 350));
    // Under pressure each socket keeps its fair share, so only very many of them reach the limit.
    // With two sockets a connection, each gets a page or two.
    let connections = stage.draw().between(least, most);
    stage.healthy()?;

    stage.trouble_starts();
    cable.client(stage, "tcp-pour", &format!("{held} {connections}"))?;
    trouble_from_full(stage, "the memory of TCP", || Ok(tcp_use("mem").is_some_and(|n| n >= pressure)))?;
    stage.suffered(&victim, stage.loud(3.0, 1.5))?;
    Ok(Truth { sysctl: Some("net.ipv4.tcp_mem".into()), ..Truth::default() })
}

/// Another CPU handles the device's packets, through a firewall with many rules. Its backlog queue
/// is shorter than the bursts, although the CPU idles most of the time.
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

/// A firewall whose rules are checked in order: each packet costs its CPU some microseconds.
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
