//! The rows of a capture of kind `heap`: what a look into the memory of one process found.
//!
//! ```text
//! what                      count          amount
//! resident                                 bytes of anonymous memory that are resident
//! in use                    chunks         bytes that the C heap has given out
//! free                      chunks         bytes that the C heap holds without use and cannot give back
//! managed CPython 3.11      objects        bytes of objects that the run time knows of
//! type app.Session          objects        their bytes
//! holder app.CACHE                         who holds most of the objects of the type before it
//! chunk 48 bytes            chunks         their bytes: what the C heap has given out in pieces of a size
//! string ascii-22-5f0c…     copies         their bytes: without its text, which is nobody's business unasked
//! string like-9d21…         how many       their bytes: strings that are the same but for the numbers in them
//! library libcouchbase.so                  in whose name a word of the string before it is found
//! ```

use super::{CaptureRow, Captured};

/// The kind.
pub const KIND: &str = "heap";

/// What a row says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row<'a> {
    /// Anonymous memory that is resident.
    Resident,
    /// What the C heap has given out.
    InUse,
    /// What the C heap holds without use.
    Free,
    /// What a run time knows of, and which.
    Managed(&'a str),
    /// Objects of a type of the run time.
    Type(&'a str),
    /// Who holds the type of the row before.
    Holder(&'a str),
    /// Copies of a string, by its text or by what it is known by.
    Text(&'a str),
    /// The library in whose name a word of the string of the row before is found.
    Library(&'a str),
    /// Chunks of the C heap in use, of a size.
    Chunk(&'a str),
}

impl<'a> Row<'a> {
    /// What `what` of a row means; `None` where it is nothing that this version knows.
    #[must_use]
    pub fn parse(what: &'a str) -> Option<Self> {
        let (head, rest) = what.split_once(' ').unwrap_or((what, ""));
        Some(match (head, rest) {
            ("resident", "") => Row::Resident,
            ("in", "use") => Row::InUse,
            ("free", "") => Row::Free,
            ("managed", name) => Row::Managed(name),
            ("type", name) => Row::Type(name),
            ("holder", name) => Row::Holder(name),
            ("string", text) => Row::Text(text),
            ("library", path) => Row::Library(path),
            ("chunk", size) => Row::Chunk(size),
            _ => return None,
        })
    }

    fn what(self) -> String {
        match self {
            Row::Resident => "resident".to_owned(),
            Row::InUse => "in use".to_owned(),
            Row::Free => "free".to_owned(),
            Row::Managed(name) => format!("managed {name}"),
            Row::Type(name) => format!("type {name}"),
            Row::Holder(name) => format!("holder {name}"),
            Row::Text(text) => format!("string {text}"),
            Row::Library(path) => format!("library {path}"),
            Row::Chunk(size) => format!("chunk {size}"),
        }
    }
}

/// Adds a row of a process to a capture.
pub fn add(captured: &mut Captured, pid: u32, comm: &str, row: Row<'_>, count: u64, amount: u64) {
    captured.tops.push(CaptureRow {
        pid: Some(pid),
        comm: comm.to_owned(),
        what: row.what(),
        device: String::new(),
        count: count as f64,
        amount: amount as f64,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let rows = [
            Row::Resident,
            Row::InUse,
            Row::Free,
            Row::Managed("CPython 3.11"),
            Row::Type("app.Session"),
            Row::Holder("values of app.CACHE"),
            Row::Text("a b  c"),
            Row::Library("/usr/lib/libx.so"),
            Row::Chunk("48 bytes"),
        ];
        let mut captured = Captured::default();
        for row in rows {
            add(&mut captured, 7, "python3", row, 1, 2);
        }
        let read: Vec<Row<'_>> = captured.tops.iter().filter_map(|top| Row::parse(&top.what)).collect();
        assert_eq!(read, rows);
        assert_eq!(Row::parse("evicts /var"), None);
    }
}
