//! The kernel command line, one argument per line, in the order in which the kernel reads them. Of
//! two arguments with the same name the later one wins.

use super::{Source, word};
use crate::document::{Document, Facts, Kind};

const FILE: &str = "/proc/cmdline";
/// Maximum size of the command line in bytes. Kernels accept 2 to 4 KiB, and boot loaders may add
/// to it.
const CMDLINE_MAX: usize = 64 << 10;
/// Maximum length of an argument's name that becomes a field, in bytes.
const NAME_MAX: usize = 64;
/// Maximum number of arguments that become fields.
const ARGUMENTS_MAX: usize = 256;

/// The document of the kernel command line.
pub fn collect(source: &Source<'_>) -> Result<Vec<Document>, String> {
    let text = source.text(FILE, CMDLINE_MAX)?;
    let arguments = parse(&text).map_err(|e| format!("{FILE}: {e}"))?;
    let mut content = String::new();
    let mut facts = Facts::new();
    let mut of_the_kernel = true;
    for argument in arguments {
        content.push_str(argument);
        content.push('\n');
        // Arguments after `--` are for init.
        of_the_kernel &= argument != "--";
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        if of_the_kernel && facts.len() < ARGUMENTS_MAX && is_name(name) {
            word(&mut facts, &format!("cmdline.{}", name.replace('.', "_")), value.trim_matches('"'));
        }
    }
    Ok(vec![source.document("@cmdline", Kind::Cmdline, content, facts)])
}

/// Paths and long texts are not names of arguments.
fn is_name(text: &str) -> bool {
    let is_part = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    !text.is_empty() && text.len() <= NAME_MAX && text.bytes().all(is_part) && !text.starts_with(['-', '.'])
}

/// Splits `/proc/cmdline` into arguments. Quotes keep spaces together.
///
/// ```text
/// BOOT_IMAGE=/boot/vmlinuz-6.1.0 root=UUID=0a1b ro mitigations=off dyndbg="file drivers/* +p"
/// ```
pub fn parse(text: &str) -> Result<Vec<&str>, String> {
    let mut arguments = Vec::new();
    let mut start = None;
    let mut quoted = false;
    for (at, c) in text.char_indices() {
        quoted ^= c == '"';
        if !c.is_ascii_whitespace() || quoted {
            start.get_or_insert(at);
        } else if let Some(start) = start.take() {
            arguments.extend(text.get(start..at));
        }
    }
    if quoted {
        return Err("a quote is not closed".to_owned());
    }
    arguments.extend(start.and_then(|start| text.get(start..)));
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::Cache;
    use crate::document::Value;

    #[test]
    fn quotes_keep_spaces_together() {
        let text = "ro  quiet x=\"a b\" y=\"\"\n";
        assert_eq!(parse(text).unwrap(), ["ro", "quiet", "x=\"a b\"", "y=\"\""]);
        assert_eq!(parse("").unwrap(), [""; 0]);
        assert_eq!(parse("a \"b c"), Err("a quote is not closed".to_owned()));
    }

    #[test]
    fn arguments_become_fields() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let text = "ro console=ttyS0 console=tty0 a.b=\"c d\" /bin/sh -- single\n";
        std::fs::write(root.path().join("proc/cmdline"), text).unwrap();
        let cache = Cache::default();
        let source = Source { root: root.path(), now_ns: 0, cache: &cache };
        let documents = collect(&source).unwrap();
        let document = &documents[0];
        assert_eq!(
            document.content.as_deref(),
            Some("ro\nconsole=ttyS0\nconsole=tty0\na.b=\"c d\"\n/bin/sh\n--\nsingle\n")
        );
        let words = |texts: &[&str]| texts.iter().map(|t| Value::Text((*t).to_owned())).collect::<Vec<_>>();
        let wanted: Facts = [
            ("cmdline.a_b", words(&["c d"])),
            ("cmdline.console", words(&["ttyS0", "tty0"])),
            ("cmdline.ro", words(&[""])),
        ]
        .map(|(name, values)| (name.to_owned(), values))
        .into();
        assert_eq!(document.facts, wanted);
    }
}
