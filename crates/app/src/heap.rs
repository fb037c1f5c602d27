//! What glibc keeps of freed memory. musl gives it back by itself.

/// Large blocks are mapped each for itself, and go straight back to the kernel when they are freed.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 256 << 10;
/// One for the thread that waits and one for those that read: each keeps what was freed in it.
#[cfg(target_env = "gnu")]
const ARENAS: libc::c_int = 2;

/// For a process that takes much for a moment and little in between. Before its threads are started.
pub fn bound() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt only sets parameters of the allocator.
    unsafe {
        // Set once, the thresholds are not raised by what is freed.
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
    }
}

/// Gives back what is free.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim only returns free pages of the heap to the kernel.
    unsafe {
        libc::malloc_trim(0);
    }
}
