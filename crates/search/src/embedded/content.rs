//! What many states of documents may share, and its bytes.
//!
//! ```text
//! kind  flags        link      withheld                    facts                                          text
//! file  1: volatile  nothing   0, no reasons, no keys      1: sysctl.vm.swappiness, 1 value: number 60    vm.swappiness = 60
//! ```
//!
//! Names stand for themselves, so that a file outlives the order in which they are declared; compression makes them short.
//! Equal contents have equal bytes: their SHA-256 is the key under which a content is stored once.

use ring::digest;

use super::codec::{Corrupt, Got, Input, put, put_maybe_text, put_signed, put_text};
use crate::document::{Document, Facts, Flag, Kind, Value, Withheld};

/// Bytes of a content. The text of a larger one is cut and the flag `truncated` says so.
pub(super) const CONTENT_BYTES_MAX: usize = 64 << 20;

/// What is left of its SHA-256: two contents that have these bits in common by chance or by malice are out of reach.
pub(super) type Key = [u8; 20];

const TEXT: u8 = 0;
const NUMBER: u8 = 1;
const TIME: u8 = 2;

/// What many states of documents may share.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// What it is.
    pub kind: Kind,
    /// The text.
    pub text: Option<String>,
    /// Typed fields.
    pub facts: Facts,
    /// What is special about it; never `gone`, which is a matter of the row.
    pub flags: Vec<Flag>,
    /// Where a symbolic link points.
    pub link: Option<String>,
    /// What was withheld.
    pub withheld: Withheld,
}

/// The bytes of a document's content, and their key.
pub(super) fn encode(document: &Document) -> (Vec<u8>, Key) {
    let text = document.content.as_deref();
    let room = CONTENT_BYTES_MAX / 2;
    let cut =
        text.filter(|text| text.len() > room).and_then(|text| text.get(..text.floor_char_boundary(room)));
    let mut bytes = encode_with(document, cut.or(text), cut.is_some());
    if bytes.len() > CONTENT_BYTES_MAX {
        // No text makes fields of that size; whoever made them must not make the host unreadable.
        let bare =
            Document { facts: Facts::new(), link: None, withheld: Withheld::default(), ..document.clone() };
        bytes = encode_with(&bare, cut.or(text), true);
    }
    let key = key(&bytes);
    (bytes, key)
}

/// The key of bytes.
pub(super) fn key(bytes: &[u8]) -> Key {
    let mut key = Key::default();
    for (to, from) in key.iter_mut().zip(digest::digest(&digest::SHA256, bytes).as_ref()) {
        *to = *from;
    }
    key
}

fn encode_with(document: &Document, text: Option<&str>, cut: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + text.map_or(0, str::len));
    put_text(&mut out, document.kind.name());
    let mut flags: Vec<Flag> = document.flags.iter().copied().filter(|f| *f != Flag::Gone).collect();
    if cut {
        flags.push(Flag::Truncated);
    }
    flags.sort_unstable();
    flags.dedup();
    put_texts(&mut out, flags.iter().map(|f| f.name()));
    put_maybe_text(&mut out, document.link.as_deref());
    put(&mut out, u64::from(document.withheld.count));
    put_texts(&mut out, document.withheld.reasons.iter().map(|r| &**r));
    put_texts(&mut out, document.withheld.keys.iter().map(|k| &**k));
    put_facts(&mut out, &document.facts);
    put_maybe_text(&mut out, text);
    out
}

fn put_texts<'a>(out: &mut Vec<u8>, texts: impl ExactSizeIterator<Item = &'a str>) {
    put(out, texts.len() as u64);
    for text in texts {
        put_text(out, text);
    }
}

fn put_facts(out: &mut Vec<u8>, facts: &Facts) {
    put(out, facts.len() as u64);
    for (name, values) in facts {
        put_text(out, name);
        put(out, values.len() as u64);
        for value in values {
            match value {
                Value::Text(text) => {
                    out.push(TEXT);
                    put_text(out, text);
                }
                Value::Number(number) => {
                    out.push(NUMBER);
                    out.extend_from_slice(&number.to_bits().to_le_bytes());
                }
                Value::Time(ns) => {
                    out.push(TIME);
                    put_signed(out, *ns);
                }
            }
        }
    }
}

impl Content {
    /// Reads the text of a content, and nothing else of it.
    pub(super) fn text_of(bytes: &[u8]) -> Got<Option<&str>> {
        let mut input = Input::new(bytes);
        input.text()?;
        skip_texts(&mut input)?;
        input.maybe_text()?;
        input.u32()?;
        skip_texts(&mut input)?;
        skip_texts(&mut input)?;
        for _ in 0..input.count(2)? {
            input.text()?;
            for _ in 0..input.count(2)? {
                match input.byte()? {
                    TEXT => input.text().map(|_| ())?,
                    NUMBER => input.take(8).map(|_| ())?,
                    TIME => input.signed().map(|_| ())?,
                    _ => return Err(Corrupt("a text, a number or a time")),
                }
            }
        }
        let text = input.maybe_text()?;
        input.end()?;
        Ok(text)
    }

    /// Reads a content.
    pub(super) fn decode(bytes: &[u8]) -> Got<Self> {
        let mut input = Input::new(bytes);
        let kind = input.text()?.parse().map_err(|_| Corrupt("a kind of document that is known"))?;
        // A flag of a later version is left out.
        let flags = texts(&mut input)?.iter().filter_map(|f| f.parse().ok()).collect();
        let link = input.maybe_text()?.map(str::to_owned);
        let withheld =
            Withheld { count: input.u32()?, reasons: texts(&mut input)?, keys: texts(&mut input)? };
        let facts = facts(&mut input)?;
        let text = input.maybe_text()?.map(str::to_owned);
        input.end()?;
        Ok(Self { kind, text, facts, flags, link, withheld })
    }
}

fn skip_texts(input: &mut Input<'_>) -> Got<()> {
    for _ in 0..input.count(1)? {
        input.text()?;
    }
    Ok(())
}

fn texts(input: &mut Input<'_>) -> Got<Vec<String>> {
    let count = input.count(1)?;
    let mut texts = Vec::with_capacity(count);
    for _ in 0..count {
        texts.push(input.text()?.to_owned());
    }
    Ok(texts)
}

fn facts(input: &mut Input<'_>) -> Got<Facts> {
    let mut facts = Facts::new();
    for _ in 0..input.count(2)? {
        let name = input.text()?.to_owned();
        let count = input.count(2)?;
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(match input.byte()? {
                TEXT => Value::Text(input.text()?.to_owned()),
                NUMBER => Value::Number(f64::from_bits(u64::from_le_bytes(input.array()?))),
                TIME => Value::Time(input.signed()?),
                _ => return Err(Corrupt("a text, a number or a time")),
            });
        }
        facts.insert(name, values);
    }
    Ok(facts)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<String>().prop_map(Value::Text),
            any::<f64>().prop_map(Value::Number),
            any::<i64>().prop_map(Value::Time),
        ]
    }

    /// Any document without stat.
    pub(in super::super) fn document() -> impl Strategy<Value = Document> {
        let flags = proptest::sample::subsequence(Flag::ALL.to_vec(), 0..=Flag::ALL.len());
        let facts =
            proptest::collection::btree_map("[a-z.]{1,12}", proptest::collection::vec(value(), 0..4), 0..5);
        let withheld = (any::<u32>(), any::<Vec<String>>(), any::<Vec<String>>())
            .prop_map(|(count, reasons, keys)| Withheld { count, reasons, keys });
        let kind = proptest::sample::select(Kind::ALL);
        (kind, any::<Option<String>>(), facts, flags, any::<Option<String>>(), withheld).prop_map(
            |(kind, content, facts, flags, link, withheld)| Document {
                host: "web1".to_owned(),
                filename: "/etc/hosts".to_owned(),
                kind,
                content,
                stat: None,
                facts,
                flags,
                link,
                withheld,
                since_ns: 0,
            },
        )
    }

    proptest! {
        #[test]
        fn whatever_was_written_is_read(document in document()) {
            let (bytes, key) = encode(&document);
            let read = Content::decode(&bytes).unwrap();
            prop_assert_eq!(read.kind, document.kind);
            prop_assert_eq!(&read.text, &document.content);
            prop_assert_eq!(Content::text_of(&bytes), Ok(read.text.as_deref()));
            prop_assert_eq!(&read.link, &document.link);
            prop_assert_eq!(&read.withheld, &document.withheld);
            prop_assert!(!read.flags.contains(&Flag::Gone));
            // Equal bytes, for no number is equal to one that is none.
            let again = Document {
                content: read.text, facts: read.facts, flags: read.flags, link: read.link, withheld: read.withheld, ..document
            };
            prop_assert_eq!(encode(&again), (bytes, key));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = Content::decode(&bytes);
            let _ = Content::text_of(&bytes);
        }

        #[test]
        fn bytes_that_were_changed_do_not_make_it_panic(
            document in document(),
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let (mut bytes, _) = encode(&document);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let _ = Content::decode(&bytes);
        }

        #[test]
        fn a_content_that_was_cut_is_refused(document in document(), at in any::<proptest::sample::Index>()) {
            let (bytes, _) = encode(&document);
            prop_assert!(Content::decode(&bytes[..at.index(bytes.len())]).is_err());
        }
    }

    #[test]
    fn too_large_a_text_is_cut_and_says_so() {
        let document = Document {
            host: String::new(),
            filename: String::new(),
            kind: Kind::File,
            content: Some("é".repeat(CONTENT_BYTES_MAX / 4 + 1)),
            stat: None,
            facts: Facts::new(),
            flags: vec![Flag::Volatile],
            link: None,
            withheld: Withheld::default(),
            since_ns: 0,
        };
        let read = Content::decode(&encode(&document).0).unwrap();
        assert_eq!(read.flags, [Flag::Truncated, Flag::Volatile]);
        assert_eq!(read.text.map(|t| t.len()), Some(CONTENT_BYTES_MAX / 2));
    }
}
