//! `mkfs.xfs` and `xfs_info`: the layout of a file system.
//!
//! ```text
//! meta-data=/dev/sdb               isize=256    agcount=16, agsize=182845440 blks
//!          =                       sectsz=512   attr=2
//! data     =                       bsize=4096   blocks=2925527040, imaxpct=5
//!          =                       sunit=64     swidth=384 blks
//! naming   =version 2              bsize=4096   ascii-ci=0
//! log      =internal log           bsize=4096   blocks=521728, version=2
//!          =                       sectsz=512   sunit=64 blks, lazy-count=1
//! realtime =none                   extsz=4096   blocks=0, rtextents=0
//! ```

use mitra_model::EventKind;

use super::run::DAMAGE_MAX;
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format =
    Format::new("mkfs.xfs", "the layout of a filesystem, also from `xfs_info`", starts, read);

/// The numbers that are kept, by section; a name without its section is a later one's.
const KEYS: [(Section, &[u8]); 7] = [
    (Section::Meta, b"agcount"),
    (Section::Meta, b"agsize"),
    (Section::Meta, b"sectsz"),
    (Section::Data, b"bsize"),
    (Section::Data, b"blocks"),
    (Section::Data, b"sunit"),
    (Section::Data, b"swidth"),
];

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Section {
    #[default]
    Meta,
    Data,
    Other,
}

/// `meta-data=`, or the warning that mkfs.xfs prints before it.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| is_meta(line) || is_warning(line))
}

fn is_meta(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"meta-data=") && field(line, b"agcount").is_some()
}

fn is_warning(line: &[u8]) -> bool {
    line.trim_ascii().starts_with(b"Warning: AG size is a multiple of stripe width")
}

/// The number of `key=` on a line.
fn field(line: &[u8], key: &[u8]) -> Option<u64> {
    words(line).find_map(|w| {
        let value = w.strip_prefix(key)?.strip_prefix(b"=")?;
        integer(value.strip_suffix(b",").unwrap_or(value))
    })
}

#[derive(Default)]
struct Layout {
    line: u32,
    device: String,
    /// As [`KEYS`].
    values: [Option<u64>; KEYS.len()],
    section: Section,
}

/// Reads one layout, with the warning about it.
fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let more: &[&[u8]] = &[b"problems by aligning all AGs", b"an AG size that is one stripe unit"];
    let mut layout = Layout::default();
    lines.each(import, |lines, n, import| {
        let line = lines.line();
        if is_warning(line) {
            import.note(
                "mkfs.xfs warns that the AG size is a multiple of the stripe width: every allocation group begins on the same disk of the stripe",
            );
        } else if is_meta(line) && layout.line != 0 {
            return Took::No;
        } else if !(line.trim_ascii().is_empty()
            || begins(line.trim_ascii_start(), more)
            || layout.take(line, n))
        {
            let known = |line: &[u8]| line.trim_ascii_start().starts_with(b"=") || is_meta(line);
            return Took::unread_if(lines.soon(DAMAGE_MAX, known));
        }
        Took::Yes
    });
    layout.finish(import);
}

impl Layout {
    /// Takes a line. Whether it is one of a layout.
    fn take(&mut self, line: &[u8], n: u32) -> bool {
        let Some(at) = line.iter().position(|b| *b == b'=') else { return false };
        self.section = match line.get(..at).unwrap_or_default().trim_ascii() {
            b"meta-data" if is_meta(line) => {
                self.line = n;
                self.device = text(line.get(at + 1..).and_then(|r| words(r).next()).unwrap_or_default());
                Section::Meta
            }
            b"data" => Section::Data,
            b"naming" | b"log" | b"realtime" | b"external" => Section::Other,
            b"" if self.line != 0 => self.section,
            _ => return false,
        };
        for ((section, key), value) in KEYS.iter().zip(&mut self.values) {
            if *section == self.section {
                *value = value.or_else(|| field(line, key));
            }
        }
        true
    }

    /// The layout as an event, if its essential numbers are there.
    fn finish(self, import: &mut Import) {
        let [ag_count, ag_blocks, sector_bytes, block_bytes, data_blocks, stripe_unit, stripe_width] =
            self.values;
        let (Some(ag_count), Some(ag_blocks), Some(block_bytes), Some(data_blocks)) =
            (ag_count, ag_blocks, block_bytes, data_blocks)
        else {
            if self.line != 0 {
                import.note(format!("line {}: the layout of {} is not complete", self.line, self.device));
            }
            return;
        };
        let geometry = EventKind::Geometry {
            device: self.device,
            ag_count,
            ag_blocks,
            block_bytes,
            stripe_unit_blocks: stripe_unit.unwrap_or(0),
            stripe_width_blocks: stripe_width.unwrap_or(0),
            sector_bytes: sector_bytes.unwrap_or(512),
            data_blocks,
        };
        import.event(import.now(), self.line, geometry);
    }
}
