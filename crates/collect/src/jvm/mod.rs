//! What JVMs say of their collections, each second: the counters that HotSpot keeps for `jstat`.
//!
//! They stand in the memory of the process, wherever its file is and in whatever container: `/proc/PID/mem` is read at the
//! mapping that has the file's name. A page of a process may come from a file system that does not answer, so only those are read
//! that are in memory (`memory.rs`), by a thread of its own.

mod perfdata;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mitra_model::{Entity, Frame, Key, NA, StrId};
use mitra_parse::maps::mappings;

use crate::aside::Aside;
use crate::cells::{col, set};
use crate::file::{Buffer, Root};
use crate::io::Io;
use crate::memory::Memory;
use perfdata::{BYTES_MAX, Counts, Layout};

/// As many JVMs have rows.
const JVMS_MAX: usize = 64;
/// What a JVM is called: the name of its first thread, unless its launcher is another one.
const NAME: &str = "java";
/// A JVM without counters (`-XX:-UsePerfData`), or one that has just started, is looked at again after so long.
const RETRY: Duration = Duration::from_secs(10);
/// The path of the mapping has it.
const FILE: &str = "/hsperfdata_";

/// The counters of some processes, by their ids.
type Seen = Vec<(u32, Counts)>;

/// A JVM whose counters are known, or that has none.
enum Known {
    At { memory: Memory, address: u64, layout: Box<Layout>, bytes: usize },
    Without(Instant),
}

/// Finds the counters of each JVM once, and reads them.
struct Reader {
    root: Root,
    known: BTreeMap<u32, Known>,
    page: Vec<u8>,
}

impl Reader {
    fn look(&mut self, pids: &[u32]) -> Seen {
        self.known.retain(|pid, known| {
            pids.contains(pid) && !matches!(known, Known::Without(since) if since.elapsed() > RETRY)
        });
        let mut seen = Seen::new();
        for pid in pids {
            if !self.known.contains_key(pid) {
                let found = self.find(*pid).unwrap_or_else(|| Known::Without(Instant::now()));
                self.known.insert(*pid, found);
            }
            if matches!(self.known.get(pid), Some(Known::Without(_))) {
                continue;
            }
            match self.counts(*pid) {
                Some(counts) => seen.push((*pid, counts)),
                // It has gone, or has taken its page away.
                None => _ = self.known.insert(*pid, Known::Without(Instant::now())),
            }
        }
        seen
    }

    fn find(&mut self, pid: u32) -> Option<Known> {
        let mut buffer = Buffer::default();
        let maps = self.root.read(&format!("proc/{pid}/maps"), &mut buffer).ok()?;
        let mapping = mappings(maps).into_iter().find(|mapping| mapping.path.contains(FILE))?;
        let bytes = usize::try_from(mapping.bytes()).ok()?.min(BYTES_MAX);
        let address = mapping.start;
        let memory = Memory::open(&self.root, pid).ok()?;
        self.page.resize(bytes, 0);
        let read = memory.read(address, &mut self.page).ok()?;
        let layout = Box::new(Layout::of(self.page.get(..read)?)?);
        Some(Known::At { memory, address, layout, bytes })
    }

    fn counts(&mut self, pid: u32) -> Option<Counts> {
        let Known::At { memory, address, layout, bytes } = self.known.get(&pid)? else { return None };
        self.page.resize(*bytes, 0);
        let read = memory.read(*address, &mut self.page).ok()?;
        Some(layout.counts(self.page.get(..read).filter(|page| !page.is_empty())?))
    }
}

fn reader() -> std::io::Result<Aside<Vec<u32>, Seen>> {
    let mut reader =
        Root::open("/".as_ref()).ok().map(|root| Reader { root, known: BTreeMap::new(), page: Vec::new() });
    Aside::start("mitra-jvms", move |pids: Vec<u32>| {
        reader.as_mut().map(|reader| reader.look(&pids)).unwrap_or_default()
    })
}

/// The columns, and the thread once there is a JVM.
#[derive(Debug)]
pub struct Jvms {
    reader: Option<Aside<Vec<u32>, Seen>>,
    pids: Vec<u32>,
    comm: usize,
    tgid: usize,
    columns: [usize; 5],
    cause: usize,
}

impl Jvms {
    pub fn new() -> Self {
        let of = |name: &str| col(&format!("jvm.{name}"));
        Jvms {
            reader: None,
            pids: Vec::new(),
            comm: col("task.comm"),
            tgid: col("task.tgid"),
            columns: ["gc_time", "collections", "safepoint_time", "old_used", "old_max"].map(of),
            cause: of("gc_cause"),
        }
    }

    /// Fills the rows with what was read since the frame before. Tasks have to be in the frame already; which of them are JVMs
    /// is looked up on slow ticks. Without an answer there is nothing: what was read before is no longer so.
    pub fn fill(&mut self, io: &mut Io, frame: &mut Frame, is_slow: bool) {
        if !io.root.is_host() {
            return;
        }
        if is_slow {
            self.find(io.strings.intern(NAME), frame);
        }
        if self.pids.is_empty() {
            return;
        }
        if self.reader.is_none() {
            match reader() {
                Ok(reader) => self.reader = Some(reader),
                Err(error) => return io.missing.add("counters of JVMs", &crate::missing::reason(&error)),
            }
        }
        let Some(reader) = &self.reader else { return };
        let seen = reader.answers().last().unwrap_or_default();
        reader.ask(self.pids.clone());
        for (pid, counts) in seen {
            let key = Key::named(io.strings.intern(&pid.to_string()));
            let cause = counts.cause.map_or(NA, |cause| i64::from(io.strings.intern(cause)));
            let row = frame.table_mut(Entity::Jvm).push(key);
            let values =
                [counts.gc_ns, counts.collections, counts.safepoint_ns, counts.old_used, counts.old_max];
            for (column, value) in self.columns.into_iter().zip(values) {
                set(row, column, value.and_then(|value| i64::try_from(value).ok()).unwrap_or(NA));
            }
            set(row, self.cause, cause);
        }
    }

    fn find(&mut self, name: StrId, frame: &Frame) {
        self.pids.clear();
        for (_, row) in frame.table(Entity::Task).rows() {
            let of = |column: usize| row.get(column).copied().filter(|cell| *cell != NA);
            if of(self.comm) == Some(i64::from(name)) && self.pids.len() < JVMS_MAX {
                self.pids.extend(of(self.tgid).and_then(|pid| u32::try_from(pid).ok()));
            }
        }
        self.pids.sort_unstable();
        self.pids.dedup();
    }
}
