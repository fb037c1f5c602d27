//! What the layout of an XFS file system adds to the trouble of the disks below it. `geometry` has the rules.

use mitra_model::{SeriesSet, Span};

use crate::geometry::{SECTOR_BYTES, Stripe, on_one_disk};
use crate::{device, words};

/// What is read here.
pub const NEEDS: &[&str] = &[
    "fs.device",
    "fs.xfs_block",
    "fs.xfs_ag_blocks",
    "fs.xfs_ag_count",
    "fs.xfs_sunit",
    "fs.xfs_swidth",
    "disk.stripe_unit",
    "disk.stripe_width",
    "disk.array",
    "disk.mirror",
];

/// What could be better about the file systems on a device, or on an array of which it is a member.
pub fn remarks(set: &SeriesSet, device: &str) -> Vec<String> {
    let mut remarks = Vec::new();
    for (mount, of) in set.each_text("fs.device") {
        let on = of.last().and_then(|path| path.strip_prefix("/dev/"));
        let Some(on) = on.filter(|on| device::is_on(set, on, device)) else { continue };
        let number = |metric: &str, row: &str| Some(set.get(metric, row)?.last(Span::ALL)? as u64);
        let Some(block) = number("fs.xfs_block", mount).filter(|block| *block > 0) else { continue };
        let blocks = |metric: &str| number(metric, mount).unwrap_or(0);
        let stripe = Stripe::of_blocks(blocks("fs.xfs_sunit"), blocks("fs.xfs_swidth"), block);
        let (ag_blocks, ag_count) = (blocks("fs.xfs_ag_blocks"), blocks("fs.xfs_ag_count"));
        let unit_blocks = stripe.unit_blocks();
        if unit_blocks > 0 && ag_blocks > unit_blocks && on_one_disk(ag_blocks, ag_count, stripe) {
            remarks.push(format!(
                "all {ag_count} allocation groups of the XFS on {mount} begin on the same disk of its stripe, which works more \
                 than the others; an agsize of {} bytes at the next mkfs spreads them",
                (ag_blocks - unit_blocks).saturating_mul(block)
            ));
        }
        let of_array = number("disk.stripe_unit", on).zip(number("disk.stripe_width", on));
        if let Some((unit, width)) =
            of_array.filter(|(unit, width)| *unit > 0 && width > unit && width % unit == 0)
            && (unit, width) != (stripe.unit_bytes, stripe.width_bytes)
        {
            remarks.push(format!(
                "the XFS on {mount} is laid out for {}, and {on} has {}: its requests touch more disks than they need to, and with \
                 parity what is left of a stripe is read before it is written; {}",
                stripes(stripe.unit_bytes, stripe.width_bytes),
                stripes(unit, width),
                change(stripe.unit_bytes, ag_blocks.saturating_mul(block), (unit, width))
            ));
        }
    }
    remarks
}

/// How the stripes that a file system is laid out for can be changed to others. A mount takes a stripe unit that is larger by a
/// power of two (xfs(5)) and divides the allocation groups (`xfs_validate_new_dalign`), and keeps it in the superblock. A remount
/// accepts the options and ignores them.
fn change(is_unit: u64, ag_bytes: u64, (unit, width): (u64, u64)) -> String {
    let times = unit.checked_div(is_unit).unwrap_or(0);
    if times.is_power_of_two() && is_unit.saturating_mul(times) == unit && ag_bytes.is_multiple_of(unit) {
        return format!(
            "unmount it and mount it once with -o sunit={},swidth={} (a remount does not change them)",
            unit / SECTOR_BYTES,
            width / SECTOR_BYTES
        );
    }
    "no mount option changes that on this file system: only a new mkfs.xfs does".to_owned()
}

/// `stripes of 524 kB over 6 disks`.
fn stripes(unit: u64, width: u64) -> String {
    match width.checked_div(unit) {
        Some(disks) if disks > 0 => {
            format!("stripes of {} over {disks} data disks", words::bytes(unit as f64))
        }
        _ => "no stripes".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_takes_what_xfs_allows_and_a_remount_nothing() {
        let ag = 1 << 30;
        let with = |is_unit, ag, unit| change(is_unit, ag, (unit, 4 * unit));
        for is_unit in [65_536, 262_144] {
            let told = with(is_unit, ag, 262_144);
            assert!(told.contains("sunit=512,swidth=2048") && told.contains("a remount does not"), "{told}");
        }
        for (why, told) in [
            ("made without stripes", with(0, ag, 262_144)),
            ("smaller", with(524_288, ag, 262_144)),
            ("three times as large", with(65_536, ag, 196_608)),
            ("the groups are no multiple", with(65_536, ag - 65_536, 262_144)),
        ] {
            assert!(told.contains("mkfs.xfs"), "{why}: {told}");
        }
    }
}
