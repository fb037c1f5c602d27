//! Texts of `mitra inspect`.

pub mod diff;
pub mod growth;
pub mod heap;
pub mod memory;
pub mod resolver;

use mitra_diagnose::words;

use crate::render::units;

/// Bytes that may not be known.
fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| words::bytes(bytes as f64))
}

/// `1 thread`, `12,345 mappings`.
fn many(count: u64, what: &str) -> String {
    let number = units::grouped(count as f64);
    match what.strip_suffix('y') {
        _ if count == 1 => format!("{number} {what}"),
        Some(stem) => format!("{number} {stem}ies"),
        None if what.ends_with('s') => format!("{number} {what}es"),
        None => format!("{number} {what}s"),
    }
}

/// `+53 MB/h`.
fn per_hour(bytes: f64) -> String {
    format!("{}{}/h", if bytes > 0.0 { "+" } else { "" }, words::bytes(bytes))
}

/// `+580 MB`, with its sign.
fn signed(bytes: i64) -> String {
    format!("{}{}", if bytes > 0 { "+" } else { "" }, words::bytes(bytes as f64))
}

/// A long path from its end.
fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let rest: String = text.chars().skip(length + 1 - width).collect();
    format!("…{rest}")
}

#[cfg(test)]
mod tests {
    use mitra_inspect::Snapshot;

    use crate::render::style::Style;

    #[test]
    fn what_is_in_the_memory_of_a_process() {
        let look: Snapshot =
            serde_json::from_str(include_str!("../../../tests/cli/looks/after.json")).unwrap();
        let recorded = Err("the recording does not know the process".to_owned());
        let whole = [80, 120].map(|width| {
            let style = Style::plain(width);
            let memory = super::memory::text(
                &look.comm,
                look.pid,
                look.composition.as_ref().unwrap(),
                &recorded,
                5,
                &style,
            );
            format!("[{width}]\n{memory}\n{}", super::heap::text(&look, 5, &style))
        });
        insta::assert_snapshot!(whole.join("\n"));
    }
}
