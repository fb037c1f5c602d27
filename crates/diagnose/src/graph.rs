//! Which condition can cause which: the knowledge of mechanisms. It has no cycles.

/// One condition can bring about another.
#[derive(Debug, Clone, Copy)]
pub struct Edge {
    /// The id of the cause.
    pub cause: &'static str,
    /// The id of the effect.
    pub effect: &'static str,
    /// Why.
    pub because: &'static str,
    /// Whether the effect can be seen before the cause: true where both are two sides of one state, so that
    /// timing says nothing.
    pub any_order: bool,
    /// Whether it holds only within one process: a busy thread keeps its own server from accepting and no other.
    pub same_process: bool,
    /// Whether it holds only in one place: the queue of one disk, or of one network namespace, is not that of another.
    pub same_place: bool,
}

const fn edge(cause: &'static str, effect: &'static str, because: &'static str) -> Edge {
    Edge { cause, effect, because, any_order: false, same_process: false, same_place: false }
}

/// An edge that holds only where both are in one place, or it is not known where they are.
const fn here(edge: Edge) -> Edge {
    Edge { same_place: true, ..edge }
}

/// The effect is a coarser name of the same state; where both are active the cause is the better word.
const fn explains(cause: &'static str, effect: &'static str, because: &'static str) -> Edge {
    Edge { cause, effect, because, any_order: true, same_process: false, same_place: false }
}

/// An edge that holds only where both are the doing of one process.
const fn within(cause: &'static str, effect: &'static str, because: &'static str) -> Edge {
    Edge { cause, effect, because, any_order: true, same_process: true, same_place: false }
}

/// Every edge.
#[must_use]
pub fn edges() -> &'static [Edge] {
    EDGES
}

static EDGES: &[Edge] = &[
    // Page cache and reclaim.
    edge("streaming-read-flood", "free-memory-low", "pages that are read once fill the free memory"),
    edge("streaming-read-flood", "kswapd-scanning", "each new page needs another one to go"),
    edge("streaming-read-flood", "page-cache-eviction", "pages that are read once push out pages in use"),
    edge("streaming-read-flood", "direct-reclaim", "the reader takes pages faster than kswapd frees them"),
    edge(
        "streaming-read-flood",
        "memory-fragmentation",
        "what is free between pages that are read once lies scattered, and adjoining pages have to be made",
    ),
    edge(
        "streaming-read-flood",
        "page-cache-thrash",
        "what was pushed out is read again, and while memory is full each page that comes back pushes another one out",
    ),
    here(explains(
        "streaming-read-flood",
        "disk-hog",
        "the reads that evict are the reads that fill the device",
    )),
    explains(
        "streaming-read-flood",
        "cgroup-memory-limit",
        "the pages that are read once are charged to the group",
    ),
    edge("page-cache-thrash", "free-memory-low", "a working set that does not fit leaves nothing free"),
    edge("page-cache-thrash", "kswapd-scanning", "each page that comes back needs another one to go"),
    edge("page-cache-thrash", "page-cache-eviction", "each page that comes back pushes another one out"),
    edge("page-cache-thrash", "direct-reclaim", "pages are wanted faster than kswapd frees them"),
    explains("page-cache-thrash", "refaults", "the pages that were pushed out are read again"),
    here(explains(
        "page-cache-thrash",
        "disk-hog",
        "the reads that fill the device are the same pages again",
    )),
    here(explains("page-cache-thrash", "disk-saturated", "the same pages are read again and again")),
    explains(
        "page-cache-thrash",
        "cgroup-memory-limit",
        "the working set is what does not fit under the limit",
    ),
    edge("free-memory-low", "kswapd-scanning", "below the low watermark kswapd wakes"),
    edge("kswapd-scanning", "page-cache-eviction", "kswapd frees file pages first"),
    edge(
        "kswapd-scanning",
        "direct-reclaim",
        "when kswapd does not keep up, whoever allocates has to reclaim",
    ),
    edge("cgroup-memory-limit", "page-cache-eviction", "at its limit a group evicts its own pages"),
    edge("cgroup-memory-limit", "pressure-memory", "tasks of the group wait for its reclaim"),
    edge("direct-reclaim", "page-cache-eviction", "direct reclaim frees file pages first"),
    edge("direct-reclaim", "pressure-memory", "whoever allocates waits"),
    edge("page-cache-eviction", "active-file-eviction", "when inactive pages run out, active ones go"),
    edge("page-cache-eviction", "refaults", "evicted pages that are in use come back"),
    edge("page-cache-eviction", "major-faults", "evicted pages of mapped files come back by a fault"),
    edge("active-file-eviction", "refaults", "active pages are in use"),
    edge("refaults", "major-faults", "a page of a mapped file comes back by a major fault"),
    edge("refaults", "disk-saturated", "pages that come back are read from the device"),
    edge(
        "refaults",
        "pressure-memory",
        "waiting for a page that was evicted while in use counts as memory pressure",
    ),
    edge("refaults", "pressure-io", "waiting for a page is waiting for the device"),
    edge("major-faults", "disk-saturated", "each major fault is a read"),
    edge("major-faults", "tasks-in-d-state", "a task in a major fault sleeps uninterruptibly"),
    edge("major-faults", "pressure-io", "a task in a major fault waits for the device"),
    edge("kswapd-scanning", "mass-reclaim", "kswapd frees until its watermark is reached again"),
    edge("direct-reclaim", "mass-reclaim", "many tasks reclaim at once"),
    edge(
        "mass-reclaim",
        "scheduling-stall",
        "reclaim keeps the CPUs in the kernel and holds locks that lookups need",
    ),
    edge("direct-reclaim", "scheduling-stall", "whoever allocates reclaims instead of doing its work"),
    edge("scheduling-stall", "session-drop", "a program that does not run misses its heartbeats"),
    // Growth.
    edge(
        "slab-dentry-bloat",
        "free-memory-low",
        "a cache of names that nobody asks for again takes the memory",
    ),
    edge("slab-dentry-bloat", "mass-reclaim", "when memory runs out, millions of entries have to go at once"),
    edge("slab-dentry-bloat", "kswapd-scanning", "a cache that grows without end needs other pages to go"),
    edge("slab-dentry-bloat", "direct-reclaim", "entries are made faster than kswapd frees them"),
    edge("slab-dentry-bloat", "page-cache-eviction", "pages of files go to make room for names"),
    explains("slab-dentry-bloat", "cpu-hog", "the time goes into lookups of names that do not exist"),
    explains("slab-dentry-bloat", "single-thread-bottleneck", "the thread is busy with lookups in vain"),
    edge("memory-leak-native", "free-memory-low", "memory that is not given back runs out"),
    edge("memory-leak-managed", "free-memory-low", "memory that is not given back runs out"),
    edge("memory-leak-native", "oom-kill", "memory that is not given back runs out until the kernel kills"),
    edge("memory-leak-managed", "oom-kill", "memory that is not given back runs out until the kernel kills"),
    edge("memory-leak-native", "cgroup-memory-limit", "memory that is not given back fills the group"),
    edge("memory-leak-managed", "cgroup-memory-limit", "memory that is not given back fills the group"),
    edge("anonymous-growth", "free-memory-low", "what processes ask for leaves nothing free"),
    edge("anonymous-growth", "kswapd-scanning", "memory that cannot be dropped needs other pages to go"),
    edge("anonymous-growth", "direct-reclaim", "memory is wanted faster than kswapd frees it"),
    edge("anonymous-growth", "page-cache-eviction", "pages of files go to make room"),
    edge("anonymous-growth", "pressure-memory", "whoever allocates waits"),
    edge("anonymous-growth", "swap-thrash", "what does not fit goes to swap and comes back"),
    edge("anonymous-growth", "oom-kill", "memory runs out until the kernel kills"),
    edge(
        "anonymous-growth",
        "page-cache-thrash",
        "the working set fitted before; what has grown takes its place",
    ),
    edge(
        "shmem-growth",
        "page-cache-thrash",
        "the working set fitted before; what has grown takes its place",
    ),
    edge("slab-leak", "page-cache-thrash", "the working set fitted before; what has grown takes its place"),
    edge("slab-inode-bloat", "page-cache-thrash", "the working set fitted before; inodes take its place"),
    edge("slab-dentry-bloat", "page-cache-thrash", "the working set fitted before; names take its place"),
    explains("memory-leak-native", "anonymous-growth", "the leak is what grows"),
    explains("memory-leak-managed", "anonymous-growth", "the objects are what grows"),
    edge("shmem-growth", "free-memory-low", "shared memory leaves nothing free"),
    edge("shmem-growth", "kswapd-scanning", "memory that cannot be dropped needs other pages to go"),
    edge("shmem-growth", "direct-reclaim", "memory is wanted faster than kswapd frees it"),
    edge("shmem-growth", "oom-kill", "memory runs out until the kernel kills"),
    edge("slab-inode-bloat", "free-memory-low", "inodes leave nothing free"),
    edge("slab-inode-bloat", "direct-reclaim", "inodes are freed by whoever needs memory"),
    edge("slab-leak", "free-memory-low", "kernel memory leaves nothing free"),
    edge("slab-leak", "oom-kill", "memory runs out until the kernel kills"),
    edge("memory-fragmentation", "compaction-stall", "adjoining pages have to be made first"),
    edge("compaction-stall", "pressure-memory", "whoever asks for adjoining pages waits"),
    edge("numa-imbalance", "kswapd-scanning", "the full node reclaims while the other has room"),
    edge("user-lock-contention", "cpu-saturated", "threads that race for a lock wake each other"),
    within("user-lock-contention", "cpu-hog", "the CPU goes into waking and sleeping"),
    edge(
        "user-lock-contention",
        "runqueue-wait",
        "who is woken queues behind the one that goes on with the lock",
    ),
    edge("fork-stall", "mmap-lock-contention", "page tables are copied under the lock"),
    // Faults and the lock of the address space.
    explains(
        "allocator-carrier-misfit",
        "minor-fault-storm",
        "each block that is mapped by itself is touched page by page",
    ),
    explains(
        "allocator-carrier-misfit",
        "mmap-lock-contention",
        "each map and unmap takes the lock for writing",
    ),
    explains("fork-storm", "minor-fault-storm", "each new process touches its pages for the first time"),
    edge("minor-fault-storm", "mmap-lock-contention", "each fault takes the lock for reading"),
    within("minor-fault-storm", "cpu-hog", "the CPU goes into faults"),
    explains(
        "allocator-carrier-misfit",
        "cpu-hog",
        "the CPU goes into faults and into the maps of the blocks",
    ),
    within("minor-fault-storm", "single-thread-bottleneck", "the thread is busy with faults"),
    edge("mmap-lock-contention", "tasks-in-d-state", "who waits for the lock sleeps uninterruptibly"),
    edge("minor-fault-storm", "cpu-saturated", "faults cost CPU"),
    // Swap and the OOM killer.
    edge("swap-thrash", "major-faults", "a page that comes back from swap comes by a major fault"),
    edge("swap-thrash", "pressure-memory", "waiting for one's own pages counts as memory pressure"),
    edge("swap-thrash", "direct-reclaim", "each page that comes in needs another one to go"),
    edge("swap-thrash", "kswapd-scanning", "each page that comes in needs another one to go"),
    edge("swap-thrash", "page-cache-eviction", "reclaim that swaps takes file pages too"),
    explains("swap-thrash", "cgroup-memory-limit", "the memory in use is what does not fit under the limit"),
    explains("swap-thrash", "disk-hog", "the device is busy with swapping"),
    explains("swap-thrash", "disk-saturated", "the device is busy with swapping"),
    explains("oom-kill", "cgroup-memory-limit", "the group ran into its limit until the kernel killed"),
    explains("oom-kill", "free-memory-low", "memory ran out until the kernel killed"),
    edge("oom-kill", "pressure-memory", "reclaim was tried in vain before the kill"),
    edge("oom-kill", "direct-reclaim", "reclaim was tried in vain before the kill"),
    edge("oom-kill", "page-cache-eviction", "reclaim was tried in vain before the kill"),
    edge("oom-kill", "major-faults", "program text was evicted before the kill"),
    // Disk.
    here(edge("disk-hog", "disk-saturated", "one process keeps the device's queue full")),
    here(explains("mirror-member-slow", "slow-device", "the member is the device that is slow")),
    here(explains("mirror-member-slow", "disk-hog", "the queue is long because one member is slow")),
    here(explains("mirror-member-slow", "disk-saturated", "each write waits for the slowest member")),
    here(edge(
        "mirror-member-slow",
        "dirty-writeback-stall",
        "a mirror takes no more than its slowest member",
    )),
    edge("mirror-member-slow", "pressure-io", "each write waits for the slowest member"),
    edge("mirror-member-slow", "tasks-in-d-state", "each write waits for the slowest member"),
    here(explains("slow-device", "disk-saturated", "the same requests take longer, so they queue")),
    here(explains(
        "slow-device",
        "disk-hog",
        "the queue is long because the device is slow, not because of who uses it most",
    )),
    here(edge("slow-device", "dirty-writeback-stall", "a device that takes less leaves the backlog to grow")),
    edge("slow-device", "pressure-io", "each request takes longer"),
    edge("slow-device", "tasks-in-d-state", "each request takes longer"),
    here(explains(
        "dirty-writeback-stall",
        "disk-hog",
        "the bytes that fill the queue come from the page cache",
    )),
    here(explains("dirty-writeback-stall", "disk-saturated", "the backlog keeps the device's queue full")),
    edge("dirty-writeback-stall", "pressure-io", "writers and syncs wait for the backlog"),
    edge("dirty-writeback-stall", "tasks-in-d-state", "writers and syncs wait for the backlog"),
    edge("dirty-writeback-stall", "direct-reclaim", "pages that wait to be written cannot be dropped"),
    here(explains("io-throttled", "disk-hog", "who waits is held back by a rule")),
    here(edge("io-throttled", "dirty-writeback-stall", "what a rule holds back stays dirty")),
    edge("io-throttled", "pressure-io", "requests wait for their turn by the rule"),
    edge("io-throttled", "tasks-in-d-state", "requests wait for their turn by the rule"),
    edge("filesystem-full", "process-crash", "a program that cannot write ends"),
    edge("filesystem-full", "crash-loop", "a program that cannot write ends, each time it is started"),
    edge("inode-exhaustion", "process-crash", "a program that cannot make a file ends"),
    edge("inode-exhaustion", "crash-loop", "a program that cannot make a file ends, each time it is started"),
    edge("disk-saturated", "pressure-io", "requests wait in the queue"),
    edge("disk-saturated", "tasks-in-d-state", "tasks wait for their requests"),
    edge("disk-saturated", "iowait-high", "a CPU idles while a task of it waits for the device"),
    edge("pressure-io", "iowait-high", "a CPU idles while a task of it waits for the device"),
    edge("tasks-in-d-state", "load-high", "the load average counts tasks in D state"),
    // CPU.
    edge("fork-storm", "cpu-saturated", "to fork, exec and exit costs CPU"),
    edge("fork-storm", "runqueue-wait", "each new process wants a CPU at once"),
    explains(
        "fork-storm",
        "runqueue-saturation",
        "the tasks in the queue are the ones that are started all the time",
    ),
    explains("fork-storm", "cpu-hog", "the CPU goes into starting processes"),
    explains("fork-storm", "single-thread-bottleneck", "the thread is busy with starting processes"),
    edge("cpu-hog", "cpu-saturated", "one program takes the CPUs"),
    edge("cpu-hog", "runqueue-wait", "others wait while it runs"),
    explains("cpu-hog", "runqueue-saturation", "the queue is long because one program takes the CPUs"),
    edge("runqueue-saturation", "cpu-saturated", "more tasks want to run than there are CPUs"),
    edge("runqueue-saturation", "runqueue-wait", "more tasks want to run than there are CPUs"),
    edge(
        "cpu-affinity-misplaced",
        "runqueue-wait",
        "tasks queue for the CPUs they may use while others idle",
    ),
    edge("cpu-quota-throttled", "runqueue-wait", "a throttled task is runnable and may not run"),
    edge("cpu-saturated", "runqueue-wait", "without an idle CPU a task has to queue"),
    edge("single-thread-bottleneck", "runqueue-wait", "what shares the CPU with the busy thread waits"),
    edge("runqueue-wait", "pressure-cpu", "waiting for a CPU is CPU pressure"),
    edge("runqueue-wait", "load-high", "the load average counts runnable tasks"),
    // Network.
    here(edge("qdisc-drops", "retransmit-storm", "what the device's own queue drops is sent again")),
    here(edge(
        "qdisc-drops",
        "resolver-slow",
        "questions that are dropped before they are sent have no answer",
    )),
    edge("qdisc-drops", "session-drop", "heartbeats are dropped with the rest"),
    edge(
        "nic-drops",
        "retransmit-storm",
        "confirmations that are lost on arrival make their data be sent again",
    ),
    edge("nic-drops", "resolver-slow", "answers are lost on arrival"),
    edge("nic-drops", "session-drop", "heartbeats are lost on arrival"),
    edge("conntrack-full", "retransmit-storm", "what cannot be tracked is dropped and sent again"),
    edge("conntrack-full", "resolver-slow", "a question is a new connection to the table, and dropped"),
    edge("conntrack-full", "session-drop", "a session that begins anew finds no entry"),
    edge("retransmit-storm", "resolver-slow", "questions and answers get lost on the same way"),
    edge("retransmit-storm", "session-drop", "heartbeats get lost on the way"),
    edge(
        "socket-buffer-overflow",
        "resolver-slow",
        "the answer was dropped at the socket that waited for it",
    ),
    edge("socket-buffer-overflow", "session-drop", "heartbeats are dropped at the socket"),
    explains(
        "listen-overflow",
        "retransmit-storm",
        "who was let in by half sends a request, and again, to a server that has not taken the connection",
    ),
    edge("listen-overflow", "session-drop", "a session that begins anew is not accepted"),
    within("single-thread-bottleneck", "listen-overflow", "the thread that is busy is the one that accepts"),
    within(
        "single-thread-bottleneck",
        "socket-buffer-overflow",
        "the thread that is busy is the one that reads",
    ),
    within("fd-exhaustion", "listen-overflow", "a server without descriptors cannot accept"),
    edge("interrupt-imbalance", "nic-drops", "one CPU takes all packets and can take no more"),
    within("cpu-quota-throttled", "listen-overflow", "a server that is throttled does not accept"),
    edge("runqueue-wait", "listen-overflow", "a server that waits for a CPU does not accept"),
    within("cpu-quota-throttled", "socket-buffer-overflow", "a program that is throttled does not read"),
    edge("scheduling-stall", "listen-overflow", "a server that does not run does not accept"),
    edge("scheduling-stall", "socket-buffer-overflow", "a program that does not run does not read"),
    edge(
        "tcp-memory-pressure",
        "socket-buffer-overflow",
        "no buffer may grow any more, and what comes is dropped",
    ),
    edge("tcp-memory-pressure", "retransmit-storm", "segments are dropped for lack of memory and sent again"),
    edge("tcp-memory-pressure", "session-drop", "connections are reset for lack of memory"),
    edge("tcp-orphan-pressure", "session-drop", "connections are reset"),
    // One process, one device, one setting.
    explains(
        "fork-stall",
        "minor-fault-storm",
        "each page that is written to after the fork is copied by a fault",
    ),
    explains("fork-stall", "single-thread-bottleneck", "the thread is busy with copying pages"),
    within("fork-stall", "scheduled-burst", "the work of the copies comes as often as it forks"),
    within("user-lock-contention", "single-thread-bottleneck", "the threads take turns"),
    edge("slab-inode-bloat", "kswapd-scanning", "a cache that grows needs other pages to go"),
    edge("slab-inode-bloat", "page-cache-eviction", "pages of files go to make room for inodes"),
    edge("slab-leak", "kswapd-scanning", "memory that cannot be dropped needs other pages to go"),
    edge("slab-leak", "page-cache-eviction", "pages of files go to make room"),
    edge("slab-leak", "direct-reclaim", "memory is wanted faster than kswapd frees it"),
    edge("shmem-growth", "page-cache-eviction", "pages of files go to make room"),
    edge("shmem-growth", "swap-thrash", "what does not fit goes to swap and comes back"),
    edge("shmem-growth", "pressure-memory", "whoever allocates waits"),
    edge("config-drift", "listen-overflow", "the limit was lowered"),
    edge("config-drift", "conntrack-full", "the limit was lowered"),
    edge("config-drift", "port-exhaustion", "fewer ports are left"),
    within("fd-exhaustion", "single-thread-bottleneck", "accept fails at once and is tried again at once"),
    within("fd-exhaustion", "cpu-hog", "the CPU goes into calls that fail at once"),
    explains("slab-leak", "fd-exhaustion", "each object is held by a descriptor"),
    explains("crash-loop", "process-crash", "the crash is the one that comes with each start"),
    explains("crash-loop", "fork-storm", "the processes are the ones that are started again"),
    explains("crash-loop", "cpu-hog", "the CPU goes into starting it"),
    edge("thread-explosion", "runqueue-saturation", "threads that wake together queue for the CPUs"),
    edge("thread-explosion", "cpu-saturated", "threads that wake together queue for the CPUs"),
    edge("thread-explosion", "runqueue-wait", "threads that wake together queue for the CPUs"),
    explains("thread-explosion", "cpu-hog", "the CPU goes into its threads"),
    edge("thread-explosion", "free-memory-low", "each thread takes memory of the kernel"),
    explains("thread-explosion", "slab-leak", "each thread takes objects of the kernel"),
    explains("thread-explosion", "anonymous-growth", "each thread touches a stack of its own"),
    explains("thread-explosion", "mmap-lock-contention", "each start of a thread maps a stack"),
    explains("thread-explosion", "minor-fault-storm", "each thread touches a stack of its own"),
    here(explains("hardware-error", "slow-device", "requests are tried again until they time out")),
    here(edge("hardware-error", "dirty-writeback-stall", "what cannot be written stays dirty")),
    here(edge("device-lost", "dirty-writeback-stall", "what cannot be written stays dirty")),
    edge("config-drift", "dirty-writeback-stall", "writers are made to wait at the new limit"),
    explains("scheduled-burst", "dirty-writeback-stall", "the jobs are what writes"),
    edge("hung-task", "tasks-in-d-state", "a task that hangs sleeps uninterruptibly"),
    edge("hung-task", "pressure-io", "what waits behind the one that hangs waits for the device"),
    edge("hung-task", "session-drop", "a program that hangs misses its heartbeats"),
    explains("hung-task", "disk-hog", "who is found waiting waits for a frozen file system to be thawed"),
    // The watchdog speaks minutes later, of a sleep that began at some time before.
    explains(
        "slow-device",
        "hung-task",
        "each request takes longer, and who waits for many waits for minutes",
    ),
    explains("io-throttled", "hung-task", "who waits for a turn by the rule waits for minutes"),
    explains("dirty-writeback-stall", "hung-task", "who syncs waits for the whole backlog"),
    edge("device-lost", "hung-task", "requests to a device that is gone never end"),
    edge("device-lost", "pressure-io", "requests to a device that is gone never end"),
    edge("device-lost", "session-drop", "the link is what the session runs over"),
    here(edge("device-lost", "hardware-error", "requests to a device that is gone fail")),
    edge("hardware-error", "hung-task", "requests are tried again until they time out"),
    here(edge("hardware-error", "disk-saturated", "requests are tried again until they time out")),
    edge("hardware-error", "pressure-io", "requests are tried again until they time out"),
    edge("hardware-error", "tasks-in-d-state", "requests are tried again until they time out"),
    explains(
        "hardware-error",
        "process-crash",
        "a page that cannot be read ends the program that touches it",
    ),
    edge("interrupt-imbalance", "runqueue-wait", "what runs on the CPU of the interrupts waits for them"),
    explains("interrupt-imbalance", "cpu-affinity-misplaced", "the CPU is full of interrupts, not of tasks"),
    explains("interrupt-imbalance", "cpu-hog", "the CPU goes into packets"),
    explains(
        "interrupt-imbalance",
        "single-thread-bottleneck",
        "the thread shares its CPU with the interrupts",
    ),
    edge("cpu-steal", "runqueue-wait", "tasks wait for a CPU that is away"),
    edge("cpu-steal", "cpu-saturated", "what is stolen is not idle"),
    explains("cpu-steal", "runqueue-saturation", "the queue is long because the CPUs are away"),
    explains("cpu-steal", "single-thread-bottleneck", "the thread has less than a CPU"),
    edge("cpu-steal", "scheduling-stall", "a CPU that is away runs nothing"),
    edge("clock-step", "session-drop", "deadlines by the wall clock pass at once"),
    edge("clock-step", "scheduled-burst", "timers whose time was jumped over fire together"),
    edge("config-drift", "tasks-in-d-state", "writers are made to wait at the new limit"),
    edge("config-drift", "pressure-io", "writers are made to wait at the new limit"),
    edge("config-drift", "swap-thrash", "memory in use is swapped sooner"),
    edge("config-drift", "free-memory-low", "more memory has to stay free, or is set aside"),
    edge("config-drift", "kswapd-scanning", "more memory has to stay free, or is set aside"),
    edge("config-drift", "direct-reclaim", "more memory has to stay free, or is set aside"),
    edge("config-drift", "page-cache-eviction", "pages of files go to make room"),
    edge("config-drift", "mass-reclaim", "pages of files go to make room"),
    edge("config-drift", "refaults", "pages of files went to make room"),
    explains("config-drift", "page-cache-thrash", "what fitted before the change does not fit any more"),
    edge("config-drift", "compaction-stall", "the kernel compacts more"),
    edge("config-drift", "slab-dentry-bloat", "reclaim spares dentries"),
    edge("config-drift", "slab-inode-bloat", "reclaim spares inodes"),
    edge("config-drift", "fd-exhaustion", "the limit was lowered"),
    edge("config-drift", "tcp-orphan-pressure", "the limit was lowered"),
    edge("config-drift", "tcp-memory-pressure", "the limit was lowered"),
    explains("scheduled-burst", "cpu-hog", "the jobs are what takes the CPU"),
    explains("scheduled-burst", "runqueue-saturation", "the jobs are what queues"),
    explains("scheduled-burst", "fork-storm", "the jobs are what is started"),
    explains("scheduled-burst", "disk-hog", "the jobs are what fills the device"),
    explains("scheduled-burst", "streaming-read-flood", "the jobs are what reads"),
    explains("scheduled-burst", "single-thread-bottleneck", "the jobs are what runs"),
    edge("scheduled-burst", "cpu-saturated", "the jobs take the CPUs"),
    edge("scheduled-burst", "runqueue-wait", "others wait while the jobs run"),
    edge("scheduled-burst", "pressure-io", "others wait while the jobs read and write"),
];

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn every_end_is_a_condition() {
        let known: BTreeSet<&str> = crate::conditions().iter().map(|c| c.id).collect();
        for edge in edges() {
            assert!(known.contains(edge.cause), "{} is no condition", edge.cause);
            assert!(known.contains(edge.effect), "{} is no condition", edge.effect);
        }
    }

    #[test]
    fn there_are_no_cycles_and_no_doubles() {
        let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for edge in edges() {
            assert!(next.entry(edge.cause).or_default().insert(edge.effect), "{edge:?} stands twice");
        }
        for start in next.keys() {
            let mut seen = BTreeSet::new();
            let mut stack: Vec<&str> = next[start].iter().copied().collect();
            while let Some(id) = stack.pop() {
                assert_ne!(id, *start, "a cycle through {id}");
                if seen.insert(id) {
                    stack.extend(next.get(id).into_iter().flatten().copied());
                }
            }
        }
    }
}
