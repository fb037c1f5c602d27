//! What a thread waits for, and who can end the wait.

use std::net::SocketAddr;

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What a thread waits for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $variant,)* }

        impl Kind {
            /// As `wait.kind` has it.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$variant => $name,)* }
            }
        }
    };
}

kinds! {
    /// It runs or wants to.
    Cpu = "cpu",
    /// A mutex of glibc whose owner is known.
    Mutex = "mutex",
    /// A lock of a file.
    FileLock = "lock",
    /// It sleeps for moments, and a file that it has open is locked by somebody else: it tries again until it gets the lock.
    Tries = "tries",
    /// Permission of a program that scans files as they are opened (`FAN_OPEN_PERM`).
    Fanotify = "fanotify",
    /// The other end of a pipe or a FIFO.
    Pipe = "pipe",
    /// The other end of a pipe or a FIFO that is full: it writes, and nobody reads.
    Full = "full",
    /// The other end of a socket: it sends, and nobody reads.
    Sends = "sends",
    /// The other end of a POSIX message queue.
    Queue = "queue",
    /// The other end of a Unix socket.
    Unix = "unix",
    /// The other end of a TCP connection.
    Tcp = "tcp",
    /// No thread waits: the other end of a connection does not read what was written into it.
    Unread = "unread",
    /// A child that ends.
    Child = "child",
    /// An answer of a FUSE daemon.
    Fuse = "fuse",
    /// Block I/O, or that it may write again.
    Disk = "disk",
    /// Something else inside the kernel, in uninterruptible sleep.
    Kernel = "kernel",
    /// The time to pass.
    Timer = "timer",
    /// It is stopped by a signal or a debugger.
    Stopped = "stopped",
    /// Whoever traces it (ptrace) to let it go on.
    Traced = "traced",
    /// The freezer of a cgroup holds it.
    Frozen = "frozen",
    /// A connection to accept.
    Accept = "accept",
    /// A request of a client of its own, or the rest of one.
    Client = "client",
    /// The other end of a connection of its own, unless another thread of its process wakes it: clients whose event loop has a
    /// descriptor for that.
    Answer = "answer",
    /// Another thread of its process: a condition variable, a semaphore, a pipe or an eventfd of its own.
    Futex = "futex",
    /// One of many descriptors, or of several that not only other processes write to.
    Poll = "poll",
    /// Something else.
    Other = "other",
}

impl Kind {
    /// Whether another process or thread ends such a wait, known or not.
    pub fn has_other_end(self) -> bool {
        use Kind::{
            Answer, Child, Fanotify, FileLock, Full, Fuse, Mutex, Pipe, Queue, Sends, Tcp, Traced, Tries,
            Unix,
        };
        matches!(
            self,
            Mutex
                | FileLock
                | Tries
                | Fanotify
                | Full
                | Sends
                | Pipe
                | Queue
                | Unix
                | Tcp
                | Child
                | Answer
                | Traced
                | Fuse
        )
    }
}

/// Who can end a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// It is not known, or nobody in particular.
    Unknown,
    Process(u32),
    /// The thread of the same process that holds the mutex at this address.
    Thread {
        word: u64,
        tid: u32,
    },
    /// Somebody elsewhere.
    Address(SocketAddr),
}
