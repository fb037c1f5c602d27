//! False positives in configuration without secrets: in our own files, and in unmodified files of
//! the packages on this machine.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::stock;
use crate::secrets::{Policy, refuse};

/// Maximum number of false positives per 1,000 key–value lines.
const FALSE_MAX_PER_MILLE: u32 = 10;
/// Larger files are data and are skipped.
const SIZE_MAX: u64 = 1 << 20;

/// Counts of what was withheld from texts without secrets.
#[derive(Default)]
struct Tally {
    texts: u32,
    bytes: usize,
    /// Lines with a key and a value, without comments.
    lines: u32,
    /// Values on lines.
    values: u32,
    /// Lines of files that were withheld completely.
    denied: u32,
    refused: u32,
    shown: Vec<String>,
}

impl Tally {
    fn add(&mut self, path: Option<&str>, name: &str, text: &str) {
        let lines = text.lines().filter(|line| is_key_value(line)).count() as u32;
        self.texts += 1;
        self.bytes += text.len();
        self.lines += lines;
        if let Some(why) = path.and_then(|path| Policy::default().denies(path)) {
            self.denied += lines;
            self.shown.push(format!("{name}: by its path, {why}"));
            return;
        }
        if let Some(why) = refuse::why(text) {
            self.refused += lines;
            self.shown.push(format!("{name}: by its content, {why}"));
            return;
        }
        let (clean, withheld) = Policy::default().clean_text(text);
        self.values += withheld.count;
        for (before, after) in text.lines().zip(clean.lines()).filter(|(before, after)| before != after) {
            self.shown.push(format!("{name}: {before:?} -> {after:?}"));
        }
        assert_eq!(text.matches('\n').count(), clean.matches('\n').count(), "{name}");
    }

    fn withheld(&self) -> u32 {
        self.values + self.denied + self.refused
    }

    fn judge(&self, what: &str) {
        println!(
            "{what}: {} texts, {} bytes, {} key-value lines; withheld: path {}, content {}, values {}",
            self.texts, self.bytes, self.lines, self.denied, self.refused, self.values
        );
        self.shown.iter().for_each(|line| println!("  {}", line.chars().take(220).collect::<String>()));
        assert!(
            self.withheld() * 1000 <= self.lines * FALSE_MAX_PER_MILLE,
            "{what}: {} of {}",
            self.withheld(),
            self.lines
        );
    }
}

/// Whether a line has two words, or a separator between them, and is no comment.
fn is_key_value(line: &str) -> bool {
    let line = line.trim();
    let comment = ["#", ";", "//", "<!--", "*", "--"].iter().any(|mark| line.starts_with(mark));
    !comment && line.split(['=', ':', ' ', '\t', '>']).filter(|word| !word.is_empty()).count() >= 2
}

#[test]
fn stock_like_files_stay() {
    assert!(stock::FILES.len() >= 60);
    let mut tally = Tally::default();
    stock::FILES.iter().for_each(|(name, text)| tally.add(None, name, text));
    tally.judge("files as they are delivered");
}

#[test]
fn unmodified_files_of_packages_stay() {
    let Ok(status) = std::fs::read_to_string("/var/lib/dpkg/status") else {
        println!("skipped: this machine has no packages of dpkg");
        return;
    };
    let listed = conffiles(&status);
    let sums = md5_of(listed.keys());
    let mut tally = Tally::default();
    for (path, sum) in listed {
        if sums.get(path) == Some(&sum)
            && let Ok(text) = std::fs::read_to_string(path)
        {
            tally.add(Some(path), path, &text);
        }
    }
    if tally.texts == 0 {
        println!("skipped: no file is as its package brought it, or there is no md5sum");
        return;
    }
    tally.judge("unmodified files of packages");
}

#[test]
fn what_systemd_and_udev_bring_stays() {
    for dir in ["/usr/lib/systemd", "/usr/lib/sysctl.d", "/usr/lib/udev", "/usr/lib/modprobe.d"] {
        let mut tally = Tally::default();
        let mut files = Vec::new();
        walk(Path::new(dir), 0, &mut files);
        for path in files {
            let name = path.display().to_string();
            if path.metadata().is_ok_and(|m| m.len() <= SIZE_MAX)
                && let Ok(text) = std::fs::read_to_string(&path)
            {
                tally.add(Some(&name), &name, &text);
            }
        }
        if tally.texts == 0 {
            println!("skipped: nothing in {dir}");
        } else {
            tally.judge(dir);
        }
    }
}

/// The lines below `Conffiles:` in `/var/lib/dpkg/status`:
/// ` /etc/hosts 0123456789abcdef0123456789abcdef`.
fn conffiles(status: &str) -> BTreeMap<&str, &str> {
    let mut listed = BTreeMap::new();
    let mut inside = false;
    for line in status.lines() {
        if !line.starts_with(' ') {
            inside = line.starts_with("Conffiles:");
        } else if inside {
            let mut words = line.split_whitespace();
            if let (Some(path), Some(sum)) = (words.next(), words.next()) {
                listed.insert(path, sum);
            }
        }
    }
    listed
}

fn md5_of<'a>(paths: impl Iterator<Item = &'a &'a str>) -> BTreeMap<String, &'static str> {
    let names: Vec<&str> = paths.copied().filter(|path| Path::new(path).is_file()).collect();
    let command = Command::new("xargs")
        .args(["-d", "\n", "md5sum", "--"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = command else { return BTreeMap::new() };
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(names.join("\n").as_bytes());
    }
    let output =
        child.wait_with_output().map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    let output: &'static str = output.leak();
    output
        .lines()
        .filter_map(|line| line.split_once("  "))
        .map(|(sum, path)| (path.to_owned(), sum))
        .collect()
}

fn walk(dir: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < 8 => walk(&entry.path(), depth + 1, files),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}
