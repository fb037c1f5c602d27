//! The format of the tables in `metrics/`. `build.rs` compiles them.
//!
//! ```text
//! # A comment.
//! [disk | counter count | /proc/diskstats | 2.6]
//! disk.reads      | :1              | Reads completed. Merged requests count once.
//! disk.read_bytes | sectors | :3    | Read, in sectors of 512 bytes.
//! disk.flushes    | :16 | 5.5       | Flush requests completed.
//! ```
//!
//! A header has the entity and what the rows below share: kind and unit, source, kernel version. A row has the name, what
//! is different in it, and the help text, a sentence. Fields stand in this order and are told by their form; any may be
//! left out or empty. Of kind and unit a row may give the unit alone. `\|` is a bar in a field.
//!
//! A source that begins with `:` is a field of the header's file. `*` in the source of a header stands for the name after
//! the area, with `/` for dots.
//!
//! A row of nothing but a name, `netns.tcp_ActiveOpens`, repeats `tcp.ActiveOpens`: all but entity and source are the same.

use std::collections::HashMap;
use std::fmt::Write as _;

const ENTITIES: &str = "System Cpu Node Zone Disk Filesystem Nic Slab Cgroup Task Exited Irq Netns \
    Listener Drop Peer Resolver Service Dependency Lock Wait Session Command Pool Fuse Limit Jvm Pattern Call Lookup Mapping Allocator Census Run Log Path";
const KINDS: &str = "Counter Gauge Bucket Text";
const UNITS: &str = "Count Bytes Pages KiB Nanos Micros Millis Ticks Centi Ppm Sectors Text None";

/// The fields of a line between its bars. `\|` is a bar in a field.
fn cells(line: &str) -> Vec<String> {
    const BAR: &str = "\u{0}";
    line.replace("\\|", BAR).split('|').map(|cell| cell.trim().replace(BAR, "|")).collect()
}

/// The variant that a word of a table means.
fn variant(list: &'static str, word: &str) -> Option<&'static str> {
    list.split(' ').find(|variant| variant.eq_ignore_ascii_case(word) && word == word.to_lowercase())
}

/// What a header and a row may both say.
#[derive(Debug, Clone, Default)]
struct Fields {
    kind: Option<&'static str>,
    unit: Option<&'static str>,
    source: Option<String>,
    since: Option<(u8, u8)>,
}

impl Fields {
    fn of(cells: &[String]) -> Result<Fields, String> {
        let mut fields = Fields::default();
        for word in cells.iter().filter(|cell| !cell.is_empty()) {
            let is_new = if let Some(version) = kernel(word) {
                fields.since.replace(version).is_none()
            } else if let Some((kind, unit)) = kind_and_unit(word) {
                (fields.kind, fields.unit) = (kind, unit);
                true
            } else if word.split(' ').any(|word| variant(KINDS, word).is_some()) {
                return Err(format!("`{word}` is no kind and unit: one of {KINDS} and one of {UNITS}"));
            } else {
                fields.source.replace(word.to_owned()).is_none()
            };
            if !is_new {
                return Err(format!("`{word}` is a second kernel version or source"));
            }
        }
        Ok(fields)
    }
}

/// `4.18`.
fn kernel(word: &str) -> Option<(u8, u8)> {
    let (major, minor) = word.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// `counter ticks`, `ticks`, or `text` and `bucket`, whose unit is given.
fn kind_and_unit(word: &str) -> Option<(Option<&'static str>, Option<&'static str>)> {
    match word.split_once(' ') {
        Some((kind, unit)) => Some((Some(variant(KINDS, kind)?), Some(variant(UNITS, unit)?))),
        None if word == "text" => Some((Some("Text"), Some("Text"))),
        None if word == "bucket" => Some((Some("Bucket"), Some("Count"))),
        None => Some((None, Some(variant(UNITS, word)?))),
    }
}

/// A row with what its header adds.
#[derive(Debug, Clone)]
pub struct Row {
    table: String,
    line: usize,
    name: String,
    entity: &'static str,
    fields: Fields,
    help: String,
}

impl Row {
    fn error(&self, what: &str) -> String {
        format!("metrics/{}.txt:{}: {}: {what}", self.table, self.line, self.name)
    }

    /// The name of the metric that a row without a help text repeats.
    fn original(&self) -> Option<String> {
        Some(self.name.split_once('.')?.1.replacen('_', ".", 1))
    }
}

/// Reads a table. Errors name file and line.
pub fn parse(table: &str, text: &str) -> Result<Vec<Row>, Vec<String>> {
    let mut header = None;
    let (mut rows, mut errors) = (Vec::new(), Vec::new());
    for (at, line) in text.lines().enumerate() {
        let at = at + 1;
        let line = line.trim();
        let result = if line.is_empty() || line.starts_with('#') {
            Ok(())
        } else if let Some(inside) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            parse_header(inside).map(|parsed| header = Some(parsed))
        } else if let Some((entity, shared)) = &header {
            parse_row(line, shared).map(|(name, fields, help)| {
                rows.push(Row { table: table.to_owned(), line: at, name, entity, fields, help });
            })
        } else {
            Err("a header in brackets is wanted before the first row".to_owned())
        };
        errors.extend(result.err().map(|error| format!("metrics/{table}.txt:{at}: {error}")));
    }
    if errors.is_empty() { Ok(rows) } else { Err(errors) }
}

fn parse_header(inside: &str) -> Result<(&'static str, Fields), String> {
    let cells = cells(inside);
    let (entity, shared) = cells.split_first().ok_or("an empty header")?;
    let Some(entity) = variant(ENTITIES, entity) else {
        return Err(format!("`{entity}` is no entity: one of {ENTITIES}"));
    };
    Ok((entity, Fields::of(shared)?))
}

fn parse_row(line: &str, header: &Fields) -> Result<(String, Fields, String), String> {
    let cells = cells(line);
    let (name, row, help) = match &cells[..] {
        [name] => (name, &[][..], ""),
        [name, row @ .., help] => (name, row, help.as_str()),
        [] => return Err("an empty row".to_owned()),
    };
    let Some((_, rest)) = name.split_once('.').filter(|_| !name.contains(' ')) else {
        return Err(format!("`{name}` is no name: area, dot, counter"));
    };
    if cells.len() > 1 && !help.ends_with('.') {
        return Err(format!("{name}: a help text is wanted, a sentence"));
    }
    let row = Fields::of(row)?;
    let shared = header.source.as_deref();
    let source = match (row.source, shared) {
        (Some(field), Some(file)) if field.starts_with(':') => {
            Some(format!("{}{field}", file.split(':').next().unwrap_or_default()))
        }
        (Some(source), _) => Some(source),
        (None, shared) => shared.map(|source| source.replace('*', &rest.replace('.', "/"))),
    };
    let fields = Fields {
        kind: row.kind.or(header.kind),
        unit: row.unit.or(header.unit),
        source,
        since: row.since.or(header.since),
    };
    Ok((name.clone(), fields, help.to_owned()))
}

/// Fills the rows that repeat others, and refuses names that come twice and rows that lack something.
pub fn complete(mut rows: Vec<Row>) -> Result<Vec<Row>, Vec<String>> {
    let mut errors = Vec::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    for (at, row) in rows.iter().enumerate() {
        if let Some(first) = by_name.insert(row.name.clone(), at) {
            errors.push(row.error(&format!(
                "declared before, at line {} of {}.txt",
                rows[first].line, rows[first].table
            )));
        }
    }
    for at in 0..rows.len() {
        if !rows[at].help.is_empty() {
            continue;
        }
        let original = rows[at].original().unwrap_or_default();
        match by_name.get(&original).map(|of| rows[*of].clone()).filter(|of| !of.help.is_empty()) {
            Some(of) => {
                let source = rows[at].fields.source.take();
                rows[at].fields = Fields { source, ..of.fields };
                rows[at].help = of.help;
            }
            None => errors.push(rows[at].error(&format!("no help text, and no metric {original} to repeat"))),
        }
    }
    for row in &rows {
        let fields = &row.fields;
        let lacks = [
            ("kind and unit", fields.kind.is_none() || fields.unit.is_none()),
            ("source", fields.source.is_none()),
            ("kernel version", fields.since.is_none()),
        ];
        errors.extend(
            lacks.iter().filter(|(_, lacks)| *lacks).map(|(what, _)| row.error(&format!("no {what}"))),
        );
        if (fields.kind == Some("Text")) != (fields.unit == Some("Text")) {
            errors.push(row.error("a text has no unit, and nothing else is a text"));
        }
    }
    if errors.is_empty() { Ok(rows) } else { Err(errors) }
}

/// The tables as an expression of Rust. The comment behind a row leads from an error of the compiler to its table.
pub fn rust(rows: &[Row]) -> String {
    let mut code = String::from("&[\n");
    for of_table in rows.chunk_by(|a, b| a.table == b.table) {
        let table = of_table.first().map_or("", |row| &row.table);
        _ = writeln!(code, "({table:?}, &[");
        for Row { name, entity, line, fields, help, .. } in of_table {
            let (kind, unit) = (fields.kind.unwrap_or_default(), fields.unit.unwrap_or_default());
            let source = fields.source.as_deref().unwrap_or_default();
            let (major, minor) = fields.since.unwrap_or_default();
            _ = writeln!(
                code,
                "Metric {{ name: {name:?}, entity: Entity::{entity}, unit: Unit::{unit}, kind: Kind::{kind}, \
                 source: {source:?}, since: Kernel({major}, {minor}), help: {help:?} }}, // metrics/{table}.txt:{line}"
            );
        }
        code.push_str("]),\n");
    }
    code + "]\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
# A comment.
[disk | counter count | /proc/diskstats | 2.6]
disk.reads      |              | Reads completed.
disk.read_bytes | sectors | :3 | Read, a \\| b.
disk.model      | text | /sys/block/DEV/model | 4.18 | The model.

[system | gauge none | /proc/sys/*]
sysctl.vm.swappiness | 2.6 | How much.
[netns | /proc/PID/net/snmp]
netns.disk_reads
";

    fn read(text: &str) -> Result<Vec<Row>, Vec<String>> {
        complete(parse("x", text)?)
    }

    #[test]
    fn rows_take_what_they_lack_from_header_and_original() {
        let rows = read(TABLE).unwrap();
        let told = |row: &Row| {
            let fields = &row.fields;
            let (kind, unit) = (fields.kind.unwrap(), fields.unit.unwrap());
            format!(
                "{} {} {kind} {unit} {} {:?}",
                row.name,
                row.entity,
                fields.source.clone().unwrap(),
                fields.since.unwrap()
            )
        };
        assert_eq!(
            rows.iter().map(told).collect::<Vec<_>>(),
            [
                "disk.reads Disk Counter Count /proc/diskstats (2, 6)",
                "disk.read_bytes Disk Counter Sectors /proc/diskstats:3 (2, 6)",
                "disk.model Disk Text Text /sys/block/DEV/model (4, 18)",
                "sysctl.vm.swappiness System Gauge None /proc/sys/vm/swappiness (2, 6)",
                "netns.disk_reads Netns Counter Count /proc/PID/net/snmp (2, 6)",
            ]
        );
        assert_eq!(rows[4].help, "Reads completed.");
        let code = rust(&rows);
        assert!(code.contains(
            "source: \"/proc/diskstats:3\", since: Kernel(2, 6), help: \"Read, a | b.\" }, // metrics/x.txt:4"
        ));
    }

    #[test]
    fn errors_name_file_and_line() {
        let header = "[disk | counter count | /proc/diskstats | 2.6]\n";
        for (text, wanted) in [
            ("disk.reads | Reads.\n", "metrics/x.txt:1: a header"),
            ("[disc | counter count]\n", "metrics/x.txt:1: `disc` is no entity"),
            ("[disk | counter tikcs]\n", "metrics/x.txt:1: `counter tikcs` is no kind and unit"),
            ("[disk | 2.6 | 2.7]\n", "metrics/x.txt:1: `2.7` is a second"),
            (&format!("{header}reads | Reads.\n"), "metrics/x.txt:2: `reads` is no name"),
            (&format!("{header}disk.reads | 2.6\n"), "metrics/x.txt:2: disk.reads: a help text"),
            (&format!("{header}disk.reads | 2.6 |\n"), "metrics/x.txt:2: disk.reads: a help text"),
            (
                &format!("{header}disk.reads\n"),
                "metrics/x.txt:2: disk.reads: no help text, and no metric reads",
            ),
            (
                &format!("{header}disk.reads | Reads.\ndisk.reads | Reads.\n"),
                "metrics/x.txt:3: disk.reads: declared before, at line 2",
            ),
            ("[disk | counter count | 2.6]\ndisk.reads | Reads.\n", "metrics/x.txt:2: disk.reads: no source"),
            ("[disk | /a | 2.6]\ndisk.reads | Reads.\n", "metrics/x.txt:2: disk.reads: no kind and unit"),
            (
                "[disk | counter text | /a | 2.6]\ndisk.reads | Reads.\n",
                "metrics/x.txt:2: disk.reads: a text",
            ),
        ] {
            let errors = read(text).unwrap_err();
            assert!(errors[0].starts_with(wanted), "{errors:?}, not {wanted}");
        }
    }
}
