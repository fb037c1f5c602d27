//! `mitra metrics`: the table of everything that is measured.

use anyhow::Result;
use mitra_model::{Entity, Kind, Metric, columns};
use serde_json::json;

use crate::cli::MetricsArgs;
use crate::commands::docs::{cell, filled, rows};
use crate::commands::select::{self, glob};
use crate::commands::{print, print_json};
use crate::recording::all_metrics;
use crate::render::style::Style;
use crate::render::table::Table;

pub fn run(args: &MetricsArgs, style: &Style) -> Result<()> {
    select::check_names(&args.names)?;
    let wanted = |m: &&Metric| args.names.is_empty() || args.names.iter().any(|name| glob(name, m.name));
    let metrics: Vec<&Metric> = all_metrics().filter(wanted).collect();
    if args.markdown {
        return print(&markdown());
    }
    if args.json {
        return print_json(&metrics.iter().map(|m| as_json(m)).collect::<Vec<_>>());
    }
    let mut table = Table::of("METRIC|OF|KIND|UNIT|WHAT IT MEANS");
    for m in metrics {
        table.row([
            m.name.to_owned(),
            m.entity.name().to_owned(),
            kind(m).to_owned(),
            m.unit_label(),
            m.help.to_owned(),
        ]);
    }
    print(&table.render(style))
}

fn kind(metric: &Metric) -> &'static str {
    match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Bucket => "bucket",
        Kind::Text => "text",
    }
}

fn as_json(m: &Metric) -> serde_json::Value {
    json!({
        "name": m.name, "entity": m.entity.name(), "kind": kind(m), "unit": m.unit_label(),
        "source": m.source, "since_kernel": m.since.to_string(), "help": m.help,
    })
}

/// `docs/metrics.md`.
pub fn markdown() -> String {
    let row = |m: &&Metric| {
        let (kind, unit) = (kind(m), m.unit_label());
        format!("| `{}` | {kind} | {unit} | {} | {} | {} |", m.name, cell(m.source), m.since, cell(m.help))
    };
    const HEAD: &str = "| metric | kind | unit | source | kernel | meaning |\n|---|---|---|---|---|---|";
    let table = |entity| format!("\n## {entity}\n\n{HEAD}\n{}", rows(columns(entity), row));
    let entities: String = Entity::ALL.into_iter().map(table).collect();
    filled(include_str!("docs/metrics.md"), &[("entities", &entities)])
}
