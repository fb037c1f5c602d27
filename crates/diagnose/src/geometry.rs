//! The layout of XFS on a RAID, worked out before mkfs.xfs runs.
//!
//! A striped array writes a *stripe unit* (chunk) to one disk, then goes on with the next. A full stripe is one unit on
//! every data disk: the *stripe width*. XFS splits the device into allocation groups (AG) of one size, and each begins
//! with headers that every allocation in it reads and writes. The disk that a byte lies on is its offset divided by the
//! stripe unit, modulo the data disks. So where the AG size is a multiple of the stripe width, all headers lie on the
//! same disk, and that disk is the slowest of the array. An AG that is one stripe unit smaller moves each header to the
//! next disk.
//!
//! The sizes are those that mkfs.xfs chooses (xfsprogs 3 to 6.12; newer ones may count CPUs on solid-state devices):
//! without a stripe 4 groups below 4 TiB; with one 8 up to 8 GiB, 16 up to 512 GiB, 32 below 32 TiB; beyond that groups
//! as large as can be. An AG has 16 MiB to 1 TiB. A last AG below 16 MiB is not made, and its blocks are left unused.

use std::fmt;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
/// Bytes of the sectors that the options `sunit` and `swidth` count, whatever the device's own sector size.
pub const SECTOR_BYTES: u64 = 512;
/// An AG is not smaller.
const AG_BYTES_MIN: u64 = 16 * MIB;
/// An AG is smaller than this.
const AG_BYTES_MAX: u64 = TIB;
/// mkfs.xfs since 6.0 makes no smaller file system.
const SIZE_MIN: u64 = 300 * MIB;
/// XFS cannot be larger.
const SIZE_MAX: u64 = 8 << 60;
/// mkfs.xfs keeps the stripe width in a signed number of 32 bits.
const WIDTH_MAX: u64 = (1 << 31) - 1;
/// More disks than any array has.
const DISKS_MAX: u64 = 4096;

/// How the disks of an array work together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Stripes.
    Raid0,
    /// Mirrors, no stripes.
    Raid1,
    /// Stripes with one parity.
    Raid5,
    /// Stripes with two parities.
    Raid6,
    /// Stripes over mirrored pairs.
    Raid10,
}

impl Level {
    /// Its name: `raid10`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid5 => "raid5",
            Level::Raid6 => "raid6",
            Level::Raid10 => "raid10",
        }
    }

    /// How many disks hold data that no other holds.
    ///
    /// # Errors
    /// When the level cannot be made of so many disks.
    pub fn data_disks(self, disks: u64) -> Result<u64, Impossible> {
        let (least, data) = match self {
            Level::Raid0 => (2, disks),
            Level::Raid1 => (2, 1),
            Level::Raid5 => (3, disks.saturating_sub(1)),
            Level::Raid6 => (4, disks.saturating_sub(2)),
            Level::Raid10 => (4, disks / 2),
        };
        let name = self.name();
        if disks < least {
            return Err(Impossible(format!("{name} needs at least {least} disks, not {disks}")));
        }
        if disks > DISKS_MAX {
            return Err(Impossible(format!("{disks} disks are too many; want at most {DISKS_MAX}")));
        }
        if self == Level::Raid10 && !disks.is_multiple_of(2) {
            return Err(Impossible(format!("raid10 is made of pairs; {disks} disks are not even")));
        }
        Ok(data)
    }
}

/// Why there is no such layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impossible(pub String);

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Impossible {}

/// The array and what is wanted of it.
#[derive(Debug, Clone, Copy)]
pub struct Array {
    /// How its disks work together.
    pub level: Level,
    /// How many there are, without spares.
    pub disks: u64,
    /// Bytes on one disk before the next comes: the chunk. Not used of mirrors.
    pub stripe_unit: Option<u64>,
    /// Bytes of a block of the file system.
    pub block_bytes: u64,
    /// Bytes of the device, where known.
    pub size: Option<u64>,
    /// How many allocation groups are wanted, if not what mkfs.xfs chooses.
    pub ag_count: Option<u64>,
}

/// A stripe unit or a stripe width, in bytes, in the sectors that options take, and in the blocks that outputs show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripe {
    /// Stripe unit in bytes.
    pub unit_bytes: u64,
    /// Stripe width in bytes.
    pub width_bytes: u64,
    /// Bytes of a block.
    block_bytes: u64,
}

impl Stripe {
    /// Of numbers of blocks, as a mounted file system has them.
    #[must_use]
    pub fn of_blocks(unit: u64, width: u64, block_bytes: u64) -> Stripe {
        Stripe {
            unit_bytes: unit.saturating_mul(block_bytes),
            width_bytes: width.saturating_mul(block_bytes),
            block_bytes,
        }
    }

    /// Stripe unit in sectors of 512 bytes: what the option `sunit` takes.
    #[must_use]
    pub fn unit_sectors(self) -> u64 {
        self.unit_bytes / SECTOR_BYTES
    }

    /// Stripe width in sectors of 512 bytes: what the option `swidth` takes.
    #[must_use]
    pub fn width_sectors(self) -> u64 {
        self.width_bytes / SECTOR_BYTES
    }

    /// Stripe unit in blocks: what mkfs.xfs and xfs_info print as `sunit`.
    #[must_use]
    pub fn unit_blocks(self) -> u64 {
        self.unit_bytes / self.block_bytes
    }

    /// Stripe width in blocks: what they print as `swidth`.
    #[must_use]
    pub fn width_blocks(self) -> u64 {
        self.width_bytes / self.block_bytes
    }
}

/// The allocation groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Groups {
    /// Blocks of one group, as advised.
    pub ag_blocks: u64,
    /// How many there are.
    pub ag_count: u64,
    /// Blocks that the file system has; a rest too small for a group is not used.
    pub data_blocks: u64,
    /// Blocks of one group before it was moved off the multiple of the stripe width; equal where it was not one.
    pub plain_ag_blocks: u64,
    /// On how many data disks the groups begin.
    pub header_disks: u64,
    /// On how many they would begin with [`Groups::plain_ag_blocks`].
    pub plain_header_disks: u64,
}

/// The layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Disks that hold data that no other holds.
    pub data_disks: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// The stripe; none where the array has none.
    pub stripe: Option<Stripe>,
    /// The allocation groups; none where the size is not known.
    pub groups: Option<Groups>,
}

/// Works the layout out.
///
/// # Errors
/// When the numbers contradict each other or XFS.
pub fn geometry(array: &Array) -> Result<Geometry, Impossible> {
    let data_disks = array.level.data_disks(array.disks)?;
    let block = array.block_bytes;
    if !(512..=65_536).contains(&block) || !block.is_power_of_two() {
        return Err(Impossible(format!("a block of {block} bytes; want a power of two from 512 to 65536")));
    }
    let stripe = match (array.level, array.stripe_unit) {
        (Level::Raid1, _) => None,
        (level, None) => return Err(Impossible(format!("{} needs a stripe unit", level.name()))),
        (_, Some(unit)) => Some(stripe(unit, data_disks, block)?),
    };
    let groups = match array.size {
        Some(size) => Some(groups(size, block, stripe, array.ag_count)?),
        None if array.ag_count.is_some() => {
            return Err(Impossible("a number of allocation groups needs the size of the device".to_owned()));
        }
        None => None,
    };
    Ok(Geometry { data_disks, block_bytes: block, stripe, groups })
}

fn stripe(unit: u64, data_disks: u64, block: u64) -> Result<Stripe, Impossible> {
    if unit == 0 || !unit.is_multiple_of(SECTOR_BYTES) {
        return Err(Impossible(format!(
            "a stripe unit of {unit} bytes is not a multiple of a sector of {SECTOR_BYTES} bytes"
        )));
    }
    if !unit.is_multiple_of(block) {
        return Err(Impossible(format!(
            "a stripe unit of {unit} bytes is not a multiple of a block of {block} bytes"
        )));
    }
    let width = unit.checked_mul(data_disks).filter(|w| *w <= WIDTH_MAX);
    let Some(width_bytes) = width else {
        return Err(Impossible(format!(
            "a stripe of {data_disks} units of {unit} bytes is wider than the 2 GiB that mkfs.xfs takes"
        )));
    };
    Ok(Stripe { unit_bytes: unit, width_bytes, block_bytes: block })
}

/// Least and greatest blocks of a group.
fn ag_bounds(block: u64) -> (u64, u64) {
    (AG_BYTES_MIN / block, (AG_BYTES_MAX - 1) / block)
}

fn groups(size: u64, block: u64, stripe: Option<Stripe>, wanted: Option<u64>) -> Result<Groups, Impossible> {
    if !(SIZE_MIN..SIZE_MAX).contains(&size) {
        return Err(Impossible(format!("a device of {size} bytes; XFS wants 300 MiB to 8 EiB")));
    }
    let blocks = size / block;
    let (least, most) = ag_bounds(block);
    let plain = match wanted {
        Some(0) => return Err(Impossible("a file system has at least one allocation group".to_owned())),
        Some(count) => blocks.div_ceil(count),
        None => default_ag_blocks(blocks, block, stripe.is_some()),
    };
    let plain = aligned(plain, most, stripe);
    if plain < least || plain > most {
        return Err(Impossible(format!(
            "{} allocation groups would have {plain} blocks of {block} bytes each; want {least} to {most}",
            blocks.div_ceil(plain.max(1))
        )));
    }
    let (_, plain_count) = fit(blocks, plain, least);
    let ag_blocks = match stripe {
        Some(stripe) if on_one_disk(plain, plain_count, stripe) => {
            let unit = stripe.unit_blocks();
            let smaller = plain - unit.min(plain);
            let larger = plain + unit;
            // Where a number of groups is wanted, the rest that smaller ones leave must not make one more.
            let one_more = wanted.is_some_and(|count| fit(blocks, smaller, least).1 > count);
            if smaller < least || (one_more && larger <= most) { larger } else { smaller }
        }
        _ => plain,
    };
    let (data_blocks, ag_count) = fit(blocks, ag_blocks, least);
    if data_blocks < SIZE_MIN / block {
        return Err(Impossible(format!("whole allocation groups of {size} bytes are less than 300 MiB")));
    }
    let disks = |ag_blocks: u64, count: u64| stripe.map_or(1, |s| header_disks(ag_blocks, count, s));
    Ok(Groups {
        ag_blocks,
        ag_count,
        data_blocks,
        plain_ag_blocks: plain,
        header_disks: disks(ag_blocks, ag_count),
        plain_header_disks: disks(plain, plain_count),
    })
}

/// What mkfs.xfs chooses: more groups where there are more disks.
fn default_ag_blocks(blocks: u64, block: u64, striped: bool) -> u64 {
    let bytes = |n: u64| n / block;
    let (_, most) = ag_bounds(block);
    let parts = match striped {
        _ if blocks >= bytes(32 * TIB) => return most,
        false if blocks >= bytes(4 * TIB) => return most,
        false => 4,
        true if blocks > bytes(512 * GIB) => 32,
        true if blocks > bytes(8 * GIB) => 16,
        true => 8,
    };
    blocks.div_ceil(parts)
}

/// Rounded up to whole stripe units, or down where that would be too large.
fn aligned(ag_blocks: u64, most: u64, stripe: Option<Stripe>) -> u64 {
    let Some(stripe) = stripe else { return ag_blocks };
    let unit = stripe.unit_blocks().max(1);
    let up = ag_blocks.div_ceil(unit).saturating_mul(unit);
    if up > most { ag_blocks / unit * unit } else { up }
}

/// Blocks that are used and the number of groups: a rest below the least size of a group is dropped.
fn fit(blocks: u64, ag_blocks: u64, least: u64) -> (u64, u64) {
    let ag_blocks = ag_blocks.max(1);
    let (whole, rest) = (blocks / ag_blocks, blocks % ag_blocks);
    if rest == 0 || (rest < least && whole > 0) { (whole * ag_blocks, whole) } else { (blocks, whole + 1) }
}

/// Whether every group begins on the same data disk, where there are several of both.
#[must_use]
pub fn on_one_disk(ag_blocks: u64, ag_count: u64, stripe: Stripe) -> bool {
    let width = stripe.width_blocks();
    ag_count > 1 && stripe.unit_blocks() != width && width != 0 && ag_blocks.is_multiple_of(width)
}

/// On how many data disks the groups begin.
fn header_disks(ag_blocks: u64, ag_count: u64, stripe: Stripe) -> u64 {
    let unit = stripe.unit_blocks().max(1);
    let data_disks = (stripe.width_blocks() / unit).max(1);
    // The disks repeat after as many groups as there are disks.
    let first = (0..ag_count.min(data_disks)).map(|i| (i * ag_blocks / unit) % data_disks);
    let disks: std::collections::BTreeSet<u64> = first.collect();
    disks.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raid10(size: u64, ag_count: Option<u64>) -> Array {
        Array {
            level: Level::Raid10,
            disks: 12,
            stripe_unit: Some(256 * 1024),
            block_bytes: 4096,
            size: Some(size),
            ag_count,
        }
    }

    #[test]
    fn twelve_disks_in_pairs() {
        let layout = geometry(&raid10(2_925_527_040 * 4096, Some(16))).unwrap();
        let stripe = layout.stripe.unwrap();
        assert_eq!(layout.data_disks, 6);
        assert_eq!((stripe.unit_sectors(), stripe.width_sectors()), (512, 3072));
        assert_eq!((stripe.unit_blocks(), stripe.width_blocks()), (64, 384));
        let groups = layout.groups.unwrap();
        assert_eq!((groups.plain_ag_blocks, groups.ag_blocks), (182_845_440, 182_845_376));
        assert_eq!((groups.ag_count, groups.data_blocks), (16, 2_925_526_016));
        assert_eq!((groups.plain_header_disks, groups.header_disks), (1, 6));
        assert_eq!(groups.ag_blocks * layout.block_bytes, 748_934_660_096);
    }

    /// What mkfs.xfs 6.1.0 printed: bytes, unit, data disks; AG count, AG blocks, blocks.
    #[test]
    fn the_sizes_that_mkfs_chooses() {
        const K: u64 = 1024;
        for (size, unit, disks, expected) in [
            (GIB, 1024 * K, 3, (8, 32_768, 262_144)),
            (8 * GIB, 512 * K, 2, (8, 262_016, 2_096_128)),
            (9 * GIB, 512 * K, 2, (16, 147_328, 2_357_248)),
            (512 * GIB, 512 * K, 8, (16, 8_388_480, 134_215_680)),
            (513 * GIB, 512 * K, 8, (33, 4_202_368, 134_479_872)),
            (TIB, 1024 * K, 4, (33, 8_388_352, 268_435_456)),
            (TIB, 12 * K, 4, (32, 8_388_609, 268_435_456)),
            (31 * TIB, 4 * K, 4, (32, 260_046_847, 8_321_499_104)),
            (32 * TIB, 256 * K, 10, (32, 268_435_392, 8_589_932_544)),
            (100 * TIB, 64 * K, 4, (100, 268_435_440, 26_843_544_000)),
        ] {
            let array = Array {
                level: Level::Raid0,
                disks,
                stripe_unit: Some(unit),
                block_bytes: 4096,
                size: Some(size),
                ag_count: None,
            };
            let groups = geometry(&array).unwrap().groups.unwrap();
            assert_eq!((groups.ag_count, groups.ag_blocks, groups.data_blocks), expected, "{size}");
        }
    }

    #[test]
    fn data_disks_of_every_level() {
        for (level, disks, data) in [
            (Level::Raid0, 2, 2),
            (Level::Raid1, 2, 1),
            (Level::Raid5, 3, 2),
            (Level::Raid6, 8, 6),
            (Level::Raid10, 4, 2),
        ] {
            assert_eq!(level.data_disks(disks), Ok(data));
            assert!(level.data_disks(1).is_err());
        }
        assert!(Level::Raid10.data_disks(5).unwrap_err().0.contains("not even"));
    }

    #[test]
    fn a_mirror_has_no_stripe() {
        let array = Array {
            level: Level::Raid1,
            disks: 2,
            stripe_unit: None,
            block_bytes: 4096,
            size: Some(TIB),
            ag_count: None,
        };
        let layout = geometry(&array).unwrap();
        assert_eq!(layout.stripe, None);
        assert_eq!(layout.groups.unwrap().ag_count, 4);
    }

    #[test]
    fn a_wanted_number_of_groups_is_kept() {
        // One stripe unit less for each of 16 groups leaves 16 MiB, which would be a 17th.
        let size = 16 * 4 * 1024 * MIB;
        let array = Array { stripe_unit: Some(MIB), disks: 8, ..raid10(size, Some(16)) };
        let groups = geometry(&array).unwrap().groups.unwrap();
        assert_eq!(groups.ag_count, 16);
        assert_eq!(groups.ag_blocks, groups.plain_ag_blocks + 256);
        assert_eq!(groups.header_disks, 4);
    }

    #[test]
    fn what_cannot_be_is_said() {
        let good = raid10(TIB, None);
        for (bad, word) in [
            (Array { disks: 11, ..good }, "not even"),
            (Array { disks: 2, ..good }, "at least 4"),
            (Array { stripe_unit: Some(1000), ..good }, "sector"),
            (Array { stripe_unit: Some(0), ..good }, "sector"),
            (Array { stripe_unit: Some(2048), ..good }, "block"),
            (Array { stripe_unit: None, ..good }, "needs a stripe unit"),
            (Array { stripe_unit: Some(GIB), ..good }, "wider"),
            (Array { block_bytes: 3000, ..good }, "power of two"),
            (Array { size: Some(MIB), ..good }, "300 MiB"),
            (
                Array { size: Some(300 * MIB), disks: 6, stripe_unit: Some(65_536), ..good },
                "less than 300 MiB",
            ),
            (Array { size: Some(u64::MAX), ..good }, "8 EiB"),
            (Array { ag_count: Some(0), ..good }, "at least one"),
            (Array { ag_count: Some(1_000_000), ..good }, "blocks"),
            (Array { ag_count: Some(1), size: Some(4 * TIB), ..good }, "blocks"),
            (Array { size: None, ag_count: Some(4), ..good }, "needs the size"),
        ] {
            let error = geometry(&bad).unwrap_err();
            assert!(error.0.contains(word), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_array_gives_a_layout_or_a_reason(
            disks in 0_u64..5000,
            unit in proptest::option::of(0_u64..u64::MAX),
            kib in 1_u64..4096,
            size in proptest::option::of(0_u64..u64::MAX),
            count in proptest::option::of(0_u64..2000),
        ) {
            for level in [Level::Raid0, Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10] {
                for stripe_unit in [unit, Some(kib * 4096)] {
                    let array = Array { level, disks, stripe_unit, block_bytes: 4096, size, ag_count: count };
                    let Ok(Geometry { stripe: Some(stripe), groups: Some(groups), .. }) = geometry(&array) else {
                        continue;
                    };
                    assert!(groups.data_blocks <= size.unwrap() / 4096);
                    assert!(groups.ag_blocks.is_multiple_of(stripe.unit_blocks()));
                    assert!(!on_one_disk(groups.ag_blocks, groups.ag_count, stripe));
                }
            }
        }
    }
}
