//! Helpers for the tests of the parsers: fixtures, and the cells that a parser has filled.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mitra_model::{Entity, Frame, Key, NA, Strings, column, columns, lookup};

use crate::cgroup::{Cgroup, FILES, Hierarchy};
use crate::node::Node;
use crate::sysctl::settings;
use crate::{Outcome, SOURCES};

/// The kernels that there are fixtures of.
pub(crate) const KERNELS: [&str; 5] = ["3.10", "4.18", "5.15", "6.1", "6.18"];

/// The content of a fixture.
pub(crate) fn fixture(kernel: &str, path: &str) -> &'static [u8] {
    let file = root().join(kernel).join(path);
    read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).leak()
}

/// The paths of all fixtures of a kernel, in order.
pub(crate) fn fixture_paths(kernel: &str) -> Vec<String> {
    let root = root().join(kernel);
    let mut paths = Vec::new();
    let mut dirs = vec![root.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in list(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                paths.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    paths.sort_unstable();
    paths
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

#[expect(clippy::disallowed_methods, reason = "fixtures are files; the parsers themselves read none")]
pub(crate) fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    std::fs::read(file)
}

#[expect(clippy::disallowed_methods, reason = "fixtures are files; the parsers themselves read none")]
pub(crate) fn list(dir: &Path) -> std::io::Result<std::fs::ReadDir> {
    std::fs::read_dir(dir)
}

/// A parser of a file at some path.
pub(crate) type Parse = Box<dyn FnMut(&[u8], &mut Strings, &mut Frame) -> Outcome>;

/// The parser of a path; `None` for files that no parser fills a frame from.
pub(crate) fn parser(path: &str) -> Option<Parse> {
    if let Some(source) = SOURCES.iter().find(|source| source.path == path) {
        return Some((source.parser)());
    }
    if let Some(mut setting) = settings().into_iter().find(|setting| setting.path == path) {
        return Some(Box::new(move |input, strings, frame| setting.parse(input, strings, frame)));
    }
    if let Some(rest) = path.strip_prefix("sys/devices/system/node/node") {
        let (number, name) = rest.split_once('/')?;
        let number = number.parse().ok()?;
        let mut node = Node::default();
        return match name {
            "numastat" => Some(Box::new(move |i, s, f| node.numastat(number, i, s, f))),
            "meminfo" => Some(Box::new(move |i, s, f| node.meminfo(number, i, s, f))),
            _ => None,
        };
    }
    let rest = path.strip_prefix("sys/fs/cgroup/")?;
    let (dir, name) = rest.rsplit_once('/')?;
    let tree = dir.split('/').next()?;
    let is_v1 = ["cpu", "cpuacct", "memory", "blkio", "pids"].contains(&tree);
    let file = FILES.iter().find(|file| {
        file.name == name
            && match file.hierarchy {
                Hierarchy::V1(controller) => controller == tree,
                Hierarchy::V2 => !is_v1,
            }
    })?;
    let mut cgroup = Cgroup::default();
    Some(Box::new(move |input, _, frame| {
        let table = frame.table_mut(Entity::Cgroup);
        let row = if table.is_empty() { table.push(Key::named(0)) } else { table.row_mut(0) };
        (file.parse)(&mut cgroup, input, row)
    }))
}

/// The measured cells of a frame: entity, row and metric.
pub(crate) fn cells(frame: &Frame, strings: &Strings) -> BTreeMap<(Entity, String, &'static str), i64> {
    let mut cells = BTreeMap::new();
    for table in &frame.tables {
        for (key, row) in table.rows() {
            let name = mitra_model::frame::row_name(table.entity(), key, strings);
            for (metric, cell) in columns(table.entity()).iter().zip(row) {
                if *cell != NA {
                    cells.insert((table.entity(), name.clone(), metric.name), *cell);
                }
            }
        }
    }
    cells
}

/// The frame that a parser filled from some bytes.
pub(crate) struct Sample {
    parse: Parse,
    strings: Strings,
    frame: Frame,
    pub(crate) outcome: Outcome,
}

/// The fixture, which must be read without complaint.
pub(crate) fn parsed(kernel: &str, path: &str) -> Sample {
    let sample = Sample::of(path, fixture(kernel, path));
    assert_eq!(sample.outcome, Outcome::default(), "{kernel}/{path}");
    sample
}

/// Fixtures that are read into one frame, the last of which counts.
pub(crate) fn parsed_after(kernel: &str, paths: &[&str]) -> Sample {
    let (last, before) = paths.split_last().unwrap();
    let mut sample = Sample::new(last);
    for path in before {
        parser(path).unwrap()(fixture(kernel, path), &mut sample.strings, &mut sample.frame);
    }
    sample.outcome = (sample.parse)(fixture(kernel, last), &mut sample.strings, &mut sample.frame);
    assert_eq!(sample.outcome, Outcome::default(), "{kernel}/{last}");
    sample
}

impl Sample {
    fn new(path: &str) -> Self {
        let parse = parser(path).unwrap_or_else(|| panic!("no parser for {path}"));
        Sample { parse, strings: Strings::new(), frame: Frame::new(), outcome: Outcome::default() }
    }

    pub(crate) fn of(path: &str, input: &[u8]) -> Self {
        let mut sample = Sample::new(path);
        sample.again(input);
        sample
    }

    /// Reads other bytes into an empty frame, with the learned layout.
    pub(crate) fn again(&mut self, input: &[u8]) {
        self.frame.clear();
        self.outcome = (self.parse)(input, &mut self.strings, &mut self.frame);
    }

    fn cell(&self, row: Option<&str>, metric: &str) -> i64 {
        let entity = lookup(metric).unwrap_or_else(|| panic!("no metric {metric}")).entity;
        let at = column(metric).unwrap();
        let table = self.frame.table(entity);
        let position = match row {
            None => 0,
            Some(name) => {
                let is_it = |key: &Key| mitra_model::frame::row_name(entity, *key, &self.strings) == name;
                let position = table.keys().iter().position(is_it);
                position.unwrap_or_else(|| panic!("no row {name}"))
            }
        };
        if position < table.len() { table.row(position)[at] } else { NA }
    }

    pub(crate) fn is(&self, metric: &str, value: i64) {
        assert_eq!(self.cell(None, metric), value, "{metric}");
    }

    pub(crate) fn none(&self, metric: &str) {
        self.is(metric, NA);
    }

    pub(crate) fn row_is(&self, row: &str, metric: &str, value: i64) {
        assert_eq!(self.cell(Some(row), metric), value, "{metric} of {row}");
    }

    pub(crate) fn row_none(&self, row: &str, metric: &str) {
        self.row_is(row, metric, NA);
    }

    pub(crate) fn no_row(&self, row: &str) {
        assert!(
            !cells(&self.frame, &self.strings).keys().any(|(_, name, _)| name == row),
            "there is a row {row}"
        );
    }

    pub(crate) fn text_is(&self, metric: &str, text: &str) {
        assert_eq!(self.strings.cell(self.cell(None, metric)), Some(text), "{metric}");
    }

    pub(crate) fn row_text(&self, row: &str, metric: &str, text: &str) {
        assert_eq!(self.strings.cell(self.cell(Some(row), metric)), Some(text), "{metric} of {row}");
    }

    /// How many cells are measured.
    pub(crate) fn count(&self, cells_measured: usize) {
        let cells = cells(&self.frame, &self.strings);
        assert_eq!(cells.len(), cells_measured, "{cells:?}");
    }
}

/// One row of its own.
pub(crate) struct Cells {
    pub(crate) row: Vec<i64>,
    pub(crate) strings: Strings,
}

impl Cells {
    pub(crate) fn task() -> Self {
        Cells { row: vec![NA; columns(Entity::Task).len()], strings: Strings::new() }
    }

    pub(crate) fn is(&self, metric: &str, value: i64) {
        assert_eq!(self.row[column(metric).unwrap()], value, "{metric}");
    }

    pub(crate) fn none(&self, metric: &str) {
        self.is(metric, NA);
    }

    pub(crate) fn text_is(&self, metric: &str, text: &str) {
        assert_eq!(self.strings.cell(self.row[column(metric).unwrap()]), Some(text), "{metric}");
    }

    pub(crate) fn count(&self, cells_measured: usize) {
        assert_eq!(self.row.iter().filter(|cell| **cell != NA).count(), cells_measured);
    }
}
