//! Protocol counters: the sentences of `netstat -s` and the list of `nstat`.
//!
//! ```text
//! Tcp:
//!     3871 active connection openings
//! TcpExt:
//!     20 times the listen queue of a socket overflowed
//!     TCPTimeouts: 19
//! ```
//! ```text
//! #kernel
//! TcpExtListenOverflows           20                 0.0
//! ```

use mitra_model::lookup;

use super::Out;
use super::sentences::metric;
use crate::text::prelude::*;

/// `netstat -s`.
pub const NETSTAT: Format =
    Format::new("netstat -s", "counters of protocols, of all versions of net-tools", netstat_starts, netstat);
/// `nstat`.
pub const NSTAT: Format =
    Format::new("nstat", "counters of protocols by the kernel's names", nstat_starts, nstat);

/// The titles of `netstat -s`, which no locale translates.
const SECTIONS: &[&str] = &[
    "Ip", "Ip6", "Icmp", "Icmp6", "IcmpMsg", "Icmp6Msg", "Tcp", "Udp", "Udp6", "UdpLite", "UdpLite6",
    "TcpExt", "IpExt", "MPTcpExt", "Sctp",
];

/// The title, if the line is nothing but one.
fn section(line: &[u8]) -> Option<&'static str> {
    let name = line.strip_suffix(b":")?;
    SECTIONS.iter().copied().find(|s| s.as_bytes() == name)
}

fn netstat_starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let Some(area) = lines.peek().and_then(section) else { return false };
    let Some(next) = lines.ahead(1) else { return false };
    section(next).is_some() || next.starts_with(b"    ") || sentence(area, "", next).is_some()
}

fn netstat(lines: &mut Lines<'_>, import: &mut Import) {
    let mut out = Out::default();
    let mut area = "";
    // Lines without a number are titles of histograms, in words of the locale; below both stand the same kinds.
    let mut direction = "";
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some(name) = section(line) {
            (area, direction) = (name, "");
        } else if let Some((name, value)) = sentence(area, direction, line) {
            if !name.is_empty() {
                out.put(import, &name, b"", at, value);
            }
        } else if line.starts_with(b"    ") {
            if area == "Icmp" {
                direction = if direction.is_empty() { "In" } else { "Out" };
            }
        } else {
            return Took::No;
        }
        Took::Yes
    });
}

/// The metric and the number of a line, the metric empty where the table has none.
fn sentence(area: &str, direction: &str, line: &[u8]) -> Option<(String, f64)> {
    let mut value = None;
    let mut said = String::new();
    for word in words(line) {
        match integer(word).filter(|_| value.is_none()) {
            Some(n) => value = Some(n),
            None => {
                if !said.is_empty() {
                    said.push(' ');
                }
                said.push_str(&text(word));
            }
        }
    }
    let said = said.trim_end_matches(['.', ':']);
    let value = value? as f64;
    if let Some(name) = metric(area, direction, said) {
        return Some((name, value));
    }
    let name = format!("{}.{said}", area.to_ascii_lowercase());
    if !said.contains(' ') && lookup(&name).is_some() {
        return Some((name, value));
    }
    line.starts_with(b"    ").then(|| (String::new(), value))
}

/// The metric of a name such as `TcpExtListenOverflows`.
fn joined(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    const AREAS: &[&str] = &["MPTcpExt", "TcpExt", "IpExt", "UdpLite", "Udp", "Tcp", "Icmp", "Ip"];
    AREAS.iter().find_map(|area| {
        let metric = format!("{}.{}", area.to_ascii_lowercase(), name.strip_prefix(area)?);
        lookup(&metric).is_some().then_some(metric)
    })
}

/// Name, number and rate of a line of `nstat`.
fn nstat_line(line: &[u8]) -> Option<(&[u8], f64)> {
    let mut list = words(line);
    let name = list.next().filter(|n| n.first().is_some_and(u8::is_ascii_uppercase))?;
    let is_name = name.iter().all(u8::is_ascii_alphanumeric);
    let value = number(list.next()?)?;
    let rate = list.next()?;
    (is_name && rate.contains(&b'.') && number(rate).is_some() && list.next().is_none())
        .then_some((name, value))
}

fn nstat_starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let Some(line) = lines.peek() else { return false };
    line == b"#kernel" || nstat_line(line).is_some_and(|(name, _)| joined(name).is_some())
}

fn nstat(lines: &mut Lines<'_>, import: &mut Import) {
    let mut out = Out::default();
    // Without -a the numbers are what came since the last call, whenever that was.
    let since_last = import.context.ran("nstat", None)
        && !import.context.ran("nstat", Some('a'))
        && !import.context.command.iter().any(|w| w == "--ignore");
    if since_last {
        import.note("nstat without -a shows increases since its last call, at an unknown time: left out");
    }
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if line != b"#kernel" {
            let Some((name, value)) = nstat_line(line) else { return Took::No };
            if let Some(metric) = joined(name).filter(|_| !since_last) {
                out.put(import, &metric, b"", at, value);
            }
        }
        Took::Yes
    });
}
