//! `netstat -i`: counters of network devices, one device a line.
//!
//! ```text
//! Kernel Interface table
//! Iface             MTU    RX-OK RX-ERR RX-DRP RX-OVR    TX-OK TX-ERR TX-DRP TX-OVR Flg
//! eth0             1400     5888      0      0 0          3881      0      0      0 BMRU
//! eth0:1           1400      - no statistics available -                            BMRU
//! ```
//!
//! Old versions have a column `Met` behind `MTU`.

use super::Out;
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new("netstat -i", "counters of network devices, one a line", starts, read);

const COLUMNS: Pairs = pairs!(
    "RX-OK nic.rx_packets  RX-ERR nic.rx_errs  RX-DRP nic.rx_drop  RX-OVR nic.rx_fifo
     TX-OK nic.tx_packets  TX-ERR nic.tx_errs  TX-DRP nic.tx_drop  TX-OVR nic.tx_fifo"
);
/// More columns than any version has.
const COLUMNS_MAX: usize = 32;
const TITLE: &[u8] = b"Kernel Interface table";

/// The metrics of the columns of a header, its first word apart.
fn header(line: &[u8]) -> Option<Vec<Option<&'static str>>> {
    let mut names = words(line.strip_prefix(b"Iface ")?);
    let columns: Vec<_> = names.by_ref().take(COLUMNS_MAX).map(|name| find_pair(COLUMNS, name)).collect();
    (names.next().is_none() && columns.iter().flatten().count() >= 4).then_some(columns)
}

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let is_header = |line: &[u8]| header(line).is_some();
    lines.at(is_header) || lines.at(|line| line == TITLE) && lines.soon(1, is_header)
}

/// The device of a row and its numbers, `None` where a column has none.
fn row<'a>(line: &'a [u8], columns: &[Option<&str>]) -> Option<(&'a [u8], Vec<Option<u64>>)> {
    let mut cells = words(line);
    let name = cells.next()?;
    let numbers: Vec<Option<u64>> = cells.map(integer).collect();
    let is_whole = numbers.iter().zip(columns).all(|(number, metric)| number.is_some() || metric.is_none());
    (numbers.len() == columns.len() && is_whole).then_some((name, numbers))
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut out = Out::default();
    let mut columns = Vec::new();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some((name, numbers)) = row(line, &columns).filter(|_| !columns.is_empty()) {
            for (metric, number) in columns.iter().zip(numbers) {
                if let (Some(metric), Some(number)) = (metric, number) {
                    out.put(import, metric, name, at, number as f64);
                }
            }
        } else if let Some(found) = header(line) {
            columns = found;
        } else if line != TITLE && !has(line, b"no statistics available") {
            return Took::unread_if(lines.soon(1, |next| row(next, &columns).is_some()));
        }
        Took::Yes
    });
}
