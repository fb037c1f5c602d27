//! Incidents and findings: rows of the table `mitra_records` of ClickHouse, `INSERT … FORMAT JSONEachRow` over HTTP.
//!
//! ```text
//! INSERT INTO mitra_records FORMAT JSONEachRow
//! {"confidence":0.97,"culprit_name":"dd","event":"mitra.incident","host":"web1","id":"web1-2026-…","label_names":["site"], …}
//! ```
//!
//! The statement stands before its rows, and only a setting is added to the address. Materialised views pass the rows on to the tables
//! that keep them: `clickhouse.sql`.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::record::{AttributeValue, LogRecord};

/// Tables and views.
pub const SCHEMA: &str = include_str!("clickhouse.sql");
const INSERT: &str = "INSERT INTO mitra_records FORMAT JSONEachRow\n";
/// Columns that a table of an earlier schema lacks are left out. ClickHouse refuses the row otherwise, and older versions know settings of an
/// `INSERT` only in the address.
const SKIP_UNKNOWN: &str = "input_format_skip_unknown_fields";
/// Attributes, and the columns that have them.
const COLUMNS: [(&str, &str); 12] = [
    ("mitra.incident.id", "id"),
    ("mitra.finding.id", "id"),
    ("mitra.onset", "onset"),
    ("mitra.end", "ended"),
    ("mitra.root", "root"),
    ("mitra.culprit", "culprit"),
    ("mitra.culprit_kind", "culprit_kind"),
    ("mitra.culprit_name", "culprit_name"),
    ("mitra.culprit_group", "culprit_group"),
    ("mitra.confidence", "confidence"),
    ("mitra.strength", "strength"),
    ("mitra.cost_seconds", "cost_seconds"),
];

/// Where rows are sent to. An address that has the setting keeps it.
pub fn address(url: &str) -> Cow<'_, str> {
    if url.contains(SKIP_UNKNOWN) {
        return Cow::Borrowed(url);
    }
    let has_path = url.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    let mark = match (url.contains('?'), has_path) {
        (true, _) => "&",
        (false, true) => "?",
        (false, false) => "/?",
    };
    Cow::Owned(format!("{url}{mark}{SKIP_UNKNOWN}=1"))
}

/// The statement and a line for each record.
pub fn body(records: &[LogRecord]) -> Vec<u8> {
    let rows: String = records.iter().map(|record| format!("{}\n", row(record))).collect();
    [INSERT, &rows].concat().into_bytes()
}

fn row(record: &LogRecord) -> Value {
    // Seconds of `DateTime`, which ends in 2106.
    let seen = u32::try_from(record.observed_ns.div_euclid(1_000_000_000)).unwrap_or(0);
    let mut row = Map::new();
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for (name, value) in &record.attributes {
        let column = COLUMNS.iter().find(|(attribute, _)| attribute == name).map(|(_, column)| *column);
        match (column, value) {
            (Some(column @ ("onset" | "ended")), AttributeValue::Text(time)) => {
                if let Some(time) = date_time(time) {
                    row.insert(column.to_owned(), json!(time));
                }
            }
            (Some(column), AttributeValue::Text(text)) => _ = row.insert(column.to_owned(), json!(text)),
            (Some(column), AttributeValue::Number(number)) => {
                row.insert(column.to_owned(), json!(number));
            }
            // `mitra.unexplained`. Not all versions read true and false.
            (_, AttributeValue::Bool(value)) if name == "mitra.unexplained" => {
                row.insert("unexplained".to_owned(), json!(u8::from(*value)));
            }
            (None, AttributeValue::Text(text)) if name != "host" && !name.starts_with("mitra.") => {
                names.push(name);
                values.push(text);
            }
            _ => {}
        }
    }
    for (column, value) in [
        ("event", json!(record.event)),
        ("host", json!(record.host)),
        ("seen", json!(seen)),
        ("line", json!(record.body)),
        ("mitra", json!(env!("CARGO_PKG_VERSION"))),
        ("label_names", json!(names)),
        ("label_values", json!(values)),
    ] {
        row.insert(column.to_owned(), value);
    }
    Value::Object(row)
}

/// `2026-11-29 10:00:00` of RFC 3339: the only form that every version reads.
fn date_time(rfc3339: &str) -> Option<String> {
    Some(format!("{} {}", rfc3339.get(..10)?, rfc3339.get(11..19)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn a_record_is_a_row_with_the_columns_of_the_table() {
        let mut one = record("dd wrote\n\"500\" MB/s");
        for (name, text) in [
            ("host", "web1"),
            ("site", "größe"),
            ("mitra.incident.id", "web1-2026-11-29T10:00:00.250Z"),
            ("mitra.onset", "2026-11-29T10:00:00.250Z"),
            ("mitra.end", "?"),
            ("mitra.new", "of a later version"),
        ] {
            one.attributes.push((name.to_owned(), AttributeValue::Text(text.to_owned())));
        }
        one.observed_ns = 1_795_946_500_999_999_999;
        let body = String::from_utf8(body(&[one, record("b")])).unwrap();
        let mut lines = body.lines();
        assert_eq!(lines.next(), Some("INSERT INTO mitra_records FORMAT JSONEachRow"));
        let row: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
        let wanted = json!({
            "event": "mitra.incident", "host": "web1", "id": "web1-2026-11-29T10:00:00.250Z", "onset": "2026-11-29 10:00:00",
            "seen": 1_795_946_500, "root": "disk-hog", "unexplained": 0, "strength": 0.5, "line": "dd wrote\n\"500\" MB/s",
            "mitra": env!("CARGO_PKG_VERSION"), "label_names": ["site"], "label_values": ["größe"],
        });
        assert_eq!(row, wanted);
        assert_eq!(lines.count(), 1);
    }

    #[test]
    fn the_address_has_the_setting_once() {
        for (url, wanted) in [
            ("http://a:8123", "http://a:8123/?input_format_skip_unknown_fields=1"),
            ("http://a:8123/w", "http://a:8123/w?input_format_skip_unknown_fields=1"),
            ("http://a/?database=m", "http://a/?database=m&input_format_skip_unknown_fields=1"),
            ("http://a/?input_format_skip_unknown_fields=0", "http://a/?input_format_skip_unknown_fields=0"),
        ] {
            assert_eq!(address(url), wanted);
        }
    }

    #[test]
    fn the_table_has_every_column() {
        let (_, table) = SCHEMA.split_once("CREATE TABLE IF NOT EXISTS mitra_records (").unwrap();
        let (table, _) = table.split_once(") ENGINE").unwrap();
        let has = |column: &str| table.lines().any(|line| line.trim().starts_with(&format!("{column} ")));
        for (_, column) in COLUMNS {
            assert!(has(column), "{column}");
        }
        let row = row(&record("x"));
        assert!(row.as_object().unwrap().keys().all(|column| has(column)), "{row}");
    }
}
