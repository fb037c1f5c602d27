//! A document: one file of one host, or what a collector says of it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use ring::digest;

/// One file of one host, or what a collector says of it, without secrets.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The host's name.
    pub host: String,
    /// The path of a file; `@` and a name for what a collector says: `@sysctl`, `@mount/data`.
    pub filename: String,
    /// What it is.
    pub kind: Kind,
    /// The text; nothing where it may not be shown or is none.
    pub content: Option<String>,
    /// What the file system says of it; a collector has nothing of the kind.
    pub stat: Option<Stat>,
    /// Typed fields of the content.
    pub facts: Facts,
    /// What is special about it.
    pub flags: Vec<Flag>,
    /// Where a symbolic link points.
    pub link: Option<String>,
    /// What was withheld.
    pub withheld: Withheld,
    /// Since when this state is known, in nanoseconds since 1970. It stands still while nothing changes.
    pub since_ns: i64,
}

/// Typed fields by name (`sysctl.vm.swappiness`). A name may have several values. Names and types are those of
/// [`crate::fields`].
pub type Facts = BTreeMap<String, Vec<Value>>;

/// One value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A word, compared as a whole.
    Text(String),
    /// A number.
    Number(f64),
    /// A moment, in nanoseconds since 1970.
    Time(i64),
}

/// What the file system says of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stat {
    /// Bytes.
    pub size: u64,
    /// Permissions with the set-id and sticky bits, without the type: `0o644`.
    pub mode: u32,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// The owner's name, where there is one.
    pub user: Option<String>,
    /// The group's name, where there is one.
    pub group: Option<String>,
    /// The number of the inode.
    pub inode: u64,
    /// When the content was changed, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// When content, owner, mode or name was changed, in nanoseconds since 1970.
    pub ctime_ns: i64,
}

/// What was withheld of a document, without a trace of what it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Withheld {
    /// Values that were replaced; 1 where the whole content was kept back.
    pub count: u32,
    /// Why: `path`, `private-key`, `password`, …, each once, in order.
    pub reasons: Vec<String>,
    /// Under which keys, each once, in order.
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
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name in queries and files.
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
    /// What a document is.
    Kind {
        /// A file.
        File = "file",
        /// The list of installed packages.
        Package = "package",
        /// The kernel, its release and its modules.
        Kernel = "kernel",
        /// The command line of the kernel.
        Cmdline = "cmdline",
        /// The settings of the kernel.
        Sysctl = "sysctl",
        /// One mounted file system.
        Mount = "mount",
        /// One block device.
        Disk = "disk",
        /// The sockets that listen.
        Socket = "socket",
        /// Users and groups.
        User = "user",
        /// The units of systemd.
        Unit = "unit",
        /// One timer of systemd.
        Timer = "timer",
        /// One line of a crontab.
        Cron = "cron",
        /// Control groups with a limit.
        Cgroup = "cgroup",
        /// The processor.
        Cpu = "cpu",
        /// The memory nodes.
        Numa = "numa",
        /// One network interface.
        Nic = "nic",
        /// One incident that was explained.
        Incident = "incident",
    }
}

named! {
    /// What is special about a document.
    Flag {
        /// The content is no text; only stat and hash are kept.
        Binary = "binary",
        /// Larger than is kept as text; the beginning is.
        Truncated = "truncated",
        /// Values were withheld.
        Redacted = "redacted",
        /// The whole content was withheld.
        Refused = "refused",
        /// It was there earlier on this day and is gone.
        Gone = "gone",
        /// A symbolic link that was not followed.
        Link = "link",
        /// It changes by itself all the time: of one day only the last state is kept.
        Volatile = "volatile",
        /// It changed while it was read, three times.
        Moving = "moving",
        /// It has holes.
        Sparse = "sparse",
    }
}

impl Document {
    /// A document that says nothing yet.
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

    /// Its id: the same for the same host and file name, on every day.
    #[must_use]
    pub fn id(&self) -> String {
        document_id(&self.host, &self.filename)
    }

    /// SHA-256 of the content, in hexadecimal. Of the content without secrets: a hash of the whole would let them be guessed.
    #[must_use]
    pub fn hash(&self) -> Option<String> {
        self.content.as_ref().map(|text| sha256(text.as_bytes()))
    }

    /// Whether it has a flag.
    #[must_use]
    pub fn is(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    /// Sets a flag once.
    pub fn flag(&mut self, flag: Flag) {
        if let Err(at) = self.flags.binary_search(&flag) {
            self.flags.insert(at, flag);
        }
    }

    /// SHA-256 of all that makes its state: everything but host, name and time. A cluster keeps it, so it stays as it is.
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

    /// Whether another state of the same document says the same, whenever it was read.
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

/// Bytes to a digest, each piece with its length, so that two lists of pieces never look alike.
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

/// The id of a document: SHA-256 of `host_filename`, in hexadecimal, so that it can be fetched without a search.
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
        // printf 'web1_/etc/hosts' | sha256sum
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
