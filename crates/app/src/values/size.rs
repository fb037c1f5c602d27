//! Sizes and shares.

use mitra_diagnose::geometry::SECTOR_BYTES;

/// A size: `500M`, `2G`, `1.5G` in powers of 1,000, `64MiB` in powers of 1,024, or bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let bad = || "not a size; want bytes, 500M, 2G or 1GiB".to_owned();
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| bad())?;
    let unit = unit.trim().to_ascii_lowercase();
    let factor: f64 = match unit.trim_end_matches('b') {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        "t" => 1e12,
        "ki" => 1024.0,
        "mi" => 1_048_576.0,
        "gi" => 1_073_741_824.0,
        "ti" => 1_099_511_627_776.0,
        _ => return Err(bad()),
    };
    let bytes = number * factor;
    if bytes.is_finite() && bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(bad()) }
}

/// A share: `0.05` or `5%`.
pub fn share(text: &str) -> Result<f64, String> {
    let bad = || "not a share; want 0.05 or 5%".to_owned();
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map_err(|_| bad())? / 100.0,
        None => text.parse().map_err(|_| bad())?,
    };
    if share > 0.0 && share <= 1.0 { Ok(share) } else { Err(bad()) }
}

/// A size as mkfs.xfs takes it: a number with `b` counts blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MkfsSize {
    Bytes(u64),
    /// Blocks of the file system.
    Blocks(u64),
}

/// A size with the suffixes of mkfs.xfs: `k`, `m`, `g`, `t`, `p` are powers of 1024, `s` counts
/// sectors of 512 bytes, `b` blocks of the file system.
pub fn mkfs_size(text: &str) -> Result<MkfsSize, String> {
    let bad =
        || "not a size; want bytes, or a whole number with k, m, g, t, s (sectors) or b (blocks)".to_owned();
    let text = text.trim().to_ascii_lowercase();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let factor = match unit {
        "" => 1,
        "b" => return Ok(MkfsSize::Blocks(number)),
        "s" => SECTOR_BYTES,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "p" | "pib" => 1 << 50,
        _ => return Err(bad()),
    };
    number.checked_mul(factor).map(MkfsSize::Bytes).ok_or_else(bad)
}

/// The same where the block size is not known yet.
pub fn mkfs_bytes(text: &str) -> Result<u64, String> {
    match mkfs_size(text)? {
        MkfsSize::Bytes(bytes) => Ok(bytes),
        MkfsSize::Blocks(_) => Err("not a size in bytes; want 256k".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("1500"), Ok(1500));
        assert_eq!(size("2G"), Ok(2_000_000_000));
        assert_eq!(size("1.5 GB"), Ok(1_500_000_000));
        assert_eq!(size("64MiB"), Ok(67_108_864));
        for bad in ["", "G", "1X", "-1", "1e99T"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares_have_bounds() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.05"), Ok(0.05));
        for bad in ["0", "-1", "1.5", "200%", "x", "nan"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_those_of_mkfs() {
        assert_eq!(mkfs_size("256k"), Ok(MkfsSize::Bytes(262_144)));
        assert_eq!(mkfs_size("12T"), Ok(MkfsSize::Bytes(12 << 40)));
        assert_eq!(mkfs_size("2925527040b"), Ok(MkfsSize::Blocks(2_925_527_040)));
        assert_eq!(mkfs_size("8s"), Ok(MkfsSize::Bytes(4096)));
        for bad in ["", "k", "1.5g", "-1", "12x", "99999999999p"] {
            assert!(mkfs_size(bad).is_err(), "{bad}");
        }
        assert!(mkfs_bytes("64b").is_err());
    }
}
