//! The systemd units: what the administrator enabled, masked, aliased or overrode, and which
//! services are active.
//!
//! ```text
//! alias dbus-org.freedesktop.timesync1.service -> systemd-timesyncd.service
//! enabled nginx.service by multi-user.target
//! file /etc/systemd/system/backup.service
//! masked apache2.service
//! override /etc/systemd/system/ssh.service.d/limits.conf
//! ```
//!
//! Reads systemd's directories and asks nothing over its bus. Units of packages are left out,
//! because the package list implies them. Active services (those with a cgroup) are in
//! `@units/active`, which has the flag `volatile`, because timers start and stop services all day.

use std::collections::{BTreeMap, BTreeSet};

use rustix::fs::FileType;

use super::{Source, word};
use crate::document::{Document, Facts, Flag, Kind};

/// The unit directories, highest priority first, and whether the administrator writes there.
const FOLDERS: &[(&str, bool)] = &[
    ("/etc/systemd/system", true),
    ("/run/systemd/system", true),
    ("/usr/local/lib/systemd/system", true),
    ("/usr/lib/systemd/system", false),
    ("/lib/systemd/system", false),
];
/// Maximum number of units.
const UNITS_MAX: usize = 20_000;
/// Maximum nesting of slices.
const DEPTH_MAX: usize = 8;

/// The contents of systemd's directories.
#[derive(Debug, Clone, Default)]
pub(crate) struct Units {
    /// The file of each unit, from the directory with the highest priority.
    pub(crate) files: BTreeMap<String, String>,
    /// The drop-ins: by unit, then by file name, which is the order in which they apply.
    pub(crate) overrides: BTreeMap<String, BTreeMap<String, String>>,
    /// Units that another unit starts, with that unit.
    pub(crate) wanted: BTreeSet<(String, String)>,
    enabled: BTreeSet<String>,
    masked: BTreeSet<String>,
    lines: BTreeSet<String>,
}

/// The documents of the units.
pub fn collect(source: &Source<'_>) -> Result<Vec<Document>, String> {
    let units = Units::read(source)?;
    let content = units.lines.iter().map(|line| format!("{line}\n")).collect();
    let mut facts = Facts::new();
    units.enabled.iter().for_each(|unit| word(&mut facts, "unit.enabled", unit));
    units.masked.iter().for_each(|unit| word(&mut facts, "unit.masked", unit));
    let mut documents = vec![source.document("@units", Kind::Unit, content, facts)];
    let active = active(source);
    if !active.is_empty() {
        let content = active.iter().map(|unit| format!("active {unit}\n")).collect();
        let mut facts = Facts::new();
        active.iter().for_each(|unit| word(&mut facts, "unit.active", unit));
        let mut document = source.document("@units/active", Kind::Unit, content, facts);
        document.flag(Flag::Volatile);
        documents.push(document);
    }
    Ok(documents)
}

impl Units {
    /// Reads the directories, but not the unit files in them.
    pub(crate) fn read(source: &Source<'_>) -> Result<Self, String> {
        let mut found = Self::default();
        let mut folders = 0;
        for (folder, own) in FOLDERS {
            // On most systems /lib is a link to /usr/lib.
            if *folder == "/lib/systemd/system" && source.link("/lib").is_some() {
                continue;
            }
            let Ok(entries) = source.list(folder) else { continue };
            folders += 1;
            for entry in entries {
                if found.files.len() == UNITS_MAX {
                    break;
                }
                if entry.kind == FileType::Directory {
                    found.folder_of_a_unit(source, folder, &entry.name, *own);
                } else if unit_type(&entry.name).is_some() {
                    found.unit(source, folder, &entry.name, entry.kind, *own);
                }
            }
        }
        if folders == 0 {
            return Err(format!("{}: no folders of systemd", FOLDERS[0].0));
        }
        Ok(found)
    }

    /// Records a unit file, or a link in its place.
    fn unit(&mut self, source: &Source<'_>, folder: &str, name: &str, kind: FileType, own: bool) {
        if self.files.contains_key(name) || self.masked.contains(name) {
            return;
        }
        let path = format!("{folder}/{name}");
        let link = if kind == FileType::Symlink { source.link(&path) } else { None };
        // An empty file masks a unit, too.
        let empty =
            kind == FileType::RegularFile && own && source.stat(&path).is_some_and(|stat| stat.st_size == 0);
        if link.as_deref() == Some("/dev/null") || empty {
            self.lines.insert(format!("masked {name}"));
            self.masked.insert(name.to_owned());
            return;
        }
        self.files.insert(name.to_owned(), path.clone());
        if !own {
            return;
        }
        match link.as_deref().and_then(|link| link.rsplit('/').next()) {
            // A link with another name than its target is an `Alias=` of an enabled unit.
            Some(target) if target != name => {
                self.lines.insert(format!("alias {name} -> {target}"));
                self.enabled.insert(target.to_owned());
            }
            _ => _ = self.lines.insert(format!("file {path}")),
        }
    }

    /// Reads `nginx.service.d` with its drop-ins, or `multi-user.target.wants` with links to the
    /// units that it starts.
    fn folder_of_a_unit(&mut self, source: &Source<'_>, folder: &str, name: &str, own: bool) {
        let path = format!("{folder}/{name}");
        if let Some(unit) = name.strip_suffix(".d") {
            for file in source.names(&path).into_iter().filter(|file| file.ends_with(".conf")) {
                let file_path = format!("{path}/{file}");
                if own {
                    self.lines.insert(format!("override {file_path}"));
                }
                self.overrides.entry(unit.to_owned()).or_default().entry(file).or_insert(file_path);
            }
        }
        let Some(by) = name.strip_suffix(".wants").or_else(|| name.strip_suffix(".requires")) else { return };
        for unit in source.names(&path).into_iter().filter(|unit| unit_type(unit).is_some()) {
            if own {
                self.lines.insert(format!("enabled {unit} by {by}"));
                self.enabled.insert(unit.clone());
            }
            self.wanted.insert((unit, by.to_owned()));
        }
    }
}

/// The type of a unit, from its name: `service` for `nginx.service`.
#[must_use]
pub fn unit_type(name: &str) -> Option<&str> {
    const TYPES: &[&str] = &[
        "automount",
        "device",
        "mount",
        "path",
        "scope",
        "service",
        "slice",
        "socket",
        "swap",
        "target",
        "timer",
    ];
    let (stem, kind) = name.rsplit_once('.')?;
    (!stem.is_empty() && TYPES.contains(&kind)).then_some(kind)
}

/// The system services that have a cgroup. Services of users and containers are left out.
fn active(source: &Source<'_>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"];
    let mut left: Vec<(String, usize)> =
        roots.into_iter().map(|root| (format!("{root}/system.slice"), 0)).collect();
    while let Some((folder, depth)) = left.pop() {
        let groups = source.list(&folder).unwrap_or_default();
        for group in groups.into_iter().filter(|group| group.kind == FileType::Directory) {
            match unit_type(&group.name) {
                Some("service") if found.len() < UNITS_MAX => _ = found.insert(group.name),
                Some("slice") if depth < DEPTH_MAX => {
                    left.push((format!("{folder}/{}", group.name), depth + 1))
                }
                _ => {}
            }
        }
    }
    found
}

/// One assignment in a unit file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment<'a> {
    /// The line number, from 1.
    pub line: u32,
    /// The section.
    pub section: &'a str,
    /// The key.
    pub key: &'a str,
    /// The value; only its first line if it continues on the next.
    pub value: &'a str,
}

/// Parses a unit file.
///
/// ```text
/// [Unit]
/// Description=Daily apt download activities
///
/// [Timer]
/// OnCalendar=*-*-* 6,18:00
/// ```
pub fn parse(text: &str) -> Result<Vec<Assignment<'_>>, String> {
    let mut found = Vec::new();
    let mut section = "";
    let mut goes_on = false;
    for (at, raw) in text.lines().enumerate() {
        let line = raw.trim();
        let was_open = goes_on;
        let is_comment = line.starts_with(['#', ';']);
        // A comment inside a continued value does not end the value.
        goes_on = if is_comment { was_open } else { line.ends_with('\\') };
        if was_open || is_comment || line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
        } else if let Some((key, value)) = line.split_once('=') {
            let value = value.trim_end_matches('\\').trim();
            found.push(Assignment { line: at as u32 + 1, section, key: key.trim(), value });
        } else {
            return Err(format!("line {}: '[Section]' or 'Key=value' was wanted", at + 1));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::collectors::Cache;
    use crate::document::Value;

    #[test]
    fn units_of_the_administrator() {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let link = |path: &str, target: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        };
        file("usr/lib/systemd/system/nginx.service", "[Unit]\n");
        file("usr/lib/systemd/system/apache2.service", "[Unit]\n");
        link("usr/lib/systemd/system/timers.target.wants/clean.timer", "../clean.timer");
        link("etc/systemd/system/apache2.service", "/dev/null");
        link("etc/systemd/system/multi-user.target.wants/nginx.service", "/lib/systemd/system/nginx.service");
        link("etc/systemd/system/dbus-x.service", "/lib/systemd/system/real.service");
        file("etc/systemd/system/backup.service", "[Service]\n");
        file("etc/systemd/system/empty.service", "");
        file("etc/systemd/system/ssh.service.d/limits.conf", "[Service]\n");
        file("etc/systemd/system/notes.txt", "");
        file("sys/fs/cgroup/system.slice/nginx.service/cgroup.procs", "1\n");
        file("sys/fs/cgroup/system.slice/system-getty.slice/getty@tty1.service/cgroup.procs", "2\n");
        file("sys/fs/cgroup/user.slice/user@0.service/cgroup.procs", "3\n");
        let cache = Cache::default();
        let source = Source { root: root.path(), now_ns: 0, cache: &cache };
        let documents = collect(&source).unwrap();
        assert_eq!(
            documents[0].content.as_deref(),
            Some(
                "alias dbus-x.service -> real.service\nenabled nginx.service by multi-user.target\n\
                 file /etc/systemd/system/backup.service\nmasked apache2.service\nmasked empty.service\n\
                 override /etc/systemd/system/ssh.service.d/limits.conf\n"
            )
        );
        let words = |at: usize, name: &str| documents[at].facts.get(name).cloned().unwrap_or_default();
        let texts = |names: &[&str]| names.iter().map(|n| Value::Text((*n).to_owned())).collect::<Vec<_>>();
        assert_eq!(words(0, "unit.enabled"), texts(&["nginx.service", "real.service"]));
        assert_eq!(words(0, "unit.masked"), texts(&["apache2.service", "empty.service"]));
        assert_eq!(words(1, "unit.active"), texts(&["getty@tty1.service", "nginx.service"]));
        assert!(documents[1].is(Flag::Volatile));
    }

    #[test]
    fn files_of_units_are_read() {
        let text = "# one\n[Service]\nExecStart=/bin/a \\\n# between\n  x=y \\\n  z\nUser = zoe\n[Install]\nWantedBy=a.target\n";
        let found = parse(text).unwrap();
        let short: Vec<_> = found.iter().map(|a| (a.line, a.section, a.key, a.value)).collect();
        assert_eq!(
            short,
            [
                (3, "Service", "ExecStart", "/bin/a"),
                (7, "Service", "User", "zoe"),
                (8 + 1, "Install", "WantedBy", "a.target")
            ]
        );
        assert_eq!(parse("[Unit]\nnonsense\n").unwrap_err(), "line 2: '[Section]' or 'Key=value' was wanted");
    }

    #[test]
    fn names_have_types() {
        assert_eq!(unit_type("a.b.service"), Some("service"));
        assert_eq!(unit_type(".service"), None);
        assert_eq!(unit_type("notes.txt"), None);
    }
}
