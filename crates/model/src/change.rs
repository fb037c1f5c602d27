//! Changes of a machine's configuration, seen by a recording or by the index.

use serde::Serialize;

use crate::report::Moment;

/// The kind of object that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// A setting of the kernel.
    Sysctl,
    /// A limit of a control group.
    Cgroup,
    /// A package was installed, removed or brought to another version.
    Package,
    /// A file.
    File,
    /// Another kernel was booted, or a module loaded.
    Kernel,
    /// A mount, its options or its geometry.
    Mount,
    /// A unit or timer of systemd.
    Unit,
    /// A line of a crontab.
    Cron,
    /// A block device or network interface.
    Device,
    /// A user or group.
    Account,
}

impl ChangeKind {
    /// The name, as JSON has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sysctl => "sysctl",
            Self::Cgroup => "cgroup",
            Self::Package => "package",
            Self::File => "file",
            Self::Kernel => "kernel",
            Self::Mount => "mount",
            Self::Unit => "unit",
            Self::Cron => "cron",
            Self::Device => "device",
            Self::Account => "account",
        }
    }
}

/// One change. Unknown fields are absent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// When it was seen.
    pub at: Moment,
    /// When the old value was last seen: the change is between the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Moment>,
    /// The kind of object.
    pub kind: ChangeKind,
    /// Its name: `vm.swappiness`, `memory.max`, a package, the path of a file.
    pub name: String,
    /// The control group, for a limit of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// What people call it: its unit, slice, container or pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_name: Option<String>,
    /// The old value; absent for a new object, or if there was no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The new value; absent for a removed object, or if there is no limit any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The lines that differ, as a unified diff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Which source saw it: `recording` or `index`.
    pub source: &'static str,
}

impl Change {
    /// One line for people: `vm.swappiness 60 → 100`.
    #[must_use]
    pub fn words(&self) -> String {
        let of = self
            .cgroup_name
            .as_ref()
            .or(self.cgroup.as_ref())
            .map(|c| format!(" of {c}"))
            .unwrap_or_default();
        let name = &self.name;
        match (&self.from, &self.to) {
            (Some(from), Some(to)) => format!("{name}{of} {from} → {to}"),
            (None, Some(to)) if self.kind == ChangeKind::Cgroup => format!("{name}{of} no limit → {to}"),
            (Some(from), None) if self.kind == ChangeKind::Cgroup => format!("{name}{of} {from} → no limit"),
            (None, Some(to)) => format!("{name}{of} is new: {to}"),
            (Some(from), None) => format!("{name}{of} is gone; it was {from}"),
            (None, None) => format!("{name}{of} was changed"),
        }
    }
}
