//! The same query finds the same documents everywhere: in the embedded index, in a real OpenSearch
//! through Mitra, and in that OpenSearch with the original query text.
//!
//! `queries.txt` is the table. A note follows the last ` | ` of a line, and may begin with marks:
//!
//! ```text
//! size:[4096 TO *] | open at the top
//! a OR | [wrong 2] nothing follows      an error in both, in Mitra at that byte
//! NOT "..." | [none] no word is left    finds nothing; [all] finds everything;
//!                                       lines without a mark find some documents, but not all
//! host:(a b) | [and] …                  default operator AND, as OpenSearch's default_operator
//! size:>4k | [ours] …                   OpenSearch gets the text rewritten by Mitra
//! f:x | [differs] …                     a permanent difference, documented in docs/search.md
//! ```
//!
//! Random queries follow (`MITRA_SEED` selects others).

mod corpus;
mod grammar;
mod oracle;

#[path = "../engine/mod.rs"]
mod engine;
#[path = "../simulate/noise.rs"]
mod noise;

use std::collections::BTreeSet;

use mitra_search::backend::{Batch, Hit, Sink};
use mitra_search::embedded::{Index, Writer};
use mitra_search::query::Settings;
use mitra_search::{Backend, Day, Query, Scope};

use engine::Engine;
use noise::Noise;
use oracle::{Asked, Oracle};

const TABLE: &str = include_str!("queries.txt");
const RANDOM: usize = 500;
const SEED: u64 = 20_261_122;
/// More than the corpus has.
const LIMIT: usize = 10_000;
const PREFIX: &str = "conformance_";

/// A line of the table.
#[derive(Debug, Clone, Default)]
struct Line {
    text: String,
    wrong: Option<usize>,
    none: bool,
    all: bool,
    all_words: bool,
    ours: bool,
    differs: bool,
}

type Found = BTreeSet<(String, String, Day)>;

fn table() -> Vec<Line> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.map(line).collect()
}

fn line(text: &str) -> Line {
    let (query, mut note) = text.rsplit_once(" | ").unwrap_or_else(|| panic!("no note: {text}"));
    let mut line = Line { text: query.to_owned(), ..Line::default() };
    while let Some((mark, rest)) = note.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        match (mark, mark.strip_prefix("wrong ")) {
            (_, Some(at)) => line.wrong = Some(at.parse().expect("a byte")),
            ("none", _) => line.none = true,
            ("all", _) => line.all = true,
            ("and", _) => line.all_words = true,
            ("ours", _) => line.ours = true,
            ("differs", _) => line.differs = true,
            _ => panic!("what is [{mark}]? {text}"),
        }
        note = rest;
    }
    assert!(!note.is_empty(), "no note: {text}");
    line
}

fn settings(all_words: bool) -> Settings {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    Settings { now_ns: now.as_nanos() as i64, all_words }
}

#[test]
fn the_table_is_large_and_its_mistakes_have_places() {
    let table = table();
    let wrong: Vec<&Line> = table.iter().filter(|line| line.wrong.is_some()).collect();
    assert!(wrong.len() >= 25, "{} queries that cannot be read", wrong.len());
    assert!(table.len() - wrong.len() >= 120, "{} queries that can be read", table.len() - wrong.len());
    let distinct: BTreeSet<(&str, bool)> = table.iter().map(|l| (l.text.as_str(), l.all_words)).collect();
    assert_eq!(distinct.len(), table.len(), "a line is there twice");
    let mut bad = Vec::new();
    for line in &table {
        let found = Query::parse(&line.text, settings(line.all_words)).map_err(|e| (e.at.start, e.message));
        match (line.wrong, found) {
            (None, Ok(_)) => {}
            (Some(wanted), Err((at, _))) if at == wanted => {}
            (wanted, found) => bad.push(format!(
                "{}: wanted a mistake at {wanted:?}, found {:?}",
                line.text,
                found.map(|q| q.set.to_string())
            )),
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// The corpus in all back ends.
struct Places {
    /// One index as written, and one after maintenance ([`Writer::tidy`]).
    embedded: Vec<(&'static str, Backend)>,
    cluster: Backend,
    oracle: Oracle,
    all: Found,
}

fn load(engine: &Engine) -> Places {
    let mut cluster = engine.writer(PREFIX, "spool");
    let dirs = ["fresh", "tidied"].map(|name| engine.dir().join(name));
    for look in corpus::looks() {
        let batch =
            Batch { host: look.host, at_ns: look.at_ns, documents: &look.documents, gone: &look.gone };
        cluster.put(&batch).expect("taken");
    }
    assert_eq!((cluster.waiting(), cluster.messages()), (0, Vec::new()));
    cluster.cluster().refresh().expect("refreshed");
    let embedded = dirs.map(|dir| {
        let mut writer = Writer::open(&dir).expect("an index");
        for look in corpus::looks() {
            let batch =
                Batch { host: look.host, at_ns: look.at_ns, documents: &look.documents, gone: &look.gone };
            writer.put(&batch).expect("taken");
        }
        if dir.ends_with("tidied") {
            writer.tidy().expect("tidied");
        }
        Backend::Embedded(Index::open(&dir).expect("an index"))
    });
    let embedded = ["fresh", "tidied"].into_iter().zip(embedded).collect();
    let mut places = Places {
        embedded,
        cluster: Backend::OpenSearch(engine.cluster(PREFIX)),
        oracle: Oracle::new(engine, &engine.settings(PREFIX).prefix, scope()),
        all: Found::new(),
    };
    places.all = ask(&places.cluster, &Query::all()).expect("all");
    assert!(places.all.len() > 350, "{} documents", places.all.len());
    places
}

fn scope() -> Scope {
    Scope::Days { first: corpus::FIRST, last: Day(corpus::FIRST.0 + corpus::DAYS - 1) }
}

fn ask(backend: &Backend, query: &Query) -> Result<Found, String> {
    let page = backend.search(query, scope(), LIMIT).map_err(|e| e.to_string())?;
    if page.total != page.hits.len() as u64 || !page.hits.is_sorted_by(|a, b| key(a) < key(b)) {
        return Err(format!("{} hits of {} in disorder", page.hits.len(), page.total));
    }
    Ok(page.hits.iter().map(key).collect())
}

fn key(hit: &Hit) -> (String, String, Day) {
    (hit.host.clone(), hit.filename.clone(), hit.day)
}

#[test]
#[ignore = "starts an OpenSearch: make test-search"]
fn opensearch_and_every_other_back_end_find_the_same() {
    let Some(engine) = Engine::start(1) else { return };
    let places = load(&engine);
    let mut wrong = Vec::new();
    the_table(&places, &mut wrong);
    random_queries(&places, &mut wrong);
    let shown = wrong.iter().take(60).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} differences\n{shown}", wrong.len());
}

fn the_table(places: &Places, wrong: &mut Vec<String>) {
    let table = table();
    let asked: Vec<Asked> = table
        .iter()
        .map(|line| {
            let ours = Query::parse(&line.text, settings(line.all_words)).map(|query| query.text);
            let text = if line.ours { ours.unwrap_or_default() } else { line.text.clone() };
            Asked { text, all_words: line.all_words }
        })
        .collect();
    let answers = places.oracle.ask(&asked);
    for (line, raw) in table.iter().zip(answers) {
        let differences = compare(places, &line.text, line.all_words, &raw);
        if line.differs {
            if differences.is_empty() {
                wrong.push(format!("{}: is said to differ, and does not", line.text));
            }
            continue;
        }
        wrong.extend(differences);
        match &raw {
            Err(_) if line.wrong.is_none() => {
                wrong.push(format!("{}: refused by OpenSearch: {raw:?}", line.text))
            }
            Ok(_) if line.wrong.is_some() => wrong.push(format!("{}: taken by OpenSearch", line.text)),
            Ok(found) => {
                let (none, all) = (found.is_empty(), found.len() == places.all.len());
                if (none, all) != (line.none, line.all) {
                    wrong.push(format!("{}: finds {} of {}", line.text, found.len(), places.all.len()));
                }
            }
            Err(_) => {}
        }
    }
    println!("table: {} queries compared", table.len());
}

fn random_queries(places: &Places, wrong: &mut Vec<String>) {
    let seed = std::env::var("MITRA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED);
    let mut noise = Noise::new(seed);
    let asked: Vec<Asked> =
        (0..RANDOM).map(|_| Asked { text: grammar::query(&mut noise), all_words: noise.one_in(4) }).collect();
    let answers = places.oracle.ask(&asked);
    let (mut refused, mut some) = (0, 0);
    for (query, raw) in asked.iter().zip(answers) {
        match &raw {
            Err(_) => refused += 1,
            Ok(found) if !found.is_empty() && found.len() < places.all.len() => some += 1,
            Ok(_) => {}
        }
        let differences = compare(places, &query.text, query.all_words, &raw);
        wrong.extend(differences.into_iter().map(|difference| format!("seed {seed}: {difference}")));
    }
    println!("seed {seed}: {RANDOM} random queries, {refused} refused, {some} that find some and not all");
    // The random queries prove nothing if none of them finds anything.
    assert!(some * 2 > RANDOM, "seed {seed}: only {some} of {RANDOM} random queries find some and not all");
}

/// The differences between each back end and the oracle.
fn compare(places: &Places, text: &str, all_words: bool, raw: &Result<Found, String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let query = match (Query::parse(text, settings(all_words)), raw) {
        (Ok(query), Ok(_)) => query,
        (Ok(query), Err(why)) => {
            return vec![format!("{text}: OpenSearch refuses ({why}), here it means {}", query.set)];
        }
        (Err(e), Ok(found)) => {
            let count = found.len();
            return vec![format!("{text}: refused here ({e} at {:?}), OpenSearch finds {count}", e.at)];
        }
        (Err(_), Err(_)) => return wrong,
    };
    let Ok(raw) = raw else { return wrong };
    let embedded = places.embedded.iter().map(|(name, backend)| (*name, backend));
    for (name, backend) in embedded.chain([("cluster", &places.cluster)]) {
        match ask(backend, &query) {
            Ok(found) if found == *raw => {}
            Ok(found) => {
                let more: Vec<_> = found.difference(raw).take(2).collect();
                let less: Vec<_> = raw.difference(&found).take(2).collect();
                wrong.push(format!(
                    "{text}  ({}{name}: {} found, {} wanted)\n   means {}\n   too many {more:?}\n   missing {less:?}",
                    if all_words { "and, " } else { "" },
                    found.len(),
                    raw.len(),
                    query.set
                ));
            }
            Err(why) => wrong.push(format!("{text}  ({name}: {why})")),
        }
    }
    wrong
}
