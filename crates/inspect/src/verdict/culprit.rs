//! The culprit of a growth: the string, type or chunk size with most of it, and rows that grew
//! alike.

use serde::{Deserialize, Serialize};

use crate::diff::{Diff, DiffRow, Group, Member, RowKind};
use crate::python::holders::Root;
use crate::snapshot::Snapshot;

/// The culprit of a growth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Culprit {
    /// The kind of the row that grew.
    pub what: RowKind,
    /// Its id.
    pub key: String,
    /// Its name.
    pub name: String,
    /// Rows that grew by the same count: parts of the same object.
    pub alike: Vec<Member>,
    /// Growth in pieces.
    pub growth_count: Option<i64>,
    /// Growth in bytes.
    pub growth_bytes: Option<i64>,
    /// A type of the runtime whose count grew as much; its objects own the memory.
    pub owner: Option<String>,
    /// The size of the C chunks that hold the strings, if the strings were found through it.
    #[serde(default)]
    pub chunk_bytes: Option<u64>,
    /// A mapped library whose name is in the strings.
    pub library: Option<String>,
    /// The holder of the objects, if it was searched.
    pub holder: Option<String>,
    /// As a sentence.
    pub statement: String,
}

/// A chunk is at most four times as large as the text in it.
const TEXT_SHARE: f64 = 0.25;
/// An object is small without its attributes: a twentieth of the growth names its class.
const CLASS_SHARE: f64 = 0.05;

impl Culprit {
    /// The type whose holders are worth searching.
    #[must_use]
    pub fn held_type(&self) -> Option<&str> {
        self.owner.as_deref().or((self.what == RowKind::Type).then_some(self.name.as_str()))
    }

    /// Finds the culprit among the objects of the runtime (`is_managed`), or outside of it.
    pub(super) fn of(diff: &Diff, is_managed: Option<bool>, last: &Snapshot) -> Option<Self> {
        let kinds: &[RowKind] = match is_managed {
            Some(true) => &[RowKind::Type, RowKind::Class],
            Some(false) => &[RowKind::Chunk, RowKind::String, RowKind::Pattern],
            None => &[RowKind::Chunk, RowKind::String, RowKind::Pattern, RowKind::Type, RowKind::Class],
        };
        let is_candidate = |row: &&DiffRow| kinds.contains(&row.what) && row.growth_bytes.unwrap_or(0) > 0;
        let row = diff.rows.iter().find(is_candidate);
        let group = diff.groups.iter().find(|group| {
            let is_of = |member: &Member| kinds.contains(&member.what);
            group.growth_bytes.unwrap_or(0) > 0 && group.members.iter().any(is_of)
        });
        let group = group.filter(|group| row.is_none_or(|row| group.growth_bytes >= row.growth_bytes));
        let mut culprit = match (group, row) {
            (Some(group), _) => Self::of_group(diff, group, kinds)?,
            (None, Some(row)) => Self::of_row(row),
            (None, None) => return None,
        };
        match culprit.what {
            RowKind::Chunk => culprit.says(diff),
            RowKind::Type => culprit.is_made_by(diff),
            _ => {}
        }
        if let Some(group) = group_of(diff, &culprit) {
            culprit.alike = others(group, &culprit);
        }
        culprit.library = library(&culprit, last);
        culprit.holder = holder(&culprit, last);
        culprit.statement = culprit.in_words();
        Some(culprit)
    }

    fn of_group(diff: &Diff, group: &Group, kinds: &[RowKind]) -> Option<Self> {
        // A string says more than a size.
        let named = group
            .members
            .iter()
            .find(|member| member.what == RowKind::String && kinds.contains(&RowKind::String));
        let member = named.or_else(|| group.members.iter().find(|member| kinds.contains(&member.what)))?;
        let row = diff.row(member.what, &member.key)?;
        let mut culprit = Self::of_row(row);
        culprit.growth_bytes = group.growth_bytes.max(row.growth_bytes);
        let owner = group.members.iter().find(|member| matches!(member.what, RowKind::Type | RowKind::Class));
        culprit.owner = owner.filter(|_| !kinds.contains(&RowKind::Type)).map(|member| member.name.clone());
        Some(culprit)
    }

    /// Names chunks by the strings that fill them.
    fn says(&mut self, diff: &Diff) {
        let bytes = self.growth_bytes.unwrap_or(0) as f64;
        let is_text = |row: &&DiffRow| matches!(row.what, RowKind::String | RowKind::Pattern);
        let text = diff
            .rows
            .iter()
            .find(is_text)
            .filter(|row| row.growth_bytes.is_some_and(|growth| growth as f64 >= TEXT_SHARE * bytes));
        if let Some(row) = text {
            let (chunk, growth, owner) = (self.name.clone(), self.growth_bytes, self.owner.take());
            *self =
                Self { growth_bytes: growth, owner, chunk_bytes: chunk.parse().ok(), ..Self::of_row(row) };
        }
    }

    /// Names builtin objects by a class of the program that grows with them.
    fn is_made_by(&mut self, diff: &Diff) {
        let grown = diff.of(RowKind::Type).filter_map(|row| row.growth_bytes.filter(|b| *b > 0));
        let grown = grown.fold(0, i64::saturating_add);
        let is_own = |row: &&DiffRow| {
            row.name.contains('.')
                && !row.name.starts_with("builtins.")
                && row.growth_bytes.is_some_and(|bytes| bytes as f64 >= CLASS_SHARE * grown as f64)
        };
        if let Some(row) = diff.of(RowKind::Type).find(is_own).filter(|row| row.key != self.key) {
            *self = Self { growth_bytes: self.growth_bytes.max(row.growth_bytes), ..Self::of_row(row) };
        }
    }

    pub(super) fn of_row(row: &DiffRow) -> Self {
        let mut culprit = Self {
            what: row.what,
            key: row.key.clone(),
            name: row.name.clone(),
            alike: Vec::new(),
            growth_count: row.growth_count,
            growth_bytes: row.growth_bytes,
            owner: None,
            chunk_bytes: None,
            library: None,
            holder: None,
            statement: String::new(),
        };
        culprit.statement = culprit.in_words();
        culprit
    }

    /// Whether a row is part of the culprit.
    pub(super) fn has(&self, row: &DiffRow) -> bool {
        let is = |what: RowKind, key: &str| row.what == what && row.key == key;
        is(self.what, &self.key) || self.alike.iter().any(|member| is(member.what, &member.key))
    }

    /// `"couchbase.context_info"`, `chunks of 48 bytes`, `dict`.
    pub(super) fn name_of(row: &DiffRow) -> String {
        named(row.what, &row.name)
    }

    fn in_words(&self) -> String {
        let count = self.growth_count.map_or(String::new(), |count| format!("{count} more "));
        let mut text = format!("{count}{}", named(self.what, &self.name));
        let alike: Vec<String> = self.alike.iter().take(4).map(|m| named(m.what, &m.name)).collect();
        if !alike.is_empty() {
            text.push_str(&format!(", and as many {}: parts of the same objects", alike.join(", ")));
        }
        if let Some(bytes) = self.chunk_bytes {
            text.push_str(&format!(", in chunks of {bytes} bytes"));
        }
        if let Some(library) = &self.library {
            text.push_str(&format!("; the name is that of {library}"));
        }
        if let Some(holder) = &self.holder {
            text.push_str(&format!("; held by {holder}"));
        }
        text
    }
}

fn named(what: RowKind, name: &str) -> String {
    match what {
        RowKind::Chunk => format!("chunks of {name} bytes"),
        RowKind::String | RowKind::Pattern => format!("\"{name}\""),
        RowKind::Type | RowKind::Class => format!("{name} objects"),
        _ => name.to_owned(),
    }
}

fn group_of<'a>(diff: &'a Diff, culprit: &Culprit) -> Option<&'a Group> {
    diff.groups
        .iter()
        .find(|group| group.members.iter().any(|m| m.what == culprit.what && m.key == culprit.key))
}

fn others(group: &Group, culprit: &Culprit) -> Vec<Member> {
    let is_other = |member: &&Member| member.what != culprit.what || member.key != culprit.key;
    group.members.iter().filter(is_other).cloned().collect()
}

/// The mapped library whose name contains a word of the strings.
fn library(culprit: &Culprit, last: &Snapshot) -> Option<String> {
    let keys = std::iter::once(&culprit.key).chain(culprit.alike.iter().map(|member| &member.key));
    let mut hints = keys.filter_map(|key| last.hints.iter().find(|hint| hint.id == *key));
    hints.next().map(|hint| hint.library.clone())
}

/// The holder of most objects of the type.
fn holder(culprit: &Culprit, last: &Snapshot) -> Option<String> {
    let name = culprit.owner.as_ref().unwrap_or(&culprit.name);
    let held = last.holders.as_ref()?.types.iter().find(|held| held.type_name == *name)?;
    if let Some(holder) = held.holders.first() {
        let who = match holder.path.root {
            Root::Native => "something outside of the interpreter",
            Root::Itself => "nothing but each other, and not freed by the collector",
            _ => &holder.path.text,
        };
        return Some(format!("{who} ({} of {})", holder.objects, held.objects));
    }
    if held.objects_held_by_themselves.saturating_mul(2) > held.objects {
        return Some(format!("themselves only ({} of {})", held.objects_held_by_themselves, held.objects));
    }
    (held.objects_held_natively.saturating_mul(2) > held.objects).then(|| {
        format!("something outside of the interpreter ({} of {})", held.objects_held_natively, held.objects)
    })
}
