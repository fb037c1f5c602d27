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

use super::super::context::Context;
use super::super::import::Import;
use super::super::lines::Lines;
use super::super::number::{integer, text, words};
use super::run::{Took, each_line};

/// `meta-data=`, or the warning that mkfs.xfs prints before it.
pub fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.peek().is_some_and(|l| is_meta(l) || is_warning(l))
}

fn is_meta(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"meta-data=") && field(line, b"agcount").is_some()
}

fn is_warning(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.starts_with(b"Warning: AG size is a multiple of stripe width")
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
    ag_count: Option<u64>,
    ag_blocks: Option<u64>,
    sector_bytes: Option<u64>,
    block_bytes: Option<u64>,
    data_blocks: Option<u64>,
    stripe_unit: Option<u64>,
    stripe_width: Option<u64>,
    section: Section,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Section {
    #[default]
    Meta,
    Data,
    Other,
}

/// Reads one layout, with the warning about it.
pub fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut layout = Layout::default();
    each_line(
        lines,
        import,
        |l| l.trim_ascii_start().starts_with(b"=") || is_meta(l),
        |line, n, import| {
            if is_warning(line) {
                let ag = "every allocation group begins on the same disk of the stripe";
                import
                    .note(format!("mkfs.xfs warns that the AG size is a multiple of the stripe width: {ag}"));
                return Took::Yes;
            }
            if line.trim_ascii_start().starts_with(b"problems by aligning all AGs")
                || line.trim_ascii_start().starts_with(b"an AG size that is one stripe unit")
            {
                return Took::Yes;
            }
            if is_meta(line) && layout.line != 0 {
                // The next layout.
                return Took::Stop;
            }
            layout.take(line, n)
        },
    );
    layout.finish(import);
}

impl Layout {
    fn take(&mut self, line: &[u8], n: u32) -> Took {
        let Some(at) = line.iter().position(|b| *b == b'=') else { return Took::No };
        let head = line.get(..at).unwrap_or_default().trim_ascii();
        self.section = match head {
            b"meta-data" if is_meta(line) => {
                self.line = n;
                self.device = text(line.get(at + 1..).and_then(|r| words(r).next()).unwrap_or_default());
                Section::Meta
            }
            b"data" => Section::Data,
            b"naming" | b"log" | b"realtime" | b"external" => Section::Other,
            b"" if self.line != 0 => self.section,
            _ => return Took::No,
        };
        let first = |slot: &mut Option<u64>, key: &[u8]| *slot = slot.or_else(|| field(line, key));
        match self.section {
            Section::Meta => {
                first(&mut self.ag_count, b"agcount");
                first(&mut self.ag_blocks, b"agsize");
                first(&mut self.sector_bytes, b"sectsz");
            }
            Section::Data => {
                first(&mut self.block_bytes, b"bsize");
                first(&mut self.data_blocks, b"blocks");
                first(&mut self.stripe_unit, b"sunit");
                first(&mut self.stripe_width, b"swidth");
            }
            Section::Other => {}
        }
        Took::Yes
    }

    /// The layout as an event, if its essential numbers are there.
    fn finish(self, import: &mut Import) {
        let (Some(ag_count), Some(ag_blocks), Some(block_bytes), Some(data_blocks)) =
            (self.ag_count, self.ag_blocks, self.block_bytes, self.data_blocks)
        else {
            if self.line != 0 {
                import.note(format!("line {}: the layout of {} is not complete", self.line, self.device));
            }
            return;
        };
        let when = import.now();
        import.event(
            when,
            self.line,
            EventKind::Geometry {
                device: self.device,
                ag_count,
                ag_blocks,
                block_bytes,
                stripe_unit_blocks: self.stripe_unit.unwrap_or(0),
                stripe_width_blocks: self.stripe_width.unwrap_or(0),
                sector_bytes: self.sector_bytes.unwrap_or(512),
                data_blocks,
            },
        );
    }
}
