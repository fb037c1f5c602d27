//! What systemd itself says of how exposed the services are that this repository ships.

use std::path::Path;
use std::process::Command;

/// Of ten. It is 9.6 for a service that restricts nothing.
const EXPOSURE_MAX: f64 = 2.5;

#[test]
fn the_services_are_little_exposed() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    for unit in [
        "mitra.service",
        "mitra-index.service",
        "mitra-notify.service",
        "mitra-send.service",
        "mitra-dbus.service",
    ] {
        let text = std::fs::read_to_string(packaging.join(unit)).unwrap().replace("@PREFIX@", "/usr");
        let dir = std::env::temp_dir().join(format!("mitra-units-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(unit), text).unwrap();
        let output = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager"])
            .arg(dir.join(unit))
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
