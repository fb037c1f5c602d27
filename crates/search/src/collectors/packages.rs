//! The installed packages: those of dpkg from its status file, those of rpm from the command `rpm`,
//! because its database has three formats.
//!
//! Each list is read again only after its database was written. The text has a line for each
//! package, sorted. A package that is not plainly installed has a remark:
//!
//! ```text
//! linux-image-6.1.0-18-amd64 6.1.76-1 amd64 config-files
//! zsh 5.9-4+b2 amd64 hold
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Source, run, word};
use crate::document::{Document, Facts, Kind};

const DPKG: &str = "/var/lib/dpkg/status";
const RPM: &str = "/usr/bin/rpm";
/// The files of the rpm database: sqlite, its log, ndb, Berkeley DB, each in the newer and the
/// older directory.
const RPM_DATABASES: &[&str] = &[
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite-wal",
    "/usr/lib/sysimage/rpm/Packages.db",
    "/usr/lib/sysimage/rpm/Packages",
    "/var/lib/rpm/rpmdb.sqlite",
    "/var/lib/rpm/rpmdb.sqlite-wal",
    "/var/lib/rpm/Packages.db",
    "/var/lib/rpm/Packages",
];
const RPM_FORMAT: &str = r"%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\t%{ARCH}\n";

/// Maximum size of dpkg's status file in bytes. With 5,000 packages it has 6 MB.
const STATUS_MAX: usize = 64 << 20;
/// Maximum output of rpm in bytes. A line has about sixty.
const OUTPUT_MAX: usize = 8 << 20;
/// Time limit for rpm.
const TIME_MAX: Duration = Duration::from_secs(20);
/// Maximum number of packages.
const PACKAGES_MAX: usize = 50_000;

/// One package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version with revision, as the tool prints it.
    pub version: String,
    /// The CPU architecture.
    pub architecture: String,
    /// Deviations from plainly installed: `hold`, `config-files`, `half-installed`.
    pub remarks: Vec<String>,
    /// Whether its files are installed.
    pub installed: bool,
}

/// The lists of installed packages.
pub fn collect(source: &Source<'_>) -> Result<Vec<Document>, String> {
    let mut found = Vec::new();
    let mut reasons = Vec::new();
    for list in [dpkg(source), rpm(source)] {
        match list {
            Ok(documents) => found.extend(documents),
            Err(reason) => reasons.push(reason),
        }
    }
    if found.is_empty() { Err(reasons.join("; ")) } else { Ok(found) }
}

fn dpkg(source: &Source<'_>) -> Result<Vec<Document>, String> {
    source.kept("packages-dpkg", source.stamps(&[DPKG]), || {
        let packages = parse_dpkg(&source.text(DPKG, STATUS_MAX)?).map_err(|e| format!("{DPKG}: {e}"))?;
        Ok(vec![document(source, "@packages/dpkg", packages)])
    })
}

fn rpm(source: &Source<'_>) -> Result<Vec<Document>, String> {
    if !RPM_DATABASES.iter().any(|path| source.stat(path).is_some()) {
        return Err("/var/lib/rpm: no database".to_owned());
    }
    if !source.is_machine() {
        return Err(format!("{RPM}: asked on the running machine only"));
    }
    source.kept("packages-rpm", source.stamps(RPM_DATABASES), || {
        let output = run::run(RPM, &["-qa", "--qf", RPM_FORMAT], TIME_MAX, OUTPUT_MAX)?;
        let packages = parse_rpm(&String::from_utf8_lossy(&output)).map_err(|e| format!("{RPM}: {e}"))?;
        Ok(vec![document(source, "@packages/rpm", packages)])
    })
}

/// Parses `/var/lib/dpkg/status`. Leaves out packages in the state `not-installed`.
///
/// ```text
/// Package: zsh
/// Status: hold ok installed
/// Architecture: amd64
/// Version: 5.9-4+b2
/// Description: shell with lots of features
///  Zsh is a UNIX command interpreter
///
/// Package: apt
/// …
/// ```
pub fn parse_dpkg(text: &str) -> Result<Vec<Package>, String> {
    let mut packages = Vec::new();
    let mut fields: BTreeMap<&str, &str> = BTreeMap::new();
    // The empty line at the end completes the last package.
    for (at, line) in text.lines().chain([""]).enumerate() {
        if line.trim_ascii().is_empty() {
            if !fields.is_empty() {
                packages.extend(dpkg_package(&fields).map_err(|e| format!("line {at}: {e}"))?);
                fields.clear();
            }
            continue;
        }
        if packages.len() == PACKAGES_MAX {
            return Err(format!("line {}: more than {PACKAGES_MAX} packages", at + 1));
        }
        // A line that begins with a space continues a field.
        if line.starts_with([' ', '\t']) {
            continue;
        }
        let Some((key, value)) = line.split_once(':') else {
            return Err(format!("line {}: 'Field: value' was wanted", at + 1));
        };
        if matches!(key, "Package" | "Status" | "Architecture" | "Version") {
            fields.insert(key, value.trim_ascii());
        }
    }
    packages.sort();
    Ok(packages)
}

fn dpkg_package(fields: &BTreeMap<&str, &str>) -> Result<Option<Package>, String> {
    let name = fields.get("Package").ok_or("a package without a name")?;
    let status = fields.get("Status").ok_or_else(|| format!("{name} has no status"))?;
    let [wanted, health, state] = status.split_ascii_whitespace().collect::<Vec<_>>()[..] else {
        return Err(format!("the status of {name} is '{status}', not three words"));
    };
    if state == "not-installed" {
        return Ok(None);
    }
    let mut remarks = Vec::new();
    if matches!(wanted, "hold") {
        remarks.push(wanted.to_owned());
    }
    if health != "ok" {
        remarks.push(health.to_owned());
    }
    if state != "installed" {
        remarks.push(state.to_owned());
    }
    Ok(Some(Package {
        name: (*name).to_owned(),
        version: fields.get("Version").copied().unwrap_or_default().to_owned(),
        architecture: fields.get("Architecture").copied().unwrap_or_default().to_owned(),
        remarks,
        installed: !matches!(state, "config-files" | "half-installed"),
    }))
}

/// Parses the output of `rpm -qa --qf`: name, version with epoch and release, architecture,
/// separated by tabs.
///
/// ```text
/// bash    5.1.8-6.el9_1    x86_64
/// dbus    1:1.12.20-8.el9    x86_64
/// gpg-pubkey    fd431d51-4ae0493b    (none)
/// ```
pub fn parse_rpm(text: &str) -> Result<Vec<Package>, String> {
    let mut packages = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let [name, version, architecture] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("line {}: name, version and architecture were wanted", at + 1));
        };
        if name.is_empty() || version.is_empty() {
            return Err(format!("line {}: a name and a version were wanted", at + 1));
        }
        if packages.len() == PACKAGES_MAX {
            return Err(format!("line {}: more than {PACKAGES_MAX} packages", at + 1));
        }
        packages.push(Package {
            name: name.to_owned(),
            version: version.to_owned(),
            architecture: architecture.to_owned(),
            remarks: Vec::new(),
            installed: true,
        });
    }
    packages.sort();
    Ok(packages)
}

/// The field name of a package. Dots are replaced, because a dot would make one package the parent
/// of another.
#[must_use]
pub fn field_name(package: &str) -> String {
    format!("package.{}", package.replace('.', "_"))
}

fn document(source: &Source<'_>, filename: &str, packages: Vec<Package>) -> Document {
    let mut content = String::new();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages {
        content.push_str(&format!("{} {} {}", package.name, package.version, package.architecture));
        for remark in &package.remarks {
            content.push(' ');
            content.push_str(remark);
        }
        content.push('\n');
        if package.installed {
            versions.entry(field_name(&package.name)).or_default().insert(package.version);
        }
    }
    let mut facts = Facts::new();
    for (name, versions) in versions {
        versions.into_iter().for_each(|version| word(&mut facts, &name, version));
    }
    source.document(filename, Kind::Package, content, facts)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::collectors::Cache;
    use crate::document::Value;

    const STATUS: &str = "Package: zsh\nStatus: hold ok installed\nPriority: optional\nArchitecture: amd64\n\
        Version: 5.9-4+b2\nDescription: shell\n Version: not this\n .\n more\n\n\
        Package: python3.11\nStatus: install ok installed\nArchitecture: amd64\nVersion: 3.11.2-6\n\n\
        Package: libc6\nStatus: install ok installed\nArchitecture: i386\nVersion: 2.36-9\n\n\
        Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36-9\n\n\
        Package: old\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1.0\n\n\
        Package: none\nStatus: purge ok not-installed\n\n\
        Package: torn\nStatus: install reinstreq half-installed\nArchitecture: all\nVersion: 2";

    #[test]
    fn packages_of_dpkg() {
        let cache = Cache::default();
        let source = Source { root: Path::new("/"), now_ns: 0, cache: &cache };
        let document = document(&source, "@packages/dpkg", parse_dpkg(STATUS).unwrap());
        assert_eq!(
            document.content.as_deref(),
            Some(
                "libc6 2.36-9 amd64\nlibc6 2.36-9 i386\nold 1.0 all config-files\npython3.11 3.11.2-6 amd64\n\
                 torn 2 all reinstreq half-installed\nzsh 5.9-4+b2 amd64 hold\n"
            )
        );
        let text = |s: &str| vec![Value::Text(s.to_owned())];
        let wanted: Facts = [("libc6", "2.36-9"), ("python3_11", "3.11.2-6"), ("zsh", "5.9-4+b2")]
            .map(|(name, version)| (format!("package.{name}"), text(version)))
            .into();
        assert_eq!(document.facts, wanted);
    }

    #[test]
    fn what_is_no_status_file_is_refused() {
        for (text, line) in [
            ("Package: a\nno field\n", "line 2: "),
            ("Package: a\nStatus: installed\n\n", "line 2: "),
            ("Status: install ok installed\n\n", "line 1: "),
            ("Package: a\nVersion: 1\n", "line 2: "),
        ] {
            let error = parse_dpkg(text).unwrap_err();
            assert!(error.starts_with(line), "{text:?}: {error}");
        }
        assert_eq!(parse_dpkg(""), Ok(Vec::new()));
    }

    #[test]
    fn packages_of_rpm() {
        let packages = parse_rpm("dbus\t1:1.12.20-8.el9\tx86_64\nbash\t5.1.8-6.el9_1\tx86_64\n").unwrap();
        let short: Vec<_> = packages.iter().map(|p| (p.name.as_str(), p.version.as_str())).collect();
        assert_eq!(short, [("bash", "5.1.8-6.el9_1"), ("dbus", "1:1.12.20-8.el9")]);
        for wrong in
            ["bash 5.1\n", "bash\t5.1\n", "a\t1\tx\ty\n", "\t1\tx\n", "error: cannot open database\n"]
        {
            assert!(parse_rpm(wrong).is_err(), "{wrong:?}");
        }
    }
}
