//! The few `bpf(2)` commands that aya has no allocation-free or no public way to issue.
//!
//! Layouts follow `union bpf_attr` of `include/uapi/linux/bpf.h`, which only ever grows.

use aya::maps::MapData;
use std::cell::{Cell, OnceCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;

const BPF_MAP_LOOKUP_ELEM: libc::c_long = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_DELETE_ELEM: libc::c_long = 3;
const BPF_MAP_GET_NEXT_KEY: libc::c_long = 4;
const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
const BPF_MAP_LOOKUP_AND_DELETE_ELEM: libc::c_long = 21;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_ITER_CREATE: libc::c_long = 33;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_long = 17;
/// The kernel's own "not supported", which libc does not name.
const ENOTSUPP: i32 = 524;
const BPF_TRACE_ITER: u32 = 28;

/// A value that the kernel may read or write as bytes.
///
/// # Safety
///
/// The type is `repr(C)`, has no padding, no pointers, and every bit pattern is valid.
pub(crate) unsafe trait Plain: Copy + 'static {}

// SAFETY: an integer has no padding and no invalid bit pattern.
unsafe impl Plain for u32 {}
// SAFETY: an integer has no padding and no invalid bit pattern.
unsafe impl Plain for u64 {}

/// The value of all zero bytes.
pub(crate) fn zeroed<T: Plain>() -> T {
    // SAFETY: every bit pattern of a `Plain` type is valid, also all zeroes.
    unsafe { std::mem::zeroed() }
}

/// Reads a `T` off the front of `bytes`, which need not be aligned.
pub(crate) fn read_plain<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: the slice holds at least `size_of::<T>()` bytes and any bytes make a `T`.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

#[repr(C)]
struct MapAttr {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct BatchAttr {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    /// The kernel writes here how many it has read.
    count: Cell<u32>,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

#[repr(C)]
struct LinkCreateAttr {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    iter_info: u64,
    iter_info_len: u32,
    pad: u32,
}

#[repr(C)]
struct IterCreateAttr {
    link_fd: u32,
    flags: u32,
}

/// # Safety
///
/// `T` is the part of `union bpf_attr` that `command` uses, and the addresses in it are
/// valid for what the kernel reads and writes there.
unsafe fn bpf<T>(command: libc::c_long, attr: &T) -> io::Result<libc::c_long> {
    // SAFETY: the attribute is valid for its size, and the caller vouches for what it points at.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    // An open descriptor is never negative.
    fd.as_raw_fd().unsigned_abs()
}

/// Attaches a loaded iterator program; iterations are made of the link. Some iterate over a map.
pub(crate) fn iter_link(program: BorrowedFd<'_>, map: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    // The beginning of union bpf_iter_link_info.
    let info = map.map(number);
    let attr = LinkCreateAttr {
        prog_fd: number(program),
        target_fd: 0,
        attach_type: BPF_TRACE_ITER,
        flags: 0,
        iter_info: info.as_ref().map_or(0, address),
        iter_info_len: if info.is_some() { 4 } else { 0 },
        pad: 0,
    };
    // SAFETY: BPF_LINK_CREATE with the layout it wants; what the address points at is read during the call only.
    owned(unsafe { bpf(BPF_LINK_CREATE, &attr) }?)
}

/// Starts an iteration. The descriptor reads once from the first object to the last.
pub(crate) fn iter_create(link: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let attr = IterCreateAttr { link_fd: number(link), flags: 0 };
    // SAFETY: BPF_ITER_CREATE with the layout it wants; no address is passed.
    owned(unsafe { bpf(BPF_ITER_CREATE, &attr) }?)
}

/// Goes over all objects of a program that hands nothing over.
pub(crate) fn iterate(link: BorrowedFd<'_>) -> io::Result<()> {
    let pass = iter_create(link)?;
    let mut nothing = [0_u8; 64];
    while rustix::io::read(&pass, &mut nothing)? > 0 {}
    Ok(())
}

#[repr(C)]
struct TracingAttr {
    name: u64,
    prog_fd: u32,
    pad: u32,
}

/// Attaches a loaded program to the tracepoint that it was loaded for, until the descriptor is closed.
pub(crate) fn attach_tracing(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let attr = TracingAttr { name: 0, prog_fd: number(program), pad: 0 };
    // SAFETY: BPF_RAW_TRACEPOINT_OPEN with the layout it wants; no address is passed.
    owned(unsafe { bpf(BPF_RAW_TRACEPOINT_OPEN, &attr) }?)
}

#[repr(C)]
struct InfoAttr {
    fd: u32,
    /// The kernel writes here how much of it it knows.
    info_len: Cell<u32>,
    info: u64,
}

/// `struct bpf_prog_info` up to what the run-time statistics need.
#[repr(C)]
#[derive(Clone, Copy)]
struct ProgramInfo {
    /// Up to `prog_tags`.
    before: [u64; 24],
    run_time_ns: u64,
    run_count: u64,
    /// Since 5.12.
    recursion_misses: u64,
}
/// As much of it as a kernel fills in that knows of misses.
const WITH_MISSES_BYTES: u32 = 216;
const _: () = assert!(size_of::<ProgramInfo>() == 216, "bpf_prog_info up to recursion_misses");
const _: () = assert!(std::mem::offset_of!(ProgramInfo, run_time_ns) == 192, "bpf_prog_info");
// SAFETY: only u64 fields.
unsafe impl Plain for ProgramInfo {}

/// How often a program ran, and what it took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProgramRun {
    /// CPU time, counted while the statistics are on.
    pub(crate) ns: u64,
    /// Runs.
    pub(crate) count: u64,
    /// Runs that were left out because it, or another one, was running on that CPU; counted always, since 5.12.
    pub(crate) missed: Option<u64>,
}

/// Asks the kernel what a program took.
pub(crate) fn program_run(program: BorrowedFd<'_>) -> io::Result<ProgramRun> {
    let mut info = zeroed::<ProgramInfo>();
    let attr = InfoAttr {
        fd: number(program),
        info_len: Cell::new(WITH_MISSES_BYTES),
        info: std::ptr::from_mut(&mut info).expose_provenance() as u64,
    };
    // SAFETY: BPF_OBJ_GET_INFO_BY_FD with the layout it wants; the kernel writes at most `info_len` bytes, and reads
    // addresses only where a length before them is not zero.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &attr) }?;
    let missed = (attr.info_len.get() >= WITH_MISSES_BYTES).then_some(info.recursion_misses);
    Ok(ProgramRun { ns: info.run_time_ns, count: info.run_count, missed })
}

/// Puts a value on a stack.
pub(crate) fn push<V: Plain>(map: BorrowedFd<'_>, value: &V) -> io::Result<()> {
    let attr = MapAttr { map_fd: number(map), pad: 0, key: 0, value: address(value), flags: 0 };
    // SAFETY: BPF_MAP_UPDATE_ELEM of a map without keys; the value is read during the call only.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &attr) }?;
    Ok(())
}

/// An array map as memory: reading it takes no system call. Parts of it are mapped when they are first asked for, because
/// all that is mapped counts as resident.
pub(crate) struct Mapped {
    map: OwnedFd,
    bytes: usize,
    parts: Vec<OnceCell<Part>>,
}

/// What begins in as many bytes is in one part, and a page of the next one, for what crosses the border.
const PART_BYTES: usize = 64 * 1024;

/// A mapping.
struct Part {
    start: *mut libc::c_void,
    bytes: usize,
}

impl Part {
    fn map(map: BorrowedFd<'_>, at: usize, bytes: usize) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags};
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, which only this value knows.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, map, at as u64)
        }?;
        Ok(Part { start, bytes })
    }
}

impl Mapped {
    /// The first `bytes` of an array whose values are packed.
    pub(crate) fn new(map: &MapData, bytes: usize) -> io::Result<Self> {
        let map = map.fd().as_fd().try_clone_to_owned()?;
        let parts = (0..bytes.div_ceil(PART_BYTES)).map(|_| OnceCell::new()).collect();
        let mapped = Mapped { map, bytes, parts };
        // Where the kernel refuses, it is said at once.
        mapped.map_part(0)?;
        Ok(mapped)
    }

    fn map_part(&self, number: usize) -> io::Result<Option<&Part>> {
        let Some(cell) = self.parts.get(number) else { return Ok(None) };
        if cell.get().is_none() {
            let at = number * PART_BYTES;
            let bytes = (self.bytes - at).min(PART_BYTES + rustix::param::page_size());
            _ = cell.set(Part::map(self.map.as_fd(), at, bytes)?);
        }
        Ok(cell.get())
    }

    fn pointer<T>(&self, at: usize) -> Option<*mut T> {
        let (part, within) = (self.map_part(at / PART_BYTES).ok()??, at % PART_BYTES);
        let fits = at.is_multiple_of(align_of::<T>()) && within.checked_add(size_of::<T>())? <= part.bytes;
        // SAFETY: the range lies within the mapping, which lives as long as this.
        fits.then(|| unsafe { part.start.cast::<u8>().add(within) }.cast::<T>())
    }

    /// What is there now; the kernel may be writing it.
    pub(crate) fn read<T: Plain>(&self, at: usize) -> Option<T> {
        let from = self.pointer::<T>(at)?;
        // SAFETY: within the mapping and aligned. Any bytes make a `T`, also torn ones.
        Some(unsafe { from.read_volatile() })
    }

    /// A number that both sides change.
    pub(crate) fn atomic(&self, at: usize) -> Option<&AtomicU64> {
        let of = self.pointer::<u64>(at)?;
        // SAFETY: within the mapping and aligned; the programs in the kernel use atomic additions, and plain stores of words.
        Some(unsafe { AtomicU64::from_ptr(of) })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // SAFETY: the mapping is of this value, and nothing that it gave out outlives it.
        let _unmapped = unsafe { rustix::mm::munmap(self.start, self.bytes) };
    }
}

// SAFETY: the memory belongs to no thread.
unsafe impl Send for Part {}

/// Now, on the clock of `bpf_ktime_get_ns`.
pub(crate) fn now_mono_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)).unwrap_or(0)
}

/// A map whose values are read into a buffer that is kept.
///
/// `copies` is 1, or for the per-CPU kinds the number of possible CPUs: the kernel then
/// returns that many values in a row.
pub(crate) struct MapReader<K, V> {
    fd: OwnedFd,
    values: Vec<V>,
    batch_keys: Vec<K>,
    batch_values: Vec<V>,
}

/// As much is read of a map in one call, and as many entries at least.
const BATCH_BYTES: usize = 16 * 1024;
const BATCH_MIN: usize = 8;

impl<K: Plain, V: Plain> MapReader<K, V> {
    pub(crate) fn new(map: &MapData, copies: usize) -> io::Result<Self> {
        assert!(copies == 1 || size_of::<V>().is_multiple_of(8), "per-CPU values are padded to 8 bytes");
        // The kernel writes as much as the map says, so it has to say what we think.
        let info = map.info().map_err(io::Error::other)?;
        let sizes = [info.key_size(), info.value_size()].map(|size| size as usize);
        let wanted = [size_of::<K>(), size_of::<V>()];
        if sizes != wanted {
            return Err(io::Error::other(format!(
                "a map has key and value of {sizes:?} bytes, wanted {wanted:?}"
            )));
        }
        Ok(Self {
            fd: map.fd().as_fd().try_clone_to_owned()?,
            values: vec![zeroed(); copies.max(1)],
            batch_keys: Vec::new(),
            batch_values: Vec::new(),
        })
    }

    fn attr(&self, key: u64, value: u64) -> MapAttr {
        MapAttr { map_fd: number(self.fd.as_fd()), pad: 0, key, value, flags: 0 }
    }

    /// The values under `key`, one per CPU; none if the key is not there.
    pub(crate) fn lookup(&mut self, key: &K) -> io::Result<Option<&[V]>> {
        self.fetch(BPF_MAP_LOOKUP_ELEM, key)
    }

    /// Writes a value; for maps with one copy.
    pub(crate) fn store(&self, key: &K, value: &V) -> io::Result<()> {
        let attr = self.attr(address(key), address(value));
        // SAFETY: key and value are read during the call only and have the map's sizes.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &attr) }?;
        Ok(())
    }

    /// Removes `key`, if it is there.
    pub(crate) fn remove(&self, key: &K) -> io::Result<()> {
        let attr = self.attr(address(key), 0);
        // SAFETY: the key is read during the call only and has the map's key size.
        match unsafe { bpf(BPF_MAP_DELETE_ELEM, &attr) } {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes `key` and returns what it held.
    pub(crate) fn take(&mut self, key: &K) -> io::Result<Option<&[V]>> {
        match self.fetch(BPF_MAP_LOOKUP_AND_DELETE_ELEM, key) {
            // Hash maps know the combined command since 5.14. Before, an addition between
            // the two calls is lost.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | ENOTSUPP)) => {
                if self.fetch(BPF_MAP_LOOKUP_ELEM, key)?.is_none() {
                    return Ok(None);
                }
                self.remove(key)?;
            }
            Err(error) => return Err(error),
            Ok(None) => return Ok(None),
            Ok(Some(_)) => {}
        }
        Ok(Some(&self.values))
    }

    fn fetch(&mut self, command: libc::c_long, key: &K) -> io::Result<Option<&[V]>> {
        let buffer = self.values.as_mut_ptr().expose_provenance() as u64;
        let attr = self.attr(address(key), buffer);
        // SAFETY: the key is read and the buffer written during the call only; the buffer
        // holds one value per copy, of the map's value size, which is a multiple of 8.
        match unsafe { bpf(command, &attr) } {
            Ok(_) => Ok(Some(&self.values)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All entries, at most `max`; of a map with one copy that nobody changes any more.
    pub(crate) fn entries(&mut self, max: usize) -> io::Result<Vec<(K, V)>> {
        let mut entries = Vec::new();
        self.each(max, |key, values| entries.extend(values.first().map(|value| (*key, *value))))?;
        Ok(entries)
    }

    /// Calls `f` with each entry of a hash map, at most `max`, and its values, one per CPU. Many come in one call. Allocates
    /// only the first time.
    pub(crate) fn each(&mut self, max: usize, mut f: impl FnMut(&K, &[V])) -> io::Result<()> {
        let copies = self.values.len();
        let entry_bytes = size_of::<K>() + copies * size_of::<V>();
        let mut room = self.batch_keys.len().max((BATCH_BYTES / entry_bytes).clamp(BATCH_MIN, max.max(1)));
        // Where the next call goes on, as the kernel counts: of hash maps 4 bytes.
        let (mut from, mut next) = (0_u64, 0_u64);
        let (mut is_first, mut read) = (true, 0);
        while read < max {
            self.batch_keys.resize(room, zeroed());
            self.batch_values.resize(room * copies, zeroed());
            let attr = BatchAttr {
                in_batch: if is_first { 0 } else { address(&from) },
                out_batch: std::ptr::from_mut(&mut next).expose_provenance() as u64,
                keys: self.batch_keys.as_mut_ptr().expose_provenance() as u64,
                values: self.batch_values.as_mut_ptr().expose_provenance() as u64,
                count: Cell::new(u32::try_from(room).unwrap_or(u32::MAX)),
                map_fd: number(self.fd.as_fd()),
                elem_flags: 0,
                flags: 0,
            };
            // SAFETY: BPF_MAP_LOOKUP_BATCH with the layout it wants; both buffers hold `count` keys and values (one for each
            // copy) of the map's sizes, which `new` compared, and the places to go on at hold more than the kernel's 4 bytes.
            let result = unsafe { bpf(BPF_MAP_LOOKUP_BATCH, &attr) };
            let is_last = match result {
                Ok(_) => false,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
                // One bucket has more entries than there is room.
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && room < max => {
                    room = (2 * room).min(max);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let got = (attr.count.get() as usize).min(room).min(max - read);
            let entries = self.batch_keys.iter().zip(self.batch_values.chunks_exact(copies));
            entries.take(got).for_each(|(key, values)| f(key, values));
            read += got;
            if is_last || got == 0 {
                break;
            }
            (from, is_first) = (next, false);
        }
        Ok(())
    }

    /// The key after `key`, or the first one. A key that has gone starts over: bound the loop.
    pub(crate) fn next_key(&self, key: Option<&K>) -> io::Result<Option<K>> {
        let mut next = zeroed::<K>();
        let attr =
            self.attr(key.map_or(0, address), std::ptr::from_mut(&mut next).expose_provenance() as u64);
        // SAFETY: both addresses are valid during the call, for a key each; 0 means the first.
        match unsafe { bpf(BPF_MAP_GET_NEXT_KEY, &attr) } {
            Ok(_) => Ok(Some(next)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn address<T>(value: &T) -> u64 {
    std::ptr::from_ref(value).expose_provenance() as u64
}
