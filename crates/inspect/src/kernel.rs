//! The kernel's own table of its functions: `/proc/kallsyms`.
//!
//! ```text
//! ffffffff81234560 T vfs_read
//! ffffffffc0401000 t ext4_file_read_iter [ext4]
//! ```

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::names::NameTable;

/// No function is longer. An address farther behind the nearest function belongs to code that is
/// missing from the table, such as an unloaded BPF program.
const FUNCTION_BYTES_MAX: u64 = 256 << 10;

/// Functions of the kernel and its modules. Empty without the file, or if `kernel.kptr_restrict`
/// makes all addresses zero.
pub(crate) fn read(path: &Path) -> NameTable {
    let mut table = NameTable::default();
    let Ok(file) = File::open(path) else { return table };
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut line = String::new();
    while matches!(reader.read_line(&mut line), Ok(1..)) {
        if let Some((address, name)) = function(&line)
            && !table.push(address, address.saturating_add(FUNCTION_BYTES_MAX + 1), name)
        {
            break;
        }
        line.clear();
    }
    table.finish();
    table
}

fn function(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
    Some((address, words.next()?)).filter(|_| address > 0 && is_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> NameTable {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kallsyms");
        std::fs::write(&path, text).unwrap();
        super::read(&path)
    }

    #[test]
    fn a_function_is_found_and_what_lies_beyond_is_not() {
        let symbols = read(
            "0000000000000000 A fixed\nffffffff81000000 T _text\nffffffff81000000 T again\nffffffff81000200 t read_it\n\
             ffffffff81000300 D data\nffffffffc0001000 t ext4_it\t[ext4]\nrubbish\n",
        );
        assert_eq!(symbols.name(0xffff_ffff_8100_0001), Some("_text"));
        assert_eq!(symbols.name(0xffff_ffff_8100_02ff), Some("read_it"));
        assert_eq!(symbols.name(0xffff_ffff_c000_1010), Some("ext4_it"));
        assert_eq!(symbols.name(0xffff_ffff_9000_0000), None);
        assert_eq!(symbols.name(0xffff_ffff_80ff_ffff), None);
        assert!(read("0000000000000000 T _text\n0000000000000000 t f\n").is_empty());
        assert!(super::read(Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn the_running_kernel_names_its_functions() {
        let symbols = super::read(Path::new("/proc/kallsyms"));
        let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let line = text.lines().find(|line| line.ends_with(" T vfs_read")).unwrap_or_default();
        let address = u64::from_str_radix(line.split(' ').next().unwrap_or_default(), 16).unwrap_or(0);
        if address == 0 {
            println!("skipped: this kernel hides its addresses");
            return;
        }
        assert_eq!(symbols.name(address + 4), Some("vfs_read"));
    }
}
