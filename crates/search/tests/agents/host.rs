//! One host: its files, its indexer, and the changes of its day.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use mitra_search::backend::{Batch, Deleted, Sink};
use mitra_search::error::At;
use mitra_search::indexer::config::{Level, OpenSearchConfig};
use mitra_search::indexer::{Clock, Config, FakeClock, Indexer, Service};
use mitra_search::opensearch::{Cluster, Settings, Writer};
use mitra_search::{Day, Error};

use super::truth::Truth;
use super::{DAY_NS, Shape, lock};

/// Larger files are left out: most of a configuration is smaller.
const BYTES_MAX: u64 = 16 << 10;
/// Packages of a host, of those of this machine.
const PACKAGES: usize = 100;
/// Thousandths of the files that change in a day, as in `simulate`.
const CHANGES: usize = 30;
/// Lists that collectors read, and names of owners.
const LISTS: [&str; 3] = ["etc/passwd", "etc/group", "var/lib/dpkg/status"];

/// A writer that notes what it accepted.
pub struct Told {
    pub writer: Writer,
    pub truth: Truth,
    pub accepted: u64,
    pub waited_bytes: u64,
}

struct SharedSink(Arc<Mutex<Told>>);

impl SharedSink {
    fn take(&mut self, batch: &Batch<'_>, part: bool) -> Result<(), Error> {
        let told = &mut *lock(&self.0);
        let is_held =
            told.truth.has_yesterday(batch.at_ns) && !told.writer.needs_all(batch.host, batch.at_ns);
        if part {
            told.writer.put_part(batch)?
        } else {
            told.writer.put(batch)?
        };
        told.truth.note(batch, is_held, part);
        told.accepted += batch.documents.len() as u64;
        told.waited_bytes = told.waited_bytes.max(told.writer.waiting());
        Ok(())
    }
}

impl Sink for SharedSink {
    fn put(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        self.take(batch, false)
    }

    fn put_part(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        self.take(batch, true)
    }

    fn names(&mut self, host: &str) -> Result<BTreeSet<String>, Error> {
        lock(&self.0).writer.names(host)
    }

    fn needs_all(&mut self, host: &str, at_ns: i64) -> bool {
        lock(&self.0).writer.needs_all(host, at_ns)
    }

    fn delete_before(&mut self, day: Day, today: Day, most: usize) -> Result<Deleted, Error> {
        lock(&self.0).writer.delete_before(day, today, most)
    }

    fn messages(&mut self) -> Vec<String> {
        lock(&self.0).writer.messages()
    }
}

/// What hosts are made of: names of files below a folder.
pub struct Image {
    dir: PathBuf,
    files: Vec<String>,
}

/// Copies files of this machine's `/etc` that everybody may read, evenly over all of them.
pub fn image(dir: &Path, count: usize) -> Result<Image, Error> {
    let mut all = Vec::new();
    below(Path::new("/etc"), &mut all);
    all.sort();
    let files: Vec<String> = (0..count.min(all.len()))
        .filter_map(|n| all.get(n * all.len() / count.min(all.len())).cloned())
        .collect();
    for name in &files {
        copy(dir, name.trim_start_matches('/'), &fs::read(name).at(name)?)?;
    }
    for list in LISTS {
        let from = Path::new("/").join(list);
        let text = fs::read_to_string(&from).unwrap_or_default();
        let some: Vec<&str> = text.split("\n\n").take(PACKAGES).collect();
        copy(dir, list, some.join("\n\n").as_bytes())?;
    }
    Ok(Image { dir: dir.to_owned(), files })
}

fn copy(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), Error> {
    let path = dir.join(name);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).at(parent)?;
    }
    fs::write(&path, bytes).at(&path)
}

/// Regular files with text that everybody may read, without links.
fn below(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        if about.is_dir() {
            below(&path, found);
        } else if about.is_file()
            && about.permissions().mode() & 0o004 != 0
            && (1..BYTES_MAX).contains(&about.len())
            && fs::read_to_string(&path).is_ok()
            && !LISTS.iter().any(|list| path == Path::new("/").join(list))
        {
            found.extend(path.to_str().map(str::to_owned));
        }
    }
}

/// A host with its indexer.
pub struct Agent {
    pub name: String,
    pub told: Arc<Mutex<Told>>,
    /// The time until the next step.
    pub wait_ns: i64,
    root: PathBuf,
    indexer: Indexer,
    service: Option<Service>,
    /// When files change, the last one first, and which.
    edits: Vec<(i64, String)>,
}

impl Agent {
    pub fn new(
        number: usize,
        shape: &Shape,
        settings: &Settings,
        image: &Image,
        dir: &Path,
        clock: &FakeClock,
    ) -> Result<Self, Error> {
        let name = format!("{}-{number:05}", shape.group);
        let root = dir.join(&name);
        for file in LISTS.iter().copied().chain(image.files.iter().map(|file| file.trim_start_matches('/'))) {
            let to = root.join(file);
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent).at(parent)?;
            }
            // Of a hard link the change time would change with each host that gives it up.
            fs::copy(image.dir.join(file), &to).at(&to)?;
        }
        let writer = Writer::open(Cluster::connect(settings.clone())?, &dir.join("spools").join(&name))?;
        let told = Told { writer, truth: Truth::default(), accepted: 0, waited_bytes: 0 };
        let told = Arc::new(Mutex::new(told));
        let mut config = Config {
            host: Some(name.clone()),
            files: image.files.clone(),
            frequency_s: shape.frequency_s,
            collectors: Some(vec!["packages".to_owned(), "users".to_owned()]),
            opensearch: Some(OpenSearchConfig { spread_s: shape.spread_s, ..OpenSearchConfig::default() }),
            ..Config::default()
        };
        config.log.level = Level::Error;
        let sink = Box::new(SharedSink(Arc::clone(&told)));
        let indexer = Indexer::below(&root, config, sink, Clock::Fake(clock.clone()))?;
        let edits = edits(number, clock.now_ns(), &image.files);
        Ok(Self { name, told, wait_ns: 0, root, indexer, service: None, edits })
    }

    /// Changes files whose time has come, and does a step of the indexer. Returns the number of documents that were
    /// accepted in it.
    pub fn step(&mut self, now_ns: i64) -> u64 {
        while self.edits.last().is_some_and(|(at_ns, _)| *at_ns <= now_ns) {
            if let Some((at_ns, file)) = self.edits.pop() {
                self.edit(at_ns, &file);
            }
        }
        let before = lock(&self.told).accepted;
        let mut service = self.service.take().unwrap_or_else(|| self.indexer.begin());
        self.wait_ns = self.indexer.step(&mut service);
        self.service = Some(service);
        lock(&self.told).accepted - before
    }

    /// Replaces a file by one with another line.
    fn edit(&self, at_ns: i64, file: &str) {
        let path = self.root.join(file.trim_start_matches('/'));
        let new = self.root.join("new");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let done =
            fs::write(&new, format!("{text}# changed at {at_ns}\n")).and_then(|()| fs::rename(&new, &path));
        if let Err(error) = done {
            eprintln!("agents: {}: {error}", path.display());
        }
    }
}

/// The changes of a host's day, at times that follow from its number, the last one first.
fn edits(number: usize, begin_ns: i64, files: &[String]) -> Vec<(i64, String)> {
    // A linear congruential generator (Knuth's MMIX).
    let mut state = number as u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below.max(1)
    };
    let mut all = Vec::new();
    for file in files {
        if random(1_000) < CHANGES as u64 {
            all.push((begin_ns + random(86_400) as i64 * (DAY_NS / 86_400), file.clone()));
        }
    }
    all.sort_by_key(|(at_ns, _)| std::cmp::Reverse(*at_ns));
    all
}
