//! A disk whose speed can be set while it is in use.
//!
//! It is a file on a FUSE file system, which speaks to `/dev/fuse` directly; a loop device uses the
//! file. Each request waits its turn, takes a fixed time and a time proportional to its bytes, and
//! is served from memory. As with a failing disk, no cgroup and no other device shows the delay.
//!
//! The protocol is `include/uapi/linux/fuse.h`; numbers are in the byte order of the machine.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::mount::{MountFlags, mount};

use super::Role;

/// The roles of this file.
pub const ROLES: &[Role] = &[("slow-disk", slow_disk)];

/// The name of the disk's file.
pub const IMAGE: &str = "disk";

const IN_HEADER: usize = 40;
const OUT_HEADER: usize = 16;
/// Maximum size of one request.
const DATA_MAX: usize = 1 << 20;
const PAGES_MAX: u16 = 256;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const ACCESS: u32 = 34;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

const ROOT_NODE: u64 = 1;
const IMAGE_NODE: u64 = 2;
/// Names and attributes stay valid for a day.
const VALID_S: u64 = 86_400;
/// `FOPEN_DIRECT_IO`: no page cache between the loop device and this file system.
const DIRECT_IO: u32 = 1;
/// `FUSE_ASYNC_READ`, `FUSE_BIG_WRITES`, `FUSE_MAX_PAGES`.
const FLAGS: u32 = 1 | 1 << 5 | 1 << 22;

/// `DIR BYTES CONTROL`: serves a directory with a disk of this size, for ever. The control file
/// holds the microseconds per request and the bytes per second, 0 for no limit.
fn slow_disk(argument: &str) -> io::Result<()> {
    let words: Vec<&str> = argument.split_whitespace().collect();
    let [dir, bytes, control] = words[..] else {
        return Err(io::Error::other("directory, bytes, control file"));
    };
    let bytes: usize = bytes.parse().map_err(io::Error::other)?;
    // SAFETY: a fresh private mapping at an address that the kernel chooses.
    let base = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::POPULATE,
        )?
    };
    // SAFETY: the mapping above, of that length, which nothing else uses and which is never
    // unmapped.
    let memory = unsafe { std::slice::from_raw_parts_mut(base.cast::<u8>(), bytes) };
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    mount("slow-disk", Path::new(dir), "fuse", MountFlags::empty(), Some(CString::new(options)?.as_c_str()))?;
    Server { device, memory, control: File::open(control)? }.serve()
}

struct Server<'a> {
    device: File,
    memory: &'a mut [u8],
    control: File,
}

/// Appends numbers to a buffer.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }
    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }
    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }
    fn zeros(mut self, count: usize) -> Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

impl Server<'_> {
    fn serve(mut self) -> io::Result<()> {
        let mut buffer = vec![0; DATA_MAX + 4096];
        loop {
            let length = match self.device.read(&mut buffer) {
                Ok(length) => length,
                // The request was cancelled, or the read was interrupted.
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINTR | libc::EAGAIN)) => {
                    continue;
                }
                // Unmounted.
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
                Err(e) => return Err(e),
            };
            let request = buffer.get(..length).unwrap_or_default();
            let (code, unique, node) = (u32_at(request, 4), u64_at(request, 8), u64_at(request, 16));
            let body = request.get(IN_HEADER..).unwrap_or_default();
            if matches!(code, FORGET | BATCH_FORGET | INTERRUPT) {
                continue;
            }
            let (error, reply) = match self.answer(code, node, body) {
                Ok(reply) => (0, reply),
                Err(errno) => (-errno, Vec::new()),
            };
            let size = u32::try_from(OUT_HEADER + reply.len()).map_err(io::Error::other)?;
            let mut whole = Out::default().u32(size).u32(error.cast_unsigned()).u64(unique).0;
            whole.extend(reply);
            match self.device.write(&whole) {
                // The caller is gone.
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
                other => drop(other?),
            }
        }
    }

    fn answer(&mut self, code: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        match code {
            INIT => Ok(Out::default()
                .u32(7)
                .u32(31)
                .u32(u32_at(body, 8))
                .u32(FLAGS & u32_at(body, 12))
                .u16(64)
                .u16(48)
                .u32(DATA_MAX as u32)
                .u32(1)
                .u16(PAGES_MAX)
                .u16(0)
                .zeros(32)
                .0),
            LOOKUP if body.split(|b| *b == 0).next() == Some(IMAGE.as_bytes()) => {
                let mut out = Out::default().u64(IMAGE_NODE).u64(0).u64(VALID_S).u64(VALID_S).zeros(8).0;
                out.extend(self.attributes(IMAGE_NODE));
                Ok(out)
            }
            LOOKUP => Err(libc::ENOENT),
            GETATTR | SETATTR => {
                let mut out = Out::default().u64(VALID_S).zeros(8).0;
                out.extend(self.attributes(node));
                Ok(out)
            }
            OPEN => Ok(Out::default().u64(0).u32(DIRECT_IO).u32(0).0),
            OPENDIR => Ok(Out::default().zeros(16).0),
            READ => {
                let (from, size) = (u64_at(body, 8), u32_at(body, 16) as usize);
                self.take_time(size);
                Ok(self.part(from, size).map(|part| part.to_vec()).unwrap_or_default())
            }
            WRITE => {
                let (from, size) = (u64_at(body, 8), u32_at(body, 16) as usize);
                let data = body.get(40..40 + size).ok_or(libc::EINVAL)?;
                self.take_time(size);
                let part = self.part(from, size).filter(|part| part.len() == size).ok_or(libc::ENOSPC)?;
                part.copy_from_slice(data);
                Ok(Out::default().u32(size as u32).u32(0).0)
            }
            FSYNC => {
                self.take_time(0);
                Ok(Vec::new())
            }
            STATFS => Ok(Out::default()
                .u64(1 << 20)
                .u64(1 << 19)
                .u64(1 << 19)
                .u64(16)
                .u64(8)
                .u32(4096)
                .u32(255)
                .u32(4096)
                .zeros(28)
                .0),
            READDIR | RELEASE | RELEASEDIR | FLUSH | ACCESS => Ok(Vec::new()),
            _ => Err(libc::ENOSYS),
        }
    }

    fn part(&mut self, from: u64, size: usize) -> Option<&mut [u8]> {
        let from = usize::try_from(from).ok()?;
        let end = from.checked_add(size)?.min(self.memory.len());
        self.memory.get_mut(from..end)
    }

    fn attributes(&self, node: u64) -> Vec<u8> {
        let is_root = node == ROOT_NODE;
        let size = if is_root { 0 } else { self.memory.len() as u64 };
        let mode = if is_root { 0o040_755 } else { 0o100_600 };
        let out = Out::default().u64(node).u64(size).u64(size / 512).zeros(36);
        out.u32(mode).u32(1).u32(0).u32(0).u32(0).u32(4096).u32(0).0
    }

    /// Sleeps for the configured duration of a request of this many bytes.
    fn take_time(&self, bytes: usize) {
        let mut text = [0; 64];
        let read = self.control.read_at(&mut text, 0).unwrap_or(0);
        let numbers = super::words::numbers(&String::from_utf8_lossy(text.get(..read).unwrap_or_default()));
        let [micros, bytes_per_s] = numbers[..] else { return };
        let moving_us = (bytes as u64 * 1_000_000).checked_div(bytes_per_s).unwrap_or(0);
        if micros + moving_us > 0 {
            sleep(Duration::from_micros(micros + moving_us));
        }
    }
}
