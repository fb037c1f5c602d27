//! The sums of `mitra xfs-geometry` against what mkfs.xfs really does.

use std::process::Command;

use serde_json::Value;

use crate::harness::{good, run};

/// The number of `key=` in what mkfs.xfs prints, the first one.
fn field(text: &str, key: &str) -> Option<u64> {
    let at = text.split_whitespace().find_map(|w| w.strip_prefix(key)?.strip_prefix('='))?;
    at.trim_end_matches(',').parse().ok()
}

/// What mkfs.xfs prints of a file that has no bytes; `None` where there is no mkfs.xfs.
fn mkfs(file: &str, options: &str) -> Option<(String, String)> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let data = format!("file,name={file},{options}");
    let output = Command::new("mkfs.xfs").env("PATH", path).args(["-N", "-f", "-d", &data]).output().ok()?;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("mkfs.xfs prints ASCII");
    assert!(output.status.success(), "{options}: {}", text(output.stderr));
    Some((text(output.stdout), text(output.stderr)))
}

#[test]
fn mkfs_xfs_makes_the_same_layout() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk.img");
    let file = file.to_str().unwrap();
    if mkfs(file, "size=1g").is_none() {
        println!("skipped: mkfs.xfs is not on this machine");
        return;
    }
    for (level, disks, unit, size, count) in [
        ("raid10", "12", "256k", "2925527040b", Some("16")),
        ("raid10", "12", "256k", "12t", None),
        ("raid10", "4", "512k", "900g", None),
        ("raid0", "3", "64k", "1100m", None),
        ("raid5", "5", "128k", "7t", None),
        ("raid6", "10", "1m", "40t", None),
        ("raid6", "6", "64k", "5g", Some("10")),
        ("raid1", "2", "64k", "3t", None),
    ] {
        let mut args = vec!["xfs-geometry", "--json", "--level", level, "--disks", disks, "--size", size];
        args.extend(["--stripe-unit", unit]);
        if let Some(count) = count {
            args.extend(["--ag-count", count]);
        }
        let json: Value = serde_json::from_str(&good(&args)).unwrap();
        let command = json["command"].as_str().unwrap();
        let options = command.split("-d ").nth(1).and_then(|o| o.split(' ').next()).unwrap();
        let (out, err) = mkfs(file, &format!("size={size},{options}")).unwrap();
        assert!(!err.to_lowercase().contains("warning"), "{command}: {err}");
        let groups = &json["allocation_groups"];
        assert_eq!(field(&out, "agsize"), groups["blocks"].as_u64(), "{command}\n{out}");
        assert_eq!(field(&out, "agcount"), groups["count"].as_u64(), "{command}\n{out}");
        assert_eq!(field(&out, "blocks"), groups["data_blocks"].as_u64(), "{command}\n{out}");
        let stripe = |key: &str| json[key]["blocks"].as_u64().unwrap_or(0);
        assert_eq!(field(&out, "sunit"), Some(stripe("stripe_unit")), "{command}\n{out}");
        assert_eq!(field(&out, "swidth"), Some(stripe("stripe_width")), "{command}\n{out}");
        let options = options.split(",agsize").next().unwrap();
        let options = if options.starts_with("agsize") { "" } else { options };
        if let Some(count) = count {
            // With the number alone it warns where the size was moved.
            let (own, warning) = mkfs(file, &format!("size={size},{options},agcount={count}")).unwrap();
            assert_eq!(field(&own, "agsize"), groups["blocks_before"].as_u64(), "{own}");
            let moved = groups["blocks"] != groups["blocks_before"];
            assert_eq!(warning.contains("multiple of stripe width"), moved, "{warning}");
        } else {
            // Left to itself, mkfs.xfs chooses the same.
            let (own, _) = mkfs(file, format!("size={size},{options}").trim_end_matches(',')).unwrap();
            assert_eq!(field(&own, "agsize"), groups["blocks"].as_u64(), "{own}");
        }
    }
}

#[test]
fn the_published_numbers_come_out() {
    let args = "xfs-geometry --level raid10 --disks 12 --stripe-unit 256k --size 2925527040b --ag-count 16";
    let text = good(&args.split(' ').collect::<Vec<_>>());
    for number in ["262144", "512", "64", "1572864", "3072", "384", "182845376", "182845440", "748934660096"]
    {
        assert!(text.split(|c: char| !c.is_ascii_digit()).any(|w| w == number), "{number} is not in\n{text}");
    }
}

#[test]
fn what_cannot_be_is_exit_code_2_and_says_why() {
    for (args, word) in [
        ("--level raid10 --disks 11 --stripe-unit 256k", "not even"),
        ("--level raid5 --disks 2 --stripe-unit 256k", "at least 3"),
        ("--level raid0 --disks 4 --stripe-unit 1000", "multiple of a sector"),
        ("--level raid0 --disks 4 --stripe-unit 1k", "multiple of a block"),
        ("--level raid0 --disks 4", "needs a stripe unit"),
        ("--level raid4 --disks 4 --stripe-unit 64k", "raid10"),
        ("--level raid0 --disks 4 --stripe-unit lots", "not a size"),
        ("--level raid0 --disks 4 --stripe-unit 64k --ag-count 4", "--size"),
        ("--level raid0 --disks 4 --stripe-unit 64k --size 1m", "300 MiB"),
    ] {
        let output = run(&std::iter::once("xfs-geometry").chain(args.split(' ')).collect::<Vec<_>>());
        assert_eq!(output.code, 2, "{args}: {}", output.err);
        assert!(output.err.contains(word), "{args}: {}", output.err);
    }
}
