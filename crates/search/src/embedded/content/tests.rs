use proptest::prelude::*;
use rusqlite::types::Value as Column;

use super::*;
use crate::document::Kind;
use crate::fields::KEYWORD_MAX;

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

fn read(column: Option<&Column>) -> io::Result<About> {
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
        let packed = match &other {
            Some(other) => pack_with(&text, other).unwrap(),
            None => Packer::new(None).unwrap().pack(&text).unwrap(),
        };
        let base = other.as_ref().map(|other| Packer::new(None).unwrap().pack(other).unwrap());
        let as_packed = |packed, text: &str| Packed { text: packed, bytes: text.len() as i64, dictionary: None };
        let base = base.as_deref().map(|base| as_packed(base, other.as_deref().unwrap_or_default()));
        let mut plain = "left over".to_owned();
        Texts::default().read(as_packed(&packed, &text), base, &mut plain).unwrap();
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
            let mut texts = Texts::default();
            texts.know(1, &packed);
            for dictionary in [None, Some(1), Some(2)] {
                let packed = Packed { text: &packed, bytes: bytes % 100_000, dictionary };
                let _ = texts.read(packed, None, &mut plain);
                let _ = texts.read(packed, Some(packed), &mut plain);
            }
        }
    }
}

#[test]
fn what_texts_have_in_common_is_stored_once() {
    let text = |n: u32| format!("[server]\nlisten = 10.0.0.{n}\nworkers = {n}\nlog_level = warning\n");
    let texts: Vec<String> = (0..300).map(text).collect();
    assert_eq!(train(&texts[..50]), None);
    let dictionary = train(&texts).unwrap();
    let mut with = Packer::new(Some((1, dictionary.clone()))).unwrap();
    let packed = with.pack(&text(1000)).unwrap();
    assert!(packed.len() * 2 < Packer::new(None).unwrap().pack(&text(1000)).unwrap().len());
    let (mut texts, mut plain) = (Texts::default(), String::new());
    let packed = Packed { text: &packed, bytes: text(1000).len() as i64, dictionary: Some(1) };
    assert!(texts.read(packed, None, &mut plain).is_err());
    texts.know(1, &dictionary);
    texts.read(packed, None, &mut plain).unwrap();
    assert_eq!(plain, text(1000));
}

#[test]
fn too_large_a_text_is_cut_and_says_so() {
    let long = document(Some("é".repeat(TEXT_MAX / 2 + 1)), Facts::new(), Vec::new(), Withheld::default());
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
    let withheld = Withheld { count: 2, reasons: vec!["password".to_owned()], keys: vec!["pw".to_owned()] };
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
