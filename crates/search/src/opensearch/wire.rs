//! Converts documents to the cluster's JSON and back.
//!
//! ```json
//! {"host": "web1", "filename": "@sysctl", "kind": "sysctl",
//!  "content": "vm.swappiness = 60\n", "hash": "5f…",
//!  "sysctl.vm.swappiness": 60, "time": "2026-11-21T03:37:12.5Z", "day": "2026-11-21",
//!  "mitra": {"since": 1795232232500000000, "before": 1795232230000000000, "state": "9c…"}}
//! ```
//!
//! The object `mitra` is for Mitra itself. It has the times in nanoseconds, which the type `date`
//! lacks, and a digest of the state. `mitra.facts` keeps the values that do not fit the type of
//! their field. They are not searchable.

use serde_json::{Map, Number, Value as Json, json};

use crate::day::Day;
use crate::document::{Document, Facts, Kind, Stat, Value, Withheld, hex};
use crate::fields::{self, Type};

use super::time;

/// Maximum number of parts of a field name. The cluster has a limit as well
/// (`index.mapping.depth.limit`).
const DEPTH_MAX: usize = 16;

/// What is stored with a state besides the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct About {
    /// The day of the index.
    pub day: Day,
    /// In the history: when the state was replaced.
    pub until_ns: Option<i64>,
    /// The time of the host's pass before. It marks the state as a change, and is set only on the
    /// day of the change.
    pub before_ns: Option<i64>,
    /// The digest of the state, see [`state`].
    pub state: String,
}

/// The digest of a document's state, in hexadecimal.
pub(super) fn state(document: &Document) -> String {
    hex(&document.state_digest())
}

impl Document {
    /// The document as JSON under its field names, with its id, for programs.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let about =
            About { day: Day::of(self.since_ns), until_ns: None, before_ns: None, state: String::new() };
        let mut all = write(self, &about);
        // These belong to an index and not to the document.
        all.remove("day");
        all.remove("mitra");
        all.insert("id".to_owned(), json!(self.id()));
        Json::Object(all)
    }
}

/// The cluster's JSON for a document and its state.
pub(super) fn write(document: &Document, about: &About) -> Map<String, Json> {
    let mut to = Map::new();
    let mut put = |name: &str, value: Json| {
        to.insert(name.to_owned(), value);
    };
    put("host", json!(document.host));
    put("filename", json!(document.filename));
    put("kind", json!(document.kind.name()));
    put("time", json!(time::write(document.since_ns)));
    put("day", json!(about.day.to_string()));
    if let Some(text) = &document.content {
        put("content", json!(text));
        put("hash", json!(document.hash()));
    }
    if let Some(link) = &document.link {
        put("link", json!(link));
    }
    if !document.flags.is_empty() {
        put("flags", document.flags.iter().map(|f| f.name()).collect());
    }
    if document.withheld != Withheld::default() {
        let Withheld { count, reasons, keys } = &document.withheld;
        put("withheld", json!({"count": count, "reason": reasons, "key": keys}));
    }
    let mut own = Map::new();
    own.insert("since".to_owned(), json!(document.since_ns));
    own.insert("state".to_owned(), json!(about.state));
    if let Some(until) = about.until_ns {
        own.insert("until".to_owned(), json!(until));
        to.insert("until".to_owned(), json!(time::write(until)));
    }
    if let Some(before) = about.before_ns {
        own.insert("before".to_owned(), json!(before));
    }
    if let Some(stat) = &document.stat {
        write_stat(stat, &mut to, &mut own);
    }
    write_facts(&document.facts, &mut to, &mut own);
    to.insert("mitra".to_owned(), Json::Object(own));
    to
}

/// Sets when the state began.
pub(super) fn set_since(source: &mut Map<String, Json>, since_ns: i64) {
    source.insert("time".to_owned(), json!(time::write(since_ns)));
    if let Some(own) = source.get_mut("mitra").and_then(Json::as_object_mut) {
        own.insert("since".to_owned(), json!(since_ns));
    }
}

fn write_stat(stat: &Stat, to: &mut Map<String, Json>, own: &mut Map<String, Json>) {
    for (name, n) in [("size", stat.size), ("inode", stat.inode)] {
        // The type `long` is signed, but some file systems use all 64 bits of an inode number.
        to.insert(name.to_owned(), json!(i64::try_from(n).unwrap_or(i64::MAX)));
        if i64::try_from(n).is_err() {
            own.insert(name.to_owned(), json!(n.to_string()));
        }
    }
    to.insert("mode".to_owned(), json!(format!("{:04o}", stat.mode)));
    to.insert("uid".to_owned(), json!(stat.uid));
    to.insert("gid".to_owned(), json!(stat.gid));
    to.insert("mtime".to_owned(), json!(time::write(stat.mtime_ns)));
    to.insert("ctime".to_owned(), json!(time::write(stat.ctime_ns)));
    for (name, text) in [("user", &stat.user), ("group", &stat.group)] {
        if let Some(text) = text {
            to.insert(name.to_owned(), json!(text));
        }
    }
}

fn write_facts(facts: &Facts, to: &mut Map<String, Json>, own: &mut Map<String, Json>) {
    let mut odd = Map::new();
    for (name, values) in facts {
        let kind = kind_of(name);
        let fitting: Vec<Json> = values.iter().filter_map(|v| kind.and_then(|k| plain(k, v))).collect();
        // A fraction may lose its last bit in decimal form, so its exact bits are stored as well.
        let whole = |v: &Value| !matches!(v, Value::Number(n) if !is_whole(*n));
        if fitting.len() != values.len() || values.is_empty() || !values.iter().all(whole) {
            odd.insert(name.clone(), values.iter().map(typed).collect());
        }
        match <[Json; 1]>::try_from(fitting) {
            Ok([one]) => {
                to.insert(name.clone(), one);
            }
            Err(none) if none.is_empty() => {}
            Err(several) => {
                to.insert(name.clone(), Json::Array(several));
            }
        }
    }
    if !odd.is_empty() {
        own.insert("facts".to_owned(), Json::Object(odd));
    }
}

/// Makes the values of field families (`sysctl.*`, `package.*`) unsearchable, for an index that has
/// reached its field limit. They are kept under `mitra.facts`. `None` if there are none.
pub(super) fn without_families(source: &Map<String, Json>) -> Option<Map<String, Json>> {
    let (document, _) = read(&Json::Object(source.clone())).ok()?;
    let (mut to, mut odd) = (source.clone(), Map::new());
    for (name, values) in &document.facts {
        if fields::field(name).is_some_and(|f| f.name.ends_with(".*")) {
            to.remove(name);
            odd.insert(name.clone(), values.iter().map(typed).collect());
        }
    }
    if odd.is_empty() {
        return None;
    }
    let own = to.get_mut("mitra").and_then(Json::as_object_mut)?;
    match own.get_mut("facts").and_then(Json::as_object_mut) {
        Some(facts) => facts.extend(odd),
        None => {
            own.insert("facts".to_owned(), Json::Object(odd));
        }
    }
    Some(to)
}

/// The type of a fact; `None` if its name cannot be that of a field.
fn kind_of(name: &str) -> Option<Type> {
    let parts = name.split('.');
    let well = parts.clone().count() <= DEPTH_MAX && parts.clone().all(|p| !p.trim().is_empty());
    // These are fields of the document itself, not facts.
    let own = ["mitra", "withheld", "until"].contains(&fields::family(name)) || !name.contains('.');
    if well && !own { fields::field(name).map(|f| f.kind) } else { None }
}

/// The cluster's JSON for a value; `None` if the value does not fit the type.
fn plain(kind: Type, value: &Value) -> Option<Json> {
    match (kind, value) {
        (Type::Keyword, Value::Text(text)) if fields::is_short(text) => Some(json!(text)),
        (Type::Double, Value::Number(n)) => number(*n),
        (Type::Long, Value::Number(n)) if n.fract() == 0.0 && n.abs() < 9e18 && !is_minus_zero(*n) => {
            Some(json!(*n as i64))
        }
        (Type::Date, Value::Time(ns)) => Some(json!(time::write(*ns))),
        _ => None,
    }
}

/// A number as JSON. Integers get no decimal point, so that they are read back unchanged.
fn number(n: f64) -> Option<Json> {
    if is_whole(n) {
        return Some(json!(n as i64));
    }
    Number::from_f64(n).map(Json::Number)
}

/// Whether a number is an integer in the range in which f64 represents every integer.
fn is_whole(n: f64) -> bool {
    const WHOLE_MAX: f64 = (1_u64 << 53) as f64;
    n.fract() == 0.0 && n.abs() <= WHOLE_MAX && !is_minus_zero(n)
}

fn is_minus_zero(n: f64) -> bool {
    n == 0.0 && n.is_sign_negative()
}

/// A value together with its type.
fn typed(value: &Value) -> Json {
    match value {
        Value::Text(text) => json!({"text": text}),
        Value::Number(n) => json!({"number": n.to_bits().to_string()}),
        Value::Time(ns) => json!({"time": ns}),
    }
}

/// Parses the cluster's JSON.
pub(super) fn read(source: &Json) -> Result<(Document, About), String> {
    let from = source.as_object().ok_or("a document that is no object")?;
    let own = from.get("mitra").and_then(Json::as_object).ok_or("a document that Mitra did not write")?;
    let text = |name: &str| from.get(name).and_then(Json::as_str).map(str::to_owned);
    let must = |name: &str| text(name).ok_or_else(|| format!("a document without {name}"));
    let list = |name: &str| from.get(name).map(texts).unwrap_or_default();
    let withheld = from.get("withheld").map(|w| Withheld {
        count: w.get("count").and_then(Json::as_u64).and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
        reasons: w.get("reason").map(texts).unwrap_or_default(),
        keys: w.get("key").map(texts).unwrap_or_default(),
    });
    let document = Document {
        host: must("host")?,
        filename: must("filename")?,
        kind: must("kind")?.parse::<Kind>()?,
        content: text("content"),
        stat: from.contains_key("mode").then(|| read_stat(from, own)).flatten(),
        facts: read_facts(from, own),
        // Ignores flags that only a newer Mitra knows.
        flags: list("flags").iter().filter_map(|f| f.parse().ok()).collect(),
        link: text("link"),
        withheld: withheld.unwrap_or_default(),
        since_ns: own.get("since").and_then(Json::as_i64).ok_or("a document without its time")?,
    };
    let about = About {
        day: must("day")?.parse()?,
        until_ns: own.get("until").and_then(Json::as_i64),
        before_ns: own.get("before").and_then(Json::as_i64),
        state: own.get("state").and_then(Json::as_str).unwrap_or_default().to_owned(),
    };
    Ok((document, about))
}

fn texts(value: &Json) -> Vec<String> {
    match value {
        Json::String(one) => vec![one.clone()],
        Json::Array(list) => list.iter().filter_map(Json::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

fn read_stat(from: &Map<String, Json>, own: &Map<String, Json>) -> Option<Stat> {
    let whole = |name: &str| match own.get(name).and_then(Json::as_str) {
        Some(large) => large.parse().ok(),
        None => from.get(name).and_then(Json::as_u64),
    };
    let short = |name: &str| from.get(name).and_then(Json::as_u64).and_then(|n| u32::try_from(n).ok());
    let moment = |name: &str| from.get(name).and_then(Json::as_str).and_then(time::read);
    let text = |name: &str| from.get(name).and_then(Json::as_str).map(str::to_owned);
    Some(Stat {
        size: whole("size")?,
        mode: u32::from_str_radix(from.get("mode")?.as_str()?, 8).ok()?,
        uid: short("uid")?,
        gid: short("gid")?,
        user: text("user"),
        group: text("group"),
        inode: whole("inode")?,
        mtime_ns: moment("mtime")?,
        ctime_ns: moment("ctime")?,
    })
}

fn read_facts(from: &Map<String, Json>, own: &Map<String, Json>) -> Facts {
    let mut facts = Facts::new();
    for (name, value) in from {
        let Some(kind) = kind_of(name) else { continue };
        let values: Vec<Value> = match value {
            Json::Array(list) => list.iter().filter_map(|v| read_plain(kind, v)).collect(),
            one => read_plain(kind, one).into_iter().collect(),
        };
        facts.insert(name.clone(), values);
    }
    if let Some(odd) = own.get("facts").and_then(Json::as_object) {
        for (name, values) in odd {
            let values = values.as_array().map(|l| l.iter().filter_map(read_typed).collect());
            facts.insert(name.clone(), values.unwrap_or_default());
        }
    }
    facts
}

/// Parses a value of a field of this type.
fn read_plain(kind: Type, value: &Json) -> Option<Value> {
    match kind {
        Type::Keyword | Type::Text => value.as_str().map(|t| Value::Text(t.to_owned())),
        Type::Long | Type::Double => value.as_f64().map(Value::Number),
        Type::Date | Type::Day => value.as_str().and_then(time::read).map(Value::Time),
    }
}

fn read_typed(value: &Json) -> Option<Value> {
    if let Some(text) = value.get("text") {
        return text.as_str().map(|t| Value::Text(t.to_owned()));
    }
    if let Some(bits) = value.get("number") {
        return bits.as_str()?.parse().ok().map(|b| Value::Number(f64::from_bits(b)));
    }
    value.get("time").and_then(Json::as_i64).map(Value::Time)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::document::Flag;

    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            ".{0,12}".prop_map(Value::Text),
            any::<f64>().prop_filter("equality", |n| !n.is_nan()).prop_map(Value::Number),
            (-1_000_i64..1_000).prop_map(|n| Value::Number(n as f64)),
            any::<i64>().prop_map(Value::Time),
        ]
    }

    fn any_name() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("sysctl.vm.swappiness".to_owned()),
            Just("package.zsh".to_owned()),
            Just("kernel.tainted".to_owned()),
            Just("timer.last".to_owned()),
            Just("nobody.knows".to_owned()),
            Just("host".to_owned()),
            Just("sysctl.a..b".to_owned()),
            "sysctl\\.[a-z]{1,4}".prop_map(|s| s),
        ]
    }

    prop_compose! {
        fn any_stat()(size: u64, mode in 0_u32..0o10000, uid: u32, gid: u32, user: Option<bool>, inode: u64, mtime_ns: i64,
                      ctime_ns: i64) -> Stat {
            Stat { size, mode, uid, gid, user: user.map(|u| u.to_string()), group: None, inode, mtime_ns, ctime_ns }
        }
    }

    prop_compose! {
        fn any_document()(content in prop::option::of(".{0,40}"), stat in prop::option::of(any_stat()),
                          facts in prop::collection::btree_map(any_name(), prop::collection::vec(any_value(), 0..3), 0..5),
                          gone: bool, link in prop::option::of("/.{0,9}"), count in 0_u32..3, since_ns: i64) -> Document {
            let withheld = Withheld { count, reasons: vec!["password".into(); count as usize], keys: Vec::new() };
            let flags = if gone { vec![Flag::Redacted, Flag::Gone] } else { Vec::new() };
            Document { host: "web1".into(), filename: "/etc/hosts".into(), kind: Kind::File, content, stat, facts, flags, link,
                       withheld, since_ns }
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(document in any_document(), day in 0_i32..40_000, until_ns: Option<i64>, before_ns: Option<i64>) {
            let about = About { day: Day(day), until_ns, before_ns, state: state(&document) };
            let text = serde_json::to_string(&write(&document, &about)).unwrap();
            let (read, also) = read(&serde_json::from_str(&text).unwrap()).unwrap();
            prop_assert_eq!(&read, &document);
            prop_assert_eq!(&also, &about);
            prop_assert_eq!(state(&read), about.state);
        }

        #[test]
        fn families_go_where_they_are_kept(document in any_document()) {
            let about = About { day: Day(1), until_ns: None, before_ns: None, state: state(&document) };
            if let Some(less) = without_families(&write(&document, &about)) {
                prop_assert!(!less.keys().any(|k| k.starts_with("sysctl.") || k.starts_with("package.")));
                prop_assert_eq!(read(&Json::Object(less)).unwrap().0, document);
            }
        }

        #[test]
        fn states_differ_when_documents_do(a in any_document(), b in any_document()) {
            prop_assert_eq!(a.same_state(&b), state(&a) == state(&b));
        }
    }

    #[test]
    fn whole_numbers_have_no_point() {
        assert_eq!(number(60.0), Some(json!(60)));
        assert_eq!(number(0.5), Some(json!(0.5)));
        assert_eq!(number(1.844_674_407_370_955_2e19).map(|n| n.is_f64()), Some(true));
        assert_eq!(number(f64::INFINITY), None);
        assert_eq!(plain(Type::Long, &Value::Number(1.5)), None);
        assert_eq!(plain(Type::Keyword, &Value::Text("x".repeat(fields::KEYWORD_MAX + 1))), None);
        let long = "\u{e9}".repeat(fields::KEYWORD_MAX);
        assert_eq!(
            plain(Type::Keyword, &Value::Text(long.clone())),
            Some(json!(long)),
            "characters count, not bytes"
        );
    }

    #[test]
    fn what_others_wrote_is_refused() {
        for wrong in [
            json!(1),
            json!({}),
            json!({"mitra": {}}),
            json!({"mitra": {"since": 1}, "host": "a", "filename": "b"}),
        ] {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
    }
}
