//! `mitra doctor --fix-hints`: what is missing, with the commands of this distribution. A shell reads the text as it is.

use std::fmt::Write;
use std::path::Path;

use mitra_collect::{Ability, Fix};

/// Distributions by the tools that they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Debian,
    RedHat,
    Suse,
    Arch,
    Alpine,
    Other,
}

/// Names of `ID` and `ID_LIKE` in os-release.
const NAMES: &[(&str, Family)] = &[
    ("debian", Family::Debian),
    ("ubuntu", Family::Debian),
    ("fedora", Family::RedHat),
    ("rhel", Family::RedHat),
    ("centos", Family::RedHat),
    ("amzn", Family::RedHat),
    ("suse", Family::Suse),
    ("opensuse", Family::Suse),
    ("sles", Family::Suse),
    ("arch", Family::Arch),
    ("alpine", Family::Alpine),
];

/// What the program reads of other packages: one of the paths, the package, what it is for.
const PACKAGES: &[(&[&str], &str, &str)] = &[
    (&["usr/share/zoneinfo"], "tzdata", "without the time zones times are those of UTC"),
    (
        &[
            "etc/ssl/certs/ca-certificates.crt",
            "etc/pki/tls/certs/ca-bundle.crt",
            "etc/ssl/ca-bundle.pem",
            "etc/ssl/cert.pem",
        ],
        "ca-certificates",
        "an index in a cluster at https:// needs certificates",
    ),
];

pub fn text(abilities: &[Ability]) -> String {
    hints(Path::new("/"), abilities)
}

fn hints(root: &Path, abilities: &[Ability]) -> String {
    let read = |path| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let release =
        [read("etc/os-release"), read("usr/lib/os-release")].into_iter().find(|text| !text.is_empty());
    let family = family(&release.unwrap_or_default());
    let there = |path: &str| root.join(path).exists();
    let mut out = String::new();
    for ability in abilities {
        let Some(fix) = &ability.fix else { continue };
        let fix = match fix {
            Fix::Command(command) => command.clone(),
            Fix::Advice(advice) => format!("# {advice}"),
            Fix::Argument { text, is_wanted } => {
                argument(family, text, *is_wanted, there("etc/default/grub"))
                    .map_or_else(|| format!("# {fix}"), |command| format!("{command}   # and boot"))
            }
        };
        _ = writeln!(out, "# {}: {}\n{fix}", ability.name, ability.why.replace('\n', " "));
    }
    for (paths, package, why) in PACKAGES {
        if !paths.iter().any(|path| there(path)) {
            _ = writeln!(out, "# {package}: {why}\n{}", install(family, package));
        }
    }
    let unit = ["usr/lib", "lib", "usr/local/lib", "etc"]
        .iter()
        .any(|at| there(&format!("{at}/systemd/system/mitra.service")));
    if unit
        && there("run/systemd/system")
        && !there("etc/systemd/system/multi-user.target.wants/mitra.service")
    {
        out.push_str("# mitra.service: nothing is recorded, the service is not enabled\nsystemctl enable --now mitra\n");
    }
    if out.is_empty() { "# nothing is missing that a command would change\n".to_owned() } else { out }
}

fn family(release: &str) -> Family {
    let value = |key: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
    };
    let ids = format!("{} {}", value("ID"), value("ID_LIKE"));
    let known = ids.split_whitespace().find_map(|id| NAMES.iter().find(|(name, _)| *name == id));
    known.map_or(Family::Other, |(_, family)| *family)
}

fn install(family: Family, package: &str) -> String {
    match family {
        Family::Debian => format!("apt-get install -y {package}"),
        Family::RedHat => format!("dnf install -y {package}"),
        Family::Suse => {
            format!("zypper install -y {}", if package == "tzdata" { "timezone" } else { package })
        }
        Family::Arch => format!("pacman -S --noconfirm {package}"),
        Family::Alpine => format!("apk add {package}"),
        Family::Other => format!("# install the package {package}"),
    }
}

/// `None` where it is not known how this machine boots.
fn argument(family: Family, text: &str, is_wanted: bool, has_grub: bool) -> Option<String> {
    if family == Family::RedHat {
        let flag = if is_wanted { "--args" } else { "--remove-args" };
        return Some(format!("grubby --update-kernel=ALL {flag}={text}"));
    }
    let write = match family {
        _ if !has_grub => return None,
        Family::Debian => "update-grub",
        Family::Suse => "grub2-mkconfig -o /boot/grub2/grub.cfg",
        Family::Arch => "grub-mkconfig -o /boot/grub/grub.cfg",
        _ => return None,
    };
    let change = if is_wanted {
        format!("s/^GRUB_CMDLINE_LINUX=\"/&{text} /")
    } else {
        format!("/^GRUB_CMDLINE_LINUX/s/\\b{text}\\b//")
    };
    Some(format!("sed -i '{change}' /etc/default/grub && {write}"))
}

#[cfg(test)]
mod tests {
    use mitra_collect::State;

    use super::*;

    fn psi(root: &Path) -> String {
        let fix = Some(Fix::Argument { text: "psi=1", is_wanted: true });
        let state = State::No;
        hints(root, &[Ability { name: "pressure (PSI)".into(), state, why: "turned off".into(), fix }])
    }

    #[test]
    fn each_distribution_has_its_commands() {
        for (release, grub, wanted) in [
            (
                "ID=debian\n",
                true,
                "sed -i 's/^GRUB_CMDLINE_LINUX=\"/&psi=1 /' /etc/default/grub && update-grub",
            ),
            ("ID=debian\n", false, "# add psi=1 to the kernel's command line and boot"),
            ("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", false, "apt-get install -y tzdata"),
            (
                "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n",
                false,
                "grubby --update-kernel=ALL --args=psi=1",
            ),
            ("ID=opensuse-leap\nID_LIKE='suse opensuse'\n", false, "zypper install -y timezone"),
            ("ID=arch\n", true, "grub-mkconfig -o /boot/grub/grub.cfg"),
            ("ID=alpine\n", false, "apk add tzdata"),
            ("ID=homemade\n", false, "# install the package tzdata"),
            ("", false, "# install the package tzdata"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(dir.path().join("etc/default")).unwrap();
            std::fs::write(dir.path().join("etc/os-release"), release).unwrap();
            if grub {
                std::fs::write(dir.path().join("etc/default/grub"), "").unwrap();
            }
            let said = psi(dir.path());
            assert!(
                said.contains("# pressure (PSI): turned off\n") && said.contains(wanted),
                "{release}{said}"
            );
        }
    }

    #[test]
    fn what_is_there_has_no_hint() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["usr/share/zoneinfo", "etc/ssl/cert.pem", "usr/lib/systemd/system/mitra.service"] {
            std::fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        assert_eq!(hints(dir.path(), &[]), "# nothing is missing that a command would change\n");
        std::fs::create_dir_all(dir.path().join("run/systemd/system")).unwrap();
        assert!(hints(dir.path(), &[]).contains("systemctl enable --now mitra\n"));
    }
}
