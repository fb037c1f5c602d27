//! `cifsiostat`, `nfsiostat` and `tapestat` of sysstat: known, and passed over.
//!
//! ```text
//! Filesystem                     rB/s         wB/s    rops/s    wops/s         fo/s         fc/s         fd/s
//! \\server\share                 0.00         0.00      0.00      0.00         0.00         0.00         0.00
//!
//! Tape:    r/s     w/s   kB_read/s   kB_wrtn/s %Rd %Wr %Oa    Rs/s    Ot/s
//! st0        0     370           0      185241   0 100 100       0       0
//! ```

use super::super::number::{leading, words};
use super::super::{Context, Format, Import, Lines};

/// The format.
pub const FORMAT: Format = Format {
    name: "cifsiostat, nfsiostat, tapestat",
    what: "recognised and passed over, with a note",
    starts,
    read,
};

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.peek().is_some_and(|line| header(line).is_some())
}

/// The tool that prints such a header.
fn header(line: &[u8]) -> Option<&'static str> {
    let mut w = words(line);
    let first = w.next()?;
    let second = w.next()?;
    match first {
        b"Filesystem" | b"Filesystem:" => match second {
            b"rBlk_nor/s" | b"rkB_nor/s" | b"rMB_nor/s" => Some("nfsiostat"),
            b"rB/s" | b"rkB/s" | b"rMB/s" => Some("cifsiostat"),
            _ => None,
        },
        b"Tape:" if second == b"r/s" => Some("tapestat"),
        // With -h the name comes last.
        b"rB/s" | b"rkB/s" | b"rMB/s" if line.trim_ascii_end().ends_with(b" Filesystem") => {
            Some("cifsiostat")
        }
        b"r/s" if line.trim_ascii_end().ends_with(b" Tape:") => Some("tapestat"),
        _ => None,
    }
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut open = false;
    while let Some(line) = lines.peek() {
        if line.trim_ascii().is_empty() {
            open = false;
        } else if let Some(tool) = header(line) {
            import.note(format!("{tool}: there is no place for its numbers yet, passed over"));
            open = true;
        } else if !open || words(line).skip(1).filter(|w| leading(w).is_some()).count() < 3 {
            break;
        }
        lines.advance();
    }
}
