//! Definitions of incidents and controls, and the truth about them.

use std::fmt;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::stage::{Stage, Victim};

/// An incident that the laboratory can make, and the truth about it.
#[derive(Clone, Copy)]
pub struct Incident {
    /// Unique, like `flood-once`.
    pub name: &'static str,
    /// The id of the true root condition.
    pub condition: &'static str,
    /// Ids that are equally true; the doc comment of the incident says why.
    pub also: &'static [&'static str],
    /// The area of the condition: `disk`, `page-cache`, `network`, …
    pub area: &'static str,
    /// One line for the score page.
    pub what: &'static str,
    /// What the machine must have. Root is always needed.
    pub needs: &'static [Need],
    /// Conditions that the chain must show.
    pub chain: &'static [&'static str],
    /// Makes the incident.
    pub make: fn(&mut Stage) -> Result<Truth, Stop>,
}

/// A busy but healthy machine. Mitra must be silent about it.
#[derive(Clone, Copy)]
pub struct Control {
    /// Unique among incidents and controls.
    pub name: &'static str,
    /// One line for the score page.
    pub what: &'static str,
    /// What the machine must have.
    pub needs: &'static [Need],
    /// Works for [`Stage::length`]. Must check that nothing is hurt.
    pub make: fn(&mut Stage) -> Result<(), Stop>,
}

/// A requirement of an incident or control.
#[derive(Clone, Copy)]
pub enum Need {
    /// A program on the path.
    Tool(&'static str),
    /// This many CPUs.
    Cpus(usize),
    /// A file or directory that exists.
    Path(&'static str),
    /// Free space on the file system of a run's files.
    DiskBytes(u64),
    /// Available memory.
    MemoryBytes(u64),
    /// A machine that can be made small: unused huge pages take most of its memory.
    SmallMachine,
    /// The limits of dirty pages, which exist once per machine.
    DirtyBounds,
    /// A machine without swap: growing memory must evict file pages.
    NoSwap,
    /// A swap device of its own, which any process' pages may go to.
    OwnSwap,
}

impl Need {
    /// Why two requirements exclude each other at the same time.
    fn collides(self, other: Self) -> Option<&'static str> {
        match (self, other) {
            (Self::SmallMachine, Self::SmallMachine) => Some("both make the machine's memory small"),
            (Self::DirtyBounds, Self::DirtyBounds) => Some("both set the bounds of dirty pages"),
            (Self::NoSwap, Self::OwnSwap) | (Self::OwnSwap, Self::NoSwap) => {
                Some("one needs a machine without swap, and the other one adds swap")
            }
            _ => None,
        }
    }
}

impl Incident {
    /// An incident of an area, with the id of its true root condition.
    pub const fn new(
        name: &'static str,
        condition: &'static str,
        area: &'static str,
        make: fn(&mut Stage) -> Result<Truth, Stop>,
    ) -> Self {
        Self { name, condition, also: &[], area, what: "", needs: &[], chain: &[], make }
    }

    /// Sets the line for the score page.
    pub const fn what(self, what: &'static str) -> Self {
        Self { what, ..self }
    }

    /// Adds conditions that are equally true.
    pub const fn also(self, also: &'static [&'static str]) -> Self {
        Self { also, ..self }
    }

    /// Sets what the machine must have.
    pub const fn needs(self, needs: &'static [Need]) -> Self {
        Self { needs, ..self }
    }

    /// Sets the conditions that the chain must show.
    pub const fn chain(self, chain: &'static [&'static str]) -> Self {
        Self { chain, ..self }
    }

    /// Whether a condition is the true root or equally true.
    pub fn is_true(&self, condition: &str) -> bool {
        self.condition == condition || self.also.contains(&condition)
    }

    /// Whether a binary that knows these conditions can name the incident at all.
    pub fn can_be_named(&self, known: &[String]) -> bool {
        known.iter().any(|id| self.is_true(id))
    }

    /// Why this incident and another one cannot be made at the same time and stay distinct.
    pub fn collides(&self, other: &Self) -> Option<String> {
        if self.is_true(other.condition) || other.is_true(self.condition) {
            return Some(format!("both are {}", self.condition));
        }
        if self.area == other.area {
            return Some(format!("both are of the area {}, and one would be taken for the other", self.area));
        }
        self.needs.iter().find_map(|a| other.needs.iter().find_map(|b| a.collides(*b))).map(str::to_owned)
    }
}

/// How hard the incident is to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Obvious to anybody. Each incident says how much slower its victim is meant to be.
    Loud,
    /// What a careful engineer would find: somewhat slower, or a limit that is just reached.
    Faint,
}

impl Form {
    /// Both forms, the loud one first.
    pub const ALL: [Form; 2] = [Form::Loud, Form::Faint];
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loud => "loud",
            Self::Faint => "faint",
        })
    }
}

impl std::str::FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "loud" => Ok(Self::Loud),
            "faint" => Ok(Self::Faint),
            _ => Err("a form is loud or faint".into()),
        }
    }
}

/// The culprit and what it acted on. Only fields that are set are checked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Truth {
    /// Prefix of the culprit's process name. The kernel truncates names to 15 characters.
    pub process: Option<String>,
    /// The pids that may be named. Empty if the culprit does not live long enough.
    pub pids: Vec<u32>,
    /// The last part of the culprit's cgroup path.
    pub cgroup: Option<String>,
    /// The block device, by any of its names (disk, partition).
    pub devices: Vec<String>,
    /// The network interface, without its namespace.
    pub nic: Option<String>,
    /// Prefix of the path of the file, directory or mount.
    pub path: Option<String>,
    /// The slab cache.
    pub slab: Option<String>,
    /// The sysctl, with dots or slashes.
    pub sysctl: Option<String>,
    /// Prefix of the address (`10.1.2.3` or `10.1.2.3:53`).
    pub address: Option<String>,
    /// The name of the earlier change: `vm.swappiness`, `memory.max`. The incident must list it
    /// among its changes, for the cgroup above if there is one, and the root must name it.
    pub change: Option<String>,
}

impl Truth {
    /// The truth with this process as its culprit.
    pub fn of(culprit: &Victim) -> Self {
        Self { process: Some(culprit.name().to_owned()), pids: vec![culprit.pid()], ..Self::default() }
    }
}

/// Why a run ended early.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// This machine cannot make it: a tool, a kernel feature, or space is missing.
    Skipped(String),
    /// The incident was tried, but no victim was hurt: neither right nor wrong.
    NotMade(String),
    /// The recorder died, or an explanation failed or did not end: a wrong answer.
    Mitra(String),
    /// The laboratory broke.
    Failed(String),
    /// The user interrupted the run.
    Interrupted,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped(why) => write!(f, "skipped: {why}"),
            Self::NotMade(why) => write!(f, "not made: {why}"),
            Self::Mitra(why) => write!(f, "Mitra broke: {why}"),
            Self::Failed(why) => write!(f, "FAILED: {why}"),
            Self::Interrupted => write!(f, "interrupted"),
        }
    }
}

impl From<io::Error> for Stop {
    fn from(e: io::Error) -> Self {
        Self::Failed(format!("the laboratory could not do its part: {e}"))
    }
}

impl From<rustix::io::Errno> for Stop {
    fn from(e: rustix::io::Errno) -> Self {
        io::Error::from(e).into()
    }
}

/// Adds the path to an I/O error.
pub trait WithPath<T> {
    /// Puts the path in front of the error.
    fn at(self, path: impl AsRef<Path>) -> Result<T, Stop>;
}

impl<T> WithPath<T> for io::Result<T> {
    fn at(self, path: impl AsRef<Path>) -> Result<T, Stop> {
        self.map_err(|e| Stop::Failed(format!("{}: {e}", path.as_ref().display())))
    }
}

/// The first of `needs` that this machine does not have.
pub fn missing(needs: &[Need], dir: &Path) -> Option<String> {
    needs.iter().find_map(|need| match need {
        Need::Tool(tool) if !crate::machine::have(tool) => Some(format!("{tool} is not installed")),
        Need::Cpus(n) if crate::machine::cpus() < *n => Some(format!("needs {n} CPUs")),
        Need::Path(path) if !Path::new(path).exists() => Some(format!("there is no {path}")),
        Need::DiskBytes(bytes) if crate::machine::free_disk_bytes(dir) < *bytes => {
            Some(format!("needs {} MB of free disk space", bytes >> 20))
        }
        Need::MemoryBytes(bytes) if crate::counters::mem_available_bytes().unwrap_or(0) < *bytes => {
            Some(format!("needs {} MB of free memory", bytes >> 20))
        }
        Need::SmallMachine if crate::counters::huge_pages() != Some(0) => {
            Some("huge pages are in use, or there are none, on this machine".into())
        }
        Need::NoSwap if crate::machine::swap_is_on() => {
            Some("swap is on; swapoff -a makes this one possible".into())
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{Need, Stop, WithPath};

    #[test]
    fn what_the_machine_has_once_only_one_can_have() {
        let all = [Need::SmallMachine, Need::DirtyBounds, Need::NoSwap, Need::OwnSwap, Need::Cpus(2)];
        let collide = |i: usize, j: usize| all[i].collides(all[j]).is_some();
        for (i, j) in (0..5).flat_map(|i| (0..5).map(move |j| (i, j))) {
            assert_eq!(collide(i, j), matches!((i, j), (0, 0) | (1, 1) | (2, 3) | (3, 2)), "{i} {j}");
        }
    }

    #[test]
    fn an_error_says_which_file() {
        let denied: io::Result<()> = Err(io::ErrorKind::PermissionDenied.into());
        let Err(Stop::Failed(why)) = denied.at("/proc/sys/vm/x") else { panic!("no error") };
        assert!(why.starts_with("/proc/sys/vm/x: "), "{why}");
    }
}
