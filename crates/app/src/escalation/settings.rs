//! Where the rules come from: `/etc/mitra/mitra.toml` or the named file, and the built-in ones.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mitra_rules::{Config, Known};

use super::probes;
use crate::errors::usage;
use crate::log::log;

pub const FILE: &str = "/etc/mitra/mitra.toml";
/// A larger file is refused.
const BYTES_MAX: u64 = 1 << 20;

/// Reads the file. A named file must exist.
pub fn load(named: Option<&Path>) -> Result<Config> {
    read(named).map(|(config, _)| config)
}

/// Also returns why a recorder that runs as root would refuse the file.
pub fn read(named: Option<&Path>) -> Result<(Config, Option<String>)> {
    let path = named.unwrap_or(Path::new(FILE));
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => {
            return Ok((builtin(), None));
        }
        Err(error) => return Err(error).with_context(|| format!("cannot open {}", path.display())),
    };
    let meta = file.metadata().with_context(|| format!("cannot look at {}", path.display()))?;
    let mut bytes = Vec::new();
    let read = file.by_ref().take(BYTES_MAX + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read {}", path.display()))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(usage(format!("{}: has more than {BYTES_MAX} bytes", path.display())));
    }
    let text = String::from_utf8(bytes).map_err(|error| usage(format!("{}: {error}", path.display())))?;
    let config = parse(&path.display().to_string(), &text)?;
    let runs = config.rules.iter().any(|rule| !rule.command.is_empty());
    let why = untrusted(&meta).filter(|_| runs);
    let why = why.map(|why| {
        format!("{}: {why}, and its commands would run with the recorder's privileges", path.display())
    });
    match why {
        Some(why) if mitra_confine::has_privileges() => Err(usage(why)),
        why => Ok((config, why)),
    }
}

/// Who else could have written the file, where that matters: to root.
pub fn untrusted_file(path: &Path) -> Result<Option<&'static str>> {
    let meta = std::fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    Ok(untrusted(&meta).filter(|_| rustix::process::geteuid().is_root()))
}

/// Who else could have written the file.
fn untrusted(meta: &std::fs::Metadata) -> Option<&'static str> {
    match meta.mode() {
        _ if meta.uid() != 0 => Some("it does not belong to root"),
        mode if mode & 0o002 != 0 => Some("everybody may write it"),
        mode if mode & 0o020 != 0 && meta.gid() != 0 => Some("a group may write it"),
        _ => None,
    }
}

/// The built-in rules, which the conditions of the diagnosis name.
pub fn builtin() -> Config {
    Config::builtin(mitra_diagnose::suspicions())
}

/// Parses and checks a text.
pub fn parse(name: &str, text: &str) -> Result<Config> {
    let probes = probes::all();
    let probes: Vec<(&str, &[&str])> =
        probes.iter().map(|(kind, options)| (*kind, options.as_slice())).collect();
    let conditions: Vec<&str> = mitra_diagnose::conditions().iter().map(|c| c.id).collect();
    let suspicions = mitra_diagnose::suspicions();
    let known = Known { probes: &probes, check: probes::check, conditions: &conditions, suspicions };
    mitra_rules::config::read(name, text, &known).map_err(|error| usage(error.to_string()))
}

/// For the recorder, which records whatever the file says. If the default file cannot be used, what
/// it forbids is unknown: then nothing runs, and that is logged.
pub fn load_or_complain(named: Option<&PathBuf>) -> Result<Config> {
    let loaded = load(named.map(PathBuf::as_path));
    if named.is_some() { loaded } else { Ok(loaded.unwrap_or_else(|error| complain(&error))) }
}

fn complain(error: &anyhow::Error) -> Config {
    log(&format!("{error:#}"));
    log("only the built-in rules are evaluated, and no probe or command runs until the file is right");
    Config { arm: false, ask_databases: false, ..builtin() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_text(text: &str) -> Result<Config> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("mitra.toml");
        std::fs::write(&path, text)?;
        load(Some(&path))
    }

    #[test]
    fn a_file_that_cannot_be_used_arms_nothing() {
        assert!(!load_text("[escalation]\narm = false\n").unwrap().arm);
        assert!(load_text("[escalation]\narm = false\n").unwrap().ask_databases);
        assert!(!load_text("[databases]\nask = false\n").unwrap().ask_databases);
        assert!(load_text("[services]\nread-answers = true\n").unwrap().read_answers);
        assert!(!load_text("[services]\n").unwrap().read_answers);
        assert!(load_text("[services]\nread-answer = true\n").is_err());
        // A typo must not allow what the file forbids.
        let error = load_text("[escalation]\narm = false\nof = []\n").unwrap_err();
        let config = complain(&error);
        assert!(!config.arm && !config.read_answers && config.rules.iter().all(|rule| rule.is_builtin));
    }

    #[test]
    fn a_probe_has_only_options_that_its_kind_looks_at() {
        let rule = |probe: &str| {
            let text = format!("[[rule]]\nname = \"a\"\nwhen = \"sys.forks > 1/s\"\narm = [\"{probe}\"]\n");
            parse("mitra.toml", &text).map_err(|error| error.to_string())
        };
        for probe in ["offcpu d-only min=1ms", "locks min=1ms", "faults every=100", "errors"] {
            assert!(rule(probe).is_ok(), "{probe}: {:?}", rule(probe).err());
        }
        for (probe, option) in
            [("errors min=1ms", "min"), ("locks d-only", "d-only"), ("offcpu pid=1", "pid")]
        {
            let error = rule(probe).unwrap_err();
            assert!(error.contains(&format!("has no option {option}")), "{probe}: {error}");
        }
    }

    #[test]
    fn what_can_never_be_armed_is_a_mistake_with_its_place() {
        for (arm, says) in [
            ("offcpu min=5sec", "mitra.toml:4:8: min=5sec: not a length of time"),
            ("heap", "mitra.toml:4:8: heap is of one process"),
            ("trace", "mitra.toml:4:8: trace is of one process"),
        ] {
            let text = format!("[[rule]]\nname = \"a\"\nwhen = 'sys.forks > 1'\narm = [\"{arm}\"]\n");
            let error = load_text(&text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let long = format!("{}\n[escalation]\narm = false\n", "#".repeat(BYTES_MAX as usize));
        assert!(load_text(&long).unwrap_err().to_string().contains("more than"));
    }
}
