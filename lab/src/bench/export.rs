//! Writes the recordings for other tools.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;
use mitra_archive::Reader;
use mitra_model::Span;

use super::process::Processes;
use super::{
    Entry, INDEX, INDEX_SCHEMA, Index, Part, TRUTH, Truth, answers, kept, read_json, sha256, write_json,
};
use crate::draw::Draw;
use crate::record::{Kind, Record};
use crate::recorder::Mitra;
use crate::stored::{Stored, with_each};
use crate::{incidents, machine};

/// A small tool that takes part, to begin with.
const EXAMPLE: &str = include_str!("example.py");

/// What is exported to where.
pub struct Exporter<'a> {
    /// Exports Parquet, and gives its own answers.
    pub mitra: &'a Mitra,
    /// For everybody.
    pub out: &'a Path,
    /// For the keeper of the truth.
    pub keep: &'a Path,
    /// Draws the split.
    pub seed: u64,
    /// How many of a hundred recordings are sealed.
    pub sealed_percent: u64,
}

/// A recording with its truth as it would be exported.
pub struct Drawn<'a> {
    /// Its line in the index; the hash is still missing.
    pub entry: Entry,
    /// The truth; the salt is still missing.
    pub truth: Truth,
    /// The recording.
    pub stored: &'a Stored,
    /// The processes in it.
    pub processes: Processes,
}

/// The recordings, split by the seed, in the order of their ids.
pub fn entries(stored: &[Stored], seed: u64, sealed_percent: u64) -> anyhow::Result<Vec<Drawn<'_>>> {
    let done = with_each(stored, |stored| drawn(stored, seed, sealed_percent));
    let mut all = done.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    all.sort_by(|a, b| a.entry.id.cmp(&b.entry.id));
    Ok(all)
}

fn drawn(stored: &Stored, seed: u64, sealed_percent: u64) -> anyhow::Result<Drawn<'_>> {
    let record = &stored.record;
    let processes = Processes::read(&stored.archive, record.since_s, record.until_s)
        .with_context(|| record.key.clone())?;
    let is_sealed = Draw::new(seed, &record.key).number() % 100 < sealed_percent;
    let entry = Entry {
        id: id(&stored.archive)?,
        part: if is_sealed { Part::Sealed } else { Part::Public },
        since_s: record.since_s,
        until_s: record.until_s,
        machine: record.machine.clone(),
        processes: processes.all.len(),
        truth_sha256: String::new(),
    };
    let truth = Truth { salt: String::new(), chance: chance(record, &processes), run: declared(record) };
    Ok(Drawn { entry, truth, stored, processes })
}

/// The beginning of the SHA-256 of an archive: it says nothing of what is in it.
fn id(archive: &Path) -> anyhow::Result<String> {
    let mut files: Vec<_> = fs::read_dir(archive)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    files.retain(|path| path.is_file());
    files.sort();
    let mut bytes = Vec::new();
    for path in files {
        bytes.extend(fs::read(&path).with_context(|| path.display().to_string())?);
    }
    Ok(sha256(&bytes)?.chars().take(12).collect())
}

/// What is equally true, as it is declared in this build.
fn declared(record: &Record) -> Record {
    let mut record = record.clone();
    record.live.clear();
    for act in record.acts.iter_mut().filter(|a| !a.noise) {
        if let Some(incident) = incidents::all().find(|i| i.name == act.name) {
            act.also = incident.also.iter().map(|id| (*id).to_owned()).collect();
        }
    }
    record
}

fn chance(record: &Record, processes: &Processes) -> Option<f64> {
    let truth = record.acts.iter().find(|a| !a.noise)?.truth.as_ref()?;
    let asks = record.kind != Kind::Control && (truth.process.is_some() || !truth.pids.is_empty());
    let right = processes.all.iter().filter(|p| p.is(truth)).count();
    asks.then(|| right as f64 / processes.all.len().max(1) as f64)
}

impl Exporter<'_> {
    /// Writes everything. Returns the index.
    pub fn export(&self, stored: &[Stored]) -> anyhow::Result<Index> {
        let mut all = entries(stored, self.seed, self.sealed_percent)?;
        for part in [Part::Public, Part::Sealed] {
            fs::create_dir_all(self.out.join(part.name()))?;
        }
        fs::create_dir_all(self.keep.join("truth"))?;
        for drawn in &mut all {
            self.write(drawn).with_context(|| drawn.stored.record.key.clone())?;
        }
        let mut roots: Vec<String> = incidents::all().map(|i| i.condition.to_owned()).collect();
        roots.sort();
        roots.dedup();
        let index = Index {
            schema: INDEX_SCHEMA.to_owned(),
            mitra: self.mitra.version(),
            roots,
            recordings: all.iter().map(|d| d.entry.clone()).collect(),
        };
        write_json(&self.out.join(INDEX), &index)?;
        fs::write(self.out.join("example.py"), EXAMPLE)?;
        fs::write(self.out.join("README.md"), super::page(&index, self.out, Some(self.keep), &[])?)?;
        self.answer(&all)?;
        Ok(index)
    }

    fn write(&self, drawn: &mut Drawn<'_>) -> anyhow::Result<()> {
        let (stored, entry) = (drawn.stored, &mut drawn.entry);
        let folder = self.out.join(entry.part.name()).join(&entry.id);
        fs::create_dir_all(&folder)?;
        let mut command = Command::new(&self.mitra.0);
        command.args(["export", "--archive"]).arg(&stored.archive).arg("--parquet");
        let output = command.arg(folder.join("metrics.parquet")).stdin(Stdio::null()).output()?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        fs::write(folder.join("events.jsonl"), events(&stored.archive)?)?;
        let path = kept(self.keep, &entry.id);
        // A truth that was exported before keeps its salt, and so its hash.
        drawn.truth.salt = match path.exists() {
            true => read_json::<Truth>(&path)?.salt,
            false => salt()?,
        };
        write_json(&path, &drawn.truth)?;
        let bytes = fs::read(&path)?;
        entry.truth_sha256 = sha256(&bytes)?;
        if entry.part == Part::Public {
            fs::write(folder.join(TRUTH), bytes)?;
        }
        Ok(())
    }

    /// The answers of Mitra and of the simple methods. They tell of the sealed part, so the keeper
    /// gets them.
    fn answer(&self, all: &[Drawn<'_>]) -> anyhow::Result<()> {
        let folder = self.keep.join("answers");
        fs::create_dir_all(&folder)?;
        let dir = machine::base_dir().join(format!("mitra-lab-bench-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        let mut own = answers::Answers { method: "Mitra".into(), ..answers::Answers::default() };
        for drawn in all {
            let (since, until) = drawn.stored.record.window();
            let report = self.mitra.report(&drawn.stored.archive, &dir, since, until);
            let report = report.map_err(|e| anyhow::anyhow!("{}: {e}", drawn.stored.record.key))?;
            _ = own.answers.insert(drawn.entry.id.clone(), answers::of_report(&report));
        }
        _ = fs::remove_dir_all(&dir);
        let of: Vec<_> = all.iter().map(|d| (d.entry.id.as_str(), d.stored, &d.processes)).collect();
        for one in [own].into_iter().chain(answers::baselines(&of, self.seed)) {
            let name = one.method.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            write_json(&folder.join(format!("{name}.json")), &one)?;
        }
        Ok(())
    }
}

/// Lines of the kernel log, ends of processes, results of captures: one line of JSON each.
fn events(archive: &Path) -> anyhow::Result<String> {
    let (mut lines, mut failed) = (String::new(), None);
    Reader::open(archive)?.frames(Span::ALL, &mut |frame, _| {
        for event in &frame.events {
            match serde_json::to_string(event) {
                Ok(line) => lines.extend([line.as_str(), "\n"]),
                Err(e) => failed = Some(e),
            }
        }
    })?;
    failed.map_or(Ok(lines), |e| Err(e.into()))
}

fn salt() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}
