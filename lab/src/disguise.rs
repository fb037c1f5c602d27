//! Rewrites a recording under other names, so that it can be published.
//!
//! The frames stay the same, only texts change. The host name, its boot id and the tail of the
//! kernel release always change; other texts change by the given renames.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use mitra_archive::{Options, Reader, Writer};
use mitra_model::{Frame, HostInfo, Span, Strings};

/// The host of every shipped recording.
const HOST: &str = "lab";

/// Text replacements, old and new.
#[derive(Clone, Debug, Default)]
pub struct Renames(Vec<(String, String)>);

impl Renames {
    /// Each `OLD=NEW`.
    pub fn parse(words: &[String]) -> anyhow::Result<Self> {
        let pair = |w: &String| {
            let (old, new) = w.split_once('=').with_context(|| format!("{w}: wanted OLD=NEW"))?;
            anyhow::ensure!(!old.is_empty(), "{w}: nothing to replace");
            Ok((old.to_owned(), new.to_owned()))
        };
        words.iter().map(pair).collect::<anyhow::Result<Vec<_>>>().map(Self)
    }

    /// The text with all replacements made.
    pub fn apply(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (old, new)| text.replace(old, new))
    }

    /// Strings are found by their id, so two must not become equal: the later one gets its id
    /// added.
    fn table(&self, strings: &Strings) -> Strings {
        let mut renamed = Strings::of_generation(strings.generation());
        for id in 0..strings.len() {
            let text = self.apply(strings.cell(id as i64).unwrap_or_default());
            if renamed.intern(&text) as usize != id {
                renamed.intern(&format!("{text}~{id}"));
            }
        }
        renamed
    }
}

/// `6.18.44` of `6.18.44-cloud-amd64`.
pub fn plain_release(release: &str) -> String {
    release.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect()
}

/// Writes the frames of a span of the archive in `from` to a new one in `to`.
pub fn disguise(from: &Path, span: Span, to: &Path, renames: &Renames) -> anyhow::Result<()> {
    let reader = Reader::open(from)?;
    let mut host: HostInfo = reader.host().clone();
    host.hostname = HOST.into();
    host.kernel = plain_release(&host.kernel);
    host.boot_id = "00000000-0000-0000-0000-000000000000".into();
    // The best compression. No segment is too old.
    let options = Options { level: 19, max_age: Duration::MAX, ..Options::default() };
    let mut writer = Writer::open(to, &host, options)?;
    let mut table = Strings::new();
    let mut failed = None;
    reader.frames(span, &mut |frame, strings| {
        if table.len() != strings.len() || table.generation() != strings.generation() {
            table = renames.table(strings);
        }
        if failed.is_none() {
            failed = append(&mut writer, frame, &table, renames).err();
        }
    })?;
    if let Some(e) = failed {
        return Err(e);
    }
    writer.finish()?;
    // A writer creates both files again.
    _ = fs::remove_file(to.join("lock"));
    _ = fs::remove_file(to.join("state"));
    Ok(())
}

fn append(writer: &mut Writer, frame: &Frame, table: &Strings, renames: &Renames) -> anyhow::Result<()> {
    let mut frame = frame.clone();
    for event in &mut frame.events {
        *event = serde_json::from_str(&renames.apply(&serde_json::to_string(event)?))?;
    }
    Ok(writer.append(&frame, table)?)
}

#[cfg(test)]
mod tests {
    use mitra_model::Strings;

    use super::{Renames, plain_release};

    #[test]
    fn texts_change_and_keep_their_numbers() {
        let renames = Renames::parse(&["/box=/user".into(), "secret=s".into()]).unwrap();
        let mut strings = Strings::new();
        let ids: Vec<u32> = ["/box/a", "s", "secret", "dd"].map(|t| strings.intern(t)).to_vec();
        let table = renames.table(&strings);
        let texts: Vec<&str> = ids.iter().filter_map(|id| table.get(*id)).collect();
        assert_eq!(texts, ["/user/a", "s", "s~2", "dd"]);
        assert!(Renames::parse(&["nothing".into()]).is_err() && Renames::parse(&["=x".into()]).is_err());
    }

    #[test]
    fn a_release_is_numbers() {
        assert_eq!(plain_release("6.18.44-cloud-amd64"), "6.18.44");
    }
}
