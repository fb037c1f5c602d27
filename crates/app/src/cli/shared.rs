//! Flags that several commands have.

use std::path::PathBuf;

use clap::Args;

use crate::when::When;

/// Which archive.
#[derive(Debug, Clone, Args)]
pub struct ArchiveArgs {
    /// The archive's directory [default: as root /var/lib/mitra, else $XDG_STATE_HOME/mitra or ~/.local/state/mitra; where
    /// that is not there, /var/lib/mitra is read]
    #[arg(long, value_name = "DIR")]
    pub archive: Option<PathBuf>,
}

/// Which part of it.
#[derive(Debug, Clone, Args)]
pub struct RangeArgs {
    /// From when on: 14:03, -2h, 2026-11-21 14:03, RFC 3339 or @epoch [default: explain the last hour, dump the last
    /// minute, otherwise everything]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub since: Option<When>,
    /// Until when [default: the end of the recording]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub until: Option<When>,
}

/// Which metrics, of which things.
#[derive(Debug, Clone, Args)]
pub struct SelectArgs {
    /// Names with * and ?, separated by commas: mem.*,vm.pgscan_*
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub metric: Vec<String>,
    /// Only metrics of this kind of thing: system, cpu, disk, task, …
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub entity: Vec<String>,
    /// Only things whose name matches, with * and ?: vda, /system.slice/*; of a task its thread id
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub row: Vec<String>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_bounds() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.05"), Ok(0.05));
        for bad in ["0", "-1", "1.5", "200%", "x", "nan"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }
}
