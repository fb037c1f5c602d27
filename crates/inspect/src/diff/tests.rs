use super::*;
use crate::composition::{
    Composition, CountMethod, MappingGroup, MappingKind, MemorySizes, ProcessTotals, SmapsTime,
};
use crate::snapshot::tests::empty;

/// A composition with the given bytes in `[heap]`, in anonymous mappings, and a library.
pub(crate) fn composition(heap: u64, anonymous: u64) -> Composition {
    let part = |kind, name: Option<&str>, bytes| MappingGroup {
        kind,
        name: name.map(str::to_owned),
        mappings: 1,
        uncounted: 0,
        sizes: MemorySizes {
            virtual_bytes: bytes,
            resident_bytes: Some(bytes),
            anonymous_bytes: Some(if kind == MappingKind::Code { 0 } else { bytes }),
            swapped_bytes: Some(0),
            ..MemorySizes::default()
        },
    };
    let code = 2 << 20;
    Composition {
        how: CountMethod::Scan,
        totals: ProcessTotals {
            rss_bytes: Some(heap + anonymous + code),
            rss_anon_bytes: Some(heap + anonymous),
            rss_file_bytes: Some(code),
            swap_bytes: Some(0),
            ..ProcessTotals::default()
        },
        mappings: 3,
        parts: vec![
            part(MappingKind::Heap, None, heap),
            part(MappingKind::Anonymous, None, anonymous),
            part(MappingKind::Code, Some("/usr/lib/libcouchbase.so.2"), code),
        ],
        biggest: Vec::new(),
        uncounted: 0,
        smaps: SmapsTime { estimated_s: None, longest_s: None, took_s: None },
        wall_s: 0.001,
    }
}

/// A snapshot this many seconds after the first one.
pub(crate) fn at(seconds: f64, heap: u64, anonymous: u64) -> Snapshot {
    let first = empty();
    Snapshot {
        time_ns: first.time_ns + (seconds * 1e9) as i64,
        boot_s: first.boot_s.map(|s| s + seconds),
        age_s: first.age_s.map(|s| s + seconds),
        composition: Some(composition(heap, anonymous)),
        ..first
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn what_grows_most_stands_first_with_its_rate() {
    let diff = Diff::between(&at(0.0, 10 * MIB, 50 * MIB), &at(1800.0, 110 * MIB, 51 * MIB));
    assert!(diff.is_same_process && diff.seconds == Some(1800.0) && diff.doubts.is_empty(), "{diff:?}");
    let heap = diff.of(RowKind::Memory).next().unwrap();
    assert_eq!((heap.name.as_str(), heap.growth_bytes), ("heap", Some(100 << 20)));
    assert_eq!(heap.ratio, Some(11.0));
    assert_eq!(heap.bytes_per_hour, Some((200_u64 << 20) as f64));
    assert_eq!(diff.row(RowKind::Memory, "anonymous").unwrap().growth_bytes, Some(1 << 20));
    assert!(diff.row(RowKind::Memory, "code /usr/lib/libcouchbase.so.2").is_none(), "it did not move");
    assert!(diff.rows.is_sorted_by(|a, b| order(a, b) != Ordering::Greater));
}

#[test]
fn two_processes_are_compared_without_a_rate() {
    let other = Snapshot { pid: 7, host: "web-18".to_owned(), ..at(600.0, 99 * MIB, MIB) };
    let diff = Diff::between(&at(0.0, 10 * MIB, MIB), &other);
    assert!(!diff.is_same_process && diff.seconds.is_none() && diff.worked_s.is_none());
    assert!(diff.rows.iter().all(|row| row.bytes_per_hour.is_none()));
    assert_eq!(diff.rows[0].ratio.map(f64::round), Some(8.0), "the total");
    let program = Snapshot { comm: "other".to_owned(), pid: 7, ..at(600.0, MIB, MIB) };
    assert!(Diff::between(&at(0.0, MIB, MIB), &program).doubts[0].contains("two programs"));
}

#[test]
fn what_was_looked_at_once_is_not_compared() {
    let without = Snapshot { composition: None, ..at(60.0, 0, 0) };
    let diff = Diff::between(&at(0.0, MIB, MIB), &without);
    assert!(diff.rows.is_empty() && diff.doubts.iter().any(|d| d == "memory: only looked at before"));
    let back = Diff::between(&at(60.0, MIB, MIB), &at(0.0, MIB, MIB));
    assert!(back.doubts[0].contains("later one stands first") && back.seconds.is_none());
}

#[test]
fn what_is_below_the_end_of_a_list_grew_by_at_least_so_much() {
    let mut before = List::new(RowKind::String);
    before.add("a", Some(1000), Some(5000));
    before.add("b", Some(100), Some(700));
    before.cut_off();
    let mut after = List::new(RowKind::String);
    after.add("a", Some(1000), Some(5000));
    after.add("new", Some(900), Some(9000));
    after.cut_off();
    let mut rows = Vec::new();
    join(&before, &after, Some(3600.0), &mut rows);
    let new = rows.iter().find(|row| row.name == "new").unwrap();
    // It has ten bytes each, and there were fewer than 700 of them.
    assert_eq!((new.before, new.growth_count, new.growth_bytes), (None, Some(830), Some(8300)));
    assert!(new.is_bound && new.ratio.is_none());
    let gone = rows.iter().find(|row| row.name == "b").unwrap();
    assert_eq!((gone.after, gone.is_bound), (None, true));
    // It may have grown or not: the growth is unknown.
    assert_eq!((gone.growth_count, gone.growth_bytes), (None, None));
}

fn piece(what: RowKind, name: &str, from: u64, to: u64, each: u64) -> DiffRow {
    let listed = |count: u64| Measured {
        name: None,
        amount: Amount { count: Some(count), bytes: Some(count * each) },
        error_count: 0,
    };
    row(what, name, (Some(&listed(from)), Missing::Zero), (Some(&listed(to)), Missing::Zero), Some(600.0))
}

#[test]
fn what_grows_alike_is_a_group() {
    // The published case: 49,791 to 2,082,193 and 49,788 to 2,082,202.
    let mut rows = vec![
        piece(RowKind::String, "couchbase.context_info", 49_791, 2_082_193, 22),
        piece(RowKind::String, "Unknown:Unknown", 49_788, 2_082_202, 15),
        piece(RowKind::Chunk, "48", 60_000, 2_092_410, 48),
        piece(RowKind::Chunk, "32", 70_000, 900_000, 32),
        piece(RowKind::Type, "dict", 4_000, 4_050, 64),
        piece(RowKind::String, "x", 0, 99, 9),
        piece(RowKind::String, "y", 0, 99, 9),
    ];
    rows.sort_by(order);
    let groups = groups::of(&rows, 0.0);
    assert_eq!(groups.len(), 1, "{groups:?}");
    let names: Vec<&str> = groups[0].members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(names, ["48", "couchbase.context_info", "Unknown:Unknown"]);
    // The strings lie in the chunks.
    assert_eq!(groups[0].growth_bytes, Some(2_032_410 * 48));
    assert!(groups[0].growth_count.abs_diff(2_032_410) < 20);
}

#[test]
fn what_was_read_while_it_grew_is_alike_by_how_long_that_took() {
    let rows = [piece(RowKind::Type, "str", 0, 27_305, 90), piece(RowKind::Type, "function", 0, 26_900, 136)];
    assert!(groups::of(&rows, 0.001).is_empty(), "read in a moment, these are two things");
    assert_eq!(groups::of(&rows, 0.02).len(), 1, "read in a fiftieth of the time, they are one");
    let far = [piece(RowKind::Type, "str", 0, 27_305, 90), piece(RowKind::Type, "function", 0, 20_000, 136)];
    assert!(groups::of(&far, 0.5).is_empty(), "however long it took");
}

#[test]
fn estimates_that_may_be_wrong_are_like_nothing() {
    let mut unsure = piece(RowKind::String, "a", 0, 1000, 8);
    unsure.error_count = 400;
    assert!(groups::of(&[unsure, piece(RowKind::String, "b", 0, 1000, 8)], 0.0).is_empty());
}

#[test]
fn a_diff_is_saved_and_read() {
    let diff = Diff::between(&at(0.0, 10 * MIB, 50 * MIB), &at(1800.0, 110 * MIB, 51 * MIB));
    let text = serde_json::to_string(&diff).unwrap();
    assert_eq!(serde_json::from_str::<Diff>(&text).unwrap(), diff);
}
