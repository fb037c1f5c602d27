//! The stacks of threads, by the stack pointer of each sleeping thread in
//! `/proc/PID/task/TID/syscall` (proc(5)). The kernel has not named stacks of threads since 4.5. A
//! running thread has only `running` there, and is not stopped.
//!
//! ```text
//! 202 0x7f1b70000b60 0x189 0x0 0x0 0x0 0xffffffff 0x7f1b6fffece0 0x7f1b75a8a117
//! -1 0x7ffe5b2b3bb8 0x7f8f8bd2a73b
//! ```

use std::fs;

/// Limit of the threads that are read, with a system call each.
const THREADS_MAX: usize = 4096;

/// The available stack pointers.
pub(super) fn pointers(pid: u32) -> Vec<u64> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let pointer = |task: fs::DirEntry| pointer(&fs::read_to_string(task.path().join("syscall")).ok()?);
    tasks.flatten().take(THREADS_MAX).filter_map(pointer).collect()
}

/// The last field but one.
fn pointer(text: &str) -> Option<u64> {
    let field = text.trim_end().rsplit(' ').nth(1)?;
    u64::from_str_radix(field.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_pointer_stands_before_the_program_counter() {
        let waits = "202 0x7f1b70000b60 0x189 0x0 0x0 0x0 0xffffffff 0x7f1b6fffece0 0x7f1b75a8a117\n";
        assert_eq!(pointer(waits), Some(0x7f1b_6fff_ece0));
        assert_eq!(pointer("-1 0x7ffe5b2b3bb8 0x7f8f8bd2a73b\n"), Some(0x7ffe_5b2b_3bb8));
        assert_eq!(pointer("running\n"), None);
        assert_eq!(pointer(""), None);
    }
}
