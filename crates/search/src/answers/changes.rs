//! Turns changes of documents into changes of a machine, for the diagnosis and for people.

use std::collections::BTreeSet;

use mitra_model::report::Moment;
use mitra_model::{Change, ChangeKind};

use crate::answers::diff;
use crate::backend::Changed;
use crate::document::{Document, Flag, Kind, Value};

/// Maximum bytes of a diff. It is shown, never applied.
const DIFF_MAX: usize = 4 << 10;
/// Maximum number of settings or packages listed one by one per document. More means an upgrade of
/// the whole system.
const EACH_MAX: usize = 200;

/// The changes of a machine, ordered by time. Ignores documents that change by themselves.
#[must_use]
pub fn of_machine(list: &[Changed]) -> Vec<Change> {
    let mut all: Vec<Change> = list.iter().flat_map(one).collect();
    all.sort_by_key(|c| c.at);
    all
}

fn one(changed: &Changed) -> Vec<Change> {
    let Some(document) = changed.after.as_ref().or(changed.before.as_ref()) else { return Vec::new() };
    if document.is(Flag::Volatile) {
        return Vec::new();
    }
    match document.kind {
        Kind::Sysctl => facts(changed, ChangeKind::Sysctl, "sysctl."),
        Kind::Package => facts(changed, ChangeKind::Package, "package."),
        Kind::Incident | Kind::Socket => Vec::new(),
        Kind::Cgroup => vec![text(changed, document, ChangeKind::Cgroup)],
        Kind::Kernel | Kind::Cmdline => vec![text(changed, document, ChangeKind::Kernel)],
        Kind::Mount => vec![text(changed, document, ChangeKind::Mount)],
        Kind::Unit | Kind::Timer => vec![text(changed, document, ChangeKind::Unit)],
        Kind::Cron => vec![text(changed, document, ChangeKind::Cron)],
        Kind::User => vec![text(changed, document, ChangeKind::Account)],
        Kind::Disk | Kind::Nic | Kind::Cpu | Kind::Numa => vec![text(changed, document, ChangeKind::Device)],
        Kind::File => vec![text(changed, document, ChangeKind::File)],
    }
}

fn change(changed: &Changed, kind: ChangeKind, name: &str) -> Change {
    Change {
        at: Moment(changed.at_ns),
        not_before: changed.not_before_ns.map(Moment),
        kind,
        name: name.to_owned(),
        cgroup: None,
        cgroup_name: None,
        from: None,
        to: None,
        diff: None,
        source: "index",
    }
}

/// One change for each setting or package that differs.
fn facts(changed: &Changed, kind: ChangeKind, family: &str) -> Vec<Change> {
    let (Some(before), Some(after)) = (&changed.before, &changed.after) else { return Vec::new() };
    let names: BTreeSet<&String> = before.facts.keys().chain(after.facts.keys()).collect();
    let differ = names.into_iter().filter(|n| before.facts.get(*n) != after.facts.get(*n));
    let list = differ.filter_map(|full| {
        let name = full.strip_prefix(family)?;
        let words = |d: &Document| d.facts.get(full).map(|values| in_words(values));
        Some(Change { from: words(before), to: words(after), ..change(changed, kind, name) })
    });
    let mut list: Vec<Change> = list.collect();
    if list.len() > EACH_MAX {
        let words = format!("{} of them", list.len());
        list = vec![Change { to: Some(words), ..change(changed, kind, "many at once") }];
    }
    list
}

/// One change with the lines that differ.
fn text(changed: &Changed, document: &Document, kind: ChangeKind) -> Change {
    let content = |d: &Option<Document>| d.as_ref().and_then(|d| d.content.clone()).unwrap_or_default();
    let mut lines = diff(&content(&changed.before), &content(&changed.after), "before", "after");
    if lines.len() > DIFF_MAX {
        let mut end = DIFF_MAX;
        while !lines.is_char_boundary(end) {
            end -= 1;
        }
        lines.truncate(lines[..end].rfind('\n').unwrap_or(end));
        lines.push_str("\n…");
    }
    // Drops the `---` and `+++` lines, which name no file.
    let body = lines.split_once("\n@@").map(|(_, body)| format!("@@{body}"));
    let is_new = changed.before.is_none();
    let is_gone = changed.after.is_none();
    Change {
        from: is_gone.then(|| "a file until then".to_owned()).filter(|_| kind == ChangeKind::File),
        to: is_new.then(|| "it was not there before".to_owned()),
        diff: body.filter(|_| !is_new && !is_gone),
        ..change(changed, kind, &document.filename)
    }
}

/// The values of a field as one text.
#[must_use]
pub fn in_words(values: &[Value]) -> String {
    let one = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        Value::Number(number) => format!("{number}"),
        Value::Time(ns) => Moment(*ns).to_string(),
    };
    values.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Facts;

    fn document(kind: Kind, filename: &str, content: &str, facts: &[(&str, f64)]) -> Document {
        Document {
            content: Some(content.to_owned()),
            facts: facts.iter().map(|(n, v)| ((*n).to_owned(), vec![Value::Number(*v)])).collect::<Facts>(),
            ..Document::new("web1", filename, kind)
        }
    }

    fn changed(before: Option<Document>, after: Option<Document>) -> Changed {
        Changed { at_ns: 1_000_000_000, not_before_ns: Some(0), before, after }
    }

    #[test]
    fn each_setting_that_differs_is_a_change() {
        let before =
            document(Kind::Sysctl, "@sysctl", "", &[("sysctl.vm.swappiness", 60.0), ("sysctl.a", 1.0)]);
        let after =
            document(Kind::Sysctl, "@sysctl", "", &[("sysctl.vm.swappiness", 100.0), ("sysctl.a", 1.0)]);
        let list = of_machine(&[changed(Some(before), Some(after))]);
        assert_eq!(list.iter().map(Change::words).collect::<Vec<_>>(), ["vm.swappiness 60 → 100"]);
    }

    #[test]
    fn a_file_comes_with_its_lines() {
        let before = document(Kind::File, "/etc/fstab", "a\nb\n", &[]);
        let after = document(Kind::File, "/etc/fstab", "a\nc\n", &[]);
        let list = of_machine(&[changed(Some(before.clone()), Some(after.clone()))]);
        assert_eq!(list[0].diff.as_deref(), Some("@@ -1,2 +1,2 @@\n a\n-b\n+c\n"));
        assert_eq!(list[0].words(), "/etc/fstab was changed");
        assert!(of_machine(&[changed(None, Some(after))])[0].words().contains("is new"));
        assert!(of_machine(&[changed(Some(before), None)])[0].words().contains("is gone"));
    }

    #[test]
    fn what_changes_by_itself_is_no_change() {
        let mut before = document(Kind::File, "/proc/meminfo", "1", &[]);
        before.flag(Flag::Volatile);
        let after = Document { content: Some("2".to_owned()), ..before.clone() };
        assert_eq!(of_machine(&[changed(Some(before), Some(after))]), []);
    }

    #[test]
    fn a_long_difference_is_cut() {
        let long = |word: &str| (0..2_000).map(|i| format!("{word} ä {i}\n")).collect::<String>();
        let before = document(Kind::File, "/etc/x", &long("a"), &[]);
        let after = document(Kind::File, "/etc/x", &long("b"), &[]);
        let list = of_machine(&[changed(Some(before), Some(after))]);
        let diff = list[0].diff.as_deref().unwrap();
        assert!(diff.len() <= DIFF_MAX + 8 && diff.ends_with('…'), "{}", diff.len());
    }
}
