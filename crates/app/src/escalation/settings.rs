//! Where the rules come from: `/etc/mitra/mitra.toml`, or the file that was named, and the built-in ones.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mitra_rules::{Config, Known};

use crate::errors::usage;
use crate::recorder::log;

/// The configuration file where none is named.
pub const FILE: &str = "/etc/mitra/mitra.toml";
/// A file that is larger is none.
const BYTES_MAX: u64 = 1 << 20;
/// Options that every kind of probe has.
#[cfg(feature = "bpf")]
const USUAL_OPTIONS: &[&str] = &["d-only", "min"];

/// What the file says. One that is named has to be there.
pub fn load(named: Option<&Path>) -> Result<Config> {
    let path = named.unwrap_or(Path::new(FILE));
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => {
            return Ok(Config::default());
        }
        Err(error) => return Err(error).with_context(|| format!("cannot open {}", path.display())),
    };
    let meta = file.metadata().with_context(|| format!("cannot look at {}", path.display()))?;
    let mut text = String::new();
    let read = file.by_ref().take(BYTES_MAX).read_to_string(&mut text);
    read.with_context(|| format!("cannot read {}", path.display()))?;
    let config = parse(&path.display().to_string(), &text)?;
    let runs = config.rules.iter().any(|rule| !rule.command.is_empty());
    if let Some(why) = untrusted(&meta).filter(|_| runs && rustix::process::geteuid().is_root()) {
        return Err(usage(format!("{}: {why}, and its commands would run as root", path.display())));
    }
    Ok(config)
}

/// Who else could have written it.
fn untrusted(meta: &std::fs::Metadata) -> Option<&'static str> {
    match meta.mode() {
        _ if meta.uid() != 0 => Some("it does not belong to root"),
        mode if mode & 0o002 != 0 => Some("everybody may write it"),
        mode if mode & 0o020 != 0 && meta.gid() != 0 => Some("a group may write it"),
        _ => None,
    }
}

/// Checks a text. What it names has to be known.
pub fn parse(name: &str, text: &str) -> Result<Config> {
    let probes = probes();
    let options: Vec<Vec<&str>> = probes.iter().map(|(_, options)| options.clone()).collect();
    let known: Vec<(&str, &[&str])> =
        probes.iter().zip(&options).map(|((kind, _), options)| (*kind, options.as_slice())).collect();
    let conditions: Vec<&str> = mitra_diagnose::conditions().iter().map(|c| c.id).collect();
    mitra_rules::config::read(name, text, &Known { probes: &known, conditions: &conditions })
        .map_err(|error| usage(error.to_string()))
}

/// For the recorder, which records whatever the file says: a mistake in the file that nobody named costs the user's
/// rules and is told.
pub fn load_or_complain(named: Option<&PathBuf>) -> Result<Config> {
    match load(named.map(PathBuf::as_path)) {
        Ok(config) => Ok(config),
        Err(error) if named.is_none() => {
            log(&format!("{error:#}"));
            log("only the built-in rules are used");
            Ok(Config::default())
        }
        Err(error) => Err(error),
    }
}

/// The kinds of probes with their options; none where this program has none.
#[cfg(feature = "bpf")]
#[must_use]
pub fn probes() -> Vec<(&'static str, Vec<&'static str>)> {
    let options = |kind: &mitra_collect::capture::Kind| {
        USUAL_OPTIONS.iter().copied().chain(kind.options.iter().map(|(name, _)| *name)).collect()
    };
    mitra_collect::capture::kinds().iter().map(|kind| (kind.name, options(kind))).collect()
}

/// The kinds of probes with their options; none where this program has none.
#[cfg(not(feature = "bpf"))]
#[must_use]
pub fn probes() -> Vec<(&'static str, Vec<&'static str>)> {
    Vec::new()
}
