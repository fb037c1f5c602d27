//! The whole census, on images.

use std::cell::Cell;
use std::collections::HashMap;

use proptest::prelude::*;

use super::strings::{Encoding, is_ascii_text};
use super::*;
use crate::memory::{Image, PAGE, Word};

const START: u64 = 0x7f00_0000_0000;

fn options() -> Options {
    Options { counters: 1 << 14, entries_max: 100_000, ..Options::default() }
}

fn all(image: &impl Memory) -> Census {
    take(image, &Census::default_regions(image), &options(), &mut |_, _| true)
}

fn image(bytes: &[u8]) -> Image {
    let mut image = Image::new(Word::Eight);
    image.add(START, bytes, "");
    image
}

fn count(census: &Census, text: &str) -> (u64, u64) {
    let found = census.entries.iter().find(|entry| entry.text == text);
    found.map_or((0, 0), |entry| (entry.count, entry.error))
}

/// Memory that ends after `left` bytes were read.
struct Ends {
    image: Image,
    left: Cell<usize>,
}

impl Memory for Ends {
    fn mappings(&self) -> &[Mapping] {
        self.image.mappings()
    }

    fn word(&self) -> Word {
        Word::Eight
    }

    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        let read = self.image.read(address, into).min(self.left.get());
        self.left.set(self.left.get() - read);
        read
    }

    fn resident(&self, start: u64, end: u64, take: &mut dyn FnMut(u64, u64) -> bool) {
        self.image.resident(start, end, take);
    }
}

#[test]
fn strings_are_counted_wherever_they_lie() {
    // At each distance from the ends of blocks, pages and pieces.
    let mut bytes = vec![0; 3 << 20];
    let text = b"a string that is planted";
    let mut planted = 0;
    for place in [64_usize, 4096, 512 << 10, 1 << 20, 2 << 20] {
        for before in 0..40 {
            let at = place * (1 + before) + (1 << 10) * usize::from(place == 64) - before;
            if at + text.len() < bytes.len()
                && bytes[at - 1..at + text.len() + 1].iter().all(|byte| *byte == 0)
            {
                bytes[at..at + text.len()].copy_from_slice(text);
                planted += 1;
            }
        }
    }
    assert!(planted > 80, "{planted}");
    let census = all(&image(&bytes));
    assert_eq!(count(&census, "a string that is planted"), (planted, 0));
    assert_eq!(census.strings, planted);
    assert_eq!(census.string_bytes, planted * text.len() as u64);
    assert_eq!((census.distinct_estimate, census.error_bound), (1, 0));
    let entry = &census.entries[0];
    assert_eq!((entry.bytes, entry.is_cut, entry.encoding), (census.string_bytes, false, Encoding::Ascii));
    for address in &entry.addresses {
        let at = (address - START) as usize;
        assert_eq!(&bytes[at..at + text.len()], text);
    }
    assert_eq!(entry.addresses.len(), 3);
}

#[test]
fn strings_go_on_over_neighbours_and_end_at_gaps() {
    let page = PAGE as usize;
    let mut first = vec![0; page];
    first[page - 6..].copy_from_slice(b"joined");
    let mut second = vec![0; page];
    second[..6].copy_from_slice(b" again");
    for gap in [0, PAGE] {
        let mut image = Image::new(Word::Eight);
        for i in 0..4 {
            image.add(START + 16 * i * PAGE, &first, "");
            image.add(START + (16 * i + 1) * PAGE + gap, &second, "[anon:other]");
        }
        let census = all(&image);
        let expected = if gap == 0 { [(4, 0), (0, 0), (0, 0)] } else { [(0, 0), (4, 0), (4, 0)] };
        assert_eq!(["joined again", "joined", " again"].map(|text| count(&census, text)), expected, "{gap}");
    }
}

#[test]
fn only_private_memory_without_a_file_is_looked_at() {
    let mut image = Image::new(Word::Eight);
    for (i, name) in
        ["", "[heap]", "[anon: glibc: malloc]", "[stack]", "[anon: glibc: pthread stack: 7]", "/a/file"]
            .into_iter()
            .enumerate()
    {
        image.add(START + i as u64 * 16 * PAGE, b"some words\0some words", name);
    }
    let census = all(&image);
    assert_eq!(count(&census, "some words"), (6, 0));
    let region = START..START + 1000 * PAGE;
    let twice = [region.clone(), region.start + 5..region.end - 5, 7..7];
    let census = take(&image, &twice, &options(), &mut |_, _| true);
    assert_eq!(count(&census, "some words"), (12, 0), "all that was asked for, once");
    assert_eq!((census.bytes_mapped, census.bytes_scanned), (1000 * PAGE, 6 * 21));
}

#[test]
fn every_encoding_is_counted_by_itself() {
    let mut bytes = Vec::new();
    let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    for i in 0..100_u8 {
        for text in [b"Wellington".to_vec(), "Größenwahn ✓".as_bytes().to_vec(), b"M\xfcnchen".to_vec()] {
            bytes.extend([vec![0; 1 + usize::from(i) % 7], text, vec![0xff]].concat());
        }
        for text in ["Wellington", "Zürich, Köln", "Санкт-Петербург"] {
            bytes.resize(bytes.len().next_multiple_of(2) + 2 * usize::from(i % 5), 0);
            bytes.extend([vec![0, 0], wide(text), vec![0, 0]].concat());
        }
    }
    let census = all(&image(&bytes));
    let found: HashMap<(&str, Encoding), (u64, u64)> =
        census.entries.iter().map(|e| ((e.text.as_str(), e.encoding), (e.count, e.length_bytes))).collect();
    assert_eq!(found[&("Wellington", Encoding::Ascii)], (100, 10));
    assert_eq!(found[&("Größenwahn ✓", Encoding::Utf8)], (100, 16));
    assert_eq!(found[&("München", Encoding::Latin1)], (100, 7));
    assert_eq!(found[&("Wellington", Encoding::Utf16)], (100, 20));
    assert_eq!(found[&("Zürich, Köln", Encoding::Utf16)], (100, 24));
    assert_eq!(found[&("Санкт-Петербург", Encoding::Utf16)], (100, 30));
    assert_eq!(found.len(), 6);
    assert!(census.entries.iter().all(|entry| !entry.is_cut));
    let of_utf16 = census.by_encoding.iter().find(|share| share.encoding == Encoding::Utf16).unwrap();
    assert_eq!((of_utf16.strings, of_utf16.bytes), (300, 7400));
    assert_eq!(census.by_length.iter().map(|length| length.bytes).sum::<u64>(), census.string_bytes);
}

#[test]
fn a_string_without_an_end_is_cut_in_pieces() {
    // One text of a hundred mebibytes that repeats nothing, and one that is all the same.
    let mut bytes = Vec::new();
    while bytes.len() < 20 << 20 {
        bytes.extend(format!("{}, ", bytes.len()).bytes());
    }
    let unique = all(&image(&bytes));
    assert_eq!(unique.string_bytes, bytes.len() as u64);
    assert_eq!(unique.strings, bytes.len().div_ceil(scan::LONGEST) as u64);
    assert_eq!(unique.entries, []);
    let same = all(&image(&vec![b'x'; 20 << 20]));
    let [entry] = &same.entries[..] else { panic!("{:?}", same.entries) };
    assert_eq!((entry.count, entry.length_bytes, entry.is_cut), (640, scan::LONGEST as u64, true));
    assert_eq!(entry.text, "x".repeat(64));
    // The same long text at odd and even addresses makes the same pieces.
    let text = &bytes[..100_000];
    let twice = [&[0; 77][..], text, &[0; 4096 * 3], text, &[0; 500_000], text].concat();
    let census = all(&image(&twice));
    assert!(census.entries.iter().all(|entry| (entry.count, entry.error) == (3, 0)));
    assert_eq!(census.entries.iter().map(|entry| entry.length_bytes).sum::<u64>(), 100_000);
    let wide: Vec<u8> = text.iter().flat_map(|byte| [*byte, 0]).collect();
    let twice = [&[0; 78][..], &wide, &[0; 4096 * 3], &wide, &[0; 500_000], &wide].concat();
    let census = all(&image(&twice));
    assert!(census.entries.iter().all(|entry| (entry.count, entry.error) == (3, 0)));
    assert_eq!(census.entries.iter().map(|entry| entry.length_bytes).sum::<u64>(), 200_000);
    // UTF-8 is cut between characters.
    let text: String = (0..40_000).map(|i| if i % 5 == 0 { 'a' } else { '€' }).collect();
    let twice = [&[0; 77][..], text.as_bytes(), &[0; 4096 * 3], text.as_bytes(), &[0]].concat();
    let census = all(&image(&twice));
    assert!(census.entries.iter().all(|entry| (entry.count, entry.error) == (2, 0)));
    assert_eq!(census.entries.iter().map(|entry| entry.length_bytes).sum::<u64>(), text.len() as u64);
}

#[test]
fn what_ends_meanwhile_gives_what_was_read() {
    let bytes = b"some more words\0".repeat(256 << 10);
    let memory = Ends { image: image(&bytes), left: Cell::new(1 << 20) };
    let census = all(&memory);
    assert!(census.has_ended && !census.is_stopped);
    assert_eq!((census.bytes_scanned, census.bytes_unread), (1 << 20, 3 << 20));
    assert_eq!(count(&census, "some more words"), (1 << 16, 0));
    let stopped = take(&image(&bytes), &Census::default_regions(&memory), &options(), &mut |done, total| {
        assert_eq!(total, 4 << 20);
        done < 2 << 20
    });
    assert!(stopped.is_stopped && !stopped.has_ended);
    assert_eq!(count(&stopped, "some more words"), (1 << 17, 0));
    let none = Ends { image: image(&bytes), left: Cell::new(0) };
    assert!(all(&none).has_ended);
    assert!(!all(&Image::new(Word::Eight)).has_ended);
}

#[test]
fn leaks_are_exact_among_very_many_others_and_go_together() {
    // Ten strings of ten thousand copies each, from the middle on, among four hundred thousand that
    // differ.
    let mut bytes = Vec::new();
    for i in 0..400_000_u32 {
        bytes.extend(format!("unique {:x}-{}\0", i.wrapping_mul(0x9e37_79b9), i).bytes());
        if i % 40 == 0 {
            let parts = (0..5).map(|part| format!("the part {part} of one object\0"));
            bytes.extend(parts.collect::<String>().bytes());
        }
        if i % 50 == 7 {
            bytes.extend(b"something else\0");
        }
    }
    let census = all(&image(&bytes));
    for part in 0..5 {
        assert_eq!(count(&census, &format!("the part {part} of one object")), (10_000, 0));
    }
    assert!(census.error_bound < 30, "{}", census.error_bound);
    let group = &census.groups[0];
    assert_eq!((group.strings, group.count, group.bytes), (5, 10_000, 5 * 10_000 * 24));
    assert!(group.chance < 1e-6);
    let off = (census.distinct_estimate as f64 / 400_006.0 - 1.0).abs();
    assert!(off < 0.05, "{off}");
    // The unique strings are a family.
    let pattern = census.patterns.iter().find(|pattern| pattern.text.starts_with("unique")).unwrap();
    assert_eq!(pattern.text, "unique #-#");
    // Some of them have no digit among their letters.
    let off = pattern.count.abs_diff(400_000);
    assert!(off <= pattern.count_error + 4000, "{pattern:?}");
    assert!(pattern.count_error < 10_000, "{pattern:?}");
}

#[test]
fn no_text_is_kept_where_none_is_wanted() {
    let bytes = b"a secret that repeats 17\0".repeat(1000);
    let options = Options { text_max: 0, ..options() };
    let image = image(&bytes);
    let census = take(&image, &Census::default_regions(&image), &options, &mut |_, _| true);
    assert!(!serde_json::to_string(&census).unwrap().contains("secret"));
    assert_eq!((census.entries[0].count, census.entries[0].is_cut), (1000, true));
    assert_eq!(census.entries[0].id, all(&image).entries[0].id);
    assert!(!census.patterns.is_empty());
}

#[test]
fn what_is_saved_is_read_again() {
    let census = all(&image(&"größer als 17 Äpfel\0noch etwas\0".as_bytes().repeat(500)));
    let saved = serde_json::to_string(&census).unwrap();
    assert_eq!(serde_json::from_str::<Census>(&saved).unwrap(), census);
}

/// The strings by the definition in `strings.rs`, character by character.
fn plainly(bytes: &[u8], chars_min: usize) -> HashMap<(Vec<u8>, bool), u64> {
    let mut found: HashMap<(Vec<u8>, bool), u64> = HashMap::new();
    let mut at = 0;
    let (mut start, mut chars, mut kind) = (0, 0, 'a');
    let mut give = |bytes: &[u8], chars: usize, is_wide: bool| {
        if chars < chars_min {
            return;
        }
        let words = bytes.iter().filter(|b| b.is_ascii_alphanumeric() || **b == b' ' || **b >= 0x80).count();
        if !is_wide && str::from_utf8(bytes).is_err() && words * 5 < bytes.len() * 4 {
            for part in bytes.split(|byte| *byte >= 0x80).filter(|part| part.len() >= chars_min) {
                *found.entry((part.to_vec(), false)).or_default() += 1;
            }
            return;
        }
        *found.entry((bytes.to_vec(), is_wide)).or_default() += 1;
    };
    while at < bytes.len() {
        let sequence = (2..=4).find(|length| {
            let text = bytes.get(at..at + length).and_then(|bytes| str::from_utf8(bytes).ok());
            text.is_some_and(|text| text.chars().count() == 1 && !text.chars().all(char::is_control))
        });
        let is_text = |at: usize| bytes.get(at).is_some_and(|byte| is_ascii_text(*byte));
        let is_letter = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphabetic);
        let is_latin = at > 0
            && (0xc0..=0xfe).contains(&bytes[at])
            && ![0xd7, 0xf7].contains(&bytes[at])
            && (is_letter(at - 1) && is_text(at + 1));
        let (next, length) = match sequence {
            _ if is_text(at) => (kind, 1),
            Some(length) => ('u', length),
            None if is_latin => ('l', 1),
            None => ('-', 1),
        };
        if next == '-' || kind != 'a' && next != kind {
            give(&bytes[start..at], chars, false);
            (start, chars) = (if next == '-' { at + 1 } else { at }, 0);
        }
        kind = if next == '-' { 'a' } else { next };
        chars += usize::from(next != '-');
        at += length;
    }
    give(&bytes[start..], chars, false);
    for (start, end) in plain_wide(bytes) {
        give(&bytes[start..end], (end - start) / 2, true);
    }
    found
}

/// The same for UTF-16.
fn plain_wide(bytes: &[u8]) -> Vec<(usize, usize)> {
    let units: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit)).collect();
    let class = |unit: u16| {
        let letter = char::from_u32(u32::from(unit)).is_some_and(char::is_alphanumeric);
        match unit {
            9 | 0x20..=0x7e => Some('a'),
            0xa0..=0xff => Some('l'),
            0x100..=0x2ff if letter => Some('l'),
            0x300..=0x6ff if letter => Some(['g', 'c', 'h', 'r'][usize::from(unit >> 8) - 3]),
            _ => None,
        }
    };
    let mut found = Vec::new();
    let mut start = 0;
    while start < units.len() {
        let mut script = None;
        let mut end = start;
        while let Some(next) = units.get(end).copied().and_then(class) {
            if next != 'a' && *script.get_or_insert(next) != next {
                break;
            }
            end += 1;
        }
        let tiny = units[start..end].iter().filter(|unit| **unit & 0xff <= 6).count();
        if 2 * tiny <= end - start {
            found.push((2 * start, 2 * end));
        }
        start =
            end.max(start + usize::from(units.get(end).copied().and_then(class).is_none()) + (end - start));
    }
    found
}

/// Bytes of strings, and of what lies between them.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        prop::collection::vec(0_u8..8, 0..20),
        prop::sample::select(vec![
            b"hello".to_vec(),
            b"a longer text that goes on".to_vec(),
            "größer".as_bytes().to_vec(),
            "日本語のテキスト".as_bytes().to_vec(),
            b"M\xfcller".to_vec(),
            b"\xc3".to_vec(),
            b"\0".to_vec(),
            wide("Zürich"),
            wide("Привет"),
            wide("plain"),
        ]),
        (any::<u8>(), 0_usize..200).prop_map(|(byte, count)| vec![byte; count]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_a_plain_loop_finds_is_found(
        pieces in prop::collection::vec(piece(), 0..60),
        chars_min in 4_usize..40,
        copies in 2_usize..5,
    ) {
        let once = [pieces.concat(), vec![0; 2]].concat();
        let mut bytes = once.repeat(copies);
        bytes.push(0);
        let options = Options { min_chars: chars_min, text_max: 128, ..options() };
        let image = image(&bytes);
        let census = take(&image, &Census::default_regions(&image), &options, &mut |_, _| true);
        let plain = plainly(&bytes, chars_min);
        prop_assert_eq!(census.strings, plain.values().sum::<u64>());
        let mut expected: Vec<(usize, bool, u64)> =
            plain.iter().filter(|(_, count)| **count > 1).map(|((t, is_wide), n)| (t.len(), *is_wide, *n)).collect();
        let mut found: Vec<(usize, bool, u64)> = census
            .entries
            .iter()
            .map(|entry| (entry.length_bytes as usize, entry.encoding == Encoding::Utf16, entry.count))
            .collect();
        expected.sort_unstable();
        found.sort_unstable();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn no_memory_makes_it_fail(bytes in prop::collection::vec(any::<u8>(), 1..40_000), at in 0_u64..9000) {
        let mut image = Image::new(Word::Eight);
        image.add(START + at, &bytes, "");
        let census = all(&image);
        prop_assert_eq!(census.bytes_scanned, bytes.len() as u64);
    }
}

#[test]
fn at_the_ends_of_the_addresses_nothing_overflows() {
    let mut image = Image::new(Word::Eight);
    image.add(u64::MAX - 5000, &[b'a'; 5000], "");
    image.add(0, &[b'b'; 5000], "");
    let everything = 0..u64::MAX;
    let census = take(&image, std::slice::from_ref(&everything), &options(), &mut |_, _| true);
    assert_eq!(census.strings, 2);
}
