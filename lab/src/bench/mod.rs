//! A benchmark of the recordings, for any tool: which process of one Linux host was at fault?
//!
//! [`export`] writes what a tool may read and, apart from it, what the keeper keeps. [`score`] scores
//! an answer file. `sheet.md` is the data sheet; it says what each file has.

mod answers;
mod export;
mod process;
mod score;
mod sheet;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::record::Record;

pub use answers::{Answer, Answers, Claim, baselines, of_report};
pub use export::{Exporter, entries};
pub use score::{Score, score};
pub use sheet::{page, table};

/// The list of recordings.
pub const INDEX: &str = "bench.json";
const INDEX_SCHEMA: &str = "mitra-lab.bench/1";
const TRUTH: &str = "truth.json";

/// Which truths are beside their recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The truth is exported.
    Public,
    /// Only the SHA-256 of the truth is exported.
    Sealed,
}

impl Part {
    /// The name, which is also that of the folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Sealed => "sealed",
        }
    }
}

/// `bench.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Index {
    /// The version of the format.
    pub schema: String,
    /// The build that exported it.
    pub mitra: String,
    /// The conditions that are made: an answer's root is one of these.
    pub roots: Vec<String>,
    /// The recordings, by id.
    pub recordings: Vec<Entry>,
}

/// A recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The name of its folder, and the key of its answer.
    pub id: String,
    /// Where its truth is.
    pub part: Part,
    /// Begin of what is asked about, seconds since the epoch.
    pub since_s: f64,
    /// Its end.
    pub until_s: f64,
    /// Kernel and CPUs.
    pub machine: String,
    /// Processes that were seen in it, kernel threads left out.
    pub processes: usize,
    /// SHA-256 of the file with the truth, in hexadecimal digits.
    pub truth_sha256: String,
}

/// The truth of a recording. The file is hashed as it is: the salt keeps anybody from trying all
/// truths.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Truth {
    /// 32 hexadecimal digits of chance.
    pub salt: String,
    /// The chance that one process, drawn from all, is the culprit. `None` if no process is.
    pub chance: Option<f64>,
    /// What was made.
    pub run: Record,
}

impl Index {
    /// Reads it from a folder.
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        let index: Self = read_json(&dir.join(INDEX))?;
        anyhow::ensure!(
            index.schema == INDEX_SCHEMA,
            "{}: the schema is {}, not {INDEX_SCHEMA}",
            dir.display(),
            index.schema
        );
        Ok(index)
    }

    /// The truth of a recording, from the export or from what was kept. `None` for a sealed one
    /// without the latter. Fails if it is not the one whose hash was exported.
    pub fn truth(&self, entry: &Entry, dir: &Path, keep: Option<&Path>) -> anyhow::Result<Option<Truth>> {
        let path = match (entry.part, keep) {
            (Part::Public, _) => dir.join(Part::Public.name()).join(&entry.id).join(TRUTH),
            (Part::Sealed, Some(keep)) => kept(keep, &entry.id),
            (Part::Sealed, None) => return Ok(None),
        };
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        anyhow::ensure!(
            sha256(&bytes)? == entry.truth_sha256,
            "{}: this is not the truth whose SHA-256 is in {INDEX}",
            path.display()
        );
        serde_json::from_slice(&bytes).map(Some).with_context(|| path.display().to_string())
    }
}

fn kept(keep: &Path, id: &str) -> std::path::PathBuf {
    keep.join("truth").join(format!("{id}.json"))
}

/// A file of JSON.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// Writes a file of JSON.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// By `sha256sum`, which anybody can use to check it.
fn sha256(bytes: &[u8]) -> anyhow::Result<String> {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("sha256sum")?;
    child.stdin.take().context("sha256sum")?.write_all(bytes)?;
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.get(..64).map(str::to_owned).context("sha256sum printed no hash")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_hash_is_that_of_the_standard() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(super::sha256(b"").unwrap(), empty);
    }
}
