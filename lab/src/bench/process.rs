//! What each process of a recording used, as a tool can see it that knows nothing else.

use std::collections::BTreeMap;
use std::path::Path;

use mitra_archive::Reader;
use mitra_model::time::SECOND;
use mitra_model::{Entity, Frame, Key, NA, Span, Strings, column};

use crate::incident::Truth;

/// A change needs so many samples on both sides.
const SIDE_MIN: usize = 3;

/// A process that was seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// The name of its first thread.
    pub name: String,
    /// Seconds on a CPU, for each second of the recording.
    pub cpu: Vec<f64>,
    /// Bytes read from and written to devices.
    pub io: Vec<f64>,
}

impl Process {
    /// Whether the truth blames it.
    pub fn is(&self, truth: &Truth) -> bool {
        let by_name =
            truth.process.as_ref().is_some_and(|name| self.name.starts_with(name.get(..15).unwrap_or(name)));
        if truth.pids.is_empty() { by_name } else { truth.pids.contains(&self.pid) }
    }
}

/// All processes of a recording, kernel threads left out, and when its samples were taken.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// By process id.
    pub all: Vec<Process>,
    /// Seconds since the epoch of each sample but the first.
    pub at_s: Vec<f64>,
}

#[derive(Default)]
struct Counting {
    processes: BTreeMap<u32, Process>,
    before: BTreeMap<Key, [i64; 3]>,
    at_s: Vec<f64>,
    /// When the first sample was taken, in nanoseconds since boot.
    began_boot: Option<i64>,
}

/// Columns of the table of tasks.
struct Columns {
    tgid: usize,
    comm: usize,
    kthread: usize,
    counters: [usize; 3],
}

impl Columns {
    fn find() -> Option<Self> {
        Some(Self {
            tgid: column("task.tgid")?,
            comm: column("task.comm")?,
            kthread: column("task.kthread")?,
            counters: [column("task.cpu_time")?, column("task.read_bytes")?, column("task.write_bytes")?],
        })
    }
}

impl Counting {
    fn add(&mut self, frame: &Frame, strings: &Strings, columns: &Columns) {
        if self.began_boot.is_some() {
            self.at_s.push(frame.time.real as f64 / SECOND as f64);
        }
        let began_boot = *self.began_boot.get_or_insert(frame.time.boot);
        let samples = self.at_s.len();
        for (key, cells) in frame.table(Entity::Task).rows() {
            let counters = columns.counters.map(|c| if cells[c] == NA { 0 } else { cells[c] });
            let Ok(pid) = u32::try_from(cells[columns.tgid]) else { continue };
            if cells[columns.kthread] == 1 {
                continue;
            }
            let process = self.processes.entry(pid).or_default();
            process.pid = pid;
            if key.id == u64::from(pid) || process.name.is_empty() {
                process.name = strings.cell(cells[columns.comm]).unwrap_or_default().to_owned();
            }
            process.cpu.resize(samples, 0.0);
            process.io.resize(samples, 0.0);
            // A task that was born since the first sample counts from nothing.
            let is_new = i64::try_from(key.born).is_ok_and(|born| born >= began_boot);
            let unseen = if is_new { [0; 3] } else { counters };
            let before = self.before.insert(key, counters).unwrap_or(unseen);
            let [cpu, read, written] = [0, 1, 2].map(|i| (counters[i] - before[i]).max(0) as f64);
            if let (Some(last_cpu), Some(last_io)) = (process.cpu.last_mut(), process.io.last_mut()) {
                *last_cpu += cpu / 1e6;
                *last_io += read + written;
            }
        }
    }
}

impl Processes {
    /// Reads the window of an archive.
    pub fn read(archive: &Path, since_s: f64, until_s: f64) -> anyhow::Result<Self> {
        let columns = Columns::find().ok_or_else(|| anyhow::anyhow!("no such metrics"))?;
        let at = |s: f64| (s * SECOND as f64) as i64;
        let span = Span { since: at(since_s), until: at(until_s) };
        let mut counting = Counting::default();
        Reader::open(archive)?.frames(span, &mut |frame, strings| counting.add(frame, strings, &columns))?;
        let samples = counting.at_s.len();
        let mut all: Vec<Process> = counting.processes.into_values().collect();
        for process in &mut all {
            process.cpu.resize(samples, 0.0);
            process.io.resize(samples, 0.0);
        }
        Ok(Self { all, at_s: counting.at_s })
    }

    /// The process with the largest `of`; of several, the one with the lowest id.
    pub fn largest(&self, of: impl Fn(&Process) -> f64) -> Option<&Process> {
        self.all.iter().reduce(|a, b| if of(b) > of(a) { b } else { a })
    }

    /// The process whose values changed most, and when: the difference of the means before and after
    /// the moment at which it is largest.
    pub fn changed(&self, of: impl Fn(&Process) -> &[f64]) -> Option<(&Process, f64)> {
        let changes = self.all.iter().filter_map(|p| change(of(p)).map(|(i, by)| (p, i, by)));
        let (process, i, _) = changes.reduce(|a, b| if b.2 > a.2 { b } else { a })?;
        Some((process, *self.at_s.get(i)?))
    }
}

/// The index of the first value after the largest change of the mean, and how large it is.
fn change(values: &[f64]) -> Option<(usize, f64)> {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let splits = SIDE_MIN..=values.len().checked_sub(SIDE_MIN)?;
    splits
        .filter_map(|i| values.split_at_checked(i).map(|(a, b)| (i, (mean(b) - mean(a)).abs())))
        .reduce(|a, b| if b.1 > a.1 { b } else { a })
}

#[cfg(test)]
mod tests {
    use super::{Process, Processes, change};

    #[test]
    fn the_largest_change_and_when() {
        assert_eq!(change(&[1.0, 1.0, 1.0, 5.0, 5.0, 5.0, 5.0]), Some((3, 4.0)));
        assert_eq!(change(&[1.0; 5]), None);
        let process = |pid: u32, cpu: &[f64]| Process { pid, cpu: cpu.to_vec(), ..Process::default() };
        let processes = Processes {
            all: vec![process(1, &[0.9; 6]), process(2, &[0.5, 0.5, 0.5, 0.0, 0.0, 0.0])],
            at_s: vec![10.0, 11.0, 12.0, 13.0, 14.0, 15.0],
        };
        let most = processes.largest(|p| p.cpu.iter().sum());
        assert_eq!(most.map(|p| p.pid), Some(1));
        let changed = processes.changed(|p| &p.cpu);
        assert_eq!(changed.map(|(p, at_s)| (p.pid, at_s)), Some((2, 13.0)));
    }
}
