//! `mitra fleet` without a cluster.

use serde_json::Value;

use crate::harness::{good, run};

#[test]
fn what_would_be_installed_is_printed() {
    let text = good(&["fleet", "setup", "--dry-run", "--store", "/none", "--keep-days", "90"]);
    let all: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all[0]["path"], "/_index_template/mitra-incidents");
    assert_eq!(all[0]["body"]["template"]["mappings"]["dynamic"], "strict");
    assert_eq!(all[1]["path"], "/_plugins/_ism/policies/mitra-incidents");
    let age = "/body/policy/states/0/transitions/0/conditions/min_index_age";
    assert_eq!(all[1].pointer(age).unwrap(), "90d");
    let text =
        good(&["fleet", "setup", "--dry-run", "--opensearch", "http://127.0.0.1:1", "--prefix", "lab_"]);
    assert!(text.contains("\"lab_incidents_*\""), "{text}");
}

#[test]
fn what_is_grouped_by_is_checked_before_a_cluster_is_asked() {
    for command in ["incidents", "findings", "roots"] {
        for wrong in ["version", "package", "package:", "package:a*", ""] {
            let said = run(&["fleet", command, "--by", wrong, "--store", "/none"]);
            assert!(
                said.code == 2 && said.err.contains("wanted root, culprit, kernel, package:NAME or change"),
                "{wrong}: {}",
                said.err
            );
        }
        for by in ["root", "culprit", "kernel", "package:libstdc++6", "change"] {
            let said = run(&["fleet", command, "--by", by, "--root", "disk-hog", "--store", "/none"]);
            assert!(said.code == 2 && said.err.contains("--opensearch URL"), "{by}: {}", said.err);
        }
    }
}

#[test]
fn without_a_cluster_it_says_how_to_name_one() {
    for command in [&["incidents"][..], &["roots"], &["findings"], &["why", "disk-hog"], &["setup"]] {
        let said = run(&[&["fleet"], command, &["--store", "/none"]].concat());
        assert_eq!(said.code, 2, "{}", said.out);
        assert!(said.err.contains("--opensearch URL") && said.out.is_empty(), "{}", said.err);
    }
}
