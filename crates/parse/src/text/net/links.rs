//! Counters of network devices.
//!
//! ```text
//! 4: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1400 qdisc pfifo_fast state UP mode DEFAULT group default qlen 1000
//!     link/ether 02:fc:00:00:00:01 brd ff:ff:ff:ff:ff:ff
//!     RX:  bytes packets errors dropped  missed   mcast
//!      485998970   16167      0       0       0       0
//! ```
//! ```text
//! eth0: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 1400
//!         RX packets 16167  bytes 485998970 (463.4 MiB)
//! ```
//! ```text
//! eth0      Link encap:Ethernet  HWaddr 02:fc:00:00:00:01
//!           RX packets:16167 errors:0 dropped:0 overruns:0 frame:0
//! ```
//! ```text
//! NIC statistics:
//!      rx_drops: 0
//! ```
//! ```text
//! Ring parameters for eth0:
//! Pre-set maximums:
//! RX:             4096
//! Current hardware settings:
//! RX:             256
//! ```

use super::Out;
use crate::text::prelude::*;

/// `ip -s link`.
pub const IP: Format =
    Format::new("ip -s link", "counters of network devices, also with `-s -s`", ip_starts, ip);
/// `ifconfig`.
pub const IFCONFIG: Format = Format::new(
    "ifconfig",
    "counters of network devices, of old and new net-tools",
    ifconfig_starts,
    ifconfig,
);
/// `ethtool -S`.
pub const ETHTOOL: Format =
    Format::new("ethtool -S", "drops at the rings of the driver", ethtool_starts, ethtool);

/// `ethtool -g`.
pub const RINGS: Format = Format::new(
    "ethtool -g",
    "the receive ring of a device, and the largest that its driver makes",
    |lines, _| lines.at(|line| ring_header(line).is_some()),
    rings,
);

/// Numbers of one device, by a name of direction and column, with their lines. No output has more for one device.
const FIELDS_MAX: usize = 64;

#[derive(Default)]
struct Device {
    name: Vec<u8>,
    fields: Vec<(String, f64, u32)>,
}

impl Device {
    fn add(&mut self, key: String, value: f64, line: u32) {
        if self.fields.len() < FIELDS_MAX {
            self.fields.push((key, value, line));
        }
    }

    fn get(&self, key: &str) -> Option<(f64, u32)> {
        self.fields.iter().find(|(k, ..)| k == key).map(|(_, value, line)| (*value, *line))
    }

    /// Puts the sum of columns, if all of them are there.
    fn sum(&self, metric: &str, keys: &[&str], out: &mut Out, import: &mut Import) {
        let mut total = 0.0;
        for key in keys {
            let Some((value, _)) = self.get(key) else { return };
            total += value;
        }
        if let Some((_, line)) = keys.first().and_then(|key| self.get(key)) {
            out.put(import, metric, &self.name, line, total);
        }
    }
}

/// The name in `4: eth0@if3: <BROADCAST,…> mtu …`.
fn ip_header(line: &[u8]) -> Option<&[u8]> {
    let mut list = words(line);
    integer(list.next()?.strip_suffix(b":")?)?;
    let name = list.next()?.strip_suffix(b":")?;
    let flags = list.next()?;
    let is_one = flags.starts_with(b"<") && flags.ends_with(b">") && list.next() == Some(b"mtu");
    is_one.then(|| name.split(|b| *b == b'@').next())?
}

fn ip_starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| ip_header(line).is_some())
}

/// What a line of an output of `ip` begins with, below the name of the device.
const IP_LINES: &[&[u8]] =
    &[b"link/", b"inet", b"valid_lft", b"altname", b"vf", b"alias", b"bridge", b"vxlan", b"bond"];

fn ip(lines: &mut Lines<'_>, import: &mut Import) {
    let mut out = Out::default();
    let mut device = Device::default();
    // The names of the columns of the next line.
    let mut heading: Option<(&str, Vec<String>)> = None;
    loop {
        let number = lines.number();
        let Some(line) = lines.peek().filter(|line| !line.is_empty()) else { break };
        if let Some(name) = ip_header(line) {
            let next = Device { name: name.to_vec(), fields: Vec::new() };
            ip_device(&std::mem::replace(&mut device, next), &mut out, import);
            heading = None;
        } else if let Some((direction, columns)) = heading.take() {
            let values: Option<Vec<u64>> = words(line).map(integer).collect();
            match values {
                Some(values) if values.len() == columns.len() => {
                    for (column, value) in columns.iter().zip(values) {
                        device.add(format!("{direction} {column}"), value as f64, number);
                    }
                }
                _ => import.unread(number, line),
            }
        } else if let Some((direction, columns)) = ip_heading(line) {
            heading = Some((direction, columns));
        } else if !line.starts_with(b" ")
            && !IP_LINES.iter().any(|start| line.trim_ascii().starts_with(start))
        {
            break;
        }
        lines.advance();
    }
    ip_device(&device, &mut out, import);
}

/// `RX:  bytes packets errors`, `TX errors: aborted fifo`: the direction and the columns.
fn ip_heading(line: &[u8]) -> Option<(&'static str, Vec<String>)> {
    let mut list = words(line);
    let direction = match list.next()? {
        b"RX:" => "rx",
        b"TX:" => "tx",
        word @ (b"RX" | b"TX") => {
            if list.next()? != b"errors:" {
                return None;
            }
            if word == b"RX" { "rx" } else { "tx" }
        }
        _ => return None,
    };
    let columns: Vec<String> = list.map(text).collect();
    (!columns.is_empty() && columns.iter().all(|c| c.bytes().all(|b| b.is_ascii_alphabetic())))
        .then_some((direction, columns))
}

/// Columns of `ip` that are a metric by themselves, `_` between direction and name.
const IP_COLUMNS: Pairs = pairs!(
    "rx_bytes nic.rx_bytes  rx_packets nic.rx_packets  rx_errors nic.rx_errs  rx_fifo nic.rx_fifo
     tx_bytes nic.tx_bytes  tx_packets nic.tx_packets  tx_errors nic.tx_errs  tx_fifo nic.tx_fifo
     rx_mcast nic.rx_multicast  rx_missed nic.rx_ring_drops  tx_dropped nic.tx_drop  tx_collsns nic.tx_colls"
);

/// `/proc/net/dev` adds up what `ip` shows apart; the metrics are those of that file.
fn ip_device(device: &Device, out: &mut Out, import: &mut Import) {
    for (key, metric) in IP_COLUMNS {
        device.sum(metric, &[&text(key).replace('_', " ")], out, import);
    }
    let keys: &[&str] =
        if device.get("rx missed").is_some() { &["rx dropped", "rx missed"] } else { &["rx dropped"] };
    device.sum("nic.rx_drop", keys, out, import);
    device.sum("nic.rx_frame", &["rx length", "rx crc", "rx frame", "rx overrun"], out, import);
    device.sum("nic.tx_carrier", &["tx carrier", "tx aborted", "tx window", "tx heartbt"], out, import);
}

/// The name in `eth0: flags=4163<UP>  mtu 1500` or `eth0      Link encap:Ethernet`.
fn ifconfig_header(line: &[u8]) -> Option<&[u8]> {
    if line.starts_with(b" ") {
        return None;
    }
    let mut list = words(line);
    let name = list.next()?;
    match list.next()? {
        flags if flags.starts_with(b"flags=") => name.strip_suffix(b":"),
        b"Link" => list.next()?.starts_with(b"encap:").then_some(name),
        _ => None,
    }
}

fn ifconfig_starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| ifconfig_header(line).is_some())
}

fn ifconfig(lines: &mut Lines<'_>, import: &mut Import) {
    let mut out = Out::default();
    let mut name: Vec<u8> = Vec::new();
    while let Some(line) = lines.peek() {
        if line.trim_ascii().is_empty() {
            // A blank line stands between devices.
            if lines.ahead(1).is_none_or(|next| ifconfig_header(next).is_none()) {
                break;
            }
            lines.advance();
            continue;
        }
        let line = line.to_vec();
        if let Some(header) = ifconfig_header(&line) {
            name = header.to_vec();
        } else if line.starts_with(b" ") {
            ifconfig_line(&line, &name, lines.number(), &mut out, import);
        } else {
            break;
        }
        lines.advance();
    }
}

/// Columns of `ifconfig`, by direction and name.
const IFCONFIG_COLUMNS: Pairs = pairs!(
    "rx_packets nic.rx_packets  rx_bytes nic.rx_bytes   rx_errors nic.rx_errs  rx_dropped nic.rx_drop
     tx_packets nic.tx_packets  tx_bytes nic.tx_bytes   tx_errors nic.tx_errs  tx_dropped nic.tx_drop
     rx_overruns nic.rx_fifo    tx_overruns nic.tx_fifo rx_frame nic.rx_frame  tx_carrier nic.tx_carrier
     collisions nic.tx_colls"
);

/// `RX packets 16167  bytes 485998970 (463.4 MiB)`, `RX packets:5 errors:0`, `collisions:0 txqueuelen:1000`.
fn ifconfig_line(line: &[u8], name: &[u8], number: u32, out: &mut Out, import: &mut Import) {
    let mut direction = "";
    let mut key: Vec<u8> = Vec::new();
    for word in words(line) {
        let (head, value) = match word.iter().position(|b| *b == b':') {
            Some(colon) => (word.get(..colon).unwrap_or_default(), word.get(colon + 1..)),
            None => (word, None),
        };
        match head {
            b"RX" => direction = "rx",
            b"TX" => direction = "tx",
            _ => {}
        }
        let (column, value) = match (value, integer(head)) {
            (Some(value), _) => (head.to_vec(), integer(value)),
            (None, Some(value)) => (std::mem::take(&mut key), Some(value)),
            (None, None) => {
                key = head.to_vec();
                continue;
            }
        };
        let key =
            if column == b"collisions" { column } else { [direction.as_bytes(), b"_", &column].concat() };
        let Some(field) = find_pair(IFCONFIG_COLUMNS, &key) else { continue };
        match value {
            Some(value) => out.put(import, field, name, number, value as f64),
            None => import.unread(number, line),
        }
    }
}

fn ethtool_starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| line == b"NIC statistics:")
}

/// Counters of drivers for packets that found no room in the ring, in the order of no importance.
const RING: &[&[u8]] = list!(
    "rx_missed_errors rx_missed rx_no_dma_resources rx_out_of_buffer rx_discards_phy rx_drops rx_dropped
     rx_fifo_errors rx_no_buffer_count rx_buf_overflow rx_ring_full rx_missed_pkts"
);

fn ethtool(lines: &mut Lines<'_>, import: &mut Import) {
    lines.advance();
    let mut largest: Option<(f64, u32)> = None;
    let mut queues: Option<(f64, u32)> = None;
    lines.each(import, |lines, number, _| {
        let line = lines.line();
        let Some(colon) = line.iter().rposition(|b| *b == b':').filter(|_| line.starts_with(b" ")) else {
            return Took::No;
        };
        let key = text(line.get(..colon).unwrap_or_default().trim_ascii());
        match integer(line.get(colon + 1..).unwrap_or_default().trim_ascii()) {
            Some(value) if RING.contains(&key.as_bytes()) => {
                let value = value as f64;
                if largest.is_none_or(|(most, _)| value > most) {
                    largest = Some((value, number));
                }
            }
            Some(value) if is_queue_drop(&key) => {
                let (sum, first) = queues.unwrap_or((0.0, number));
                queues = Some((sum + value as f64, first));
            }
            _ => {}
        }
        Took::Yes
    });
    let found = match (largest, queues) {
        (Some(a), Some(b)) => Some(if b.0 > a.0 { b } else { a }),
        (a, b) => a.or(b),
    };
    let Some((value, line)) = found else { return };
    match device_name(&import.context) {
        Some(name) => Out::default().put(import, "nic.rx_ring_drops", name.as_bytes(), line, value),
        None => import.note("the device of ethtool -S is not named: its drops were left out"),
    }
}

/// The name in `Ring parameters for eth0:`.
fn ring_header(line: &[u8]) -> Option<&[u8]> {
    line.strip_prefix(b"Ring parameters for ")?.strip_suffix(b":").filter(|name| !name.is_empty())
}

fn rings(lines: &mut Lines<'_>, import: &mut Import) {
    /// What else the lines of an output begin with.
    const OWN: &[&[u8]] = list!("RX |TX|CQE |TCP ", b'|');
    let name = lines.peek().and_then(ring_header).unwrap_or_default().to_vec();
    lines.advance();
    let mut out = Out::default();
    let mut metric = None;
    lines.each(import, |lines, number, import| {
        let line = lines.line();
        match line {
            b"Pre-set maximums:" => metric = Some("nic.rx_ring_max"),
            b"Current hardware settings:" => metric = Some("nic.rx_ring"),
            _ if line.starts_with(b"RX:") => {
                let packets = line.get(b"RX:".len()..).map(<[u8]>::trim_ascii).and_then(integer);
                // A driver without rings says `n/a`, or 0.
                if let (Some(metric), Some(packets)) = (metric, packets.filter(|packets| *packets > 0)) {
                    out.put(import, metric, &name, number, packets as f64);
                }
            }
            _ if begins(line, OWN) => {}
            _ => return Took::No,
        }
        Took::Yes
    });
}

/// `rx0_drops`, `rx_queue_3_drops`, `rx-0.drops`, `rx3_buff_alloc_err` is not one.
fn is_queue_drop(key: &str) -> bool {
    let Some(rest) = key.strip_prefix("rx") else { return false };
    let rest = rest.trim_start_matches(['_', '-']);
    let rest = rest.strip_prefix("queue_").unwrap_or(rest);
    let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let what = after.trim_start_matches(['_', '-', '.']);
    after.len() < rest.len() && ["drops", "drop", "dropped", "drop_cnt", "discards"].contains(&what)
}

/// The device that the command or the name of the file says.
fn device_name(context: &Context) -> Option<String> {
    if context.ran("ethtool", None) {
        return context.command.iter().skip(1).find(|w| !w.starts_with('-')).cloned();
    }
    let file = context.file_name.rsplit('/').next()?;
    let parts = file.split(['.', '_', '-', ' ']);
    let is_device = |part: &&str| {
        let digits = part.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let kind = part.get(..part.len() - digits.len()).unwrap_or_default();
        ["eth", "en", "eno", "ens", "enp", "enx", "bond", "wlan", "wlp", "ib"].contains(&kind)
            && digits.starts_with(|c: char| c.is_ascii_digit())
    };
    parts.into_iter().find(is_device).map(str::to_owned)
}
