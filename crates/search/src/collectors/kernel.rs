//! The running kernel and its modules, the distribution, and two machine-wide settings that are not
//! in `/proc/sys`: transparent huge pages and the clock source.
//!
//! ```text
//! release = 6.1.0-18-amd64
//! version = #1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)
//! machine = x86_64
//! tainted = 0
//! boot_id = 1f5cbd11-4ee9-4c43-a0e9-8a9f9d6d1f4e
//! os.id = debian
//! os.version = 12
//! os.name = Debian GNU/Linux 12 (bookworm)
//! clocksource = tsc
//! transparent_hugepage = madvise
//! module dm_mod
//! module ext4
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, line, number, word};
use crate::document::{Document, Facts, Kind};

/// Maximum size of `/proc/modules` in bytes. A line has about sixty.
const MODULES_MAX: usize = 1 << 20;
/// Maximum size of `/etc/os-release` in bytes.
const OS_RELEASE_MAX: usize = 64 << 10;

/// The document of the kernel.
pub fn collect(source: &Source<'_>) -> Result<Vec<Document>, String> {
    const RELEASE: &str = "/proc/sys/kernel/osrelease";
    let release = source.value(RELEASE).ok_or_else(|| format!("{RELEASE}: cannot be read"))?;
    let mut content = String::new();
    let mut facts = Facts::new();
    let mut both = |key: &str, value: Option<String>, field: Option<&str>| {
        let Some(value) = value.filter(|v| !v.is_empty()) else { return };
        line(&mut content, key, &value);
        match field {
            None => {}
            Some(field) if field != "kernel.tainted" => word(&mut facts, field, value),
            Some(field) => {
                if let Ok(taints) = value.parse() {
                    number(&mut facts, field, taints);
                }
            }
        }
    };
    both("release", Some(release), Some("kernel.release"));
    both("version", source.value("/proc/sys/kernel/version"), Some("kernel.version"));
    both("machine", machine(source), Some("kernel.machine"));
    both("tainted", source.value("/proc/sys/kernel/tainted"), Some("kernel.tainted"));
    both("boot_id", source.value("/proc/sys/kernel/random/boot_id"), None);
    let os = source.text("/etc/os-release", OS_RELEASE_MAX).unwrap_or_default();
    let mut os = parse_os_release(&os);
    both("os.id", os.remove("ID"), Some("os.id"));
    both("os.version", os.remove("VERSION_ID"), Some("os.version"));
    both("os.name", os.remove("PRETTY_NAME"), Some("os.name"));
    both(
        "clocksource",
        source.value("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        None,
    );
    let huge = source.value("/sys/kernel/mm/transparent_hugepage/enabled");
    both("transparent_hugepage", huge.map(|text| chosen(&text).to_owned()), None);
    // A kernel without module support has no such file.
    let modules = source.text("/proc/modules", MODULES_MAX).unwrap_or_default();
    for module in parse_modules(&modules).map_err(|e| format!("/proc/modules: {e}"))? {
        content.push_str(&format!("module {module}\n"));
        word(&mut facts, "kernel.module", module);
    }
    Ok(vec![source.document("@kernel", Kind::Kernel, content, facts)])
}

fn machine(source: &Source<'_>) -> Option<String> {
    // `/proc/sys/kernel/arch` exists since Linux 6.1.
    let asked =
        || source.is_machine().then(|| rustix::system::uname().machine().to_string_lossy().into_owned());
    source.value("/proc/sys/kernel/arch").or_else(asked)
}

/// The sorted module names of `/proc/modules`. Use counts and addresses are left out.
///
/// ```text
/// ext4 983040 1 - Live 0xffffffffc0a2d000
/// dm_mod 184320 10 dm_multipath,dm_crypt, Live 0xffffffffc0520000
/// ```
pub fn parse_modules(text: &str) -> Result<BTreeSet<&str>, String> {
    let mut modules = BTreeSet::new();
    for (at, line) in text.lines().enumerate() {
        let mut parts = line.split_ascii_whitespace();
        let (Some(name), Some(size)) = (parts.next(), parts.next()) else {
            return Err(format!("line {}: a module with its size was wanted", at + 1));
        };
        if size.parse::<u64>().is_err() {
            return Err(format!("line {}: '{size}' is not a size", at + 1));
        }
        modules.insert(name);
    }
    Ok(modules)
}

/// Parses `/etc/os-release`: assignments in shell syntax. Skips other lines, as os-release(5)
/// demands.
///
/// ```text
/// PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
/// VERSION_ID="12"
/// ID=debian
/// ```
#[must_use]
pub fn parse_os_release(text: &str) -> BTreeMap<&str, String> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let Some((key, value)) = line.trim_ascii().split_once('=') else { continue };
        if key.is_empty() || !key.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_') {
            continue;
        }
        let quoted = ['"', '\''].iter().find_map(|q| value.strip_prefix(*q)?.strip_suffix(*q));
        found.insert(key, quoted.unwrap_or(value).replace('\\', ""));
    }
    found
}

/// The value in brackets: `madvise` in `always [madvise] never`. Without brackets the whole text.
#[must_use]
pub fn chosen(text: &str) -> &str {
    let in_brackets = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    in_brackets.map_or(text, |(choice, _)| choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_names_in_order() {
        let text = "ext4 983040 1 - Live 0xffffffffc0a2d000\ndm_mod 184320 10 dm_crypt, Live 0x0\n";
        assert_eq!(parse_modules(text).unwrap().into_iter().collect::<Vec<_>>(), ["dm_mod", "ext4"]);
        assert_eq!(parse_modules("ext4\n").unwrap_err(), "line 1: a module with its size was wanted");
        assert_eq!(parse_modules("a 1 0\nb c 0\n").unwrap_err(), "line 2: 'c' is not a size");
    }

    #[test]
    fn the_distribution_is_read_with_and_without_quotes() {
        let os = parse_os_release(
            "# made by hand\nID=debian\nVERSION_ID=\"12\"\nNAME='A \\$ B'\nnot a line\n=x\n",
        );
        let wanted = [("ID", "debian"), ("NAME", "A $ B"), ("VERSION_ID", "12")];
        assert_eq!(os.iter().map(|(k, v)| (*k, v.as_str())).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn choices_stand_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("none"), "none");
        assert_eq!(chosen("[none"), "[none");
    }
}
