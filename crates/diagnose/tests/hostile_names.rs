//! Names that processes give themselves, in commands that somebody may paste as root.

use mitra_diagnose::{Finding, conditions};

/// With and without the end of a quote that a command may have around them; the rest is a comment.
const NAMES: [&str; 3] = [
    "x; reboot; $(reboot) `reboot` #",
    "x'; reboot; $(reboot) `reboot` #",
    "x\"; reboot; $(reboot) `reboot` #",
];

/// The commands with all that stands in single quotes taken out. Double quotes keep no shell from running what is in them.
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
    let mut pasted = Vec::new();
    for hostile in NAMES {
        let mut finding = Finding::default();
        let name = || Some(hostile.to_owned());
        finding.netns = name();
        let culprit = &mut finding.culprit;
        culprit.process = name();
        culprit.cgroup = name();
        culprit.device = name();
        culprit.nic = name();
        culprit.path = name();
        culprit.slab = name();
        culprit.library = name();
        for address in [hostile.to_owned(), format!("unix:/tmp/{hostile}"), format!("10.0.0.1:{hostile}")] {
            finding.culprit.address = Some(address);
            for condition in conditions() {
                let remedies = condition.remedies(&finding).into_iter().flat_map(|r| [r.command, r.verify]);
                let measures = condition.next(&finding).into_iter().map(|n| n.command);
                let commands = remedies.chain(measures).filter(|command| bare(command).contains("reboot"));
                pasted.extend(commands.map(|command| format!("{}: {command}", condition.id)));
            }
        }
    }
    pasted.dedup();
    assert!(pasted.is_empty(), "{pasted:#?}");
}
