//! The output of other tools: recognised by its content, read into one [`SeriesSet`].
//!
//! A file may hold the output of several tools, one after the other, with prompts, blank lines and time stamps between
//! them, as people save them. [`read`] walks over its lines: a line that a [`Format`] recognises as its beginning is
//! read by it, up to a line that is not its own. A line that nothing recognises is counted, and the first is kept.
//!
//! To add a format: one file with a `starts` and a `read`, a line in the list of its [`Family`], a folder of real
//! outputs below `tests/outputs/`, a rejecting test. Formats never panic, index or unwrap on input.

mod axis;
pub mod bench;
pub mod clock;
pub mod context;
mod derive;
pub mod export;
pub mod heaps;
pub mod import;
mod json;
pub mod lines;
mod list;
pub mod logs;
pub mod monitors;
pub mod net;
pub mod number;
mod prelude;
pub mod procps;
pub mod snapshots;
pub mod sysstat;
pub mod tracing;

use std::io::{self, Read};

pub use axis::Imported;
pub use context::Context;
pub use import::{Column, Form, GroupId, Import, When};
pub use lines::Lines;

/// One kind of output.
pub struct Format {
    /// What people call it: `iostat -x`, `strace`.
    pub name: &'static str,
    /// What is read of it, for the page of formats.
    pub what: &'static str,
    /// Whether the line at the cursor begins this output. It only looks.
    pub starts: fn(&mut Lines<'_>, &Context) -> bool,
    /// Reads from there on, up to a line that is not its own. It takes at least one line.
    pub read: fn(&mut Lines<'_>, &mut Import),
}

impl Format {
    /// The name, what is read, how it begins and how it is read: see the fields.
    pub const fn new(
        name: &'static str,
        what: &'static str,
        starts: fn(&mut Lines<'_>, &Context) -> bool,
        read: fn(&mut Lines<'_>, &mut Import),
    ) -> Format {
        Format { name, what, starts, read }
    }
}

/// The formats of one kind of tools.
pub struct Family {
    /// The name of its module.
    pub name: &'static str,
    /// What its tools show, in a sentence for the page of formats.
    pub what: &'static str,
    /// The most particular first.
    pub formats: &'static [Format],
}

/// Every format, the most particular first; a general log comes last.
pub static FAMILIES: &[Family] = &[
    Family {
        name: "sysstat",
        what: "What sysstat records and prints, in any locale. A binary file of sadc is read by way of the `sadf` that is installed.",
        formats: sysstat::FORMATS,
    },
    Family {
        name: "procps",
        what: "Processes, memory and load, as procps and atop show them.",
        formats: procps::FORMATS,
    },
    Family {
        name: "net",
        what: "Devices, protocols, sockets and queues of the network.",
        formats: net::FORMATS,
    },
    Family {
        name: "snapshots",
        what: "Files of `/proc` and `/sys` that somebody saved, and what the system says of filesystems, disks, NUMA nodes and its hardware.",
        formats: snapshots::FORMATS,
    },
    Family {
        name: "tracing",
        what: "Traces, histograms and stacks: strace, perf, ftrace, bcc, bpftrace.",
        formats: tracing::FORMATS,
    },
    Family {
        name: "heaps",
        what: "What a process holds in memory, and what its runtime says of it.",
        formats: heaps::FORMATS,
    },
    Family {
        name: "bench",
        what: "Benchmarks, of which several runs can be compared, and the layout of what they ran on.",
        formats: bench::FORMATS,
    },
    Family {
        name: "monitors",
        what: "Recorders, exporters and consoles of other projects.",
        formats: monitors::FORMATS,
    },
    Family { name: "logs", what: "Logs of the kernel and of programs.", formats: logs::FORMATS },
];

/// Whether the output of another tool begins at the cursor, for readers whose own lines look like anything. Logs do too,
/// and are none.
fn begins_other(lines: &mut Lines<'_>, context: &Context, own: &[&str]) -> bool {
    lines.at(|line| !line.trim_ascii().is_empty())
        && FAMILIES
            .iter()
            .filter(|family| family.name != "logs")
            .flat_map(|family| family.formats)
            .any(|format| !own.contains(&format.name) && (format.starts)(lines, context))
}

/// Reads a file. What it says goes into `import`; an error is one of reading, never of content.
pub fn read(input: &mut dyn Read, name: &str, import: &mut Import) -> io::Result<()> {
    let formats: Vec<&[Format]> = FAMILIES.iter().map(|family| family.formats).collect();
    read_as(&formats, input, name, import)
}

/// As [`read`], with some of the formats only.
pub fn read_as(
    formats: &[&[Format]],
    input: &mut dyn Read,
    name: &str,
    import: &mut Import,
) -> io::Result<()> {
    import.begin_file(name);
    let mut lines = Lines::new(input);
    // Outputs repeat themselves: the format that was right last is asked first.
    let mut last: Option<&Format> = None;
    while let Some(line) = lines.peek() {
        let blank = line.trim_ascii().is_empty();
        if blank || context::take(line, import) {
            if let Some(n) = import.context.blank_lines.as_mut().filter(|_| blank) {
                *n = n.saturating_add(1);
            }
            lines.advance();
            continue;
        }
        let before = lines.number();
        let found = last
            .filter(|f| (f.starts)(&mut lines, &import.context))
            .or_else(|| formats.iter().copied().flatten().find(|f| (f.starts)(&mut lines, &import.context)));
        if let Some(format) = found {
            let first = lines.peek().map(|line| line.get(..import::SHOWN_MAX).unwrap_or(line).to_vec());
            let mark = import.begin_format(format.name);
            (format.read)(&mut lines, import);
            let is_log = logs::FORMATS.iter().any(|log| log.name == format.name);
            if !is_log && lines.number() > before {
                import.end_format(mark, before, lines.number() - before, &first.unwrap_or_default());
            }
            last = Some(format);
        }
        if lines.number() == before {
            if let Some(line) = lines.peek() {
                import.unread(before, line);
            }
            lines.advance();
        }
    }
    import.line_count(u64::from(lines.number()) - 1);
    if let Some((line, bytes)) = lines.first_cut() {
        import.note(format!(
            "line {line} is longer than {bytes} bytes: the rest of it, and of other such lines, was not read"
        ));
    }
    match lines.take_error() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
