//! Compares the tables of CPython's layouts with the installed headers, by a C compiler.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use mitra_inspect::python::Layout;

#[test]
fn the_tables_are_what_the_headers_say() {
    let versions =
        std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv/versions")).unwrap_or_default();
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/python-offsets.py");
    let has_compiler = Command::new("gcc").arg("--version").output().is_ok_and(|done| done.status.success());
    let Ok(installed) = std::fs::read_dir(&versions) else {
        println!("skipped: there is no {}", versions.display());
        return;
    };
    if !has_compiler {
        println!("skipped: there is no gcc");
        return;
    }
    for version in installed.flatten() {
        let Some(include) =
            std::fs::read_dir(version.path().join("include")).ok().and_then(|mut dir| dir.next()?.ok())
        else {
            continue;
        };
        let name = include.file_name().to_string_lossy().into_owned();
        let minor =
            name.strip_prefix("python3.").and_then(|rest| rest.trim_end_matches('m').parse::<u32>().ok());
        let Some((minor, table)) = minor.and_then(|minor| Some((minor, Layout::of(minor)?))) else {
            continue;
        };
        let done = Command::new("python3")
            .arg(&tool)
            .arg("--json")
            .arg(include.path())
            .arg(minor.to_string())
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let said: BTreeMap<String, Option<u64>> = serde_json::from_slice(&done.stdout).unwrap();
        let table: BTreeMap<String, serde_json::Value> =
            serde_json::from_value(serde_json::to_value(table).unwrap()).unwrap();
        for (field, offset) in &said {
            assert_eq!(table[field].as_u64(), *offset, "{field} of 3.{minor}");
        }
        assert!(said.len() > 80);
        assert_eq!(table.len(), said.len() + 3, "minor, tested and the shift of 3.14 are not from headers");
    }
    // Versions without a comparison are marked.
    for minor in Layout::minors() {
        assert_eq!(Layout::of(minor).unwrap().tested, (6..=13).contains(&minor));
    }
}
