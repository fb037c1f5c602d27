//! `mitra xfs-geometry`: the layout of XFS on a RAID, with every number in the unit that its option takes.

use anyhow::Result;
use mitra_diagnose::geometry::{Array, Geometry, Groups, Level, SECTOR_BYTES, Stripe, geometry};
use serde_json::{Value, json};

use crate::cli::XfsGeometryArgs;
use crate::commands::{print, print_json};
use crate::errors::usage;
use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::table::{Align, Table};

/// A size as mkfs.xfs takes it: a number with `b` counts blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Bytes.
    Bytes(u64),
    /// Blocks of the file system.
    Blocks(u64),
}

/// A level of RAID: `raid10` or `10`.
pub fn level(text: &str) -> Result<Level, String> {
    let text = text.to_ascii_lowercase();
    Ok(match text.strip_prefix("raid").unwrap_or(&text).trim_start_matches('-') {
        "0" => Level::Raid0,
        "1" => Level::Raid1,
        "5" => Level::Raid5,
        "6" => Level::Raid6,
        "10" | "1+0" => Level::Raid10,
        _ => return Err("not a level that is known; want raid0, raid1, raid5, raid6 or raid10".to_owned()),
    })
}

/// A size with the suffixes of mkfs.xfs: `k`, `m`, `g`, `t`, `p` are powers of 1024, `s` counts sectors of 512 bytes,
/// `b` blocks of the file system.
pub fn size(text: &str) -> Result<Size, String> {
    let bad =
        || "not a size; want bytes, or a whole number with k, m, g, t, s (sectors) or b (blocks)".to_owned();
    let text = text.trim().to_ascii_lowercase();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let factor = match unit {
        "" => 1,
        "b" => return Ok(Size::Blocks(number)),
        "s" => SECTOR_BYTES,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "p" | "pib" => 1 << 50,
        _ => return Err(bad()),
    };
    number.checked_mul(factor).map(Size::Bytes).ok_or_else(bad)
}

/// The same where blocks make no sense yet.
pub fn bytes(text: &str) -> Result<u64, String> {
    match size(text)? {
        Size::Bytes(bytes) => Ok(bytes),
        Size::Blocks(_) => Err("not a size in bytes; want 256k".to_owned()),
    }
}

/// Prints the layout.
pub fn run(args: &XfsGeometryArgs, style: &Style) -> Result<()> {
    let size = match args.size {
        None => None,
        Some(Size::Bytes(bytes)) => Some(bytes),
        Some(Size::Blocks(blocks)) => {
            let bytes = blocks.checked_mul(args.block_size);
            Some(bytes.ok_or_else(|| usage(format!("{blocks} blocks are more than can be counted")))?)
        }
    };
    let array = Array {
        level: args.level,
        disks: args.disks,
        stripe_unit: args.stripe_unit,
        block_bytes: args.block_size,
        size,
        ag_count: args.ag_count,
    };
    let layout = geometry(&array).map_err(|e| usage(e.to_string()))?;
    if args.json { print_json(&as_json(&array, &layout)) } else { print(&text(&array, &layout, style)) }
}

/// `mkfs.xfs -d su=256k,sw=6,agsize=748934660096 DEVICE`.
fn command(layout: &Geometry) -> String {
    let mut options = Vec::new();
    if let Some(stripe) = layout.stripe {
        options.push(format!("su={}", short(stripe.unit_bytes)));
        options.push(format!("sw={}", layout.data_disks));
    }
    if let Some(groups) = layout.groups {
        options.push(format!("agsize={}", groups.ag_blocks * layout.block_bytes));
    }
    let mut words = vec!["mkfs.xfs".to_owned()];
    if layout.block_bytes != 4096 {
        words.push(format!("-b size={}", layout.block_bytes));
    }
    if !options.is_empty() {
        words.push(format!("-d {}", options.join(",")));
    }
    words.push("DEVICE".to_owned());
    words.join(" ")
}

/// Bytes with the suffix `k` where they are whole KiB.
fn short(bytes: u64) -> String {
    if bytes.is_multiple_of(1024) { format!("{}k", bytes / 1024) } else { bytes.to_string() }
}

fn as_json(array: &Array, layout: &Geometry) -> Value {
    let block = layout.block_bytes;
    let mut value = json!({
        "level": array.level.name(), "disks": array.disks, "data_disks": layout.data_disks,
        "block_bytes": block, "command": command(layout),
    });
    if let Some(s) = layout.stripe {
        value["stripe_unit"] =
            json!({"bytes": s.unit_bytes, "sectors": s.unit_sectors(), "blocks": s.unit_blocks()});
        value["stripe_width"] =
            json!({"bytes": s.width_bytes, "sectors": s.width_sectors(), "blocks": s.width_blocks()});
    }
    if let Some(g) = layout.groups {
        value["allocation_groups"] = json!({
            "count": g.ag_count, "bytes": g.ag_blocks * block, "blocks": g.ag_blocks,
            "blocks_before": g.plain_ag_blocks, "data_blocks": g.data_blocks,
            "header_disks": g.header_disks, "header_disks_before": g.plain_header_disks,
        });
    }
    value
}

fn text(array: &Array, layout: &Geometry, style: &Style) -> String {
    let mut page = Page::new(style);
    page.heading(&format!(
        "XFS on {} of {} disks: {} with data",
        array.level.name(),
        array.disks,
        layout.data_disks
    ));
    match layout.stripe {
        Some(stripe) => {
            page.gap();
            sizes(&mut page, layout, stripe);
            page.gap();
            options(&mut page, layout, stripe);
        }
        None => page.paragraph(0, 0, None, "A mirror has no stripes: leave su and sw away."),
    }
    if let Some(groups) = layout.groups {
        page.gap();
        page.paragraph(0, 0, None, &advice(layout, groups));
    }
    page.gap();
    page.verbatim(0, Ink::Strong, &command(layout));
    page.finish()
}

fn append(page: &mut Page<'_>, table: &Table) {
    let lines = table.render(page.style);
    lines.trim_end().lines().for_each(|line| page.line(line.to_owned()));
}

/// Every size in every unit.
fn sizes(page: &mut Page<'_>, layout: &Geometry, stripe: Stripe) {
    let blocks = format!("BLOCKS OF {}", layout.block_bytes);
    let mut table = Table::new(&[
        ("SIZE", Align::Left),
        ("BYTES", Align::Right),
        ("SECTORS OF 512", Align::Right),
        (&blocks, Align::Right),
    ]);
    let mut row = |name: &str, bytes: u64| {
        let cells = [bytes, bytes / SECTOR_BYTES, bytes / layout.block_bytes].map(|n| n.to_string());
        table.row(std::iter::once(name.to_owned()).chain(cells));
    };
    row("stripe unit", stripe.unit_bytes);
    row("stripe width", stripe.width_bytes);
    if let Some(groups) = layout.groups {
        row("allocation group", groups.ag_blocks * layout.block_bytes);
    }
    append(page, &table);
}

/// Which option takes which unit, and what is printed for it.
fn options(page: &mut Page<'_>, layout: &Geometry, stripe: Stripe) {
    let mut table = Table::new(&[
        ("OPTION", Align::Left),
        ("TAKES", Align::Left),
        ("VALUE", Align::Left),
        ("mkfs.xfs AND xfs_info PRINT", Align::Left),
    ]);
    let sunit = format!("sunit={} (blocks)", stripe.unit_blocks());
    let swidth = format!("swidth={} (blocks)", stripe.width_blocks());
    let mut row = |cells: [&str; 4]| table.row(cells.map(str::to_owned));
    row(["-d su=", "bytes, or with k, m, g", &short(stripe.unit_bytes), &sunit]);
    row(["-d sw=", "data disks", &layout.data_disks.to_string(), &swidth]);
    row(["-d sunit=", "sectors, in place of su", &stripe.unit_sectors().to_string(), &sunit]);
    row(["-d swidth=", "sectors, in place of sw", &stripe.width_sectors().to_string(), &swidth]);
    if let Some(groups) = layout.groups {
        let bytes = (groups.ag_blocks * layout.block_bytes).to_string();
        row(["-d agsize=", "bytes", &bytes, &format!("agsize={} (blocks)", groups.ag_blocks)]);
    }
    row(["mount -o sunit=", "sectors", &stripe.unit_sectors().to_string(), &sunit]);
    row(["mount -o swidth=", "sectors", &stripe.width_sectors().to_string(), &swidth]);
    append(page, &table);
}

/// What the groups do to the disks.
fn advice(layout: &Geometry, groups: Groups) -> String {
    let count = groups.ag_count;
    let Some(stripe) = layout.stripe else {
        return format!("{count} allocation groups of {} blocks.", groups.ag_blocks);
    };
    let unit = stripe.unit_blocks();
    let (is, was) = (groups.ag_blocks, groups.plain_ag_blocks);
    if is == was {
        return format!(
            "{count} allocation groups of {is} blocks. Their headers lie on {} of {} data disks.",
            groups.header_disks, layout.data_disks
        );
    }
    let way = if is < was { "less" } else { "more" };
    format!(
        "{count} allocation groups of {is} blocks in place of {was}: that is a multiple of the stripe width of {} \
         blocks, so every group would begin with its headers on the same disk. One stripe unit ({unit} blocks) {way} \
         spreads them over {} of {} data disks.",
        stripe.width_blocks(),
        groups.header_disks,
        layout.data_disks
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_mkfs() {
        assert_eq!(size("256k"), Ok(Size::Bytes(262_144)));
        assert_eq!(size("12T"), Ok(Size::Bytes(12 << 40)));
        assert_eq!(size("2925527040b"), Ok(Size::Blocks(2_925_527_040)));
        assert_eq!(size("8s"), Ok(Size::Bytes(4096)));
        for bad in ["", "k", "1.5g", "-1", "12x", "99999999999p"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert!(bytes("64b").is_err());
    }

    #[test]
    fn levels() {
        assert_eq!(level("RAID10"), Ok(Level::Raid10));
        assert_eq!(level("6"), Ok(Level::Raid6));
        assert!(level("raid4").is_err() && level("").is_err());
    }

    #[test]
    fn the_page() {
        let array = Array {
            level: Level::Raid10,
            disks: 12,
            stripe_unit: Some(262_144),
            block_bytes: 4096,
            size: Some(2_925_527_040 * 4096),
            ag_count: Some(16),
        };
        let layout = geometry(&array).unwrap();
        let page = text(&array, &layout, &Style::plain(100));
        for wanted in [
            "182845376 blocks in place of 182845440",
            "6 of 6 data disks",
            "mkfs.xfs -d su=256k,sw=6,agsize=748934660096 DEVICE",
        ] {
            let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(flat.contains(wanted), "{wanted} is not in {page}");
        }
        let json = as_json(&array, &layout);
        assert_eq!(json["stripe_width"]["sectors"], 3072);
        assert_eq!(json["allocation_groups"]["header_disks_before"], 1);
    }
}
