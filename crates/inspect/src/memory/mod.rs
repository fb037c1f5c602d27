//! Somebody else's memory, by address.
//!
//! Whoever walks a heap knows only [`Memory`]. Behind it is a living process ([`crate::Target`]), which changes while it is read, or a
//! file in its place ([`Image`]). Reads copy; nothing is stopped, nothing is written, and a page that is not in memory is not
//! brought in: a look must not make the process larger or pull its pages from swap.

pub(crate) mod allowance;
mod image;
mod pagemap;
pub(crate) mod scan;

pub use allowance::Allowance;
pub use image::Image;
pub(crate) use pagemap::Pagemap;
pub use pagemap::Pages;

use crate::maps::Mapping;

/// The page size of every Linux that Mitra runs on by default; where it is larger, pages are only counted finer than they are.
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

/// Memory that can be read by address. Everything in it may be torn, stale or hostile.
pub trait Memory {
    /// What is mapped, in the order of the addresses, none overlapping.
    fn mappings(&self) -> &[Mapping];

    /// How wide its pointers are.
    fn word(&self) -> Word;

    /// Copies what lies at `address` on, and says how many bytes could be had from the front. Zero says that nothing is there.
    fn read(&self, address: u64, into: &mut [u8]) -> usize;

    /// The stretches of `start..end` that are in memory now, in order, as whole pages cut to the range. Stops when `take` says
    /// `false`.
    fn resident(&self, start: u64, end: u64, take: &mut dyn FnMut(u64, u64) -> bool);

    /// Says that so many steps of a walk were done, and hears whether it is to go on. Once that was denied it is for good; zero steps
    /// ask whether it was. A walk that ends for it says so of what it found.
    fn goes_on(&self, steps: u64) -> bool {
        let _ = steps;
        true
    }

    /// The mapping that an address lies in.
    fn mapping(&self, address: u64) -> Option<&Mapping> {
        crate::maps::find(self.mappings(), address)
    }

    /// All of `into`, or nothing.
    fn exact(&self, address: u64, into: &mut [u8]) -> Option<()> {
        (self.read(address, into) == into.len()).then_some(())
    }

    /// A number of one byte.
    fn u8(&self, address: u64) -> Option<u8> {
        let mut bytes = [0; 1];
        self.exact(address, &mut bytes)?;
        Some(bytes[0])
    }

    /// A number of two bytes, as little-endian machines keep it.
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

    /// The bytes up to a zero, at most `bytes_max`; `None` where there is no zero.
    fn text(&self, address: u64, bytes_max: usize) -> Option<String> {
        let mut bytes = vec![0; bytes_max];
        let read = self.read(address, &mut bytes);
        let end = bytes[..read].iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}
