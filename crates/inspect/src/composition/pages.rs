//! Counts the pages of a range that are in memory, by kind. The kernel holds the target's mmap lock
//! for a piece at a time, and no page is read ([`Pagemap`]).

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::memory::Memory;
use crate::memory::Pagemap;
use crate::memory::pagemap::ADDRESS_MAX;
use crate::memory::scan::{
    PAGE_IS_FILE, PAGE_IS_HUGE, PAGE_IS_PFNZERO, PAGE_IS_PRESENT, PAGE_IS_SWAPPED, Region,
};
use crate::target::Target;

/// How pages were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountMethod {
    /// Not at all: the kernel refused, and only the sizes of mappings are known.
    Nothing,
    /// `/proc/PID/pagemap`, page by page.
    Pagemap,
    /// `PAGEMAP_SCAN`.
    Scan,
    /// `/proc/PID/smaps`.
    Smaps,
}

/// Bytes of a range.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageCounts {
    pub(super) resident: u64,
    pub(super) anonymous: u64,
    pub(super) swapped: u64,
    /// `None` without `PAGEMAP_SCAN`: pagemap does not tell.
    pub(super) huge: Option<u64>,
}

/// Page categories beyond present and swapped.
const CATEGORIES: u64 = PAGE_IS_FILE | PAGE_IS_PFNZERO | PAGE_IS_HUGE;

/// Counts pages of one process.
pub(super) struct PageCounter<'t> {
    target: &'t Target,
    pagemap: &'t Pagemap,
    until: Instant,
    /// Time that counting took.
    pub(super) spent: Duration,
}

impl<'t> PageCounter<'t> {
    pub(super) fn new(target: &'t Target, pagemap: &'t Pagemap, until: Instant) -> Self {
        Self { target, pagemap, until, spent: Duration::ZERO }
    }

    pub(super) fn how(&self) -> CountMethod {
        if self.pagemap.has_scan() { CountMethod::Scan } else { CountMethod::Pagemap }
    }

    /// `None` if the time is over, or the range cannot be counted.
    pub(super) fn count(&mut self, start: u64, end: u64) -> Option<PageCounts> {
        let mut counts = PageCounts::default();
        let began = Instant::now();
        let mut is_over = !self.has_time(0);
        if end <= ADDRESS_MAX && !is_over {
            let mut should_continue = |steps| {
                is_over = !self.has_time(steps);
                !is_over
            };
            let mut add = |region: &Region| {
                counts.add(region);
                true
            };
            self.pagemap.each(start, end, CATEGORIES, &mut should_continue, &mut add).ok()?;
        }
        self.spent += began.elapsed();
        counts.huge = Some(counts.huge.unwrap_or(0)).filter(|_| self.pagemap.has_scan());
        (!is_over).then_some(counts)
    }

    fn has_time(&self, steps: u64) -> bool {
        Instant::now() < self.until && self.target.should_continue(steps)
    }
}

impl PageCounts {
    fn add(&mut self, region: &Region) {
        let bytes = region.end.saturating_sub(region.start);
        if region.is(PAGE_IS_SWAPPED) {
            self.swapped += bytes;
        }
        if !region.is(PAGE_IS_PRESENT) || region.is(PAGE_IS_PFNZERO) {
            return;
        }
        self.resident += bytes;
        if !region.is(PAGE_IS_FILE) {
            self.anonymous += bytes;
        }
        if region.is(PAGE_IS_HUGE) {
            self.huge = Some(self.huge.unwrap_or(0) + bytes);
        }
    }
}
