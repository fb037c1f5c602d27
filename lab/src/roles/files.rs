//! Roles that use files.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::words::{at, split};
use super::{AlignedPage, Meter, PAGE, Role, XorShift};

/// The roles of this file.
pub const ROLES: &[Role] = &[
    ("map-file", map_file),
    ("read-file", read_file),
    ("read-direct", read_direct),
    ("write-file", write_file),
    ("read-pages", read_pages),
    ("make-files", make_files),
];

/// Maps a file, reads all of it once, then one byte of 20,000 random pages a second.
///
/// Each page of 1 GB is used every 13 s on average: often enough to be worth keeping, too seldom
/// for the kernel to see it used twice while a flood passes through the inactive list. The file is
/// read in as single pages that are not marked as accessed, as in a program that has run for a
/// while. Large folios would count as used if any of their pages is.
fn map_file(path: &str) -> io::Result<()> {
    let file = File::open(path)?;
    let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    // SAFETY: a fresh private mapping of a file that is not truncated while the test runs.
    let base = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::PRIVATE, &file, 0)? };
    // One call to fadvise reads at most the readahead window.
    for offset in (0..len as u64).step_by(128 << 10) {
        rustix::fs::fadvise(&file, offset, NonZeroU64::new(128 << 10), rustix::fs::Advice::WillNeed)?;
    }
    // SAFETY: the advice covers exactly the mapping made above.
    unsafe { rustix::mm::madvise(base, len, rustix::mm::Advice::Random)? };
    let base = base.cast::<u8>();
    let touch = |page: usize| {
        // SAFETY: callers pass page numbers below `len / PAGE`, so the byte is inside the mapping.
        black_box(unsafe { base.add(page * PAGE).read_volatile() });
    };
    let pages = len / PAGE;
    (0..pages).for_each(touch);
    let (mut random, mut meter) = (XorShift::new(), Meter::create()?);
    loop {
        for _ in 0..200 {
            let page = random.below(pages);
            let start = Instant::now();
            touch(page);
            meter.record(start.elapsed())?;
        }
        sleep(Duration::from_millis(10));
    }
}

/// Reads a file once, then 1,000 random pages a second through the page cache.
fn read_file(path: &str) -> io::Result<()> {
    let file = File::open(path)?;
    let pages = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)? / PAGE;
    for page in 0..pages {
        file.read_exact_at(&mut [0_u8; PAGE], (page * PAGE) as u64)?;
    }
    let (mut random, mut meter, mut page) = (XorShift::new(), Meter::create()?, [0_u8; PAGE]);
    loop {
        for _ in 0..10 {
            let offset = random.below(pages) * PAGE;
            let start = Instant::now();
            file.read_exact_at(&mut page, offset as u64)?;
            meter.record(start.elapsed())?;
        }
        sleep(Duration::from_millis(10));
    }
}

/// Reads 100 random pages of a file a second with direct I/O.
fn read_direct(path: &str) -> io::Result<()> {
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    let file = OpenOptions::new().read(true).custom_flags(direct).open(path)?;
    let pages = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)? / PAGE;
    let (mut random, mut meter) = (XorShift::new(), Meter::create()?);
    let mut page = AlignedPage([0; PAGE]);
    loop {
        let offset = random.below(pages) * PAGE;
        let start = Instant::now();
        file.read_exact_at(&mut page.0, offset as u64)?;
        meter.record(start.elapsed())?;
        sleep(Duration::from_millis(10));
    }
}

/// `KB PER_S MB PATH`: buffered writes of KB, as to a log. Starts over after MB.
fn write_file(argument: &str) -> io::Result<()> {
    let (n, path) = split(argument);
    let (block, per_s, most) = (vec![0x2e_u8; (at(&n, 0) as usize) << 10], at(&n, 1).max(1), at(&n, 2) << 20);
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(path)?;
    let (mut meter, mut written) = (Meter::create()?, 0);
    let pause = Duration::from_micros(1_000_000 / per_s);
    loop {
        let start = Instant::now();
        meter.measure(|| file.write_all(&block))?;
        written += block.len() as u64;
        if written >= most {
            written = 0;
            file = File::create(path)?;
        }
        sleep(pause.saturating_sub(start.elapsed()));
    }
}

/// `PER_S PATH`: reads random pages of a file or a device from the disk.
fn read_pages(argument: &str) -> io::Result<()> {
    let (n, path) = split(argument);
    let mut file = File::open(path)?;
    let pages = (io::Seek::seek(&mut file, io::SeekFrom::End(0))? / PAGE as u64) as usize;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
    let (mut random, mut meter, mut page) = (XorShift::new(), Meter::create()?, [0_u8; PAGE]);
    let pause = Duration::from_micros(1_000_000 / at(&n, 0).max(1));
    loop {
        let offset = (random.below(pages.max(1)) * PAGE) as u64;
        meter.measure(|| {
            // Drops the page from the page cache first.
            rustix::fs::fadvise(&file, offset, NonZeroU64::new(PAGE as u64), rustix::fs::Advice::DontNeed)?;
            file.read_exact_at(&mut page, offset)
        })?;
        sleep(pause);
    }
}

/// `FILES DIR`: makes empty files, a thousand to a directory, and ends.
fn make_files(argument: &str) -> io::Result<()> {
    let (n, dir) = split(argument);
    for i in 0..at(&n, 0) {
        let folder = format!("{dir}/{:04}", i / 1000);
        if i % 1000 == 0 {
            fs::create_dir_all(&folder)?;
        }
        File::create(format!("{folder}/item-{i}"))?;
    }
    Ok(())
}
