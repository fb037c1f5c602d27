//! Whom a thread waits for that waits for one of several descriptors.

use super::{ENDS_MAX, NOBODY, Process, Scene, Wait};
use crate::waits::ends::{End, Kind};
use crate::waits::holders::{Open, Side, fdinfo, open};

/// Descriptors of one poll or select.
const POLLED_MAX: usize = 1024;
/// `POLLIN`, `POLLPRI` and `POLLRDHUP`; `POLLOUT`.
const POLL_IN: u32 = 0x1 | 0x2 | 0x2000;
const POLL_OUT: u32 = 0x4;

impl Scene<'_> {
    /// Whom a thread waits for that waits for one of several descriptors.
    pub(super) fn any_of(
        &mut self,
        process: &Process,
        tid: u32,
        polled: Option<Vec<(i32, u32)>>,
    ) -> Vec<Wait> {
        let Some(polled) = polled else { return vec![(Kind::Poll, End::Unknown)] };
        if polled.is_empty() {
            return vec![(Kind::Timer, End::Unknown)];
        }
        let mut ends: Vec<Wait> = Vec::new();
        let is_for_one = polled.len() == 1;
        for (fd, events) in polled {
            let side = match (events & POLL_IN != 0, events & POLL_OUT != 0) {
                (true, _) => Side::Reads,
                (false, true) => Side::Writes,
                (false, false) => continue,
            };
            let mut end = self.descriptor(process, tid, fd, side);
            // Any of its clients may ask next.
            if end.0 == Kind::Client && !is_for_one {
                end.1 = End::Unknown;
            }
            if end.0 == Kind::Accept {
                return vec![end];
            }
            if !ends.contains(&end) {
                ends.push(end);
            }
            if ends.len() > ENDS_MAX {
                return vec![(Kind::Poll, End::Unknown)];
            }
        }
        let others = ends.iter().filter(|(kind, _)| kind.has_other_end()).count();
        if others == 0 {
            let client = ends.iter().find(|(kind, _)| *kind == Kind::Client);
            return vec![client.or(ends.first()).copied().unwrap_or(NOBODY)];
        }
        if others == ends.len() {
            return ends;
        }
        // Signals and its own threads wake it through a descriptor: it need not wait for whoever holds the others, as a server
        // process that also watches whether its parent is alive. A client with a single conversation hardly does anything else.
        let mut named = ends.iter().filter(|(kind, _)| *kind != Kind::Futex);
        match (named.next(), named.next()) {
            (Some((Kind::Tcp | Kind::Unix, end)), None) if *end != End::Unknown => vec![(Kind::Answer, *end)],
            _ => vec![(Kind::Poll, End::Unknown)],
        }
    }

    /// An array of `struct pollfd`: `int fd; short events; short revents`.
    pub(super) fn poll_array(
        &mut self,
        process: &mut Process,
        array: u64,
        count: u64,
    ) -> Option<Vec<(i32, u32)>> {
        let count = usize::try_from(count).ok().filter(|count| *count <= POLLED_MAX)?;
        let mut bytes = vec![0; 8 * count];
        process.read(self.root, array, &mut bytes)?;
        let one = |bytes: &[u8]| {
            let fd = i32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
            Some((fd, u32::from(u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?))))
        };
        Some(bytes.chunks_exact(8).filter_map(one).filter(|(fd, _)| *fd >= 0).collect())
    }

    /// Sets of bits in words of the machine.
    pub(super) fn select_sets(
        &mut self,
        process: &mut Process,
        count: u64,
        sets: [u64; 3],
    ) -> Option<Vec<(i32, u32)>> {
        let count = usize::try_from(count).ok().filter(|count| *count <= POLLED_MAX)?;
        let mut polled = Vec::new();
        for (set, events) in sets.into_iter().zip([POLL_IN, POLL_OUT, POLL_IN]).filter(|(set, _)| *set != 0) {
            let mut bytes = vec![0; count.div_ceil(64) * 8];
            process.read(self.root, set, &mut bytes)?;
            for (word, bytes) in bytes.chunks_exact(8).enumerate() {
                let bits = u64::from_ne_bytes(bytes.try_into().ok()?);
                let fds = (0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| 64 * word + bit);
                polled.extend(fds.take_while(|fd| *fd < count).map(|fd| (fd as i32, events)));
            }
        }
        Some(polled)
    }

    /// Whom those wait for that wait for an epoll instance: of several threads of a process all for the same.
    pub(super) fn epoll(&mut self, process: &mut Process, tid: u32, fd: i32) -> Vec<Wait> {
        if let Some(known) = process.polled.get(&fd) {
            return known.clone();
        }
        let polled = self.epoll_list(process.pid, fd);
        let waits = self.any_of(process, tid, polled);
        process.polled.insert(fd, waits.clone());
        waits
    }

    /// Descriptors that are another one by now than the instance waits for are left out.
    fn epoll_list(&mut self, pid: u32, fd: i32) -> Option<Vec<(i32, u32)>> {
        let info = fdinfo(self.root, pid, fd, self.buffer)?;
        let polled = info.polled().filter(|polled| polled.len() <= POLLED_MAX)?;
        let is_same = |fd: i32, inode: Option<u64>| match open(self.root, pid, fd) {
            Some(Open::Pipe(now) | Open::Socket(now)) => inode.is_none_or(|inode| inode == u64::from(now)),
            other => other.is_some(),
        };
        Some(polled.iter().filter(|p| is_same(p.fd, p.inode)).map(|p| (p.fd, p.events)).collect())
    }
}
