//! What many states of documents may share, as columns of the table `content` and back.
//!
//! A text is compressed with that of the state before as the dictionary, so that a changed line takes some dozens of bytes. The
//! dictionary is always a text that has none itself: two are read for one, never a chain.

use std::collections::BTreeMap;
use std::io::Read;

use ring::digest;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};

use crate::document::{Document, Facts, Flag, Value, Withheld, sha256};
use crate::fields::KEYWORD_MAX;

/// Bytes of a text; a longer one is cut, and the flag `truncated` says so.
pub(super) const TEXT_MAX: usize = 32 << 20;
/// Bytes of everything else. More is left out: no text makes as many, and who made them must not make a host unreadable.
const ABOUT_MAX: usize = 32 << 20;
/// Shorter JSON is kept as it is, for people to read.
const ABOUT_PLAIN_MAX: usize = 512;
/// Bytes of a field's name; a longer one is in no index.
const NAME_MAX: usize = 512;
/// Compression: of the levels that take no longer than making the words of a text does, the densest.
const LEVEL: i32 = 6;

/// What is left of its SHA-256: two contents that have these bits in common by chance or by malice are out of reach.
pub(super) type Key = [u8; 16];

/// What is asked of a content beside its words: a field and a value of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fact<'a> {
    pub name: &'a str,
    pub value: FactValue<'a>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum FactValue<'a> {
    Word(&'a str),
    Number(f64),
    Time(i64),
}

impl ToSql for FactValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Word(word) => ValueRef::Text(word.as_bytes()),
            Self::Number(number) => ValueRef::Real(*number),
            Self::Time(ns) => ValueRef::Integer(*ns),
        }))
    }
}

/// Everything but kind and text.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct About {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<Kept>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, Vec<Json>>,
}

/// [`Withheld`] as JSON.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Kept {
    pub count: u32,
    pub reasons: Vec<String>,
    pub keys: Vec<String>,
}

/// [`Value`] as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Json {
    Number(f64),
    Text(String),
    Time { ns: i64 },
}

/// A document's content, ready to be stored.
pub(super) struct Content<'a> {
    pub key: Key,
    pub kind: &'static str,
    pub hash: Option<String>,
    pub text: Option<&'a str>,
    pub about: About,
    json: String,
}

impl<'a> Content<'a> {
    pub(super) fn of(document: &'a Document) -> Self {
        let whole = document.content.as_deref();
        let text = whole.map(|text| text.get(..text.floor_char_boundary(TEXT_MAX)).unwrap_or(text));
        let mut about = About::of(document);
        if text != whole {
            about.cut();
        }
        let mut json = about.json();
        if json.len() > ABOUT_MAX {
            about = About { flags: about.flags, ..About::default() };
            about.cut();
            json = about.json();
        }
        let kind = document.kind.name();
        let hash = text.map(|text| sha256(text.as_bytes()));
        let mut digest = digest::Context::new(&digest::SHA256);
        for part in [kind, hash.as_deref().unwrap_or("-"), &json] {
            digest.update(part.as_bytes());
            digest.update(b"\n");
        }
        let mut key = Key::default();
        key.iter_mut().zip(digest.finish().as_ref()).for_each(|(to, from)| *to = *from);
        Self { key, kind, hash, text, about, json }
    }

    /// The column `about`; nothing where there is nothing to say.
    pub(super) fn about_column(&self) -> std::io::Result<Option<rusqlite::types::Value>> {
        Ok(match self.json.len() {
            0..=2 => None,
            3..=ABOUT_PLAIN_MAX => Some(rusqlite::types::Value::Text(self.json.clone())),
            _ => Some(rusqlite::types::Value::Blob(zstd::bulk::compress(self.json.as_bytes(), LEVEL)?)),
        })
    }
}

impl About {
    fn of(document: &Document) -> Self {
        // Whether a file is gone is a matter of the state.
        let mut flags: Vec<Flag> = document.flags.iter().copied().filter(|f| *f != Flag::Gone).collect();
        flags.sort_unstable();
        flags.dedup();
        let Withheld { count, reasons, keys } = &document.withheld;
        let kept = Kept { count: *count, reasons: reasons.clone(), keys: keys.clone() };
        let json = |value: &Value| match value {
            Value::Text(text) => Some(Json::Text(text.clone())),
            // What cannot be written down is no number. There is one zero.
            Value::Number(number) => number.is_finite().then_some(Json::Number(number + 0.0)),
            Value::Time(ns) => Some(Json::Time { ns: *ns }),
        };
        Self {
            flags: flags.iter().map(|flag| flag.name().to_owned()).collect(),
            link: document.link.clone(),
            withheld: (kept != Kept::default()).then_some(kept),
            facts: document
                .facts
                .iter()
                .map(|(n, v)| (n.clone(), v.iter().filter_map(json).collect()))
                .collect(),
        }
    }

    fn cut(&mut self) {
        let truncated = Flag::Truncated.name().to_owned();
        if !self.flags.contains(&truncated) {
            self.flags.push(truncated);
        }
    }

    fn json(&self) -> String {
        // Only maps whose keys are no strings cannot be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the column.
    pub(super) fn read(column: ValueRef<'_>) -> std::io::Result<Self> {
        let mut plain = String::new();
        let json = match column {
            ValueRef::Text(text) => std::str::from_utf8(text).map_err(std::io::Error::other)?,
            ValueRef::Blob(blob) => {
                let most = ABOUT_MAX as u64 + 1;
                zstd::stream::read::Decoder::new(blob)?.take(most).read_to_string(&mut plain)?;
                &plain
            }
            _ => return Ok(Self::default()),
        };
        serde_json::from_str(json).map_err(std::io::Error::other)
    }

    /// Puts it into a document. A flag of a later version is left out.
    pub(super) fn into_document(self, document: &mut Document) {
        let value = |json| match json {
            Json::Text(text) => Value::Text(text),
            Json::Number(number) => Value::Number(number),
            Json::Time { ns } => Value::Time(ns),
        };
        document.flags = self.flags.iter().filter_map(|flag| flag.parse().ok()).collect();
        document.flags.sort_unstable();
        document.link = self.link;
        let Kept { count, reasons, keys } = self.withheld.unwrap_or_default();
        document.withheld = Withheld { count, reasons, keys };
        document.facts = self
            .facts
            .into_iter()
            .map(|(n, values)| (n, values.into_iter().map(value).collect()))
            .collect::<Facts>();
    }

    /// What the table `fact` has of it; one may come twice.
    pub(super) fn each_fact<E>(&self, mut take: impl FnMut(Fact<'_>) -> Result<(), E>) -> Result<(), E> {
        let mut word = |name: &str, word: &str| {
            if indexed(word) { take(Fact { name, value: FactValue::Word(word) }) } else { Ok(()) }
        };
        for flag in &self.flags {
            word("flags", flag)?;
        }
        if let Some(link) = &self.link {
            word("link", link)?;
        }
        if let Some(kept) = &self.withheld {
            kept.reasons.iter().try_for_each(|reason| word("withheld.reason", reason))?;
            kept.keys.iter().try_for_each(|key| word("withheld.key", key))?;
            take(Fact { name: "withheld.count", value: FactValue::Number(f64::from(kept.count)) })?;
        }
        for (name, values) in self.facts.iter().filter(|(name, _)| name.len() <= NAME_MAX) {
            for value in values {
                let value = match value {
                    Json::Text(text) if !indexed(text) => continue,
                    Json::Text(text) => FactValue::Word(text),
                    Json::Number(number) => FactValue::Number(*number),
                    Json::Time { ns } => FactValue::Time(*ns),
                };
                take(Fact { name, value })?;
            }
        }
        Ok(())
    }
}

/// Whether a keyword is in an index: its length is counted as a cluster does it, in units of UTF-16.
fn indexed(word: &str) -> bool {
    word.len() <= KEYWORD_MAX || (word.len() <= 4 * KEYWORD_MAX && word.encode_utf16().count() <= KEYWORD_MAX)
}

/// Compresses a text, with another one as the dictionary.
pub(super) fn pack(text: &str, dictionary: Option<&str>) -> std::io::Result<Vec<u8>> {
    match dictionary {
        None => zstd::bulk::compress(text.as_bytes(), LEVEL),
        Some(other) => {
            zstd::bulk::Compressor::with_dictionary(LEVEL, other.as_bytes())?.compress(text.as_bytes())
        }
    }
}

/// Reads a text whose length is known into memory that is used again.
pub(super) fn unpack(
    packed: &[u8],
    bytes: i64,
    dictionary: Option<&str>,
    into: &mut String,
) -> std::io::Result<()> {
    let most = usize::try_from(bytes).unwrap_or(0).min(TEXT_MAX);
    let mut plain = std::mem::take(into).into_bytes();
    plain.clear();
    plain.reserve(most);
    match dictionary {
        None => zstd::bulk::Decompressor::new()?.decompress_to_buffer(packed, &mut plain)?,
        Some(other) => zstd::bulk::Decompressor::with_dictionary(other.as_bytes())?
            .decompress_to_buffer(packed, &mut plain)?,
    };
    *into = String::from_utf8(plain).map_err(std::io::Error::other)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rusqlite::types::Value as Column;

    use super::*;
    use crate::document::Kind;

    fn document(content: Option<String>, facts: Facts, flags: Vec<Flag>, withheld: Withheld) -> Document {
        Document {
            host: "web1".to_owned(),
            filename: "/etc/hosts".to_owned(),
            kind: Kind::File,
            content,
            stat: None,
            facts,
            flags,
            link: None,
            withheld,
            since_ns: 0,
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<String>().prop_map(Value::Text),
            any::<f64>().prop_filter("a number", |n| n.is_finite() && *n != 0.0).prop_map(Value::Number),
            any::<i64>().prop_map(Value::Time),
        ]
    }

    fn any_document() -> impl Strategy<Value = Document> {
        let flags = proptest::sample::subsequence(Flag::ALL.to_vec(), 0..=Flag::ALL.len());
        let facts = prop::collection::btree_map("[a-z.]{1,12}", prop::collection::vec(value(), 0..4), 0..9);
        let withheld = (any::<u32>(), any::<Vec<String>>(), any::<Vec<String>>())
            .prop_map(|(count, reasons, keys)| Withheld { count, reasons, keys });
        (any::<Option<String>>(), facts, flags, any::<Option<String>>(), withheld).prop_map(
            |(content, facts, flags, link, withheld)| Document {
                link,
                ..document(content, facts, flags, withheld)
            },
        )
    }

    fn read(column: Option<&Column>) -> std::io::Result<About> {
        About::read(column.map_or(ValueRef::Null, ValueRef::from))
    }

    proptest! {
        #[test]
        fn whatever_was_written_is_read(document in any_document()) {
            let content = Content::of(&document);
            let column = content.about_column().unwrap();
            let mut again = Document {
                facts: Facts::new(), flags: Vec::new(), link: None, withheld: Withheld::default(), ..document.clone()
            };
            read(column.as_ref()).unwrap().into_document(&mut again);
            let mut wanted = document.clone();
            wanted.flags.retain(|flag| *flag != Flag::Gone);
            prop_assert_eq!(&again, &wanted);
            prop_assert_eq!(Content::of(&again).key, content.key);
        }

        #[test]
        fn a_text_is_read_with_its_dictionary(text: String, other: Option<String>) {
            let packed = pack(&text, other.as_deref()).unwrap();
            let mut plain = "left over".to_owned();
            unpack(&packed, text.len() as i64, other.as_deref(), &mut plain).unwrap();
            prop_assert_eq!(plain, text);
        }

        #[test]
        fn damaged_bytes_are_an_error_and_no_panic(
            document in any_document(), bytes in any::<i64>(), at in any::<proptest::sample::Index>(), byte: u8, noise: Vec<u8>,
        ) {
            let json = Content::of(&document).json;
            let mut plain = String::new();
            for mut packed in [zstd::bulk::compress(json.as_bytes(), LEVEL).unwrap(), noise] {
                if !packed.is_empty() {
                    let at = at.index(packed.len());
                    packed[at] = byte;
                }
                let _ = read(Some(&Column::Blob(packed.clone())));
                let _ = unpack(&packed, bytes % 100_000, None, &mut plain);
                let _ = unpack(&packed, 1_000, Some("another text"), &mut plain);
            }
        }
    }

    #[test]
    fn too_large_a_text_is_cut_and_says_so() {
        let long =
            document(Some("é".repeat(TEXT_MAX / 2 + 1)), Facts::new(), Vec::new(), Withheld::default());
        let content = Content::of(&long);
        assert_eq!(content.text.map(str::len), Some(TEXT_MAX));
        assert_eq!(content.about.flags, ["truncated"]);
    }

    #[test]
    fn a_content_has_its_facts() {
        let facts = Facts::from([
            ("package.zsh".to_owned(), vec![Value::Text("5.9".to_owned()), Value::Number(f64::NAN)]),
            (
                "long".to_owned(),
                vec![Value::Text("é".repeat(KEYWORD_MAX + 1)), Value::Text("é".repeat(KEYWORD_MAX))],
            ),
            ("zero".to_owned(), vec![Value::Number(-0.0)]),
            ("n".repeat(NAME_MAX + 1), vec![Value::Time(7)]),
        ]);
        let withheld =
            Withheld { count: 2, reasons: vec!["password".to_owned()], keys: vec!["pw".to_owned()] };
        let document = document(None, facts, vec![Flag::Redacted], withheld);
        let mut found = Vec::new();
        About::of(&document)
            .each_fact(|Fact { name, value }| {
                found.push(match value {
                    FactValue::Word(word) if word.len() > 99 => format!("{name} of {}", word.chars().count()),
                    other => format!("{name} {other:?}"),
                });
                Ok::<(), ()>(())
            })
            .unwrap();
        assert_eq!(
            found,
            [
                "flags Word(\"redacted\")",
                "withheld.reason Word(\"password\")",
                "withheld.key Word(\"pw\")",
                "withheld.count Number(2.0)",
                "long of 8191",
                "package.zsh Word(\"5.9\")",
                "zero Number(0.0)",
            ]
        );
    }
}
