//! `/proc/PID/stack`: the kernel functions that a task is in. Only root may read it.
//!
//! ```text
//! [<0>] folio_wait_bit_common+0x13d/0x350
//! [<0>] ext4_da_write_begin+0x10b/0x260 [ext4]
//! [<ffffffff8113f2ea>] sleep_on_page+0xe/0x20
//! [<ffffffffffffffff>] 0xffffffffffffffff
//! ```
//!
//! See `proc_pid_stack` in `fs/proc/base.c`. Addresses are hidden since 4.16; before, an entry without a function ended
//! the list.

use crate::Outcome;
use crate::scan::{Lines, word};

/// Writes the functions, innermost first, joined by semicolons. An empty file, as of a running task, gives nothing.
pub fn stack(input: &[u8], out: &mut String) -> Outcome {
    let mut outcome = Outcome::default();
    let mut lines = Lines::new(input);
    out.clear();
    while let Some(line) = lines.next(&mut outcome) {
        match function(line) {
            Some("") => {}
            Some(name) => {
                if !out.is_empty() {
                    out.push(';');
                }
                out.push_str(name);
            }
            None => outcome.bad(lines.number()),
        }
    }
    outcome
}

/// The function of a line, empty for an address without one.
fn function(line: &[u8]) -> Option<&str> {
    let (address, rest) = word(line)?;
    if !address.starts_with(b"[<") || !address.ends_with(b">]") {
        return None;
    }
    let (symbol, _) = word(rest)?;
    if symbol.starts_with(b"0x") {
        return Some("");
    }
    let plus = symbol.iter().position(|b| *b == b'+')?;
    let (name, offset) = symbol.split_at_checked(plus)?;
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'$');
    if name.is_empty() || !name.iter().all(is_name) || !offset.starts_with(b"+0x") {
        return None;
    }
    std::str::from_utf8(name).ok()
}

#[cfg(test)]
mod tests {
    use super::stack;
    use crate::testing::fixture;

    #[test]
    fn each_kernel() {
        for (kernel, expected) in [
            (
                "3.10",
                "sleep_on_page;wait_on_page_bit;filemap_fdatawait_range;xfs_file_fsync;do_fsync;system_call_fastpath",
            ),
            ("4.18", "io_schedule;wait_on_page_bit;ext4_da_write_begin;ksys_write;do_syscall_64"),
            ("5.15", "rwsem_down_write_slowpath;vm_mmap_pgoff;ksys_mmap_pgoff;do_syscall_64"),
            ("6.1", "folio_wait_bit_common;filemap_fault;__do_fault;asm_exc_page_fault"),
            (
                "6.18",
                "proc_pid_stack;proc_single_show;seq_read_iter;seq_read;vfs_read;ksys_read;do_syscall_64;entry_SYSCALL_64_after_hwframe",
            ),
        ] {
            let mut out = String::new();
            assert!(stack(fixture(kernel, "proc/4242/stack"), &mut out).is_clean());
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn damage() {
        let mut out = "left over".to_owned();
        let outcome = stack(
            b"[<0>] a+0x1/0x2\nb+0x1/0x2\n[<0>] c\n[<0>] d;e+0x1/0x2\n[<0>] \xff+0x1/0x2\n\n[<0>] +0x1\n[<0>] f.part.0+0x1/0x2 [m]\n[<0>] g+0x1/0x",
            &mut out,
        );
        assert_eq!(out, "a;f.part.0");
        assert_eq!((outcome.bad_lines, outcome.first_bad), (7, Some(2)));
        assert!(stack(b"", &mut out).is_clean());
        assert_eq!(out, "");
    }
}
