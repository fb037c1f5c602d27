//! `cifsiostat`, `nfsiostat` and `tapestat` of sysstat: known, and passed over.
//!
//! ```text
//! Filesystem                     rB/s         wB/s    rops/s    wops/s         fo/s         fc/s         fd/s
//! \\server\share                 0.00         0.00      0.00      0.00         0.00         0.00         0.00
//!
//! Tape:    r/s     w/s   kB_read/s   kB_wrtn/s %Rd %Wr %Oa    Rs/s    Ot/s
//! st0        0     370           0      185241   0 100 100       0       0
//! ```

use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format =
    Format::new("cifsiostat, nfsiostat, tapestat", "recognised and passed over, with a note", starts, read);

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| header(line).is_some())
}

/// The tool that prints such a header; with `-h` the name of the thing comes last.
fn header(line: &[u8]) -> Option<&'static str> {
    let mut w = words(line);
    let (first, second) = (w.next()?, w.next()?);
    let ends = |name: &[u8]| line.trim_ascii_end().ends_with(name);
    match (first, second) {
        (b"Filesystem" | b"Filesystem:", b"rBlk_nor/s" | b"rkB_nor/s" | b"rMB_nor/s") => Some("nfsiostat"),
        (b"Filesystem" | b"Filesystem:", b"rB/s" | b"rkB/s" | b"rMB/s") => Some("cifsiostat"),
        (b"rB/s" | b"rkB/s" | b"rMB/s", _) if ends(b" Filesystem") => Some("cifsiostat"),
        (b"Tape:", b"r/s") => Some("tapestat"),
        (b"r/s", _) if ends(b" Tape:") => Some("tapestat"),
        _ => None,
    }
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut open = false;
    lines.each(import, |lines, _, import| {
        let line = lines.line();
        if line.trim_ascii().is_empty() {
            open = false;
        } else if let Some(tool) = header(line) {
            import.note(format!("{tool}: there is no place for its numbers yet, passed over"));
            open = true;
        } else if !open || words(line).skip(1).filter(|w| leading(w).is_some()).count() < 3 {
            return Took::No;
        }
        Took::Yes
    });
}
