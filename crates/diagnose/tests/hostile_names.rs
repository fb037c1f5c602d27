//! Names that processes give themselves, in commands that somebody may paste as root.

use mitra_diagnose::{Finding, conditions};

/// Closes a quote, runs something, and says that the rest is a comment.
const NAME: &str = "x'; reboot; $(reboot) `reboot` #";

/// The commands with all their words in single quotes taken out.
fn bare(command: &str) -> String {
    let mut out = String::new();
    let mut is_quoted = false;
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if !is_quoted => drop(chars.next()),
            '\'' => is_quoted = !is_quoted,
            c if !is_quoted => out.push(c),
            _ => {}
        }
    }
    out
}

#[test]
fn a_name_is_one_word_of_a_command() {
    let mut finding = Finding::default();
    let name = || Some(NAME.to_owned());
    let culprit = &mut finding.culprit;
    culprit.process = name();
    culprit.cgroup = name();
    culprit.device = name();
    culprit.nic = name();
    culprit.path = name();
    culprit.slab = name();
    culprit.library = name();
    finding.netns = name();
    let mut pasted = Vec::new();
    for address in [NAME.to_owned(), format!("unix:/tmp/{NAME}"), format!("10.0.0.1:{NAME}")] {
        finding.culprit.address = Some(address);
        for condition in conditions() {
            let remedies = condition.remedies(&finding).into_iter().map(|r| r.command);
            let measures = condition.next(&finding).into_iter().map(|n| n.command);
            for command in remedies.chain(measures) {
                if bare(&command).contains("reboot") {
                    pasted.push(format!("{}: {command}", condition.id));
                }
            }
        }
    }
    pasted.dedup();
    assert!(pasted.is_empty(), "{pasted:#?}");
}
