//! Which pages of a process are in memory: `/proc/PID/pagemap`, eight bytes for each page.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The page is in memory. Linux: Documentation/admin-guide/mm/pagemap.rst.
const PRESENT: u64 = 1 << 63;
/// The page is in swap.
const SWAPPED: u64 = 1 << 62;
/// Entries that are read at once: 256 KiB, for a gigabyte of addresses eight reads.
const ENTRIES: usize = 32 << 10;

/// The file, and how large a page is.
#[derive(Debug)]
pub(crate) struct Pagemap {
    file: File,
    page: u64,
}

/// Pages of a range.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    /// In memory.
    pub present: u64,
    /// In swap.
    pub swapped: u64,
}

impl Pagemap {
    pub(crate) fn new(file: File) -> Self {
        Self { file, page: rustix::param::page_size() as u64 }
    }

    /// The stretches in memory, in order. `Err` says that the file could not be read to the end.
    pub(crate) fn present(
        &self,
        start: u64,
        end: u64,
        take: &mut dyn FnMut(u64, u64) -> bool,
    ) -> std::io::Result<()> {
        let mut run: Option<(u64, u64)> = None;
        let mut goes_on = true;
        self.each(start, end, |address, entry| {
            if entry & PRESENT == 0 {
                return true;
            }
            match &mut run {
                Some((_, behind)) if *behind == address => *behind += self.page,
                _ => {
                    if let Some((from, to)) = run.replace((address, address + self.page)) {
                        goes_on = take(from.max(start), to.min(end));
                    }
                }
            }
            goes_on
        })?;
        if let Some((from, to)) = run.filter(|_| goes_on) {
            take(from.max(start), to.min(end));
        }
        Ok(())
    }

    /// How many pages are where.
    pub(crate) fn count(&self, start: u64, end: u64) -> std::io::Result<Pages> {
        let mut pages = Pages::default();
        self.each(start, end, |_, entry| {
            pages.present += u64::from(entry & PRESENT != 0);
            pages.swapped += u64::from(entry & SWAPPED != 0);
            true
        })?;
        Ok(pages)
    }

    fn each(&self, start: u64, end: u64, mut take: impl FnMut(u64, u64) -> bool) -> std::io::Result<()> {
        let mut bytes = vec![0; 8 * ENTRIES];
        let mut page = start / self.page;
        let last = end.div_ceil(self.page);
        while page < last {
            let count = ((last - page) as usize).min(ENTRIES);
            let Some(at) = page.checked_mul(8) else { return Ok(()) };
            let read = self.file.read_at(&mut bytes[..8 * count], at)?;
            for entry in bytes[..read].as_chunks::<8>().0 {
                if !take(page * self.page, u64::from_le_bytes(*entry)) {
                    return Ok(());
                }
                page += 1;
            }
            if read < 8 {
                return Ok(());
            }
        }
        Ok(())
    }
}
