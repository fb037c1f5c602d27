//! Where a thread sleeps in the kernel.

use crate::file::{Buffer, Root};

/// The function of the kernel that a thread sleeps in (`/proc/PID/task/TID/wchan`), without what a compiler adds to the name of a copy:
/// `poll_schedule_timeout.constprop.0`.
pub fn function<'b>(root: &Root, pid: u32, tid: u32, buffer: &'b mut Buffer) -> &'b [u8] {
    let name = root.read(&format!("proc/{pid}/task/{tid}/wchan"), buffer).unwrap_or_default();
    name.split(|byte| *byte == b'.').next().unwrap_or_default()
}

/// What is waited for in some functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inside {
    Fuse,
    Fifo,
    Queue,
    Timer,
    Futex,
    Poll,
    /// For a request, as the daemon of a FUSE file system.
    Asked,
}

impl Inside {
    pub fn of(root: &Root, pid: u32, tid: u32, buffer: &mut Buffer) -> Option<Inside> {
        Inside::at(function(root, pid, tid, buffer))
    }

    fn at(function: &[u8]) -> Option<Inside> {
        match function {
            // `fs/fuse/dev.c`
            b"request_wait_answer" => Some(Inside::Fuse),
            b"fuse_dev_do_read" | b"fuse_dev_read" | b"fuse_dev_splice_read" => Some(Inside::Asked),
            // `fs/pipe.c`: before 5.5, since, and since 6.15; and who opens a FIFO of which nobody has the other end.
            b"pipe_wait" | b"pipe_read" | b"pipe_write" | b"anon_pipe_read" | b"anon_pipe_write"
            | b"wait_for_partner" | b"fifo_open" => Some(Inside::Fifo),
            // `ipc/mqueue.c`
            b"wq_sleep" | b"do_mq_timedsend" | b"do_mq_timedreceive" => Some(Inside::Queue),
            // Of calls that go on after a stop or a freezer: `kernel/time/hrtimer.c`, `kernel/futex/`, `fs/select.c`.
            b"do_nanosleep" | b"hrtimer_nanosleep" | b"common_nsleep" => Some(Inside::Timer),
            b"futex_do_wait"
            | b"futex_wait_queue"
            | b"futex_wait_queue_me"
            | b"__futex_wait"
            | b"futex_wait" => Some(Inside::Futex),
            b"poll_schedule_timeout" | b"do_poll" | b"do_sys_poll" => Some(Inside::Poll),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_copy_is_that_of_the_function() {
        let dir = tempfile::tempdir().unwrap();
        let task = dir.path().join("proc/7/task/8");
        std::fs::create_dir_all(&task).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let inside = |name: &str| {
            std::fs::write(task.join("wchan"), name).unwrap();
            Inside::of(&root, 7, 8, &mut Buffer::default())
        };
        assert_eq!(inside("poll_schedule_timeout.constprop.0"), Some(Inside::Poll));
        assert_eq!(inside("hrtimer_nanosleep"), Some(Inside::Timer));
        assert_eq!(inside("futex_do_wait"), Some(Inside::Futex));
        assert_eq!((inside("0"), inside("")), (None, None));
    }
}
