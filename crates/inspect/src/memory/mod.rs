//! The memory of another process, by address.
//!
//! A heap walker knows only the trait [`Memory`]: a living process ([`crate::Target`]), which
//! changes while it is read, or an image ([`Image`]). Reads copy. Nothing is stopped or written,
//! and a page that is not resident is not faulted in: reading must not enlarge the process or pull
//! its pages from swap.

pub(crate) mod budget;
mod image;
pub(crate) mod pagemap;
pub(crate) mod scan;

pub use budget::CpuBudget;
pub use image::Image;
pub(crate) use pagemap::Pagemap;

use mitra_parse::maps::Mapping;

/// The usual page size. Larger pages are only counted in finer steps.
pub const PAGE: u64 = 4096;

/// How wide a pointer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Word {
    /// A 32-bit program.
    Four,
    /// A 64-bit program.
    Eight,
}

impl Word {
    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Word::Four => 4,
            Word::Eight => 8,
        }
    }
}

/// Memory that can be read by address. All of it may be torn, stale or hostile.
pub trait Memory {
    /// The mappings by address, none overlapping.
    fn mappings(&self) -> &[Mapping];

    /// The width of pointers.
    fn word(&self) -> Word;

    /// Copies from `address` on. Returns how many bytes could be read from the front; 0 if nothing
    /// is mapped there.
    fn read(&self, address: u64, into: &mut [u8]) -> usize;

    /// Visits the resident ranges of `start..end`, in order, as whole pages cut to the range. Stops
    /// if `take` returns `false`.
    fn resident(&self, start: u64, end: u64, take: &mut dyn FnMut(u64, u64) -> bool);

    /// Charges steps of a walk to the budget, and returns whether to continue. Once `false`, it
    /// stays `false`; 0 steps only ask. A walk that ends early marks its result as partial.
    fn should_continue(&self, steps: u64) -> bool {
        let _ = steps;
        true
    }

    /// The mapping that an address lies in.
    fn mapping(&self, address: u64) -> Option<&Mapping> {
        mitra_parse::maps::find_mapping(self.mappings(), address)
    }

    /// Reads all of `into`, or fails.
    fn exact(&self, address: u64, into: &mut [u8]) -> Option<()> {
        (self.read(address, into) == into.len()).then_some(())
    }

    /// A number of one byte.
    fn u8(&self, address: u64) -> Option<u8> {
        let mut bytes = [0; 1];
        self.exact(address, &mut bytes)?;
        Some(bytes[0])
    }

    /// A little-endian number of two bytes.
    fn u16(&self, address: u64) -> Option<u16> {
        let mut bytes = [0; 2];
        self.exact(address, &mut bytes)?;
        Some(u16::from_le_bytes(bytes))
    }

    /// A number of four bytes.
    fn u32(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.exact(address, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    /// A number of eight bytes.
    fn u64(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.exact(address, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// A pointer, or a number as wide as one.
    fn pointer(&self, address: u64) -> Option<u64> {
        match self.word() {
            Word::Four => self.u32(address).map(u64::from),
            Word::Eight => self.u64(address),
        }
    }

    /// The text up to a zero byte. `None` without a zero byte within `bytes_max`.
    fn text(&self, address: u64, bytes_max: usize) -> Option<String> {
        let mut bytes = vec![0; bytes_max];
        let read = self.read(address, &mut bytes);
        let end = bytes[..read].iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}
