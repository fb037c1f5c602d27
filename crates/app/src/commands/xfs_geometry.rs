//! `mitra xfs-geometry`: the layout of XFS on a RAID, each number in the unit of its option.

use anyhow::Result;
use mitra_diagnose::geometry::{Array, Geometry, Groups, SECTOR_BYTES, Stripe, geometry};
use serde_json::{Value, json};

use crate::cli::XfsGeometryArgs;
use crate::commands::{print, print_json};
use crate::errors::usage;
use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::table::Table;
use crate::values::size::MkfsSize;

pub fn run(args: &XfsGeometryArgs, style: &Style) -> Result<()> {
    let size = match args.size {
        None => None,
        Some(MkfsSize::Bytes(bytes)) => Some(bytes),
        Some(MkfsSize::Blocks(blocks)) => {
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

/// With the suffix `k` if it is whole KiB.
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
    let heads = format!("SIZE|>BYTES|>SECTORS OF 512|>BLOCKS OF {}", layout.block_bytes);
    let mut table = Table::of(&heads);
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

/// Which option takes which unit, and what the tools print for it.
fn options(page: &mut Page<'_>, layout: &Geometry, stripe: Stripe) {
    let mut table = Table::of("OPTION|TAKES|VALUE|mkfs.xfs AND xfs_info PRINT");
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

/// How the allocation groups spread over the disks.
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
    use mitra_diagnose::geometry::Level;

    use super::*;

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
