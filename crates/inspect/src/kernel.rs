//! The kernel's own table of its functions: `/proc/kallsyms`.
//!
//! ```text
//! ffffffff81234560 T vfs_read
//! ffffffffc0401000 t ext4_file_read_iter [ext4]
//! ```

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// No function is longer. An address farther behind the beginning of the nearest one belongs to something that the table
/// does not have, such as a BPF program that has gone.
const FUNCTION_BYTES_MAX: u64 = 256 << 10;
/// More functions than any kernel has.
const FUNCTIONS_MAX: usize = 4 << 20;

/// The functions of the kernel and of its modules.
#[derive(Default)]
pub(crate) struct KernelSymbols {
    /// Where each begins, and where its name ends in `names`; by address.
    functions: Vec<(u64, u32, u16)>,
    names: String,
}

impl KernelSymbols {
    /// Reads the table; empty where it is not there, or where `kernel.kptr_restrict` makes all addresses zero.
    pub(crate) fn read(path: &Path) -> KernelSymbols {
        let mut symbols = KernelSymbols::default();
        let Ok(file) = File::open(path) else { return symbols };
        let mut reader = BufReader::with_capacity(1 << 16, file);
        let mut line = String::new();
        while symbols.functions.len() < FUNCTIONS_MAX {
            line.clear();
            match reader.read_line(&mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => _ = symbols.take(&line),
            }
        }
        // Of two names for one address the first stands.
        symbols.functions.sort_by_key(|(address, ..)| *address);
        symbols.functions.dedup_by_key(|(address, ..)| *address);
        symbols
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
        let name = words.next()?;
        if address > 0 && is_code {
            let (from, length) = (u32::try_from(self.names.len()).ok()?, u16::try_from(name.len()).ok()?);
            self.names.push_str(name);
            self.functions.push((address, from, length));
        }
        Some(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Where a function begins.
    #[cfg(test)]
    pub(crate) fn address(&self, wanted: &str) -> Option<u64> {
        let mut addresses = self.functions.iter().map(|(address, ..)| *address);
        addresses.find(|address| self.name(*address) == Some(wanted))
    }

    pub(crate) fn name(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|(start, ..)| *start <= address);
        let (start, from, length) = self.functions.get(after.checked_sub(1)?)?;
        if address - start > FUNCTION_BYTES_MAX {
            return None;
        }
        let from = *from as usize;
        self.names.get(from..from + usize::from(*length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> KernelSymbols {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kallsyms");
        std::fs::write(&path, text).unwrap();
        KernelSymbols::read(&path)
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
        assert!(KernelSymbols::read(Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn the_running_kernel_names_its_functions() {
        let symbols = KernelSymbols::read(Path::new("/proc/kallsyms"));
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
