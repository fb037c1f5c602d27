//! The rows of a capture of kind `heap`: the memory of one process.
//!
//! ```text
//! what                      count          amount
//! resident                                 bytes of anonymous memory that are resident
//! in use                    chunks         bytes that the C heap has given out
//! free                      chunks         bytes that the C heap holds without use and cannot give back
//! managed CPython 3.11      objects        bytes of objects that the runtime knows of
//! type app.Session          objects        their bytes
//! holder app.CACHE                         who holds most of the objects of the type before it
//! chunk 48 bytes            chunks         their bytes: what the C heap has given out in pieces of a size
//! string ascii-22-5f0c…     copies         their bytes; a hash, because the text may be a secret
//! string like-9d21…         how many       their bytes: strings that are the same but for the numbers in them
//! library libcouchbase.so                  its name contains a word of the string in the row before
//! ```

use super::{CaptureRow, Captured};

/// The kind of the capture.
pub const KIND: &str = "heap";

/// The meaning of [`CaptureRow::what`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeapRow<'a> {
    /// Anonymous memory that is resident.
    Resident,
    /// Bytes that malloc has handed out.
    InUse,
    /// Bytes that malloc holds free.
    Free,
    /// The heap of a runtime, and its name.
    Managed(&'a str),
    /// Objects of one type of the runtime.
    Type(&'a str),
    /// The holder of most objects of the type in the row before.
    Holder(&'a str),
    /// Copies of a string, by its text or its hash.
    Text(&'a str),
    /// A library whose name contains a word of the string in the row before.
    Library(&'a str),
    /// malloc chunks in use of one size.
    Chunk(&'a str),
}

impl<'a> HeapRow<'a> {
    /// Parses [`CaptureRow::what`]. `None` for rows of later versions.
    #[must_use]
    pub fn parse(what: &'a str) -> Option<Self> {
        let (head, rest) = what.split_once(' ').unwrap_or((what, ""));
        Some(match (head, rest) {
            ("resident", "") => HeapRow::Resident,
            ("in", "use") => HeapRow::InUse,
            ("free", "") => HeapRow::Free,
            ("managed", name) => HeapRow::Managed(name),
            ("type", name) => HeapRow::Type(name),
            ("holder", name) => HeapRow::Holder(name),
            ("string", text) => HeapRow::Text(text),
            ("library", path) => HeapRow::Library(path),
            ("chunk", size) => HeapRow::Chunk(size),
            _ => return None,
        })
    }

    fn what(self) -> String {
        match self {
            HeapRow::Resident => "resident".to_owned(),
            HeapRow::InUse => "in use".to_owned(),
            HeapRow::Free => "free".to_owned(),
            HeapRow::Managed(name) => format!("managed {name}"),
            HeapRow::Type(name) => format!("type {name}"),
            HeapRow::Holder(name) => format!("holder {name}"),
            HeapRow::Text(text) => format!("string {text}"),
            HeapRow::Library(path) => format!("library {path}"),
            HeapRow::Chunk(size) => format!("chunk {size}"),
        }
    }
}

/// Adds a row of a process to a capture.
pub fn add(captured: &mut Captured, pid: u32, comm: &str, row: HeapRow<'_>, count: u64, amount: u64) {
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
            HeapRow::Resident,
            HeapRow::InUse,
            HeapRow::Free,
            HeapRow::Managed("CPython 3.11"),
            HeapRow::Type("app.Session"),
            HeapRow::Holder("values of app.CACHE"),
            HeapRow::Text("a b  c"),
            HeapRow::Library("/usr/lib/libx.so"),
            HeapRow::Chunk("48 bytes"),
        ];
        let mut captured = Captured::default();
        for row in rows {
            add(&mut captured, 7, "python3", row, 1, 2);
        }
        let read: Vec<HeapRow<'_>> =
            captured.tops.iter().filter_map(|top| HeapRow::parse(&top.what)).collect();
        assert_eq!(read, rows);
        assert_eq!(HeapRow::parse("evicts /var"), None);
    }
}
