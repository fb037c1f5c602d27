//! `mitra metrics`: the table of everything that is measured.

use std::fmt::Write;

use anyhow::Result;
use mitra_model::{Entity, Kind, Metric, columns};
use serde_json::json;

use crate::cli::MetricsArgs;
use crate::commands::select::glob;
use crate::commands::{print, print_json};
use crate::errors::usage;
use crate::render::style::Style;
use crate::render::table::{Align, Table};

/// Prints the table, or the rows that were named.
pub fn run(args: &MetricsArgs, style: &Style) -> Result<()> {
    let wanted = |m: &&Metric| args.names.is_empty() || args.names.iter().any(|name| glob(name, m.name));
    let metrics: Vec<&Metric> = all().filter(wanted).collect();
    if metrics.is_empty() {
        return Err(usage(format!("no metric is called {}", args.names.join(" or "))));
    }
    if args.markdown {
        return print(&markdown());
    }
    if args.json {
        return print_json(&metrics.iter().map(|m| as_json(m)).collect::<Vec<_>>());
    }
    let mut table = Table::new(&[
        ("METRIC", Align::Left),
        ("OF", Align::Left),
        ("KIND", Align::Left),
        ("UNIT", Align::Left),
        ("WHAT IT MEANS", Align::Left),
    ]);
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

/// How many there are.
#[must_use]
pub fn count() -> usize {
    all().count()
}

fn all() -> impl Iterator<Item = &'static Metric> {
    Entity::ALL.into_iter().flat_map(|entity| columns(entity).iter().copied())
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
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from(
        "# Metrics\n\n\
         Everything that Mitra measures. This page is written by `make docs` from the table in `crates/model`.\n\n\
         Values are shown in base units: a counter is its rate per second, times are seconds, sizes are bytes\n\
         (pages only where the kernel itself means pages). A value that was not measured is left out; it is never 0.\n",
    );
    for entity in Entity::ALL {
        // A page about 12 kinds of things is easier to find one's way in than one about one thing at a time.
        _ = write!(
            out,
            "\n## {entity}\n\n| metric | kind | unit | source | kernel | meaning |\n|---|---|---|---|---|---|\n"
        );
        for m in columns(entity) {
            let cell = |text: &str| text.replace('|', "\\|");
            _ = writeln!(
                out,
                "| `{}` | {} | {} | {} | {} | {} |",
                m.name,
                kind(m),
                m.unit_label(),
                cell(m.source),
                m.since,
                cell(m.help)
            );
        }
    }
    out
}
