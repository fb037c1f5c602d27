//! `mitra conditions`: the list, the manual page of each, and the mechanism graph.

use std::fmt::Write;

use anyhow::Result;
use mitra_diagnose::{Condition, Edge, Role};
use serde_json::{Value, json};

use crate::cli::{ConditionsArgs, GraphFormat};
use crate::commands::docs::{filled, rows};
use crate::commands::{print, print_json, similar};
use crate::errors::usage;
use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::table::Table;

pub fn run(args: &ConditionsArgs, style: &Style) -> Result<()> {
    let all = mitra_diagnose::conditions();
    if let Some(format) = args.graph {
        return match (args.json, format) {
            (true, _) => print_json(&mitra_diagnose::graph().iter().map(edge_json).collect::<Vec<_>>()),
            (false, GraphFormat::Dot) => print(&dot()),
            (false, GraphFormat::Text) => print(&graph_text(style)),
        };
    }
    if let Some(id) = &args.id {
        let condition = all.iter().find(|c| c.id == id).ok_or_else(|| {
            let hint = similar::hint(id, all.iter().map(|c| c.id), "mitra conditions");
            usage(format!("no condition is called '{id}'{hint}"))
        })?;
        return if args.json { print_json(&as_json(condition)) } else { print(&manual(condition, style)) };
    }
    if args.json {
        return print_json(&all.iter().map(as_json).collect::<Vec<_>>());
    }
    let mut table = Table::of("CONDITION|AREA|PART|WHAT IT IS");
    for c in all {
        table.row([c.id, c.area, role(c.role), c.title].map(str::to_owned));
    }
    print(&table.render(style))
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Root => "root cause",
        Role::Mechanism => "mechanism",
        Role::Symptom => "symptom",
        Role::Finding => "finding",
    }
}

fn as_json(c: &Condition) -> Value {
    json!({
        "id": c.id, "title": c.title, "area": c.area, "role": c.role.letter().to_string(),
        "needs": c.needs(), "manual": c.manual(),
        "causes": edges_from(c.id).map(|e| e.effect).collect::<Vec<_>>(),
        "caused_by": edges_to(c.id).map(|e| e.cause).collect::<Vec<_>>(),
    })
}

fn edge_json(e: &Edge) -> Value {
    json!({ "cause": e.cause, "effect": e.effect, "because": e.because })
}

fn edges_from(id: &str) -> impl Iterator<Item = &'static Edge> {
    mitra_diagnose::graph().iter().filter(move |e| e.cause == id)
}

fn edges_to(id: &str) -> impl Iterator<Item = &'static Edge> {
    mitra_diagnose::graph().iter().filter(move |e| e.effect == id)
}

fn manual(c: &Condition, style: &Style) -> String {
    let mut page = Page::new(style);
    page.line(format!("{}: {}", style.paint(Ink::Strong, c.id), c.title));
    page.line(format!("{} in the area {}", role(c.role), c.area));
    for paragraph in c.manual().trim_end().split("\n\n") {
        page.gap();
        page.prose(paragraph);
    }
    let mut list = |head: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            page.heading(head);
            lines.iter().for_each(|line| page.paragraph(2, 4, None, line));
        }
    };
    list("Can cause", edges_from(c.id).map(|e| format!("{}: {}", e.effect, e.because)).collect());
    list("Can be caused by", edges_to(c.id).map(|e| format!("{}: {}", e.cause, e.because)).collect());
    list("Looks at", metrics(c));
    page.finish()
}

/// What it looks at: a line for each entity.
fn metrics(c: &Condition) -> Vec<String> {
    let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
    for metric in c.needs() {
        let (entity, name) = metric.split_once('.').unwrap_or(("", metric));
        match lines.iter_mut().find(|(known, _)| *known == entity) {
            Some((_, names)) => names.push(name),
            None => lines.push((entity, vec![name])),
        }
    }
    let line = |(entity, names): &(&str, Vec<&str>)| format!("{entity}: {}", names.join(", "));
    lines.iter().map(line).collect()
}

fn graph_text(style: &Style) -> String {
    let mut out = String::new();
    for c in mitra_diagnose::conditions() {
        let mut edges = edges_from(c.id).peekable();
        if edges.peek().is_some() {
            _ = writeln!(out, "{}", style.paint(Ink::Strong, c.id));
            edges.for_each(|e| _ = writeln!(out, "  → {:<24} {}", e.effect, e.because));
        }
    }
    out
}

fn dot() -> String {
    let mut out = String::from("digraph conditions {\n  rankdir=LR;\n  node [shape=box];\n");
    for c in mitra_diagnose::conditions() {
        let look = match c.role {
            Role::Root => " [style=bold]",
            Role::Mechanism => "",
            Role::Symptom => " [style=rounded]",
            Role::Finding => " [style=dashed]",
        };
        _ = writeln!(out, "  \"{}\"{look};", c.id);
    }
    for e in mitra_diagnose::graph() {
        _ = writeln!(
            out,
            "  \"{}\" -> \"{}\" [tooltip=\"{}\"];",
            e.cause,
            e.effect,
            e.because.replace('"', "'")
        );
    }
    out.push_str("}\n");
    out
}

/// `docs/conditions.md`.
pub fn markdown() -> String {
    let all = mitra_diagnose::conditions();
    let row =
        |c: &Condition| format!("| [`{0}`](#{0}) | {1} | {2} | {3} |", c.id, c.area, role(c.role), c.title);
    filled(
        include_str!("docs/conditions.md"),
        &[("conditions", &rows(all, row)), ("sections", &rows(all, section))],
    )
}

fn section(c: &Condition) -> String {
    let mut out = format!("\n## {}\n\n{}\n", c.id, c.manual().trim_end());
    let mut list = |head: &str, edges: Vec<String>| {
        if !edges.is_empty() {
            _ = write!(out, "\n{head}\n\n{}\n", edges.join("\n"));
        }
    };
    list("It can cause:", edges_from(c.id).map(|e| format!("- `{}`: {}", e.effect, e.because)).collect());
    list("It can be caused by:", edges_to(c.id).map(|e| format!("- `{}`: {}", e.cause, e.because)).collect());
    list("It looks at:", metrics(c).iter().map(|line| format!("- {line}")).collect());
    out.truncate(out.trim_end().len());
    out
}
