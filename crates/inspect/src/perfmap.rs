//! Names that a JIT compiler writes for its code: `/tmp/perf-PID.map`, one function on each line.
//!
//! ```text
//! 7f52c0d00000 1a0 py::handle:/srv/app.py
//! ```

use crate::names::NameTable;

const FUNCTIONS_MAX: usize = 1 << 20;

/// Reads the file. Of two lines for one address the later one counts, because code is recompiled.
pub(crate) fn parse(text: &str) -> NameTable {
    let mut table = NameTable::default();
    let function = |line| {
        let mut words = str::splitn(line, 3, ' ');
        let mut hex = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
        let (start, size) = (hex()?, hex()?);
        let name = words.next().map(str::trim).filter(|name| !name.is_empty())?;
        Some((start, start.saturating_add(size), name))
    };
    for (start, end, name) in text.lines().rev().filter_map(function).take(FUNCTIONS_MAX) {
        if !table.push(start, end, name) {
            break;
        }
    }
    table.finish();
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_by_its_address() {
        let map = parse("1000 10 first one\n2000 8 old\n\nbad\n0x3000 4 c\n2000 8 new\nzz 1 d\n4000 4 \n");
        assert_eq!(map.name(0x1000), Some("first one"));
        assert_eq!(map.name(0x100f), Some("first one"));
        assert_eq!(map.name(0x1010), None);
        assert_eq!(map.name(0x2004), Some("new"));
        assert_eq!(map.name(0x3001), Some("c"));
        assert_eq!(map.name(0x4001), None);
        assert_eq!(map.name(0), None);
    }
}
