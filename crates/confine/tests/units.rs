//! What systemd itself says of how exposed the services are that this repository ships.

use std::path::PathBuf;
use std::process::Command;

/// Of ten. It is 9.6 for a service that restricts nothing.
const EXPOSURE_MAX: f64 = 2.5;

fn top() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The services that are shipped.
fn units() -> Vec<String> {
    let names = std::fs::read_dir(top().join("packaging")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut units: Vec<String> = names.filter(|name| name.ends_with(".service")).collect();
    units.sort();
    assert!(units.len() > 1, "{units:?}");
    units
}

#[test]
fn each_service_is_installed_started_again_and_removed() {
    for script in [
        "install.sh",
        "packages/check.py",
        "packages/deb/postinst",
        "packages/deb/prerm",
        "packages/rpm/post",
        "packages/rpm/postun",
        "packages/rpm/preun",
    ] {
        let text = std::fs::read_to_string(top().join("tools").join(script)).unwrap();
        for unit in units() {
            assert!(text.contains(&unit), "{script} does not know {unit}");
        }
    }
}

#[test]
fn the_services_are_little_exposed() {
    for unit in units() {
        let text = std::fs::read_to_string(top().join("packaging").join(&unit)).unwrap();
        let text = text.replace("@PREFIX@", "/usr");
        let dir = std::env::temp_dir().join(format!("mitra-units-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(&unit), text).unwrap();
        let output = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager"])
            .arg(dir.join(&unit))
            .output();
        std::fs::remove_dir_all(&dir).unwrap();
        let Ok(output) = output else { return println!("skipped: there is no systemd-analyze") };
        let said = String::from_utf8_lossy(&output.stdout);
        // Before systemd 250 it asks a running service manager.
        let Some(last) = said.lines().find_map(|line| line.split_once("Overall exposure level for ")) else {
            return println!("skipped: {}", String::from_utf8_lossy(&output.stderr));
        };
        println!("{}", said.lines().filter(|line| !line.starts_with('✓')).collect::<Vec<_>>().join("\n"));
        let level = last.1.split(' ').nth(1).and_then(|word| word.parse::<f64>().ok());
        assert!(level.is_some_and(|level| level <= EXPOSURE_MAX), "{}", last.1);
    }
}
