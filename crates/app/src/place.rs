//! Where the archive is and which part of it is meant.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mitra_archive::Reader;
use mitra_model::Span;

use crate::cli::{ArchiveArgs, RangeArgs};
use crate::errors::usage;
use crate::render::style::Style;
use crate::when::Here;

/// The daemon's archive.
const SYSTEM_ARCHIVE: &str = "/var/lib/mitra";

/// The archive that is meant, by a path that means the same in every directory: what a recorder starts runs in another.
pub fn archive_dir(args: &ArchiveArgs) -> Result<PathBuf> {
    if let Some(dir) = &args.archive {
        return std::path::absolute(dir).with_context(|| format!("cannot tell where {} is", dir.display()));
    }
    if rustix::process::geteuid().is_root() {
        return Ok(SYSTEM_ARCHIVE.into());
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("mitra"))
        .ok_or_else(|| usage("neither XDG_STATE_HOME nor HOME says where the archive is; use --archive DIR"))
}

/// The archive that is meant for reading. Who names none and is not root reads their own recording if there is one,
/// and the daemon's otherwise.
pub fn readable_dir(args: &ArchiveArgs) -> Result<PathBuf> {
    let dir = archive_dir(args)?;
    if args.archive.is_none() && !dir.exists() && Path::new(SYSTEM_ARCHIVE).is_dir() {
        return Ok(SYSTEM_ARCHIVE.into());
    }
    Ok(dir)
}

/// Opens the archive that is meant.
pub fn open(args: &ArchiveArgs) -> Result<(PathBuf, Reader)> {
    let dir = readable_dir(args)?;
    if !dir.is_dir() {
        anyhow::bail!("{}: no archive here; record one with: mitra record --archive {0}", dir.display());
    }
    let reader = Reader::open(&dir).with_context(|| format!("cannot open the archive {}", dir.display()))?;
    Ok((dir, reader))
}

/// The part that is meant: without `since`, the last `usual_ns` before the end.
pub fn span(args: &RangeArgs, known: Span, usual_ns: i64, here: &Here) -> Result<Span> {
    let since = args.since.as_ref().map(|when| when.resolve(here));
    let until = match (&args.until, since) {
        (Some(when), Some(since)) => when.resolve_after(since, here),
        (Some(when), None) => when.resolve(here),
        (None, _) => known.until,
    };
    let since = since.unwrap_or_else(|| until.saturating_sub(usual_ns).max(known.since));
    if since >= until {
        let style = Style { zone: here.zone.clone(), ..Style::plain(80) };
        return Err(usage(format!(
            "nothing lies between {} and {}; the recording holds {} to {} {}",
            style.date_clock(since),
            style.date_clock(until),
            style.date_clock(known.since),
            style.date_clock(known.until),
            style.zone_name(known.until)
        )));
    }
    Ok(Span { since, until })
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use mitra_model::time::SECOND;

    use super::*;
    use crate::when::When;

    #[test]
    fn an_archive_is_where_it_is_wherever_one_goes() {
        let dir = archive_dir(&ArchiveArgs { archive: Some("some/where".into()) }).unwrap();
        assert!(dir.is_absolute() && dir.ends_with("some/where"), "{}", dir.display());
        let dir = archive_dir(&ArchiveArgs { archive: Some("/some/where".into()) }).unwrap();
        assert_eq!(dir, Path::new("/some/where"));
    }

    #[test]
    fn times_are_told_as_they_are_typed() {
        let hour = 3600 * SECOND;
        let here = Here { now: 500_000 * hour, zone: TimeZone::fixed(jiff::tz::offset(2)) };
        let range =
            RangeArgs { since: Some("@1800003600".parse().unwrap()), until: Some(When::At(500_000 * hour)) };
        let known = Span { since: 499_999 * hour, until: 500_000 * hour };
        let said = span(&range, known, hour, &here).unwrap_err().to_string();
        assert_eq!(
            said,
            "nothing lies between 2027-01-15 11:00:00 and 2027-01-15 10:00:00; the recording holds \
             2027-01-15 09:00:00 to 2027-01-15 10:00:00 +02"
        );
    }
}
