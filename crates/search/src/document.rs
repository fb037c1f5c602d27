//! A document: one file of one host, or the report of a collector.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use ring::digest;

/// One file of one host, or the report of a collector. Secrets are already withheld.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The host's name.
    pub host: String,
    /// The path of a file, or `@` and a name for a collector's report: `@sysctl`, `@mount/data`.
    pub filename: String,
    /// The kind of document.
    pub kind: Kind,
    /// The text; `None` if it is withheld or not text.
    pub content: Option<String>,
    /// The status of a file; `None` for a collector's report.
    pub stat: Option<Stat>,
    /// Typed fields extracted from the content.
    pub facts: Facts,
    /// Special properties.
    pub flags: Vec<Flag>,
    /// The target of a symbolic link.
    pub link: Option<String>,
    /// What was withheld.
    pub withheld: Withheld,
    /// When this state was first seen, in nanoseconds since 1970. It is constant while nothing
    /// changes.
    pub since_ns: i64,
}

/// Typed fields by name (`sysctl.vm.swappiness`). A name may have several values. [`crate::fields`]
/// defines the names and types.
pub type Facts = BTreeMap<String, Vec<Value>>;

/// One value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A keyword, compared as a whole.
    Text(String),
    /// A number.
    Number(f64),
    /// A time, in nanoseconds since 1970.
    Time(i64),
}

/// The status of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stat {
    /// Size in bytes.
    pub size: u64,
    /// Permissions with the set-id and sticky bits, but without the file type: `0o644`.
    pub mode: u32,
    /// The owner's user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
    /// The owner's name, if known.
    pub user: Option<String>,
    /// The group's name, if known.
    pub group: Option<String>,
    /// The inode number.
    pub inode: u64,
    /// When the content was last changed, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// When content, owner, mode or name was last changed, in nanoseconds since 1970.
    pub ctime_ns: i64,
}

/// What was withheld from a document, without any hint of the values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Withheld {
    /// How many values were replaced; 1 if the whole content was withheld.
    pub count: u32,
    /// The reasons (`path`, `private-key`, `password`, …), sorted, without duplicates.
    pub reasons: Vec<String>,
    /// The keys whose values were withheld, sorted, without duplicates.
    pub keys: Vec<String>,
}

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)*
        }

        impl $name {
            /// All variants.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name in queries and files.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(format!("there is no {} '{text}'", stringify!($name).to_lowercase())),
                }
            }
        }
    };
}

named! {
    /// The kind of a document.
    Kind {
        /// A file.
        File = "file",
        /// The list of installed packages.
        Package = "package",
        /// The kernel, its release and its modules.
        Kernel = "kernel",
        /// The kernel command line.
        Cmdline = "cmdline",
        /// The kernel settings.
        Sysctl = "sysctl",
        /// One mounted file system.
        Mount = "mount",
        /// One block device.
        Disk = "disk",
        /// The listening sockets.
        Socket = "socket",
        /// Users and groups.
        User = "user",
        /// The systemd units.
        Unit = "unit",
        /// One systemd timer.
        Timer = "timer",
        /// One line of a crontab.
        Cron = "cron",
        /// Cgroups with a limit.
        Cgroup = "cgroup",
        /// The CPU.
        Cpu = "cpu",
        /// The NUMA nodes.
        Numa = "numa",
        /// One network interface.
        Nic = "nic",
        /// One explained incident.
        Incident = "incident",
    }
}

named! {
    /// A special property of a document.
    Flag {
        /// The content is not text. Only the status is kept.
        Binary = "binary",
        /// The content exceeds the maximum size. Only its beginning is kept.
        Truncated = "truncated",
        /// Values were withheld.
        Redacted = "redacted",
        /// The whole content was withheld.
        Refused = "refused",
        /// It existed earlier on this day and is gone.
        Gone = "gone",
        /// A symbolic link that was not followed.
        Link = "link",
        /// It changes by itself all the time. Of each day only the last state is kept.
        Volatile = "volatile",
        /// It changed during each of three attempts to read it.
        Moving = "moving",
        /// It is a sparse file.
        Sparse = "sparse",
    }
}

impl Document {
    /// An empty document.
    #[must_use]
    pub fn new(host: impl Into<String>, filename: impl Into<String>, kind: Kind) -> Self {
        Self {
            host: host.into(),
            filename: filename.into(),
            kind,
            content: None,
            stat: None,
            facts: Facts::new(),
            flags: Vec::new(),
            link: None,
            withheld: Withheld::default(),
            since_ns: 0,
        }
    }

    /// The document id, which is the same for the same host and file name on every day.
    #[must_use]
    pub fn id(&self) -> String {
        document_id(&self.host, &self.filename)
    }

    /// SHA-256 of the content, in hexadecimal. It covers the content without secrets, because a
    /// hash of the whole file would allow guessing them.
    #[must_use]
    pub fn hash(&self) -> Option<String> {
        self.content.as_ref().map(|text| sha256(text.as_bytes()))
    }

    /// Whether a flag is set.
    #[must_use]
    pub fn is(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    /// Sets a flag, if it is not set yet.
    pub fn flag(&mut self, flag: Flag) {
        if let Err(at) = self.flags.binary_search(&flag) {
            self.flags.insert(at, flag);
        }
    }

    /// SHA-256 of the state: everything but host, file name and time. A cluster stores it, so the
    /// algorithm must not change.
    #[must_use]
    pub fn state_digest(&self) -> [u8; 32] {
        let mut digest = Pieces(digest::Context::new(&digest::SHA256));
        digest.text(self.kind.name());
        digest.option(self.content.as_deref());
        digest.option(self.link.as_deref());
        digest.number(u64::from(self.stat.is_some()));
        if let Some(s) = &self.stat {
            for n in [s.size, s.mode.into(), s.uid.into(), s.gid.into(), s.inode] {
                digest.number(n);
            }
            digest.number(s.mtime_ns.cast_unsigned());
            digest.number(s.ctime_ns.cast_unsigned());
            digest.option(s.user.as_deref());
            digest.option(s.group.as_deref());
        }
        digest.number(self.facts.len() as u64);
        for (name, values) in &self.facts {
            digest.text(name);
            digest.number(values.len() as u64);
            values.iter().for_each(|v| digest.value(v));
        }
        digest.number(self.flags.len() as u64);
        self.flags.iter().for_each(|f| digest.text(f.name()));
        digest.number(self.withheld.count.into());
        for list in [&self.withheld.reasons, &self.withheld.keys] {
            digest.number(list.len() as u64);
            list.iter().for_each(|t| digest.text(t));
        }
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.0.finish().as_ref());
        bytes
    }

    /// Whether two documents are in the same state, regardless of host, file name and time.
    #[must_use]
    pub fn same_state(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.content == other.content
            && self.stat == other.stat
            && self.facts == other.facts
            && self.flags == other.flags
            && self.link == other.link
            && self.withheld == other.withheld
    }
}

/// Feeds a digest. Each piece is preceded by its length, so that different lists of pieces never
/// give the same bytes.
struct Pieces(digest::Context);

impl Pieces {
    fn number(&mut self, n: u64) {
        self.0.update(&n.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn option(&mut self, text: Option<&str>) {
        self.number(u64::from(text.is_some()));
        self.text(text.unwrap_or_default());
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Text(t) => {
                self.number(0);
                self.text(t);
            }
            Value::Number(n) => {
                self.number(1);
                self.number(n.to_bits());
            }
            Value::Time(ns) => {
                self.number(2);
                self.number(ns.cast_unsigned());
            }
        }
    }
}

/// The id of a document: SHA-256 of `host_filename`, in hexadecimal. It allows fetching the
/// document without a search.
#[must_use]
pub fn document_id(host: &str, filename: &str) -> String {
    sha256(format!("{host}_{filename}").as_bytes())
}

/// SHA-256 in hexadecimal.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|d| char::from(DIGITS[usize::from(d)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_the_digest_of_host_and_name() {
        // Expected value from: printf 'web1_/etc/hosts' | sha256sum
        assert_eq!(
            document_id("web1", "/etc/hosts"),
            "81fcbebb53bc99f980c8687b15a5e15f52f1457796aaa5baa685ed828d69b0f9"
        );
    }

    #[test]
    fn names_are_read_back() {
        Kind::ALL.iter().for_each(|k| assert_eq!(k.name().parse(), Ok(*k)));
        Flag::ALL.iter().for_each(|f| assert_eq!(f.name().parse(), Ok(*f)));
        assert!("nothing".parse::<Kind>().is_err());
    }
}
