//! Incidents and findings of a fleet: one small document each, in an index per month.
//!
//! ```json
//! {"schema": "mitra.fleet/1", "kind": "incident", "host": "web1", "begin": "2026-11-21T14:03:07Z",
//!  "end": "2026-11-21T14:09:31Z", "open": false, "root": "disk-hog", "unexplained": false,
//!  "culprit": {"kind": "process", "name": "dd", "group": "backup.service"}, "confidence": 0.97,
//!  "strength": 0.9, "cost": 512.5, "line": "…", "kernel": "6.1.0-18-amd64", "mitra": "0.2.0",
//!  "tags": ["db"]}
//! ```
//!
//! The id follows from the host and the incident, and the index from its begin. A document that is
//! sent again replaces itself. The mapping is strict: a document with another field is refused, so
//! that the number of fields never grows.

use serde_json::{Map, Value as Json, json};

use crate::document::sha256;
use crate::error::Error;

use super::Cluster;
use super::http::{Body, Request};
use super::nodes::{Outcome, error};
use super::search::escape;
use super::template::{PRIORITY, installed, signed};
use super::time;

/// The contract of a document.
pub const SCHEMA: &str = "mitra.fleet/1";
/// Incremented when an older template would do harm. An older Mitra leaves a newer template alone.
const VERSION: u64 = 1;
/// Longer names are cut, in characters. A name of a process or a unit is shorter.
const NAME_MAX: usize = 256;
/// A longer first line is cut, in characters.
const LINE_MAX: usize = 400;
/// Maximum number of tags of a host.
pub const TAGS_MAX: usize = 20;
/// For how many days incidents are kept, unless `mitra fleet setup` is told otherwise.
pub const KEEP_DAYS: u32 = 400;

/// What a document is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// An incident.
    Incident,
    /// Something that is no incident yet.
    Finding,
}

impl RecordKind {
    /// The name in documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RecordKind::Incident => "incident",
            RecordKind::Finding => "finding",
        }
    }
}

/// Who caused it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FleetCulprit {
    /// `process`, `device`, `path`, …; `None` if nobody is known.
    pub kind: Option<String>,
    /// Its name, without a process id.
    pub name: Option<String>,
    /// Its unit, slice, container or pod.
    pub group: Option<String>,
}

/// An incident or a finding of a host.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// What it is.
    pub kind: RecordKind,
    /// The same for all states of an incident, and for a finding on one day.
    pub key: String,
    /// The host, as the indexer calls it.
    pub host: String,
    /// When it began; of a finding, when it was first told that day. Nanoseconds since 1970.
    pub begin_ns: i64,
    /// When it ended. `None` while it goes on, and for a finding.
    pub end_ns: Option<i64>,
    /// The id of the condition that is its root cause.
    pub root: String,
    /// Whether the cause was not found.
    pub unexplained: bool,
    /// Who caused it.
    pub culprit: FleetCulprit,
    /// From 0 to 1.
    pub confidence: f64,
    /// From 0 to 1: how much of the evidence was there.
    pub strength: Option<f64>,
    /// Lost task-seconds, or what clients waited if that is more. `None` if it was not measured.
    pub cost: Option<f64>,
    /// The verdict in one line.
    pub line: String,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Mitra's version.
    pub mitra: String,
    /// What the configuration calls the host.
    pub tags: Vec<String>,
}

impl Record {
    /// The id of the document.
    #[must_use]
    pub fn id(&self) -> String {
        sha256(format!("{}_{}_{}", self.kind.name(), self.host, self.key).as_bytes())
    }

    /// The document.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let mut to = Map::new();
        let mut put = |name: &str, value: Json| {
            to.insert(name.to_owned(), value);
        };
        put("schema", json!(SCHEMA));
        put("kind", json!(self.kind.name()));
        put("host", json!(cut(&self.host, NAME_MAX)));
        put("begin", json!(time::write(self.begin_ns)));
        if let Some(end) = self.end_ns {
            put("end", json!(time::write(end)));
        }
        put("open", json!(self.kind == RecordKind::Incident && self.end_ns.is_none()));
        put("root", json!(cut(&self.root, NAME_MAX)));
        put("unexplained", json!(self.unexplained));
        let FleetCulprit { kind, name, group } = &self.culprit;
        let mut culprit = Map::new();
        for (key, value) in [("kind", kind), ("name", name), ("group", group)] {
            if let Some(value) = value {
                culprit.insert(key.to_owned(), json!(cut(value, NAME_MAX)));
            }
        }
        put("culprit", Json::Object(culprit));
        put("confidence", json!(self.confidence));
        // NaN and infinity are no JSON.
        for (key, value) in [("strength", self.strength), ("cost", self.cost)] {
            if let Some(value) = value.filter(|v| v.is_finite()) {
                put(key, json!(value));
            }
        }
        put("line", json!(cut(&self.line, LINE_MAX)));
        if let Some(kernel) = &self.kernel {
            put("kernel", json!(cut(kernel, NAME_MAX)));
        }
        put("mitra", json!(cut(&self.mitra, NAME_MAX)));
        if !self.tags.is_empty() {
            let tags: Vec<String> = self.tags.iter().take(TAGS_MAX).map(|t| cut(t, NAME_MAX)).collect();
            put("tags", json!(tags));
        }
        Json::Object(to)
    }

    /// Parses a document.
    pub(super) fn read(source: &Json) -> Result<Self, Error> {
        let odd = || Error::Refused("a document in the cluster that Mitra did not write".to_owned());
        let text = |at: &str| source.pointer(at).and_then(Json::as_str).map(str::to_owned);
        let moment = |at: &str| text(at).as_deref().and_then(time::read);
        let number = |at: &str| source.pointer(at).and_then(Json::as_f64);
        let kind = match source.get("kind").and_then(Json::as_str) {
            Some("incident") => RecordKind::Incident,
            Some("finding") => RecordKind::Finding,
            _ => return Err(odd()),
        };
        let tags = source.get("tags").and_then(Json::as_array).into_iter().flatten();
        Ok(Self {
            kind,
            key: String::new(),
            host: text("/host").ok_or_else(odd)?,
            begin_ns: moment("/begin").ok_or_else(odd)?,
            end_ns: moment("/end"),
            root: text("/root").ok_or_else(odd)?,
            unexplained: source.get("unexplained") == Some(&Json::Bool(true)),
            culprit: FleetCulprit {
                kind: text("/culprit/kind"),
                name: text("/culprit/name"),
                group: text("/culprit/group"),
            },
            confidence: number("/confidence").unwrap_or(f64::NAN),
            strength: number("/strength"),
            cost: number("/cost"),
            line: text("/line").unwrap_or_default(),
            kernel: text("/kernel"),
            mitra: text("/mitra").unwrap_or_default(),
            tags: tags.filter_map(Json::as_str).map(str::to_owned).collect(),
        })
    }
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned(),
        None => text.to_owned(),
    }
}

/// The template for index names that match a pattern (`mitra_incidents_*`).
#[must_use]
pub fn template(pattern: &str) -> Json {
    let keyword = json!({"type": "keyword", "ignore_above": NAME_MAX});
    signed(json!({
        "index_patterns": [pattern],
        // Above that of the documents of state, whose pattern matches these names, too.
        "priority": PRIORITY + 1,
        "_meta": {"written_by": "mitra", "version": VERSION},
        "template": {
            "settings": {"index": {
                "number_of_shards": 1,
                "auto_expand_replicas": "0-1",
                "codec": "best_compression",
                "refresh_interval": "10s",
            }},
            "mappings": {
                "dynamic": "strict",
                "date_detection": false,
                "numeric_detection": false,
                "properties": {
                    "schema": {"type": "keyword", "index": false},
                    "kind": keyword,
                    "host": keyword,
                    "begin": {"type": "date"},
                    "end": {"type": "date"},
                    "open": {"type": "boolean"},
                    "root": keyword,
                    "unexplained": {"type": "boolean"},
                    "culprit": {"dynamic": "strict", "properties": {"kind": keyword, "name": keyword, "group": keyword}},
                    "confidence": {"type": "float"},
                    "strength": {"type": "float"},
                    "cost": {"type": "double"},
                    "line": {"type": "keyword", "index": false, "doc_values": false},
                    "kernel": keyword,
                    "mitra": keyword,
                    "tags": keyword,
                },
            },
        },
    }))
}

/// The policy of OpenSearch's Index State Management that deletes old months.
#[must_use]
pub fn policy(pattern: &str, days: u32) -> Json {
    json!({"policy": {
        "description": "Mitra: how long incidents and findings are kept",
        "default_state": "kept",
        "states": [
            {"name": "kept", "actions": [], "transitions": [
                {"state_name": "deleted", "conditions": {"min_index_age": format!("{days}d")}},
            ]},
            {"name": "deleted", "actions": [{"delete": {}}], "transitions": []},
        ],
        "ism_template": [{"index_patterns": [pattern], "priority": 100}],
    }})
}

/// What became of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyState {
    /// It is installed now.
    Installed,
    /// It was there.
    Unchanged,
    /// The cluster has no Index State Management: Elasticsearch, or OpenSearch without the plugin.
    /// Nothing is deleted.
    Unsupported,
}

impl Cluster {
    /// The name of the template and of the policy of incidents.
    #[must_use]
    pub fn incidents_name(&self) -> String {
        format!("{}-incidents", self.names.template())
    }

    /// The pattern of the indices of incidents.
    #[must_use]
    pub fn incidents_pattern(&self) -> String {
        self.names.incidents_pattern()
    }

    /// Installs the template of incidents, unless the cluster has the same or a newer one. Returns
    /// whether it was missing.
    pub fn install_incidents(&self) -> Result<bool, Error> {
        installed(self, &self.incidents_name(), template(&self.incidents_pattern()), VERSION)
    }

    /// Installs the retention policy.
    pub fn install_policy(&self, days: u32) -> Result<PolicyState, Error> {
        let path = format!("/_plugins/_ism/policies/{}", escape(&self.incidents_name()));
        let wanted = policy(&self.incidents_pattern(), days);
        let has = match self.nodes.ask(Request { method: "GET", path: &path, body: Body::None })? {
            Outcome::Reply(reply) if reply.is_ok() => Some(reply.body),
            Outcome::Reply(reply) if reply.status == 404 && !reply.error_type().is_empty() => None,
            // Nobody handles this address.
            Outcome::Reply(reply) if matches!(reply.status, 400 | 404 | 405) => {
                return Ok(PolicyState::Unsupported);
            }
            Outcome::Reply(reply) => return Err(error(&reply)),
            Outcome::TooLarge => return Err(Error::Cannot(format!("{path}: the answer is too large"))),
        };
        let age = "/policy/states/0/transitions/0/conditions/min_index_age";
        if has.as_ref().is_some_and(|has| has.pointer(age) == wanted.pointer(age)) {
            return Ok(PolicyState::Unchanged);
        }
        let number = |name: &str| has.as_ref().and_then(|has| has.get(name)).and_then(Json::as_i64);
        // An update has to name the version that it replaces.
        let version = match (number("_seq_no"), number("_primary_term")) {
            (Some(seq), Some(term)) => format!("?if_seq_no={seq}&if_primary_term={term}"),
            _ => String::new(),
        };
        let body = wanted.to_string();
        let path = format!("{path}{version}");
        self.nodes.json(Request { method: "PUT", path: &path, body: Body::Json(body.as_bytes()) })?;
        Ok(PolicyState::Installed)
    }

    /// Stores a document. One with the same id is replaced.
    pub fn put_record(&self, record: &Record) -> Result<(), Error> {
        let index = self.names.incidents(record.begin_ns);
        let path = format!("/{}/_doc/{}", escape(&index), record.id());
        let body = record.to_json().to_string();
        self.nodes.json(Request { method: "PUT", path: &path, body: Body::Json(body.as_bytes()) })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::cluster;
    use super::*;

    fn record() -> Record {
        Record {
            kind: RecordKind::Incident,
            key: "web1-2026-11-21T14:03:07.000Z".to_owned(),
            host: "web1".to_owned(),
            begin_ns: 1_795_232_227_000_000_000,
            end_ns: Some(1_795_232_287_500_000_000),
            root: "disk-hog".to_owned(),
            unexplained: false,
            culprit: FleetCulprit {
                kind: Some("process".to_owned()),
                name: Some("dd".to_owned()),
                group: None,
            },
            confidence: 0.97,
            strength: None,
            cost: Some(12.5),
            line: "dd wrote 500 MB/s".to_owned(),
            kernel: Some("6.1.0".to_owned()),
            mitra: "0.2.0".to_owned(),
            tags: vec!["db".to_owned()],
        }
    }

    #[test]
    fn a_document_is_written_and_read() {
        let whole = record();
        assert_eq!(Record::read(&whole.to_json()).unwrap(), Record { key: String::new(), ..whole.clone() });
        let bare = Record {
            kind: RecordKind::Finding,
            end_ns: None,
            culprit: FleetCulprit::default(),
            cost: None,
            kernel: None,
            tags: Vec::new(),
            ..whole
        };
        assert_eq!(Record::read(&bare.to_json()).unwrap(), Record { key: String::new(), ..bare.clone() });
        assert_eq!(bare.to_json()["open"], json!(false));
        assert!(Record::read(&json!({"kind": "incident"})).is_err());
    }

    #[test]
    fn the_id_is_that_of_the_incident_and_not_of_its_state() {
        let begun = Record { end_ns: None, root: "other".to_owned(), ..record() };
        assert_eq!(begun.id(), record().id());
        assert_ne!(Record { host: "web2".to_owned(), ..record() }.id(), record().id());
        assert_ne!(Record { kind: RecordKind::Finding, ..record() }.id(), record().id());
    }

    /// The keys of an object and of those below it.
    fn keys(of: &Json, before: &str) -> Vec<String> {
        let all = of.as_object().into_iter().flatten();
        all.flat_map(|(name, value)| match value {
            Json::Object(_) => keys(value, &format!("{before}{name}.")),
            _ => vec![format!("{before}{name}")],
        })
        .collect()
    }

    #[test]
    fn each_field_of_a_document_is_in_the_strict_mapping() {
        let made = template("mitra_incidents_*");
        assert_eq!(made["template"]["mappings"]["dynamic"], "strict");
        let properties = &made["template"]["mappings"]["properties"];
        let full = Record {
            culprit: FleetCulprit { group: Some("x".to_owned()), ..record().culprit },
            strength: Some(1.0),
            ..record()
        };
        let found = keys(&full.to_json(), "");
        assert_eq!(found.len(), 18);
        for name in found {
            let at = format!("/{}/type", name.replace('.', "/properties/"));
            assert!(properties.pointer(&at).is_some(), "{name}");
        }
    }

    #[test]
    fn the_dashboard_names_fields_and_objects_that_there_are() {
        let file = include_str!("../../../../packaging/opensearch-dashboards/mitra-fleet.ndjson");
        let all: Vec<Json> = file.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let template = template("mitra_incidents_*");
        let properties = &template["template"]["mappings"]["properties"];
        let inner = |of: &Json, at: &str| -> Json {
            serde_json::from_str(of.pointer(at).and_then(Json::as_str).unwrap_or("[]")).unwrap()
        };
        let mut fields = 0;
        for object in &all {
            for reference in object["references"].as_array().unwrap() {
                let is_it = |o: &&Json| o["id"] == reference["id"] && o["type"] == reference["type"];
                assert!(all.iter().any(|o| is_it(&o)), "{reference}");
            }
            let state = inner(object, "/attributes/visState");
            for agg in state.get("aggs").and_then(Json::as_array).into_iter().flatten() {
                let Some(field) = agg.pointer("/params/field").and_then(Json::as_str) else { continue };
                let at = format!("/{}/type", field.replace('.', "/properties/"));
                assert!(properties.pointer(&at).is_some(), "{field}");
                fields += 1;
            }
        }
        let dashboard = all.iter().find(|o| o["type"] == "dashboard").unwrap();
        let panels = inner(dashboard, "/attributes/panelsJSON").as_array().unwrap().len();
        assert_eq!((panels, fields), (dashboard["references"].as_array().unwrap().len(), 13));
    }

    #[test]
    fn texts_are_bounded() {
        let long = Record {
            line: "ä".repeat(9_000),
            tags: vec!["t".repeat(900); 90],
            root: "r".repeat(900),
            ..record()
        };
        let made = long.to_json();
        assert_eq!(made["line"].as_str().unwrap().chars().count(), LINE_MAX);
        assert_eq!(made["tags"].as_array().unwrap().len(), TAGS_MAX);
        assert_eq!(made["root"].as_str().unwrap().len(), NAME_MAX);
        assert!(!Record { cost: Some(f64::NAN), ..record() }.to_json().to_string().contains("cost"));
    }

    #[test]
    fn a_policy_is_installed_kept_and_updated() {
        let none =
            json!({"error": {"type": "status_exception", "reason": "Policy not found"}, "status": 404});
        let has = |days: u32| {
            let mut has = policy("mitra_incidents_*", days);
            has["_seq_no"] = json!(7);
            has["_primary_term"] = json!(2);
            has
        };
        let (missing, asked) = cluster(vec![(404, none), (201, json!({}))]);
        assert_eq!(missing.install_policy(90).unwrap(), PolicyState::Installed);
        let asked = asked.lock().unwrap().clone();
        assert!(asked[1].starts_with("PUT /_plugins/_ism/policies/mitra-incidents {"), "{asked:?}");
        assert!(asked[1].contains("\"90d\"") && asked[1].contains("mitra_incidents_*"), "{asked:?}");
        let (same, _) = cluster(vec![(200, has(90))]);
        assert_eq!(same.install_policy(90).unwrap(), PolicyState::Unchanged);
        let (other, asked) = cluster(vec![(200, has(400)), (200, json!({}))]);
        assert_eq!(other.install_policy(90).unwrap(), PolicyState::Installed);
        assert!(asked.lock().unwrap()[1].contains("?if_seq_no=7&if_primary_term=2 "));
        let nobody = json!({"error": "no handler found for uri [/_plugins/_ism/policies/mitra-incidents] and method [GET]"});
        let (without, _) = cluster(vec![(400, nobody)]);
        assert_eq!(without.install_policy(90).unwrap(), PolicyState::Unsupported);
        let (forbidden, _) = cluster(vec![(403, json!({"error": {"type": "security_exception"}}))]);
        assert!(forbidden.install_policy(90).is_err());
    }
}
