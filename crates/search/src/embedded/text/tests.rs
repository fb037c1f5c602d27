//! The index of words on its own: what a commit makes durable, and what happens to one that cannot be used.

use std::path::Path;

use super::super::bits::Bits;
use super::super::store::Content;
use super::*;
use crate::document::{Facts, Kind, Value, Withheld};
use crate::query::matcher::Matcher;

fn content(text: &str) -> Content {
    let mut facts = Facts::new();
    facts.insert("package.zsh".to_owned(), vec![Value::Text(text.len().to_string())]);
    Content {
        kind: Kind::File,
        text: Some(text.to_owned()),
        facts,
        flags: Vec::new(),
        link: None,
        withheld: Withheld::default(),
    }
}

/// The contents that have a word.
fn having(dir: &Path, word: &str) -> Vec<u32> {
    let mut bits = Bits::none(1000);
    Text::open(dir).unwrap().walk(Part::Words, &Wanted::One(word.to_owned()), &mut bits).unwrap();
    bits.iter().collect()
}

#[test]
fn what_is_committed_is_found_and_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Text::open_writer(dir.path()).unwrap();
    writer.add(0, &content("swap none")).unwrap();
    writer.add(1, &content("swap")).unwrap();
    assert_eq!((writer.committed(), writer.wanted()), (0, 2));
    writer.commit(2).unwrap();
    writer.add(2, &content("Swap")).unwrap();
    assert_eq!(having(dir.path(), "swap"), [0, 1]);
    // A crash: what was not committed is added again.
    drop(writer);
    let mut writer = Text::open_writer(dir.path()).unwrap();
    assert_eq!((writer.committed(), writer.wanted()), (2, 2));
    writer.add(1, &content("never")).unwrap();
    writer.add(2, &content("Swap")).unwrap();
    writer.commit(3).unwrap();
    assert_eq!(having(dir.path(), "swap"), [0, 1, 2]);
    assert!(having(dir.path(), "never").is_empty());
}

#[test]
fn a_reader_sees_commits_when_it_looks_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = Text::open(dir.path()).unwrap();
    assert_eq!(text.committed(), 0);
    let mut writer = Text::open_writer(dir.path()).unwrap();
    for round in 0..30 {
        writer.add(round, &content(&format!("word{round} all"))).unwrap();
        writer.commit(round + 1).unwrap();
        if round % 7 == 0 {
            text.refresh().unwrap();
            assert_eq!(text.committed(), round + 1);
        }
        // Segments that were merged away are still read by those who have them open.
        let mut bits = Bits::none(1000);
        let matcher = Matcher::prefix("word");
        let wanted = Wanted::Pattern { head: String::new(), matcher: &matcher };
        text.walk(Part::Words, &wanted, &mut bits).unwrap();
        assert_eq!(bits.iter().count(), text.committed() as usize);
        assert!(text.segments.len() < 16);
    }
}

#[test]
fn deleted_contents_go_and_make_room() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Text::open_writer(dir.path()).unwrap();
    for ordinal in 0..100 {
        writer.add(ordinal, &content(&format!("both number{ordinal}"))).unwrap();
    }
    writer.commit(100).unwrap();
    (0..60).chain([70, 72]).for_each(|ordinal| writer.delete(ordinal));
    writer.commit(100).unwrap();
    // More than a third was deleted: the segment was written again without them.
    let found = having(dir.path(), "both");
    assert_eq!(found, (60..100).filter(|o| ![70, 72].contains(o)).collect::<Vec<_>>());
    assert!(having(dir.path(), "number3").is_empty());
    assert_eq!(Text::open(dir.path()).unwrap().committed(), 100);
}

#[test]
fn an_index_that_cannot_be_used_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Text::open_writer(dir.path()).unwrap();
    writer.add(0, &content("swap")).unwrap();
    writer.commit(1).unwrap();
    drop(writer);
    let cut = |name: &str| {
        let path = dir.path().join(name);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    };
    let tantivy = || {
        std::fs::remove_file(dir.path().join("commit")).unwrap();
        std::fs::write(dir.path().join("meta.json"), "{}").unwrap();
    };
    let damages: [&dyn Fn(); 4] = [
        &|| cut("commit"),
        &|| cut("0000000001.words"),
        &|| std::fs::remove_file(dir.path().join("0000000001.words")).unwrap(),
        // Version 1.
        &tantivy,
    ];
    for damage in damages {
        damage();
        // Whoever asks meanwhile reads the store.
        assert_eq!(Text::open(dir.path()).unwrap().committed(), 0);
        let mut writer = Text::open_writer(dir.path()).unwrap();
        assert_eq!(writer.committed(), 0);
        writer.add(0, &content("again")).unwrap();
        writer.commit(1).unwrap();
        assert_eq!(having(dir.path(), "again"), [0]);
        assert!(having(dir.path(), "swap").is_empty());
    }
    assert!(!dir.path().join("meta.json").exists());
}

#[test]
fn a_block_that_was_changed_is_an_error_and_made_again_when_it_is_merged() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Text::open_writer(dir.path()).unwrap();
    for ordinal in 0..2 {
        writer.add(ordinal, &content("swap")).unwrap();
        writer.commit(ordinal + 1).unwrap();
    }
    let path = dir.path().join("0000000001.words");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let mut bits = Bits::none(2);
    let asked = Text::open(dir.path()).unwrap().walk(Part::Words, &Wanted::One("swap".to_owned()), &mut bits);
    assert!(matches!(asked, Err(Error::Broken { .. })));
    writer.condense().unwrap();
    assert_eq!(writer.committed(), 0);
}

#[test]
fn dense_it_is_one_segment() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Text::open_writer(dir.path()).unwrap();
    for round in 0..5 {
        writer.add(round, &content(&format!("all {round}"))).unwrap();
        writer.commit(round + 1).unwrap();
    }
    writer.delete(3);
    writer.condense().unwrap();
    assert_eq!(having(dir.path(), "all"), [0, 1, 2, 4]);
    assert_eq!(Text::open(dir.path()).unwrap().segments.len(), 1);
    let files = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = files.collect();
    files.sort();
    assert_eq!(files, ["0000000006.words", "commit", "lock"]);
}

#[test]
fn two_do_not_write_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut one = Text::open_writer(dir.path()).unwrap();
    let mut two = Text::open_writer(dir.path()).unwrap();
    one.add(0, &content("one")).unwrap();
    assert!(matches!(two.add(0, &content("two")), Err(Error::Locked { .. })));
    one.commit(1).unwrap();
    assert_eq!(having(dir.path(), "one"), [0]);
}
