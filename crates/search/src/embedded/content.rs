//! Contents, which states of documents share: to columns of the table `content` and back.
//!
//! A text is compressed with that of the state before as the dictionary, so that a changed line takes some dozens of bytes. The
//! dictionary is always a text that has none itself: two are read for one, never a chain.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};

use ring::digest;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};
use zstd::bulk::Compressor;
use zstd::dict::DecoderDictionary;
use zstd::zstd_safe::{self, DCtx, SafeResult};

use crate::document::{Document, Facts, Flag, Value, Withheld};
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

/// Bytes of SHA-256 that identify a content. Nobody can make two contents with the same ones.
pub(super) type Key = [u8; 16];

/// A field of a content with one of its values.
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

/// A document's content, ready to be stored.
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

    /// The column `about`; nothing where there is nothing to say.
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
        // Whether a file is gone is a matter of the state.
        let mut flags: Vec<Flag> = document.flags.iter().copied().filter(|f| *f != Flag::Gone).collect();
        flags.sort_unstable();
        flags.dedup();
        let Withheld { count, reasons, keys } = &document.withheld;
        let kept = WithheldJson { count: *count, reasons: reasons.clone(), keys: keys.clone() };
        let json = |value: &Value| match value {
            Value::Text(text) => Some(Json::Text(text.clone())),
            // What cannot be written down is no number. There is one zero.
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
        // Only maps whose keys are no strings cannot be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the column.
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
        let WithheldJson { count, reasons, keys } = self.withheld.unwrap_or_default();
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

/// Bytes of a dictionary that is trained on texts.
const DICTIONARY_BYTES: usize = 64 << 10;
/// Texts that it takes, and as many of a batch as are looked at.
pub(super) const SAMPLES_MIN: usize = 100;
pub(super) const SAMPLES_MAX: usize = 2_000;
/// Longer texts have enough in common with themselves.
pub(super) const SAMPLE_BYTES_MAX: usize = 16 << 10;

/// A dictionary of some texts; `None` if they are too few or share nothing.
pub(super) fn train(texts: &[String]) -> Option<Vec<u8>> {
    let samples: Vec<&String> =
        texts.iter().filter(|text| text.len() <= SAMPLE_BYTES_MAX).take(SAMPLES_MAX).collect();
    (samples.len() >= SAMPLES_MIN)
        .then(|| zstd::dict::from_samples(&samples, DICTIONARY_BYTES).ok())
        .flatten()
}

/// Compresses texts.
pub(super) struct Packer {
    /// The id of the dictionary that it was made with.
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

/// A text as it is stored.
#[derive(Clone, Copy)]
pub(super) struct Packed<'a> {
    pub text: &'a [u8],
    /// Its bytes, uncompressed.
    pub bytes: i64,
    /// The dictionary that it was compressed with.
    pub dictionary: Option<i64>,
}

/// Reads texts. Reuses its buffers.
#[derive(Default)]
pub(super) struct Texts {
    dictionaries: HashMap<i64, DecoderDictionary<'static>>,
    reader: Option<DCtx<'static>>,
    /// A text that another one is based on.
    base: String,
}

impl Texts {
    /// Knows a dictionary from now on.
    pub(super) fn know(&mut self, id: i64, bytes: &[u8]) {
        self.dictionaries.insert(id, DecoderDictionary::copy(bytes));
    }

    /// Reads a text, and before it the one that it is based on.
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
