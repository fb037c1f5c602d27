//! Compares search results with a scan over all documents of all days, for random worlds and
//! queries.

use std::collections::BTreeSet;
use std::ops::RangeBounds;

use mitra_search::backend::{Batch, Sink};
use mitra_search::document::{Flag, sha256};
use mitra_search::embedded::{Index, Writer};
use mitra_search::query::matcher::Matcher;
use mitra_search::query::names::fits;
use mitra_search::query::{Bound, Leaf, Set};
use mitra_search::{Day, Document, Facts, Kind, Query, Scope, Stat, Value, analysis};
use proptest::prelude::*;

const HOUR: i64 = 3_600_000_000_000;
const HOSTS: [&str; 3] = ["db1", "web1", "web2"];
const FILES: [&str; 3] = ["/etc/fstab", "/etc/hosts", "@sysctl"];
const WORDS: [&str; 11] =
    ["swap", "ext4", "defaults", "to", "be", "or", "not", "127.0.0.1", "zebra", "8", "nothing"];
const DAYS: i32 = 5;

/// The part of a document that several may share.
#[derive(Debug, Clone)]
struct Content {
    kind: Kind,
    text: Option<String>,
    facts: Facts,
    flags: Vec<Flag>,
    link: Option<String>,
}

/// One pass over a host, with what it saw of each file.
#[derive(Debug, Clone)]
struct Look {
    host: usize,
    /// Hours since the pass before.
    after: i64,
    /// By file: unchanged, a content, or gone.
    seen: Vec<Option<Option<usize>>>,
}

/// A state of a document in the test's model.
#[derive(Debug, Clone)]
struct Known {
    host: usize,
    file: usize,
    content: usize,
    since: i64,
    /// When its file was last written. A tombstone keeps the status of the file.
    written: i64,
    gone: bool,
}

fn pool() -> Vec<Content> {
    let texts = [
        None,
        Some(""),
        Some("swap ext4 defaults"),
        Some("defaults ext4 swap swap"),
        Some("to be or not to be"),
        Some("127.0.0.1 localhost"),
        Some("EXT4 xfs"),
        Some("zebra"),
    ];
    (0..16)
        .map(|number| {
            let mut facts = Facts::new();
            if number % 3 == 0 {
                facts.insert(
                    "sysctl.vm.swappiness".to_owned(),
                    vec![Value::Number(f64::from(number) * 10.0 - 30.0)],
                );
            }
            if number % 4 == 1 {
                let versions = ["5.8", "5.9", "5.9"].iter().take(1 + number as usize % 3);
                let versions = versions.map(|v| Value::Text((*v).to_owned())).collect();
                facts.insert("package.zsh".to_owned(), versions);
            }
            if number % 5 == 2 {
                facts.insert("incident.onset".to_owned(), vec![Value::Time(i64::from(number) * HOUR)]);
            }
            Content {
                kind: if number % 2 == 0 { Kind::File } else { Kind::Package },
                text: texts[number as usize % 8]
                    .map(|text| if number < 8 { text.to_owned() } else { format!("{text} {number}") }),
                facts,
                flags: if number % 7 == 3 { vec![Flag::Redacted] } else { Vec::new() },
                link: (number == 5).then(|| "/run/x".to_owned()),
            }
        })
        .collect()
}

fn stat(known: &Known) -> Option<Stat> {
    (known.file < 2).then(|| Stat {
        size: known.content as u64 * 1000,
        mode: if known.content.is_multiple_of(2) { 0o644 } else { 0o4755 },
        user: known.content.is_multiple_of(3).then(|| "root".to_owned()),
        mtime_ns: known.written - 1,
        ..Stat::default()
    })
}

/// The states and the passes (host, time) of a world.
fn live(looks: &[Look]) -> (Vec<Known>, Vec<(usize, i64)>) {
    let (mut states, mut seen): (Vec<Known>, Vec<(usize, i64)>) = (Vec::new(), Vec::new());
    let mut now = 7 * HOUR;
    for look in looks {
        now += look.after * HOUR + 1;
        for (file, what) in look.seen.iter().enumerate() {
            let last = states.iter().rev().find(|k| (k.host, k.file) == (look.host, file)).cloned();
            let (content, gone) = match (what, &last) {
                (None, _) => continue,
                (Some(Some(content)), Some(k)) if !k.gone && k.content == *content => continue,
                (Some(Some(content)), _) => (*content, false),
                (Some(None), Some(k)) if !k.gone => (k.content, true),
                (Some(None), _) => continue,
            };
            let written = last.filter(|_| gone).map_or(now, |k| k.written);
            states.push(Known { host: look.host, file, content, since: now, written, gone });
        }
        seen.push((look.host, now));
    }
    (states, seen)
}

fn document(known: &Known, contents: &[Content]) -> Document {
    let content = contents[known.content].clone();
    Document {
        content: content.text,
        stat: stat(known),
        facts: content.facts,
        flags: content.flags,
        link: content.link,
        since_ns: known.since,
        ..Document::new(HOSTS[known.host], FILES[known.file], content.kind)
    }
}

fn write(writer: &mut Writer, states: &[Known], seen: &[(usize, i64)], contents: &[Content]) {
    for (host, at_ns) in seen {
        let new = || states.iter().filter(|known| (known.host, known.since) == (*host, *at_ns));
        let documents: Vec<Document> = new().filter(|k| !k.gone).map(|k| document(k, contents)).collect();
        let gone: Vec<String> = new().filter(|k| k.gone).map(|k| FILES[k.file].to_owned()).collect();
        writer.put(&Batch { host: HOSTS[*host], at_ns: *at_ns, documents: &documents, gone: &gone }).unwrap();
    }
}

/// A document on a day in the test's model.
struct Doc<'a> {
    known: &'a Known,
    content: &'a Content,
    day: Day,
}

fn says(set: &Set, doc: &Doc<'_>) -> bool {
    match set {
        Set::All => true,
        Set::Nothing => false,
        Set::And(sets) => sets.iter().all(|set| says(set, doc)),
        Set::Or(sets) => sets.iter().any(|set| says(set, doc)),
        Set::Not(set) => !says(set, doc),
        Set::Leaf { field, leaf } if field == "content" => text_says(leaf, doc.content.text.as_deref()),
        Set::Leaf { field, leaf } => values_of(field, doc).iter().any(|value| value_says(leaf, value)),
    }
}

fn values_of(field: &str, doc: &Doc<'_>) -> Vec<Value> {
    let (known, content, stat) = (doc.known, doc.content, stat(doc.known));
    let text = |text: &str| vec![Value::Text(text.to_owned())];
    match field {
        "host" => text(HOSTS[known.host]),
        "filename" => text(FILES[known.file]),
        "kind" => text(content.kind.name()),
        "hash" => content.text.iter().map(|text| Value::Text(sha256(text.as_bytes()))).collect(),
        "flags" => {
            let mut flags: Vec<Value> =
                content.flags.iter().map(|f| Value::Text(f.name().to_owned())).collect();
            flags.extend(known.gone.then(|| Value::Text("gone".to_owned())));
            flags
        }
        "link" => content.link.iter().map(|link| Value::Text(link.clone())).collect(),
        "size" => stat.iter().map(|s| Value::Number(s.size as f64)).collect(),
        "mode" => stat.iter().map(|s| Value::Text(format!("{:04o}", s.mode))).collect(),
        "user" => stat.iter().filter_map(|s| s.user.clone()).map(Value::Text).collect(),
        "mtime" => stat.iter().map(|s| Value::Time(s.mtime_ns)).collect(),
        "time" => vec![Value::Time(known.since)],
        "day" => vec![Value::Time(doc.day.start_ns())],
        pattern if pattern.contains('*') => {
            let of_family = |name: &str| name.starts_with("package.") || name.starts_with("sysctl.");
            let facts = content.facts.iter().filter(|(name, _)| of_family(name) && fits(pattern, name));
            facts.flat_map(|(_, values)| values.clone()).collect()
        }
        _ => content.facts.get(field).cloned().unwrap_or_default(),
    }
}

fn word_says(leaf: &Leaf, word: &str) -> bool {
    match leaf {
        Leaf::Term(term) => term == word,
        Leaf::Terms(matcher) => matcher.takes(word),
        Leaf::Between { low, high } => {
            RangeBounds::<String>::contains(&(low.as_ref(), high.as_ref()), &word.to_owned())
        }
        _ => false,
    }
}

fn value_says(leaf: &Leaf, value: &Value) -> bool {
    match (leaf, value) {
        (Leaf::Exists, _) => true,
        (Leaf::Number { low, high }, Value::Number(n)) => {
            RangeBounds::<f64>::contains(&(low.as_ref(), high.as_ref()), n)
        }
        (Leaf::Time { low_ms, high_ms }, Value::Time(ns)) => {
            *low_ms <= ns.div_euclid(1_000_000) && ns.div_euclid(1_000_000) <= *high_ms
        }
        (leaf, Value::Text(word)) => word_says(leaf, word),
        _ => false,
    }
}

fn text_says(leaf: &Leaf, text: Option<&str>) -> bool {
    let Some(text) = text else { return false };
    let mut words = Vec::new();
    analysis::words(text, |_, word| words.push(word.to_owned()));
    match leaf {
        Leaf::Exists => true,
        Leaf::Phrase { words: phrase, slop } => {
            assert_eq!(*slop, 0);
            (0..words.len())
                .any(|from| phrase.iter().all(|(at, word)| words.get(from + *at as usize) == Some(word)))
        }
        leaf => words.iter().any(|word| word_says(leaf, word)),
    }
}

/// Every (host, file, day) that a scope covers, with its state.
fn shown<'a>(
    states: &'a [Known],
    seen: &[(usize, i64)],
    scope: Scope,
) -> Vec<(usize, usize, Day, &'a Known)> {
    let mut shown = Vec::new();
    let looked = |host: usize, day: Day| seen.iter().any(|(h, at)| *h == host && Day::of(*at) == day);
    for host in 0..HOSTS.len() {
        for file in 0..FILES.len() {
            let of: Vec<&Known> = states.iter().filter(|k| (k.host, k.file) == (host, file)).collect();
            for day in (0..DAYS + 40).map(Day) {
                let found = match scope {
                    Scope::Days { first, last } if first <= day && day <= last && looked(host, day) => {
                        let last = of.iter().rfind(|k| Day::of(k.since) <= day);
                        last.filter(|k| !k.gone || Day::of(k.since) == day)
                    }
                    Scope::Days { .. } => None,
                    Scope::At { ns } => {
                        let answers =
                            if looked(host, Day::of(ns)) { Day::of(ns) } else { Day::of(ns).before() };
                        let last = of.iter().rfind(|k| k.since <= ns);
                        last.filter(|k| !k.gone && day == answers && looked(host, day))
                    }
                    Scope::Changed { since_ns, until_ns } => {
                        let first = seen.iter().find(|(h, _)| *h == host).map(|(_, at)| *at);
                        let within =
                            |k: &&Known| k.since >= since_ns && k.since < until_ns && Day::of(k.since) == day;
                        of.iter().rfind(|k| within(k)).filter(|k| Some(k.since) != first)
                    }
                };
                shown.extend(found.map(|k| (host, file, day, *k)));
            }
        }
    }
    shown
}

fn look() -> impl Strategy<Value = Look> {
    let what =
        prop_oneof![2 => Just(None), 4 => (0_usize..16).prop_map(|c| Some(Some(c))), 1 => Just(Some(None))];
    (0..HOSTS.len(), 0_i64..14, prop::collection::vec(what, FILES.len()))
        .prop_map(|(host, after, seen)| Look { host, after, seen })
}

fn bound<T: Clone + std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Bound<T>> {
    (value, 0..3).prop_map(|(value, kind)| match kind {
        0 => Bound::Included(value),
        1 => Bound::Excluded(value),
        _ => Bound::Unbounded,
    })
}

fn leaf() -> impl Strategy<Value = Set> {
    let of_words = prop_oneof![
        prop::sample::select(&WORDS[..]).prop_map(|w| Leaf::Term(w.to_owned())),
        prop::sample::select(&["", "s", "e", "de", "1"][..]).prop_map(|w| Leaf::Terms(Matcher::prefix(w))),
        prop::sample::select(&["*", "?e", "s*p", "*4", "de*"][..])
            .prop_map(|w| Leaf::Terms(Matcher::wildcard(w).unwrap())),
        prop::sample::select(&["swop", "bee", "ext"][..])
            .prop_map(|w| Leaf::Terms(Matcher::fuzzy(w, 1).unwrap())),
        prop::sample::select(&["(to|be)", "[de].*[s4]"][..])
            .prop_map(|w| Leaf::Terms(Matcher::regex(w).unwrap())),
        (bound(prop::sample::select(&WORDS[..])), bound(prop::sample::select(&WORDS[..]))).prop_map(
            |(l, h)| {
                let own = |b| match b {
                    Bound::Included(w) => Bound::Included(String::from(w)),
                    Bound::Excluded(w) => Bound::Excluded(String::from(w)),
                    Bound::Unbounded => Bound::Unbounded,
                };
                Leaf::Between { low: own(l), high: own(h) }
            }
        ),
        Just(Leaf::Exists),
        prop::collection::vec(prop::sample::select(&WORDS[..]), 2..4).prop_map(|ws| {
            Leaf::Phrase { words: (0..).zip(ws.into_iter().map(str::to_owned)).collect(), slop: 0 }
        }),
    ];
    let keyword = |words: &'static [&'static str]| {
        let word = || prop::sample::select(words).prop_map(str::to_owned);
        prop_oneof![
            3 => word().prop_map(Leaf::Term),
            1 => word().prop_map(|w| Leaf::Terms(Matcher::prefix(w.get(..2).unwrap_or(&w)))),
            1 => word().prop_map(|w| Leaf::Terms(Matcher::wildcard(&format!("*{}", w.get(2..).unwrap_or(&w))).unwrap())),
            1 => (bound(word()), bound(word())).prop_map(|(low, high)| Leaf::Between { low, high }),
            1 => Just(Leaf::Exists),
        ]
    };
    let number = |max: i32| {
        let number = || (-50..max).prop_map(f64::from);
        prop_oneof![
            (bound(number()), bound(number())).prop_map(|(low, high)| Leaf::Number { low, high }),
            Just(Leaf::Exists),
        ]
    };
    let time = (0_i64..90, 0_i64..90)
        .prop_map(|(a, b)| Leaf::Time { low_ms: a * HOUR / 1_000_000, high_ms: (a + b) * HOUR / 1_000_000 });
    let hashes = prop::sample::select(vec!["zebra", "", "nothing"])
        .prop_map(|text| Leaf::Term(sha256(text.as_bytes())))
        .boxed();
    let of = |field: &'static str, leaf: BoxedStrategy<Leaf>| {
        leaf.prop_map(move |leaf| Set::Leaf { field: field.to_owned(), leaf }).boxed()
    };
    prop_oneof![
        of("content", of_words.boxed()),
        of("host", keyword(&HOSTS).boxed()),
        of("filename", keyword(&FILES).boxed()),
        of("kind", keyword(&["file", "package", "sysctl"]).boxed()),
        of("package.zsh", keyword(&["5.8", "5.9", "6"]).boxed()),
        of("package.*", keyword(&["5.8", "5.9", "6"]).boxed()),
        of("pack*", keyword(&["5.8", "6"]).boxed()),
        of("*", keyword(&["5.8", "file"]).boxed()),
        of("*vm.*", number(200).boxed()),
        of("flags", keyword(&["gone", "redacted"]).boxed()),
        of("link", keyword(&["/run/x"]).boxed()),
        of("mode", keyword(&["0644", "4755"]).boxed()),
        of("user", keyword(&["root", "nobody"]).boxed()),
        of("hash", prop_oneof![hashes, Just(Leaf::Exists), Just(Leaf::Terms(Matcher::prefix("a")))].boxed()),
        of("size", number(16_000).boxed()),
        of("sysctl.vm.swappiness", number(200).boxed()),
        of("time", time.clone().boxed()),
        of("mtime", time.clone().boxed()),
        of("incident.onset", time.clone().boxed()),
        of("day", time.boxed()),
        of("nobody.has", keyword(&["this"]).boxed()),
    ]
}

fn set() -> impl Strategy<Value = Set> {
    let leaf = prop_oneof![8 => leaf(), 1 => Just(Set::All), 1 => Just(Set::Nothing)];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Set::And),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Set::Or),
            inner.prop_map(|set| Set::Not(Box::new(set))),
        ]
    })
}

fn scope() -> impl Strategy<Value = Scope> {
    let hour = || 0_i64..24 * i64::from(DAYS) + 30;
    prop_oneof![
        (0..DAYS, 0..DAYS).prop_map(|(a, b)| Scope::Days { first: Day(a), last: Day(a + b) }),
        Just(Scope::Days { first: Day(i32::MIN), last: Day(i32::MAX) }),
        hour().prop_map(|hour| Scope::At { ns: hour * HOUR }),
        (hour(), hour()).prop_map(|(a, b)| Scope::Changed { since_ns: a * HOUR, until_ns: (a + b) * HOUR }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_found_is_what_looking_at_everything_finds(
        looks in prop::collection::vec(look(), 0..25),
        queries in prop::collection::vec((set(), scope()), 12),
        tidied: bool,
    ) {
        let contents = pool();
        let (states, seen) = live(&looks);
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(dir.path()).unwrap();
        write(&mut writer, &states, &seen, &contents);
        if tidied {
            writer.tidy().unwrap();
        }
        let index = Index::open(dir.path()).unwrap();
        for (set, scope) in &queries {
            let query = Query { set: set.clone(), ..Query::all() };
            let page = index.search(&query, *scope, usize::MAX).unwrap();
            let found: Vec<_> = page.hits.iter().map(|hit| (&*hit.host, &*hit.filename, hit.day, hit.since_ns)).collect();
            let all = shown(&states, &seen, *scope);
            let wanted: Vec<_> = all.iter()
                .filter(|(_, _, day, known)| says(set, &Doc { known, content: &contents[known.content], day: *day }))
                .collect();
            let hits: Vec<_> = wanted.iter().map(|(h, f, day, k)| (HOSTS[*h], FILES[*f], *day, k.since)).collect();
            prop_assert_eq!(found, hits, "{:?} {:?}", set, scope);
            for field in ["package.zsh", "sysctl.vm.swappiness", "incident.onset", "flags", "hash", "size", "mode", "day", "host", "user"] {
                let held = index.values(field, &query, *scope).unwrap();
                let mut expected: BTreeSet<(String, &str)> = BTreeSet::new();
                for (host, _, day, known) in &wanted {
                    let doc = Doc { known, content: &contents[known.content], day: *day };
                    expected.extend(values_of(field, &doc).iter().map(|v| (format!("{v:?}"), HOSTS[*host])));
                }
                let got: Vec<(String, &str)> = held.iter()
                    .flat_map(|held| held.hosts.iter().map(|host| (format!("{:?}", held.value), host.as_str())))
                    .collect();
                prop_assert_eq!(got.len(), expected.len(), "{} {:?}", field, got);
                prop_assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), expected, "{}", field);
            }
            let changes = index.changes(None, &query, 20 * HOUR, 70 * HOUR).unwrap();
            let expected: Vec<i64> = states.iter()
                .filter(|k| {
                    let first = seen.iter().find(|(h, _)| *h == k.host).map(|(_, at)| *at);
                    let before = states.iter().rfind(|b| (b.host, b.file) == (k.host, k.file) && b.since < k.since);
                    let day = Day::of(k.since);
                    (20 * HOUR..70 * HOUR).contains(&k.since) && Some(k.since) != first
                        && [Some(*k), before.filter(|b| !b.gone)].into_iter().flatten()
                            .any(|known| says(set, &Doc { known, content: &contents[known.content], day }))
                })
                .map(|k| k.since)
                .collect();
            let times: Vec<i64> = changes.iter().map(|change| change.at_ns).collect();
            prop_assert_eq!(times, expected);
        }
    }
}
