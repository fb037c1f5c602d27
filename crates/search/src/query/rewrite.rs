//! Replaces what only Mitra understands by something that OpenSearch understands as well.
//!
//! ```text
//! hostname:web1            host:web1                  older names of fields
//! package.python3.11:*     package.python3_11:*       dots in a package name, which nest no fields
//! size:>4k                 size:>4096                 sizes with a unit
//! package:*                kind:"package"             too many fields for a cluster
//! _exists_:sysctl          kind:"sysctl"
//! _exists_:\*              *:*                        some cluster fields are not searchable
//! ```
//!
//! Only these places of the text are replaced. The cluster gets the rest unchanged. The same
//! changes are made to the tree, so that both mean the same.

use std::ops::Range;

use super::ast::{End, Group, Name, Node, Part};
use super::escape::escape;
use super::numbers;
use crate::fields::{self, DEFAULT};

/// The fields whose values are sizes in bytes.
const SIZES: &[&str] =
    &["size", "fs.size", "fs.block_size", "disk.size", "disk.logical_block_size", "disk.physical_block_size"];

/// Families whose field names only the documents define, and the kind of documents that have these
/// fields.
const WHOLE: &[(&str, &str)] =
    &[("sysctl", "sysctl"), ("package", "package"), ("cmdline", "cmdline"), ("cpu", "cpu")];

/// The field that tests whether another field has a value.
pub const EXISTS: &str = "_exists_";

type Splice = (Range<usize>, String);

/// Rewrites a tree, and returns the equivalent text.
pub fn rewrite(text: &str, group: &mut Group) -> String {
    let mut splices = Vec::new();
    of_group(group, DEFAULT, &mut splices);
    splices.sort_by_key(|(at, _)| at.start);
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for (at, new) in splices {
        out.push_str(text.get(done..at.start).unwrap_or_default());
        out.push_str(&new);
        done = at.end;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    out
}

fn of_group(group: &mut Group, field: &str, splices: &mut Vec<Splice>) {
    for clause in &mut group.clauses {
        of_node(&mut clause.node, field, splices);
    }
}

fn of_node(node: &mut Node, inherited: &str, splices: &mut Vec<Splice>) {
    let field = node.field.as_ref().map_or(inherited, |name| &name.text).to_owned();
    if let Some((asked, kind)) = whole(&field, &node.part) {
        // The quotes keep a tilde behind it without effect.
        splices.push((node.at.clone(), format!("kind:\"{kind}\"")));
        node.field = Some(Name { text: "kind".to_owned(), at: node.at.clone() });
        node.part = Part::Term(kind.to_owned());
        node.asked = Some(asked);
        return;
    }
    let field = match present(&field) {
        Some(new) => {
            if let Some(name) = &mut node.field {
                splices.push((name.at.clone(), escape(&new)));
                name.text.clone_from(&new);
            }
            new
        }
        None => field,
    };
    if is_any(&field, &node.part) {
        splices.push((node.at.clone(), "*:*".to_owned()));
        node.field = Some(Name { text: "*".to_owned(), at: node.at.clone() });
        node.part = Part::Wildcard("*".to_owned());
        return;
    }
    match &mut node.part {
        Part::Group(group) => of_group(group, &field, splices),
        Part::Term(text) if field == EXISTS => {
            if let Some(new) = present(text) {
                splices.push((node.part_at.clone(), escape(&new)));
                *text = new;
            }
        }
        Part::Quoted { text, .. } if field == EXISTS => {
            if let Some(new) = present(text) {
                splices.push((node.part_at.clone(), format!("\"{}\"", escape(&new))));
                *text = new;
            }
        }
        part if SIZES.contains(&field.as_str()) => of_size(part, &node.part_at, splices),
        _ => {}
    }
}

/// Whether a part tests for any field at all.
fn is_any(field: &str, part: &Part) -> bool {
    match part {
        Part::Term(text) | Part::Quoted { text, .. } => {
            field == EXISTS && !text.is_empty() && text.bytes().all(|b| b == b'*')
        }
        _ => false,
    }
}

/// If a part tests for any field of a family: the family, and the kind that replaces the test.
fn whole(field: &str, part: &Part) -> Option<(String, &'static str)> {
    let asked = match part {
        Part::Term(text) | Part::Quoted { text, .. } if field == EXISTS => text,
        Part::Wildcard(pattern) if pattern == "*" => field,
        _ => return None,
    };
    let family = asked.strip_suffix(".*").unwrap_or(asked);
    WHOLE.iter().find(|(name, _)| *name == family).map(|(_, kind)| (family.to_owned(), *kind))
}

/// The current name of a field; `None` if it is the same.
fn present(name: &str) -> Option<String> {
    if name.contains('*') {
        return None;
    }
    let new = match name.strip_prefix("package.") {
        Some(package) => format!("package.{}", package.replace('.', "_")),
        None => fields::resolve(name).to_owned(),
    };
    (new != name).then_some(new)
}

fn of_size(part: &mut Part, at: &Range<usize>, splices: &mut Vec<Splice>) {
    match part {
        Part::Term(text) => {
            let (operator, number) = comparison(text);
            if let Some(bytes) = numbers::bytes(number) {
                let new = format!("{operator}{bytes}");
                splices.push((at.clone(), new.clone()));
                *text = new;
            }
        }
        Part::Quoted { text, .. } => {
            if let Some(bytes) = numbers::bytes(text) {
                splices.push((at.clone(), format!("\"{bytes}\"")));
                *text = bytes;
            }
        }
        Part::Range { low, high } => {
            for End { value, at, .. } in [low, high] {
                if let Some(bytes) = value.as_deref().and_then(numbers::bytes) {
                    splices.push((at.clone(), bytes.clone()));
                    *value = Some(bytes);
                }
            }
        }
        _ => {}
    }
}

/// Splits off a leading `>`, `>=`, `<` or `<=`. The first part is empty without one.
#[must_use]
pub fn comparison(text: &str) -> (&str, &str) {
    let length = match text.as_bytes() {
        [b'<' | b'>', b'=', _, ..] => 2,
        [b'<' | b'>', _, ..] => 1,
        _ => 0,
    };
    text.split_at_checked(length).unwrap_or(("", text))
}

#[cfg(test)]
mod tests {
    use super::super::parser::parse;
    use super::*;

    fn rewritten(text: &str) -> String {
        let (mut group, _) = parse(text).unwrap();
        rewrite(text, &mut group)
    }

    #[test]
    fn what_only_mitra_reads_is_replaced() {
        for (text, wanted) in [
            ("hostname:web1 AND timestamp:>now-1d", "host:web1 AND time:>now-1d"),
            ("hostname:(a OR hostname:b)", "host:(a OR host:b)"),
            ("package.python3.11:3.11*", "package.python3_11:3.11*"),
            (r"package.libstdc++6:* package.a\:b.c:1", r"package.libstdc++6:* package.a\:b_c:1"),
            (
                "_exists_:package.python3.11 _exists_:\"hostname\"",
                "_exists_:package.python3_11 _exists_:\"host\"",
            ),
            (
                "size:4k size:>1M size:>=2G size:<1.5k^2",
                "size:4096 size:>1048576 size:>=2147483648 size:<1536^2",
            ),
            ("size:[4k TO \"1M\"} size:\"4k\"~2", "size:[4096 TO 1048576} size:\"4096\"~2"),
            ("size:(>4k AND <1M)", "size:(>4096 AND <1048576)"),
            (
                "fs.size:>1T inode:4k content:4k size:(4k 5k)",
                "fs.size:>1099511627776 inode:4k content:4k size:(4k 5k)",
            ),
            ("NOT package:* AND (a)", "NOT kind:\"package\" AND (a)"),
            (
                "package:*~ab _exists_:\"sysctl\"~2 _exists_:\"hostname\"~2",
                "kind:\"package\"~ab kind:\"sysctl\"~2 _exists_:\"host\"~2",
            ),
            (r"_exists_:\* NOT _exists_:(\*\*)^2", "*:* NOT _exists_:(*:*)^2"),
            (
                r"_exists_:sysctl package.\*:* cpu:(*)^2",
                "kind:\"sysctl\" kind:\"package\" cpu:(kind:\"cpu\")^2",
            ),
            ("_exists_:(cmdline)", "_exists_:(kind:\"cmdline\")"),
            ("kernel:* fs:* sysctl.vm:* package.zsh:*", "kernel:* fs:* sysctl.vm:* package.zsh:*"),
            ("a  OR\tb  \"c\"", "a  OR\tb  \"c\""),
        ] {
            assert_eq!(rewritten(text), wanted, "{text}");
        }
    }

    #[test]
    fn rewriting_twice_changes_nothing() {
        for text in [
            "hostname:a",
            "package.a.b:1",
            "size:>=4k",
            "package:*",
            "_exists_:package.a.b",
            r"_exists_:\*",
            "package:*~2",
        ] {
            let once = rewritten(text);
            assert_eq!(rewritten(&once), once);
        }
    }

    #[test]
    fn comparisons_are_cut_as_there() {
        for (text, wanted) in [
            (">10", (">", "10")),
            (">=10", (">=", "10")),
            (">=", (">", "=")),
            (">", ("", ">")),
            ("<x", ("<", "x")),
            ("=>1", ("", "=>1")),
            (">é", (">", "é")),
            ("", ("", "")),
        ] {
            assert_eq!(comparison(text), wanted, "{text}");
        }
    }
}
