//! What the tests of all formats share: where the files are, how they are read, and how numbers are compared.

use std::path::{Path, PathBuf};

use mitra_model::report::FileRead;
use mitra_model::time::SECOND;
use mitra_model::{Era, EventKind, Series, SeriesSet, metrics};
use mitra_parse::text::{self, Import, Imported, clock};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// The day on which the outputs of this machine were recorded, 2026-11-21, in days since 1970.
pub const RECORDED: i64 = 20_778;
/// A day in nanoseconds.
pub const DAY: i64 = 86_400 * SECOND;

/// The path of what a tool really printed, below the folder of the tool's family.
pub fn output(path: impl AsRef<Path>) -> PathBuf {
    let outputs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/outputs"));
    let of_families = text::FAMILIES.iter().map(|family| outputs.join(family.name).join(&path));
    of_families.into_iter().find(|path| path.exists()).unwrap_or_else(|| outputs.join(&path))
}

/// The path of published evidence of an incident.
pub fn case(path: impl AsRef<Path>) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../app/tests/cases")).join(path)
}

/// The path of a file of `/proc` or `/sys` of some kernel.
pub fn fixture(path: impl AsRef<Path>) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures")).join(path)
}

#[expect(clippy::disallowed_methods, reason = "tests read their fixtures")]
pub fn bytes(path: impl AsRef<Path>) -> Vec<u8> {
    let path = path.as_ref();
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// As [`bytes`], of a file that is UTF-8.
pub fn string_of(path: impl AsRef<Path>) -> String {
    String::from_utf8(bytes(path)).unwrap()
}

/// Every file of some folders of outputs.
#[expect(clippy::disallowed_methods, reason = "tests read their fixtures")]
pub fn outputs_of(folders: &[&str]) -> Vec<Vec<u8>> {
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(output(folder)).unwrap());
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).map(bytes).collect()
}

/// Every file below a folder.
#[expect(clippy::disallowed_methods, reason = "tests read their fixtures")]
pub fn all_below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

/// Reads a file of this name and content, of which no date is known.
pub fn import(name: &str, content: impl AsRef<[u8]>) -> Imported {
    import_on(None, name, content)
}

/// As [`import`], on a day since 1970 that is known.
pub fn import_on(date: Option<i64>, name: &str, content: impl AsRef<[u8]>) -> Imported {
    let mut import = Import::new(date);
    text::read(&mut content.as_ref(), name, &mut import).unwrap();
    import.finish()
}

/// Reads a file that is there, under its own name.
pub fn import_file(path: impl AsRef<Path>) -> Imported {
    let path = path.as_ref();
    import(&path.to_string_lossy(), bytes(path))
}

/// As [`import_file`], of a file of which every line is understood.
#[track_caller]
pub fn whole(path: impl AsRef<Path>) -> Imported {
    let imported = import_file(path);
    is_clean(&imported);
    imported
}

/// The numbers of a single file, and how much of it was read.
pub fn parts(mut imported: Imported) -> (SeriesSet, FileRead) {
    assert_eq!(imported.files.len(), 1);
    (imported.set, imported.files.remove(0))
}

/// Asserts that no line was left over.
#[track_caller]
pub fn is_clean(imported: &Imported) {
    for file in &imported.files {
        assert_eq!((file.unread, &file.first_unread), (0, &None), "{}", file.file);
    }
}

/// Whether the files say nothing at all: no number, no text, no event.
pub fn is_empty(imported: &Imported) -> bool {
    let set = &imported.set;
    let totals = metrics::all().any(|m| set.each_total(m.name).next().is_some());
    let texts = set.text_metrics().next().is_some();
    !totals && !texts && set.metrics().next().is_none() && set.events.is_empty()
}

/// A level or a rate over time.
#[track_caller]
pub fn series<'a>(set: &'a SeriesSet, metric: &str, row: &str) -> &'a Series {
    set.get(metric, row).unwrap_or_else(|| panic!("{metric} of {row:?} was not read"))
}

/// The only number that was read of a metric, the counter itself where it counts, and its line.
#[track_caller]
pub fn one(set: &SeriesSet, metric: &str, row: &str) -> (f64, u32) {
    let series = set.total(metric, row).unwrap_or_else(|| series(set, metric, row));
    assert_eq!(series.values.len(), 1, "{metric} of {row:?}");
    (series.values[0], series.axis.places[0].line)
}

/// The last text of a metric.
pub fn text_of<'a>(set: &'a SeriesSet, metric: &str, row: &str) -> Option<&'a str> {
    set.text(metric, row)?.last()
}

/// The events of one kind.
pub fn events(imported: &Imported, is: impl Fn(&EventKind) -> bool) -> Vec<&mitra_model::Event> {
    imported.set.events.iter().filter(|e| is(&e.kind)).collect()
}

/// The line of each value.
pub fn lines(series: &Series) -> Vec<u32> {
    series.axis.places.iter().map(|p| p.line).collect()
}

/// Whether a number is the wanted one but for the rounding of a sum: a billionth of it.
pub fn near(got: f64, wanted: f64) -> bool {
    (got - wanted).abs() <= 1e-9 * wanted.abs()
}

/// Asserts that all are [`near`].
#[track_caller]
pub fn close(got: &[f64], wanted: &[f64]) {
    let same = got.len() == wanted.len() && got.iter().zip(wanted).all(|(g, w)| near(*g, *w));
    assert!(same, "{got:?}, not {wanted:?}");
}

/// Asserts the values of a series.
#[track_caller]
pub fn check(set: &SeriesSet, metric: &str, row: &str, wanted: &[f64]) {
    let got = &series(set, metric, row).values;
    let same = got.len() == wanted.len() && got.iter().zip(wanted).all(|(g, w)| near(*g, *w));
    assert!(same, "{metric} of {row:?}: {got:?}, not {wanted:?}");
}

/// Asserts the only number of each metric of a row, and its line.
#[track_caller]
pub fn check_row(set: &SeriesSet, row: &str, wanted: &[(&str, f64, u32)]) {
    for (metric, value, line) in wanted {
        let (got, place) = one(set, metric, row);
        assert!(near(got, *value), "{metric} of {row:?}: {got}, not {value}");
        assert_eq!(place, *line, "the line of {metric} of {row:?}");
    }
}

/// A time of day in seconds.
pub const fn hms(h: i64, m: i64, s: i64) -> i64 {
    h * 3600 + m * 60 + s
}

/// A date in days since 1970.
pub fn date(year: i64, month: u32, day: u32) -> i64 {
    clock::days(year, month, day).unwrap()
}

/// A second of a date, in nanoseconds since 1970.
pub fn moment(year: i64, month: u32, day: u32, second: i64) -> i64 {
    date(year, month, day) * DAY + second * SECOND
}

/// Seconds of a day, given in days since 1970, at which the values of a series are.
pub fn seconds_of(day: i64, series: &Series) -> Vec<i64> {
    series.axis.t.iter().map(|t| (t - day * DAY) / SECOND).collect()
}

/// Seconds of the day at which the values of a series are, and that no date is known.
#[track_caller]
pub fn clocks(series: &Series) -> Vec<i64> {
    seconds_in(Era::Day, series)
}

/// Seconds since the zero of an era, which all times of the series must be of.
#[track_caller]
pub fn seconds_in(era: Era, series: &Series) -> Vec<i64> {
    assert!(series.axis.t.iter().all(|t| Era::of(*t) == era));
    series.axis.t.iter().map(|t| (t - era.zero()) / SECOND).collect()
}

/// So many tries of a property. A failure is printed with its input and kept by who fixes it, as a test of its own.
pub fn tries(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Characters that mean something to some format.
const SIGNS: &[u8] = b"0123456789 \n\t-:.,;./%|()<>[]{}=@\"#KMG";

/// What happens to a saved file at one place.
#[derive(Debug, Clone)]
enum Damage {
    Change(u8),
    Add(Vec<u8>),
    Lose(usize),
}

/// One of the files with up to 60 places of damage and perhaps its end cut off.
pub fn damaged(files: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    assert!(files.iter().all(|f| !f.is_empty()), "an empty file cannot be damaged");
    let damage = prop_oneof![
        3 => any::<u8>().prop_map(Damage::Change),
        2 => select(SIGNS).prop_map(Damage::Change),
        1 => vec(any::<u8>(), 1..30).prop_map(Damage::Add),
        2 => select(SIGNS).prop_map(|sign| Damage::Add(vec![sign])),
        2 => (1_usize..3).prop_map(Damage::Lose),
        1 => (1_usize..256).prop_map(Damage::Lose),
    ];
    (select(files), vec((any::<Index>(), damage), 0..60), proptest::option::of(any::<Index>())).prop_map(
        |(mut bytes, damages, cut)| {
            for (at, damage) in damages {
                let at = at.index(bytes.len() + 1);
                let (with, lost) = match damage {
                    Damage::Change(byte) => (vec![byte], 1),
                    Damage::Add(with) => (with, 0),
                    Damage::Lose(n) => (Vec::new(), n),
                };
                bytes.splice(at..(at + lost).min(bytes.len()), with);
            }
            bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len() + 1)));
            bytes
        },
    )
}

/// Lines of printable characters.
pub fn rows() -> impl Strategy<Value = Vec<String>> {
    vec("[ -~]{0,60}", 0..20)
}

/// Reads what no tool printed and asserts what holds of any content: no more lines than there are, each value with a
/// time and a place, times in order, events with a line.
#[track_caller]
pub fn survive(name: &str, content: impl AsRef<[u8]>) -> Imported {
    let content = content.as_ref();
    let imported = import(name, content);
    assert_eq!(imported.files.len(), 1);
    assert!(imported.files[0].lines <= content.len() as u64 + 1);
    for (metric, rows) in imported.set.metrics() {
        for (row, series) in rows {
            assert_eq!(series.values.len(), series.axis.t.len(), "{metric} of {row}");
            assert!(series.axis.t.is_sorted(), "{metric} of {row}");
        }
    }
    assert!(imported.set.events.iter().all(|e| e.place.is_some()));
    imported
}
