//! Documents as text and as JSON.

use mitra_search::answers::changes::in_words;
use mitra_search::backend::Hit;
use mitra_search::{Document, document_id};
use serde_json::{Value, json};

use crate::render::style::Style;
use crate::render::table::Table;
use crate::render::units;

/// A table of hits. The day has a column where there are several.
pub fn table(hits: &[Hit], several_days: bool, style: &Style) -> String {
    let heads = if several_days { "HOST|DAY|>SIZE|CHANGED|FILE" } else { "HOST|>SIZE|CHANGED|FILE" };
    let mut table = Table::of(heads);
    for hit in hits {
        let mut row = vec![hit.host.clone()];
        if several_days {
            row.push(hit.day.to_string());
        }
        row.push(hit.size.map_or_else(|| "-".to_owned(), |size| units::value(size as f64, "bytes")));
        row.push(style.date_clock(hit.mtime_ns.unwrap_or(hit.since_ns)));
        row.push(hit.filename.clone());
        table.row(row);
    }
    table.render(style)
}

pub fn hit(hit: &Hit) -> Value {
    json!({
        "id": document_id(&hit.host, &hit.filename),
        "host": hit.host,
        "filename": hit.filename,
        "day": hit.day.to_string(),
        "size": hit.size,
        "mtime": hit.mtime_ns.map(time),
        "time": time(hit.since_ns),
    })
}

/// RFC 3339 in UTC.
pub fn time(ns: i64) -> String {
    mitra_model::report::Moment(ns).to_string()
}

/// The metadata of a document.
pub fn facts(document: &Document, style: &Style) -> String {
    let mut lines = vec![("since".to_owned(), style.date_clock(document.since_ns))];
    if let Some(stat) = &document.stat {
        let name = |name: &Option<String>, id: u32| name.clone().unwrap_or_else(|| id.to_string());
        lines.extend([
            ("size".to_owned(), format!("{} bytes", stat.size)),
            ("mode".to_owned(), format!("{:04o}", stat.mode)),
            ("owner".to_owned(), format!("{}:{}", name(&stat.user, stat.uid), name(&stat.group, stat.gid))),
            ("inode".to_owned(), stat.inode.to_string()),
            ("mtime".to_owned(), style.date_clock(stat.mtime_ns)),
            ("ctime".to_owned(), style.date_clock(stat.ctime_ns)),
        ]);
    }
    lines.extend(document.hash().map(|hash| ("hash".to_owned(), hash)));
    lines.extend(document.link.clone().map(|link| ("link".to_owned(), link)));
    if !document.flags.is_empty() {
        let flags: Vec<&str> = document.flags.iter().map(|f| f.name()).collect();
        lines.push(("flags".to_owned(), flags.join(", ")));
    }
    if document.withheld.count > 0 {
        let what = if document.withheld.keys.is_empty() {
            String::new()
        } else {
            format!(": {}", document.withheld.keys.join(", "))
        };
        let text = format!("{} ({}){what}", document.withheld.count, document.withheld.reasons.join(", "));
        lines.push(("withheld".to_owned(), text));
    }
    lines.extend(document.facts.iter().map(|(name, values)| (name.clone(), in_words(values))));
    let mut table = Table::of("FIELD|VALUE");
    lines.into_iter().for_each(|(name, value)| table.row([name, value]));
    table.render(style)
}
