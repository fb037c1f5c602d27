//! Parses the command line of an Erlang VM: `erlexec` passes the emulator's flags before `--`,
//! written with `-`, and the rest behind it.
//!
//! ```text
//! /usr/lib/erlang/erts-13.1.5/bin/beam.smp -MHsbct 4096 -- -root /usr/lib/erlang -bindir …
//!     -progname erl -- -home /root -- -noshell -sname shop -setcookie …
//! ```

use std::fs::File;
use std::io::Read;

/// Limit of a command line: longer ones are cut off.
const BYTES_MAX: u64 = 1 << 20;
/// Limit of the allocator flags that are kept.
const FLAGS_MAX: usize = 64;

/// The relevant parts of a command line.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct CommandLine {
    /// `/usr/lib/erlang/erts-13.1.5/bin/beam.smp`.
    pub(super) program: String,
    /// `+MHsbct 4096`: the allocator flags, as they are given to `erl`.
    pub(super) allocator_flags: Vec<String>,
    /// The root directory of the installation.
    pub(super) root: Option<String>,
    /// The home directory with the cookie file.
    pub(super) home: Option<String>,
    /// The name of the node, and whether it is a long one.
    pub(super) name: Option<(String, bool)>,
    /// The cookie if it was given. It is a secret: it is never printed, and the type has no
    /// `Debug`.
    pub(super) cookie: Option<String>,
    /// The port of epmd, if it is not the default one.
    pub(super) epmd_port: Option<String>,
}

impl CommandLine {
    pub(super) fn read(pid: u32) -> CommandLine {
        let mut bytes = Vec::new();
        if let Ok(file) = File::open(format!("/proc/{pid}/cmdline")) {
            _ = file.take(BYTES_MAX).read_to_end(&mut bytes);
        }
        CommandLine { epmd_port: epmd_port(pid), ..CommandLine::parse(&bytes) }
    }

    pub(super) fn parse(bytes: &[u8]) -> CommandLine {
        let words: Vec<String> =
            bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let mut line =
            CommandLine { program: words.first().cloned().unwrap_or_default(), ..CommandLine::default() };
        let mut is_emulator = true;
        for (i, word) in words.iter().enumerate().skip(1) {
            let value = words.get(i + 1).filter(|value| !value.is_empty() && !value.starts_with('-'));
            match word.as_str() {
                // The words behind it belong to the program.
                "-extra" => break,
                "--" => is_emulator = false,
                flag if is_emulator => {
                    let name = flag.strip_prefix(['-', '+']).filter(|name| name.starts_with('M'));
                    if let Some(name) = name.filter(|_| line.allocator_flags.len() < FLAGS_MAX) {
                        let value = value.map(|value| format!(" {value}")).unwrap_or_default();
                        line.allocator_flags.push(format!("+{name}{value}").chars().take(64).collect());
                    }
                }
                "-root" => line.root = value.cloned(),
                "-home" => line.home = value.cloned(),
                "-sname" => line.name = value.cloned().map(|name| (name, false)),
                "-name" => line.name = value.cloned().map(|name| (name, true)),
                // With two words it is the cookie for another node.
                "-setcookie"
                    if words.get(i + 2).is_none_or(|next| next.is_empty() || next.starts_with('-')) =>
                {
                    line.cookie = value.cloned();
                }
                _ => {}
            }
        }
        line
    }

    /// The version of the runtime system: `13.1.5` for `…/erts-13.1.5/bin/beam.smp`.
    pub(super) fn version(&self) -> Option<String> {
        let (_, rest) = self.program.split_once("/erts-")?;
        let version = rest.split('/').next()?;
        (!version.is_empty()).then(|| version.chars().take(32).collect())
    }
}

/// The only variable that is read from the environment.
fn epmd_port(pid: u32) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/environ")).ok()?.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let port = bytes.split(|byte| *byte == 0).find_map(|word| word.strip_prefix(b"ERL_EPMD_PORT="))?;
    Some(String::from_utf8_lossy(port).parse::<u16>().ok()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_names_are_told_from_the_programs_own_words() {
        let words = "/usr/lib/erlang/erts-13.1.5/bin/beam.smp -W w -MHsbct 4096 -MBas ageffcbf -MIscs 128 -- -root /usr/lib/erlang \
            -bindir /usr/lib/erlang/erts-13.1.5/bin -progname erl -- -home /var/lib/shop -- -noshell -sname shop \
            -setcookie secret -MHsbct 1 -extra -sname other";
        let bytes: Vec<u8> =
            words.split_whitespace().flat_map(|word| [word.as_bytes(), &[0]].concat()).collect();
        let line = CommandLine::parse(&bytes);
        assert_eq!(line.allocator_flags, ["+MHsbct 4096", "+MBas ageffcbf", "+MIscs 128"]);
        assert_eq!(line.name, Some(("shop".to_owned(), false)));
        assert_eq!(line.cookie.as_deref(), Some("secret"));
        assert_eq!(line.home.as_deref(), Some("/var/lib/shop"));
        assert_eq!(line.root.as_deref(), Some("/usr/lib/erlang"));
        assert_eq!(line.version().as_deref(), Some("13.1.5"));
        let other = CommandLine::parse(b"beam.smp\0--\0-setcookie\0node@host\0secret\0");
        assert!(other.cookie.is_none() && other.version().is_none());
        assert!(CommandLine::parse(b"") == CommandLine::default());
    }
}
