//! The memory of another process, of which only pages are read that are in memory.
//!
//! A page that is not there is fetched by the kernel from whoever has it: the server of a FUSE file system, or the process itself
//! (userfaultfd). Nobody makes these answer, and whoever waits for them cannot be killed.
//!
//! A race remains: the process can take a page away between the look and the read, or start another program between the two files
//! that are opened. Both files also wait for the lock of its address space. So only threads of their own read.

use std::io;
use std::os::fd::OwnedFd;

use crate::file::{Root, read_at};

/// A page is in memory: a bit of an entry of `/proc/PID/pagemap` (Documentation/admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;

/// The memory that a process had when this was opened.
#[derive(Debug)]
pub struct Memory {
    bytes: OwnedFd,
    pages: OwnedFd,
}

impl Memory {
    /// Fails where the kernel does not say which pages are in memory.
    pub fn open(root: &Root, pid: u32) -> io::Result<Memory> {
        let open = |file: &str| root.open_file(&format!("proc/{pid}/{file}"));
        Ok(Memory { bytes: open("mem")?, pages: open("pagemap")? })
    }

    /// Reads from an address on, up to the first page that is not in memory. Returns how many bytes.
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let there = self.there(at, bytes.len())?;
        read_at(&self.bytes, bytes.get_mut(..there).unwrap_or_default(), at)
    }

    /// How many bytes from an address on are in memory.
    fn there(&self, at: u64, wanted: usize) -> io::Result<usize> {
        let page = rustix::param::page_size();
        let skip = (at % page as u64) as usize;
        let mut entries = vec![0; 8 * (skip + wanted).div_ceil(page)];
        let read = read_at(&self.pages, &mut entries, 8 * (at / page as u64))?;
        let entries = entries.get(..read).unwrap_or_default().as_chunks::<8>().0;
        let is_present = |entry: &&[u8; 8]| u64::from_ne_bytes(**entry) & PRESENT != 0;
        let pages = entries.iter().take_while(is_present).count();
        Ok((pages * page).saturating_sub(skip).min(wanted))
    }
}

#[cfg(test)]
mod tests {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

    use super::*;

    #[test]
    fn what_is_not_in_memory_is_not_asked_for() {
        let page = rustix::param::page_size();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a mapping of its own, which stays. All of it is written, and the third page is given back.
        let start = unsafe {
            let at = mmap_anonymous(std::ptr::null_mut(), 4 * page, access, MapFlags::PRIVATE).unwrap();
            at.cast::<u8>().write_bytes(7, 4 * page);
            madvise(at.byte_add(2 * page), page, Advice::LinuxDontNeed).unwrap();
            at.addr()
        };
        let root = Root::open("/".as_ref()).unwrap();
        let memory = match Memory::open(&root, std::process::id()) {
            Ok(memory) => memory,
            Err(error) => return println!("skipped: /proc/self/pagemap: {error}"),
        };
        let read = |from: usize, wanted: usize| {
            let mut bytes = vec![0; wanted];
            let read = memory.read((start + from) as u64, &mut bytes).unwrap();
            assert!(bytes.iter().take(read).all(|byte| *byte == 7));
            read
        };
        assert_eq!(read(0, 4 * page), 2 * page);
        assert_eq!(read(8, 16), 16);
        assert_eq!(read(page - 8, 16), 16, "of two pages");
        assert_eq!(read(2 * page - 8, 16), 8);
        assert_eq!(read(2 * page, 16), 0);
        assert_eq!(read(3 * page, page), page);
        assert_eq!(memory.there((start + 2 * page) as u64, page).unwrap(), 0, "it was not touched");
    }
}
