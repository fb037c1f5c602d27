//! The pages of a process in memory or in swap: `/proc/PID/pagemap`, eight bytes for each page, or
//! `PAGEMAP_SCAN` on it, which skips unpopulated ranges ([`scan`]).

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use super::scan::{self, PAGE_IS_FILE, PAGE_IS_PRESENT, PAGE_IS_SWAPPED, PAGES, REGIONS, Region};

/// Bits of pagemap (Documentation/admin-guide/mm/pagemap.rst), and the same as categories of a
/// scan.
const BITS: [(u64, u64); 3] =
    [(1 << 63, PAGE_IS_PRESENT), (1 << 62, PAGE_IS_SWAPPED), (1 << 61, PAGE_IS_FILE)];
/// Entries that are read at once: 256 KiB, for a gigabyte of addresses eight reads.
const ENTRIES: usize = 32 << 10;
/// Pages that one step of the budget covers, with either method.
const PAGES_OF_STEP: u64 = 16;
/// Addresses above are the kernel's; `[vsyscall]` lies there.
pub(crate) const ADDRESS_MAX: u64 = i64::MAX as u64;

/// The file, and the page size.
#[derive(Debug)]
pub(crate) struct Pagemap {
    file: File,
    page: u64,
    /// Whether the kernel has `PAGEMAP_SCAN` (Linux 6.7), as far as is known.
    has_scan: Cell<bool>,
}

impl Pagemap {
    pub(crate) fn new(file: File) -> Self {
        Self { file, page: rustix::param::page_size() as u64, has_scan: Cell::new(true) }
    }

    pub(crate) fn has_scan(&self) -> bool {
        self.has_scan.get()
    }

    #[cfg(test)]
    pub(crate) fn without_scan(self) -> Self {
        Self { has_scan: Cell::new(false), ..self }
    }

    /// The ranges in memory, in order; adjacent ones are merged. Stops if `should_continue` or
    /// `take` returns `false`. An error means that the file could not be read to the end.
    pub(crate) fn present(
        &self,
        start: u64,
        end: u64,
        should_continue: &mut dyn FnMut(u64) -> bool,
        take: &mut dyn FnMut(u64, u64) -> bool,
    ) -> io::Result<()> {
        let mut run: Option<(u64, u64)> = None;
        let mut is_wanted = true;
        self.each(start, end, 0, should_continue, &mut |region| {
            if !region.is(PAGE_IS_PRESENT) {
                return true;
            }
            match &mut run {
                Some((_, behind)) if *behind == region.start => *behind = region.end,
                _ => {
                    if let Some((from, to)) = run.replace((region.start, region.end)) {
                        is_wanted = take(from.max(start), to.min(end));
                    }
                }
            }
            is_wanted
        })?;
        if let Some((from, to)) = run.filter(|_| is_wanted) {
            take(from.max(start), to.min(end));
        }
        Ok(())
    }

    /// All populated regions as whole pages, with `categories` in addition to present, swapped and
    /// file, as far as the kernel can report them. `should_continue` gets steps of
    /// [`super::CpuBudget`].
    pub(crate) fn each(
        &self,
        start: u64,
        end: u64,
        categories: u64,
        should_continue: &mut dyn FnMut(u64) -> bool,
        take: &mut dyn FnMut(&Region) -> bool,
    ) -> io::Result<()> {
        if self.has_scan.get() {
            match self.scan(start, end, categories, should_continue, take) {
                // Linux before 6.7 returns this at the first call, before any region.
                Err(Errno::NOTTY | Errno::INVAL) => self.has_scan.set(false),
                done => return Ok(done?),
            }
        }
        self.read(start, end, should_continue, take)
    }

    fn scan(
        &self,
        start: u64,
        end: u64,
        categories: u64,
        should_continue: &mut dyn FnMut(u64) -> bool,
        take: &mut dyn FnMut(&Region) -> bool,
    ) -> rustix::io::Result<()> {
        let mut regions = [Region::default(); REGIONS];
        let mut at = start - start % self.page;
        let end = end.min(ADDRESS_MAX).next_multiple_of(self.page);
        while at < end && should_continue(PAGES / PAGES_OF_STEP) {
            let (found, walked) = scan::scan(&self.file, at, end, categories, &mut regions)?;
            if !found.iter().all(&mut *take) {
                return Ok(());
            }
            at = walked;
        }
        Ok(())
    }

    fn read(
        &self,
        start: u64,
        end: u64,
        should_continue: &mut dyn FnMut(u64) -> bool,
        take: &mut dyn FnMut(&Region) -> bool,
    ) -> io::Result<()> {
        let mut bytes = vec![0; 8 * ENTRIES];
        let mut page = start / self.page;
        let last = end.div_ceil(self.page);
        while page < last {
            let count = (last - page).min(ENTRIES as u64);
            let Some(at) = page.checked_mul(8) else { return Ok(()) };
            if !should_continue(count / PAGES_OF_STEP) {
                return Ok(());
            }
            let read = self.file.read_at(&mut bytes[..8 * count as usize], at)?;
            for entry in bytes[..read].as_chunks::<8>().0 {
                let entry = u64::from_le_bytes(*entry);
                let set = BITS.iter().filter(|(bit, _)| entry & bit != 0);
                let region = Region::new(
                    page * self.page,
                    (page + 1) * self.page,
                    set.fold(0, |all, (_, one)| all | one),
                );
                if (region.is(PAGE_IS_PRESENT) || region.is(PAGE_IS_SWAPPED)) && !take(&region) {
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

#[cfg(test)]
mod tests {
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

    use super::*;
    use crate::memory::CpuBudget;
    use crate::memory::budget::thread_cpu_s;

    const PAGE_BYTES: usize = 4096;

    fn own() -> Option<Pagemap> {
        let file = File::open("/proc/self/pagemap").ok();
        if file.is_none() {
            println!("skipped: /proc/self/pagemap cannot be opened");
        }
        file.map(Pagemap::new)
    }

    fn stretches(pagemap: &Pagemap, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let done = pagemap.present(start, end, &mut |_| true, &mut |from, to| {
            found.push((from, to));
            true
        });
        done.unwrap();
        found
    }

    /// Reserved addresses, of which some pages were first written and then lost all access rights.
    struct Reserved {
        at: *mut std::ffi::c_void,
        bytes: usize,
    }

    impl Reserved {
        fn new(bytes: usize, touched: &[usize]) -> Self {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: a new mapping at an address that the kernel chooses. Only pages that are
            // writable at that time are written.
            unsafe {
                let at = mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), flags).unwrap();
                for page in touched {
                    let page = at.byte_add(page * PAGE_BYTES);
                    mprotect(page, PAGE_BYTES, MprotectFlags::READ | MprotectFlags::WRITE).unwrap();
                    page.cast::<u8>().write_volatile(1);
                    mprotect(page, PAGE_BYTES, MprotectFlags::empty()).unwrap();
                }
                Self { at, bytes }
            }
        }

        fn range(&self) -> (u64, u64) {
            (self.at as u64, self.at as u64 + self.bytes as u64)
        }
    }

    impl Drop for Reserved {
        fn drop(&mut self) {
            // SAFETY: the mapping is ours, and nothing refers to it.
            unsafe { munmap(self.at, self.bytes) }.unwrap();
        }
    }

    #[test]
    fn both_ways_say_the_same_also_of_what_nobody_may_access() {
        let Some(new) = own() else { return };
        let old = own().unwrap().without_scan();
        // More ranges than one call returns.
        let touched: Vec<usize> = (0..700).map(|i| 3 * i).chain([4000, 4001, 4002]).collect();
        let reserved = Reserved::new(64 << 20, &touched);
        let (start, end) = reserved.range();
        let found = stretches(&old, start, end);
        assert_eq!(found.len(), 701, "touched pages without access are present");
        assert_eq!(stretches(&new, start, end), found);
        let pages = found.iter().map(|(from, to)| (to - from) / PAGE_BYTES as u64).sum::<u64>();
        assert_eq!(pages, 703);
        // Cut within pages.
        assert_eq!(stretches(&new, start + 5, start + 4000), [(start + 5, start + 4000)]);
        assert_eq!(stretches(&old, start + 5, start + 4000), [(start + 5, start + 4000)]);
        // The kernel's mapping above all addresses.
        for pagemap in [&new, &old] {
            assert_eq!(stretches(pagemap, u64::MAX - 0x9f_ffff, u64::MAX - 0x9f_efff), []);
        }
        // A memory of mixed content, while other tests may run: an unchanged range looks the same.
        let filled = vec![7_u8; 3 << 20];
        let start = filled.as_ptr() as u64;
        assert_eq!(stretches(&new, start, start + (3 << 20)), stretches(&old, start, start + (3 << 20)));
    }

    #[test]
    fn reserved_addresses_cost_nothing() {
        let Some(pagemap) = own() else { return };
        let reserved = Reserved::new(64 << 30, &[1 << 20]);
        let (start, end) = reserved.range();
        let began = thread_cpu_s();
        assert_eq!(stretches(&pagemap, start, end).len(), 1);
        let took = thread_cpu_s() - began;
        println!("{took:.6} s for 64 GiB, with the newer call: {}", pagemap.has_scan.get());
        // Without PAGEMAP_SCAN there are 128 MiB to read.
        assert!(!pagemap.has_scan.get() || took < 1.0, "{took}");
    }

    #[test]
    fn it_ends_where_it_is_told_to() {
        let Some(new) = own() else { return };
        let old = own().unwrap().without_scan();
        let reserved = Reserved::new(1 << 20, &[1, 5, 9]);
        let (start, end) = reserved.range();
        for pagemap in [new, old] {
            let mut found = 0;
            pagemap
                .present(start, end, &mut |_| true, &mut |_, _| {
                    found += 1;
                    false
                })
                .unwrap();
            assert_eq!(found, 1);
            let over = CpuBudget::of_seconds(0.0);
            let mut should_continue = |steps| over.should_continue(steps);
            pagemap.present(start, end, &mut should_continue, &mut |_, _| panic!("it is over")).unwrap();
            assert!(over.is_exhausted());
        }
    }
}
