//! The contents that states of documents share, to and from columns of the table `content`.
//!
//! A text is compressed with the text of the state before as the dictionary, so that a changed line
//! takes a few dozen bytes. That dictionary text is always one without such a base: reading a text
//! takes two reads, never a chain.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};

use ring::digest;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};
use zstd::bulk::Compressor;
use zstd::dict::DecoderDictionary;
use zstd::zstd_safe::{self, DCtx, SafeResult};

use crate::document::{Document, Facts, Flag, Value, Withheld};
use crate::fields;

/// Maximum size of a text in bytes. A longer one is cut and gets the flag `truncated`.
pub(super) const TEXT_MAX: usize = 32 << 20;
/// Maximum size of the column `about` in bytes. More is left out: no real text produces so much,
/// and a crafted file must not make the host unreadable.
const ABOUT_MAX: usize = 32 << 20;
/// JSON up to this size is stored uncompressed, so that people can read it.
const ABOUT_PLAIN_MAX: usize = 512;
/// Maximum length of an indexed field name in bytes.
const NAME_MAX: usize = 512;
/// Compression level: the highest that takes no longer than tokenizing the text.
const LEVEL: i32 = 6;

/// The first 16 bytes of SHA-256, which identify a content. Collisions are infeasible.
pub(super) type Key = [u8; 16];

/// One field of a content with one value.
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

/// All of a content but kind and text: the column `about`.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct About {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<WithheldJson>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, Vec<Json>>,
}

/// [`Withheld`] as JSON.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct WithheldJson {
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

/// A document's content, ready for storing.
pub(super) struct Content<'a> {
    pub key: Key,
    pub kind: &'static str,
    /// SHA-256 of the text.
    pub hash: Option<[u8; 32]>,
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
        let sha256 = |bytes: &[u8]| {
            let mut sum = [0; 32];
            sum.iter_mut()
                .zip(digest::digest(&digest::SHA256, bytes).as_ref())
                .for_each(|(to, from)| *to = *from);
            sum
        };
        let hash = text.map(|text| sha256(text.as_bytes()));
        let whole =
            [kind.as_bytes(), hash.as_ref().map_or(b"-", |hash| &hash[..]), json.as_bytes()].join(&b'\n');
        let mut key = Key::default();
        key.iter_mut().zip(sha256(&whole)).for_each(|(to, from)| *to = from);
        Self { key, kind, hash, text, about, json }
    }

    /// The column `about`; `None` if it would be empty.
    pub(super) fn about_column(&self) -> io::Result<Option<rusqlite::types::Value>> {
        Ok(match self.json.len() {
            0..=2 => None,
            3..=ABOUT_PLAIN_MAX => Some(rusqlite::types::Value::Text(self.json.clone())),
            _ => Some(rusqlite::types::Value::Blob(zstd::bulk::compress(self.json.as_bytes(), LEVEL)?)),
        })
    }
}

impl About {
    fn of(document: &Document) -> Self {
        // The state records whether a file is gone, not the content.
        let mut flags: Vec<Flag> = document.flags.iter().copied().filter(|f| *f != Flag::Gone).collect();
        flags.sort_unstable();
        flags.dedup();
        let Withheld { count, reasons, keys } = &document.withheld;
        let kept = WithheldJson { count: *count, reasons: reasons.clone(), keys: keys.clone() };
        let json = |value: &Value| match value {
            Value::Text(text) => Some(Json::Text(text.clone())),
            // JSON has no infinity and no NaN. Adding 0.0 turns -0.0 into 0.0.
            Value::Number(number) => number.is_finite().then_some(Json::Number(number + 0.0)),
            Value::Time(ns) => Some(Json::Time { ns: *ns }),
        };
        Self {
            flags: flags.iter().map(|flag| flag.name().to_owned()).collect(),
            link: document.link.clone(),
            withheld: (kept != WithheldJson::default()).then_some(kept),
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
        // Serialization cannot fail: it fails only for maps whose keys are not strings.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Decodes the column `about`.
    pub(super) fn read(column: ValueRef<'_>) -> io::Result<Self> {
        let mut plain = String::new();
        let json = match column {
            ValueRef::Text(text) => std::str::from_utf8(text).map_err(io::Error::other)?,
            ValueRef::Blob(blob) => {
                let most = ABOUT_MAX as u64 + 1;
                zstd::stream::read::Decoder::new(blob)?.take(most).read_to_string(&mut plain)?;
                &plain
            }
            _ => return Ok(Self::default()),
        };
        serde_json::from_str(json).map_err(io::Error::other)
    }

    /// Moves the contents into a document. Ignores flags that only a later version knows.
    pub(super) fn into_document(self, document: &mut Document) {
        let value = |json| match json {
            Json::Text(text) => Value::Text(text),
            Json::Number(number) => Value::Number(number),
            Json::Time { ns } => Value::Time(ns),
        };
        document.flags = self.flags.iter().filter_map(|flag| flag.parse().ok()).collect();
        document.flags.sort_unstable();
        document.link = self.link;
        let WithheldJson { count, reasons, keys } = self.withheld.unwrap_or_default();
        document.withheld = Withheld { count, reasons, keys };
        document.facts = self
            .facts
            .into_iter()
            .map(|(n, values)| (n, values.into_iter().map(value).collect()))
            .collect::<Facts>();
    }

    /// Calls `take` for each row of the table `fact`. Duplicates are possible.
    pub(super) fn each_fact<E>(&self, mut take: impl FnMut(Fact<'_>) -> Result<(), E>) -> Result<(), E> {
        let mut word = |name: &str, word: &str| {
            if fields::is_short(word) { take(Fact { name, value: FactValue::Word(word) }) } else { Ok(()) }
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
                    Json::Text(text) if !fields::is_short(text) => continue,
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

/// Size of a trained dictionary in bytes.
const DICTIONARY_BYTES: usize = 64 << 10;
/// How many sample texts the training needs, and how many it uses at most.
pub(super) const SAMPLES_MIN: usize = 100;
pub(super) const SAMPLES_MAX: usize = 2_000;
/// Longer texts compress well without a dictionary.
pub(super) const SAMPLE_BYTES_MAX: usize = 16 << 10;

/// Trains a dictionary. `None` if there are too few texts or they share nothing.
pub(super) fn train(texts: &[String]) -> Option<Vec<u8>> {
    let samples: Vec<&String> =
        texts.iter().filter(|text| text.len() <= SAMPLE_BYTES_MAX).take(SAMPLES_MAX).collect();
    (samples.len() >= SAMPLES_MIN)
        .then(|| zstd::dict::from_samples(&samples, DICTIONARY_BYTES).ok())
        .flatten()
}

/// Compresses texts with one dictionary.
pub(super) struct Packer {
    /// The id of its dictionary.
    pub dictionary: Option<i64>,
    compressor: Compressor<'static>,
}

impl Packer {
    pub(super) fn new(dictionary: Option<(i64, Vec<u8>)>) -> io::Result<Self> {
        let (id, bytes) = dictionary.map_or((None, Vec::new()), |(id, bytes)| (Some(id), bytes));
        Ok(Self { dictionary: id, compressor: Compressor::with_dictionary(LEVEL, &bytes)? })
    }

    pub(super) fn pack(&mut self, text: &str) -> io::Result<Vec<u8>> {
        self.compressor.compress(text.as_bytes())
    }
}

/// Compresses a text with another one as the dictionary.
pub(super) fn pack_with(text: &str, other: &str) -> io::Result<Vec<u8>> {
    Compressor::with_dictionary(LEVEL, other.as_bytes())?.compress(text.as_bytes())
}

/// A stored text.
#[derive(Clone, Copy)]
pub(super) struct Packed<'a> {
    pub text: &'a [u8],
    /// The uncompressed size in bytes.
    pub bytes: i64,
    /// The dictionary with which it was compressed.
    pub dictionary: Option<i64>,
}

/// Decompresses texts and reuses its buffers.
#[derive(Default)]
pub(super) struct Texts {
    dictionaries: HashMap<i64, DecoderDictionary<'static>>,
    reader: Option<DCtx<'static>>,
    /// A buffer for the base text.
    base: String,
}

impl Texts {
    /// Loads a dictionary.
    pub(super) fn know(&mut self, id: i64, bytes: &[u8]) {
        self.dictionaries.insert(id, DecoderDictionary::copy(bytes));
    }

    /// Decompresses a text, and before that its base, if it has one.
    pub(super) fn read(
        &mut self,
        text: Packed<'_>,
        base: Option<Packed<'_>>,
        into: &mut String,
    ) -> io::Result<()> {
        let Some(base) = base else { return self.alone(text, into) };
        let mut other = std::mem::take(&mut self.base);
        let read = self.alone(base, &mut other).and_then(|()| {
            self.unpack(text, into, |reader, plain| {
                reader.decompress_using_dict(plain, text.text, other.as_bytes())
            })
        });
        self.base = other;
        read
    }

    fn alone(&mut self, text: Packed<'_>, into: &mut String) -> io::Result<()> {
        let Some(id) = text.dictionary else {
            return self.unpack(text, into, |reader, plain| reader.decompress(plain, text.text));
        };
        let Some((id, known)) = self.dictionaries.remove_entry(&id) else {
            return Err(io::Error::other(format!("its dictionary {id} is missing")));
        };
        let read = self.unpack(text, into, |reader, plain| {
            reader.decompress_using_ddict(plain, text.text, known.as_ddict())
        });
        self.dictionaries.insert(id, known);
        read
    }

    fn unpack(
        &mut self,
        text: Packed<'_>,
        into: &mut String,
        unpack: impl FnOnce(&mut DCtx<'static>, &mut Vec<u8>) -> SafeResult,
    ) -> io::Result<()> {
        let mut plain = std::mem::take(into).into_bytes();
        plain.clear();
        plain.reserve(usize::try_from(text.bytes).unwrap_or(0).min(TEXT_MAX));
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(DCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?),
        };
        unpack(reader, &mut plain).map_err(|code| io::Error::other(zstd_safe::get_error_name(code)))?;
        *into = String::from_utf8(plain).map_err(io::Error::other)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
