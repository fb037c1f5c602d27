//! The CPU: model, flags, mitigations of its vulnerabilities, SMT, frequency governor, isolated
//! CPUs. The current frequency is left out.
//!
//! ```text
//! model = Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz
//! count = 80
//! online = 0-79
//! microcode = 0x5003604
//! smt = on
//! governor = performance
//! mitigation.spectre_v2 = Mitigation: Enhanced / Automatic IBRS; IBPB: conditional
//! flags = acpi adx aes aperfmperf …
//! ```
//!
//! `/proc/cpuinfo` is long on large machines, and older kernels interrupt every CPU to fill it in.
//! It is read again only if CPUs went online or offline or the microcode changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use rustix::fs::OFlags;

use super::{Source, line, number, word};
use crate::document::{Document, Facts, Kind};

const CPUINFO: &str = "/proc/cpuinfo";
const FOLDER: &str = "/sys/devices/system/cpu";
/// Maximum bytes read from `/proc/cpuinfo`. The entry of the first CPU has about 2,000.
const CPUINFO_MAX: u64 = 16 << 10;
/// Maximum number of frequency policies (groups of CPUs that share a governor).
const POLICIES_MAX: usize = 1_024;
/// Maximum number of logical CPUs. The kernel supports at most 8,192.
const CPUS_MAX: u32 = 65_536;

/// The keys read from the entry of the first CPU, and their names in the document.
const KEYS: &[(&str, &str)] = &[
    ("vendor_id", "vendor"),
    ("model name", "model"),
    ("cpu family", "family"),
    ("stepping", "stepping"),
    ("microcode", "microcode"),
    ("cache size", "cache"),
    // ARM
    ("CPU implementer", "implementer"),
    ("CPU part", "part"),
    ("CPU variant", "variant"),
    // POWER
    ("cpu", "model"),
];

/// The document of the CPU.
pub fn collect(source: &Source<'_>) -> Result<Vec<Document>, String> {
    let online = source.value(&format!("{FOLDER}/online")).unwrap_or_default();
    let microcode = source.value(&format!("{FOLDER}/cpu0/microcode/version")).unwrap_or_default();
    let boot = source.value("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let settings = settings(source, &online);
    let key = format!("{boot} {microcode} {settings:?}");
    // Without a boot id this could be another machine, so nothing is cached.
    source.kept("cpu", (!boot.is_empty()).then_some(key), || {
        let first = parse_cpuinfo(&beginning(source)?).map_err(|e| format!("{CPUINFO}: {e}"))?;
        Ok(vec![document(source, &first, &online, &settings)])
    })
}

fn beginning(source: &Source<'_>) -> Result<String, String> {
    let fd = source.open(CPUINFO, OFlags::RDONLY).map_err(|e| format!("{CPUINFO}: {e}"))?;
    let mut bytes = Vec::with_capacity(CPUINFO_MAX as usize);
    std::fs::File::from(fd)
        .take(CPUINFO_MAX)
        .read_to_end(&mut bytes)
        .map_err(|e| format!("{CPUINFO}: {e}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Tunables and mitigations by name.
fn settings(source: &Source<'_>, online: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut add = |key: &str, value: Option<String>| {
        if let Some(value) = value.filter(|v| !v.is_empty() && v != "(null)") {
            found.insert(key.to_owned(), value);
        }
    };
    add("online", Some(online.to_owned()));
    for (key, file) in [
        ("smt", "smt/control"),
        ("isolated", "isolated"),
        ("nohz_full", "nohz_full"),
        ("no_turbo", "intel_pstate/no_turbo"),
        ("boost", "cpufreq/boost"),
        ("idle_governor", "cpuidle/current_governor"),
        ("idle_driver", "cpuidle/current_driver"),
    ] {
        add(key, source.value(&format!("{FOLDER}/{file}")));
    }
    let policies = source.names(&format!("{FOLDER}/cpufreq"));
    let policies = policies.iter().filter(|name| name.starts_with("policy")).take(POLICIES_MAX);
    let (mut governors, mut drivers) = (BTreeSet::new(), BTreeSet::new());
    for policy in policies {
        governors.extend(source.value(&format!("{FOLDER}/cpufreq/{policy}/scaling_governor")));
        drivers.extend(source.value(&format!("{FOLDER}/cpufreq/{policy}/scaling_driver")));
    }
    add("governor", Some(governors.into_iter().collect::<Vec<_>>().join(" ")));
    add("frequency_driver", Some(drivers.into_iter().collect::<Vec<_>>().join(" ")));
    for name in source.names(&format!("{FOLDER}/vulnerabilities")) {
        add(&format!("mitigation.{name}"), source.value(&format!("{FOLDER}/vulnerabilities/{name}")));
    }
    found
}

fn document(source: &Source<'_>, first: &Cpu, online: &str, settings: &BTreeMap<String, String>) -> Document {
    let mut content = String::new();
    let mut facts = Facts::new();
    for (key, value) in &first.values {
        line(&mut content, key, value);
    }
    if let Some(model) = first.values.get("model") {
        word(&mut facts, "cpu.model", model);
    }
    if let Some(count) = count(online) {
        line(&mut content, "count", &count.to_string());
        number(&mut facts, "cpu.count", count.into());
    }
    for (key, value) in settings {
        line(&mut content, key, value);
        if key.starts_with("mitigation.") {
            word(&mut facts, &format!("cpu.{key}"), value);
        }
    }
    let governors = settings.get("governor").map(String::as_str).unwrap_or_default();
    governors.split(' ').filter(|g| !g.is_empty()).for_each(|g| word(&mut facts, "cpu.governor", g));
    let flags = first.flags.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    line(&mut content, "flags", &flags);
    first.flags.iter().for_each(|flag| word(&mut facts, "cpu.flags", flag));
    source.document("@cpu", Kind::Cpu, content, facts)
}

/// The entry of the first CPU in `/proc/cpuinfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Model, vendor and the like.
    pub values: BTreeMap<&'static str, String>,
    /// CPU flags.
    pub flags: BTreeSet<String>,
}

/// Parses the first CPU of `/proc/cpuinfo`. Values that vary by themselves (frequency, bogomips)
/// are left out.
///
/// ```text
/// processor    : 0
/// vendor_id    : GenuineIntel
/// model name    : Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz
/// cpu MHz        : 2100.000
/// flags        : fpu vme de pse tsc
///
/// processor    : 1
/// ```
pub fn parse_cpuinfo(text: &str) -> Result<Cpu, String> {
    let mut cpu = Cpu::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            if cpu.values.is_empty() && cpu.flags.is_empty() {
                continue;
            }
            break;
        };
        let (key, value) = (key.trim(), value.trim());
        if let Some((_, name)) = KEYS.iter().find(|(known, _)| *known == key) {
            cpu.values.insert(name, value.to_owned());
        } else if matches!(key, "flags" | "Features" | "features") {
            cpu.flags = value.split_ascii_whitespace().map(str::to_owned).collect();
        }
    }
    if cpu.values.is_empty() && cpu.flags.is_empty() {
        return Err("no model and no flags of a processor".to_owned());
    }
    Ok(cpu)
}

/// The number of CPUs in a list: 6 for `0-3,8,10`.
#[must_use]
pub fn count(list: &str) -> Option<u32> {
    let mut count = 0_u32;
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    (count <= CPUS_MAX).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processor_without_its_frequency() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 85\nmodel name\t: Xeon\ncpu MHz\t\t: 2100.0\n\
            flags\t\t: vme fpu\nbogomips\t: 4200\n\nprocessor\t: 1\nmodel name\t: Other\n";
        let cpu = parse_cpuinfo(text).unwrap();
        let values: Vec<_> = cpu.values.iter().map(|(k, v)| (*k, v.as_str())).collect();
        assert_eq!(values, [("model", "Xeon"), ("vendor", "GenuineIntel")]);
        assert_eq!(cpu.flags.iter().collect::<Vec<_>>(), ["fpu", "vme"]);
        let arm = parse_cpuinfo("processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n").unwrap();
        assert_eq!(arm.values.get("part").map(String::as_str), Some("0xd0c"));
        assert!(parse_cpuinfo("nothing of the kind\n").is_err());
        assert!(parse_cpuinfo("").is_err());
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        for (list, wanted) in [
            ("0-3,8,10", Some(6)),
            ("0", Some(1)),
            ("", None),
            ("3-1", None),
            ("0-4294967295", None),
            ("a", None),
        ] {
            assert_eq!(count(list), wanted, "{list}");
        }
    }
}
