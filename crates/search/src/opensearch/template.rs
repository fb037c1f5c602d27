//! The index template, generated from the table of fields, so that the cluster types a value by its
//! field's name, as Mitra does.

use serde_json::{Map, Value, json};

use crate::analysis::WORD_MAX;
use crate::document::sha256;
use crate::error::Error;
use crate::fields::{self, ALIASES, FIELDS, KEYWORD_MAX, Type, sysctl};

use super::Cluster;
use super::http::{Body, Request};
use super::nodes::{Outcome, error};

/// Incremented when an older template would do harm. An older Mitra leaves a newer template alone.
const VERSION: u64 = 2;
/// Maximum number of fields per index. The sysctl settings and packages of a fleet are thousands of
/// fields.
const FIELDS_MAX: u32 = 20_000;
/// Higher than that of the templates that come with a cluster.
pub(super) const PRIORITY: u32 = 200;

/// The template for index names that match a pattern (`mitra_*`).
#[must_use]
pub fn template(pattern: &str, shards: u32) -> Value {
    signed(unsigned(pattern, shards))
}

/// Adds a digest, by which a changed template is known.
pub(super) fn signed(mut made: Value) -> Value {
    let digest = sha256(made.to_string().as_bytes());
    if let Some(about) = made.get_mut("_meta").and_then(Value::as_object_mut) {
        about.insert("digest".to_owned(), json!(digest));
    }
    made
}

fn unsigned(pattern: &str, shards: u32) -> Value {
    json!({
        "index_patterns": [pattern],
        "priority": PRIORITY,
        "_meta": {"written_by": "mitra", "version": VERSION},
        "template": {
            "settings": {
                "index": {
                    "number_of_shards": shards,
                    "auto_expand_replicas": "0-1",
                    "codec": "best_compression",
                    "refresh_interval": "10s",
                    "translog": {"durability": "request"},
                    "mapping": {"total_fields": {"limit": FIELDS_MAX}},
                    "query": {"default_field": [fields::DEFAULT]},
                },
                // Tokenizes like Mitra, regardless of the cluster's defaults.
                "analysis": {
                    "tokenizer": {"mitra": {"type": "standard", "max_token_length": WORD_MAX}},
                    "analyzer": {"mitra_text": {"type": "custom", "tokenizer": "mitra", "filter": ["lowercase"]}},
                },
            },
            "mappings": {
                // A field that is neither declared nor of a family is kept, and has no mapping.
                "dynamic": false,
                "date_detection": false,
                "numeric_detection": false,
                "properties": properties(),
                "dynamic_templates": families(),
            },
        },
    })
}

/// The mapping of a field type.
fn mapping(kind: Type) -> Value {
    match kind {
        Type::Text => json!({"type": "text", "analyzer": "mitra_text"}),
        Type::Keyword => json!({"type": "keyword", "ignore_above": KEYWORD_MAX}),
        Type::Long => json!({"type": "long"}),
        Type::Double => json!({"type": "double"}),
        Type::Date | Type::Day => json!({"type": "date"}),
    }
}

/// Every field with a fixed name. A dot in a name nests it in an object.
fn properties() -> Value {
    let mut all = Map::new();
    for field in FIELDS.iter().filter(|f| !f.name.ends_with(".*")) {
        set(&mut all, field.name, mapping(field.kind));
    }
    for (old, new) in ALIASES {
        set(&mut all, old, json!({"type": "alias", "path": new}));
    }
    set(&mut all, "until", mapping(Type::Date));
    for family in FIELDS.iter().filter_map(|f| f.name.strip_suffix(".*")) {
        set(&mut all, family, json!({"type": "object", "dynamic": true, "properties": {}}));
    }
    let own = json!({"dynamic": false, "properties": {
        "since": {"type": "long"},
        "until": {"type": "long"},
        "before": {"type": "long"},
        "state": {"type": "keyword", "index": false, "doc_values": false},
        "facts": {"type": "object", "enabled": false},
    }});
    set(&mut all, "mitra", own);
    Value::Object(all)
}

fn set(to: &mut Map<String, Value>, name: &str, what: Value) {
    match name.split_once('.') {
        None => {
            to.insert(name.to_owned(), what);
        }
        Some((head, rest)) => {
            let object = to.entry(head).or_insert_with(|| json!({"properties": {}}));
            if let Some(inner) = object.pointer_mut("/properties").and_then(Value::as_object_mut) {
                set(inner, rest, what);
            }
        }
    }
}

/// Dynamic templates for field families. They also check the JSON type, because otherwise the
/// objects on the way to a value would match.
fn families() -> Vec<Value> {
    let mut all = Vec::new();
    let mut add = |name: String, path: &str, json_type: &str, kind: Type| {
        all.push(
            json!({name: {"path_match": path, "match_mapping_type": json_type, "mapping": mapping(kind)}}),
        );
    };
    for name in sysctl::WORDS {
        add(format!("sysctl.{name}"), &format!("sysctl.{name}"), "string", Type::Keyword);
    }
    for field in FIELDS.iter().filter(|f| f.name.ends_with(".*")) {
        if field.kind == Type::Double || field.kind == Type::Long {
            add(format!("{} whole", field.name), field.name, "long", field.kind);
            add(format!("{} fraction", field.name), field.name, "double", field.kind);
        } else {
            add(field.name.to_owned(), field.name, "string", field.kind);
        }
    }
    all.push(json!({"rest": {"match_mapping_type": "string", "mapping": mapping(Type::Keyword)}}));
    all
}

/// Installs the template of documents, unless the cluster has the same or a newer one.
pub(super) fn install(cluster: &Cluster) -> Result<(), Error> {
    let wanted = template(&cluster.names.pattern(), cluster.shards);
    installed(cluster, &cluster.names.template(), wanted, VERSION).map(|_| ())
}

/// Installs a template, unless the cluster has the same or a newer one. Returns whether it did.
pub(super) fn installed(cluster: &Cluster, name: &str, wanted: Value, version: u64) -> Result<bool, Error> {
    let path = format!("/_index_template/{name}");
    let has = match cluster.nodes.ask(Request { method: "GET", path: &path, body: Body::None })? {
        Outcome::Reply(reply) if reply.is_ok() => {
            reply.body.pointer("/index_templates/0/index_template/_meta").cloned()
        }
        // There is no template, or reading it is not allowed.
        Outcome::Reply(reply) if reply.status == 404 || reply.status == 403 => None,
        Outcome::Reply(reply) => return Err(error(&reply)),
        Outcome::TooLarge => None,
    };
    if let Some(has) = has {
        let held = has.get("version").and_then(Value::as_u64).unwrap_or(0);
        if held > version || Some(&has) == wanted.get("_meta") {
            return Ok(false);
        }
    }
    let body = serde_json::to_vec(&wanted).map_err(|e| Error::Cannot(e.to_string()))?;
    match cluster.nodes.ask(Request { method: "PUT", path: &path, body: Body::Json(&body) })? {
        Outcome::Reply(reply) if reply.is_ok() => Ok(true),
        Outcome::Reply(reply) => match error(&reply) {
            Error::Refused(why) => {
                Err(Error::Refused(format!("the index template {path} cannot be set: {why}")))
            }
            other => Err(other),
        },
        Outcome::TooLarge => Err(Error::Cannot(format!("{path}: the answer is too large"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_in_the_template() {
        let made = template("mitra_*", 1);
        let properties = made.pointer("/template/mappings/properties").unwrap();
        for field in FIELDS.iter().filter(|f| !f.name.ends_with(".*")) {
            let at = format!("/{}", field.name.replace('.', "/properties/"));
            let kind = properties.pointer(&at).and_then(|f| f.get("type")).and_then(Value::as_str);
            assert!(kind.is_some(), "{}", field.name);
        }
        assert_eq!(properties.pointer("/withheld/properties/count/type"), Some(&json!("long")));
        assert_eq!(properties.pointer("/hostname/path"), Some(&json!("host")));
        let families = made.pointer("/template/mappings/dynamic_templates").unwrap().as_array().unwrap();
        let path = |f: &Value| f.as_object().unwrap().values().next().unwrap().get("path_match").cloned();
        for field in FIELDS.iter().filter(|f| f.name.ends_with(".*")) {
            assert!(families.iter().any(|f| path(f) == Some(json!(field.name))), "{}", field.name);
        }
        for family in ["sysctl", "cpu/properties/mitigation"] {
            assert_eq!(properties.pointer(&format!("/{family}/dynamic")), Some(&json!(true)));
        }
        assert_eq!(made.pointer("/template/mappings/dynamic"), Some(&json!(false)));
        // The exceptions precede their family, because the first match counts.
        let place = |name: &str| families.iter().position(|f| path(f) == Some(json!(name)));
        assert!(place("sysctl.kernel.core_pattern") < place("sysctl.*"));
    }
}
