//! The same evidence under other names, with other values, at other times, in other files.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// How a case is changed.
pub struct Disguise {
    seed: u64,
    scale: f64,
    shift_s: i64,
}

/// Forms in which files are handed on.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    /// With the line ends and the mark of an editor of Windows.
    Windows,
    /// Each file packed by gzip.
    Packed,
    /// All files of a folder in one, as `head -n -0 *` prints them.
    OneFile,
    /// Each file cut somewhere.
    Cut,
    /// Only the first, or the second half of the lines of each file.
    Half(bool),
}

/// All files of a case, by their paths below it.
pub fn files(case: &Path) -> Vec<PathBuf> {
    fn walk(root: &Path, dir: &Path, out: &mut Vec<PathBuf>) {
        let mut list: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
        list.sort();
        for path in list {
            if path.is_dir() {
                walk(root, &path, out);
            } else {
                out.push(path.strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    let mut out = Vec::new();
    walk(case, case, &mut out);
    out
}

impl Disguise {
    /// Names, values, times and files, by a seed.
    pub fn new(seed: u64) -> Self {
        Disguise { seed, scale: 1.3, shift_s: 17 * 60 * seed as i64 }
    }

    /// No change at all.
    pub fn plain() -> Self {
        Disguise { seed: 0, scale: 1.0, shift_s: 0 }
    }

    /// The case without one of its files.
    pub fn without(&self, case: &Path, left_out: &Path) -> TempDir {
        let dir = TempDir::new().unwrap();
        for file in files(case).iter().filter(|f| *f != left_out) {
            let to = dir.path().join(file);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(case.join(file), to).unwrap();
        }
        dir
    }

    /// The changed case. Folders keep their names: they say which side is the good one.
    pub fn of_case(&self, case: &Path) -> TempDir {
        let dir = TempDir::new().unwrap();
        let mut list = files(case);
        let n = list.len().max(1);
        list.rotate_left(self.seed as usize % n);
        for (i, file) in list.iter().enumerate() {
            let text = fs::read_to_string(case.join(file)).unwrap();
            let folder = file.parent().unwrap_or(Path::new(""));
            let to = dir.path().join(folder);
            fs::create_dir_all(&to).unwrap();
            // The name of a file of bare numbers is all that says what it is.
            let is_bare = text.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_whitespace());
            let name = if is_bare && self.seed.is_multiple_of(2) {
                file.file_name().unwrap().to_string_lossy().into_owned()
            } else {
                format!("{:x}.out", (i as u64 + 1).wrapping_mul(0x9e37_79b9 ^ self.seed) % 0xffff)
            };
            fs::write(to.join(name), self.changed(&text)).unwrap();
        }
        dir
    }

    /// The case in another form of its files.
    pub fn in_form(case: &Path, form: Form) -> TempDir {
        let dir = TempDir::new().unwrap();
        let list = files(case);
        for (i, file) in list.iter().enumerate() {
            let text = fs::read_to_string(case.join(file)).unwrap();
            let folder = dir.path().join(file.parent().unwrap_or(Path::new("")));
            fs::create_dir_all(&folder).unwrap();
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            match form {
                Form::Windows => {
                    let text = format!("\u{feff}{}", text.replace('\n', "\r\n"));
                    fs::write(folder.join(&name), text).unwrap();
                }
                Form::Packed => {
                    let file = fs::File::create(folder.join(format!("{name}.gz"))).unwrap();
                    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
                    packed.write_all(text.as_bytes()).unwrap();
                    packed.finish().unwrap();
                }
                Form::OneFile => {
                    let path = folder.join("all.txt");
                    let mut all = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
                    let end = if text.ends_with('\n') { "" } else { "\n" };
                    write!(all, "==> {name} <==\n{text}{end}\n").unwrap();
                }
                Form::Cut => {
                    // In the middle of a line, wherever that falls.
                    let keep = text.len() * (3 + i % 4) / 7;
                    let keep = (0..=keep).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                    fs::write(folder.join(&name), &text[..keep]).unwrap();
                }
                Form::Half(first) => {
                    let lines: Vec<&str> = text.split_inclusive('\n').collect();
                    let (a, b) = lines.split_at(lines.len().div_ceil(2));
                    fs::write(folder.join(&name), if first { a.concat() } else { b.concat() }).unwrap();
                }
            }
        }
        dir
    }

    fn changed(&self, text: &str) -> String {
        // Layouts and addresses have no values to scale.
        let keeps_values = text.contains("segfault") || text.contains("agsize") || text.contains("heap]");
        let names: HashMap<&str, &str> = [
            ("sda", "sdq"),
            ("sdb", "sdr"),
            ("md0", "md7"),
            ("md1", "md8"),
            ("md3", "md9"),
            ("vgca0", "nvme3n1"),
            ("xvdb", "nvme1n1"),
            ("xvda", "nvme0n1"),
            ("hapee-lb", "frontd"),
            ("lb-101", "edge-7"),
            ("hbase_regionser", "storaged"),
            ("BGP1", "upstream1"),
            ("BGP2", "upstream2"),
        ]
        .into();
        let mut out = String::new();
        for line in text.split_inclusive('\n') {
            let is_head =
                line.starts_with("Linux ") || line.starts_with('#') || line.contains("Output every");
            let mut word = String::new();
            let line = self.later(line);
            for c in line.chars() {
                if c.is_alphanumeric() || matches!(c, '.' | '-' | ':' | '_' | '%' | '/') {
                    word.push(c);
                } else {
                    out.push_str(&self.word(&word, &names, keeps_values || is_head));
                    word.clear();
                    out.push(c);
                }
            }
            out.push_str(&self.word(&word, &names, keeps_values || is_head));
        }
        out
    }

    fn word(&self, word: &str, names: &HashMap<&str, &str>, keeps_value: bool) -> String {
        if let Some(name) = names.get(word.trim_end_matches(':')) {
            return format!("{name}{}", if word.ends_with(':') { ":" } else { "" });
        }
        if split_time(word).is_some() {
            return word.to_owned();
        }
        if keeps_value || word.len() > 16 {
            return word.to_owned();
        }
        let (number, unit) =
            word.split_at(word.find(|c: char| c.is_ascii_alphabetic() || c == '%').unwrap_or(word.len()));
        let is_size = matches!(unit, "" | "K" | "G" | "M" | "kB");
        // A small whole number is an id, a count of CPUs, a step.
        match (number.parse::<f64>(), is_size) {
            (Ok(value), true) if number.contains('.') && !number.ends_with('.') => {
                let decimals = number.len() - number.find('.').unwrap_or(0) - 1;
                format!("{:.decimals$}{unit}", value * self.scale)
            }
            (Ok(value), true) if value >= 1500.0 && !number.contains('-') => {
                format!("{:.0}{unit}", value * self.scale)
            }
            _ => word.to_owned(),
        }
    }

    /// The line with each time of day later, on the clock that the line has: 12 hours with a mark, or 24.
    fn later(&self, line: &str) -> String {
        let mut out = String::new();
        let mut rest = line;
        while let Some((before, seconds, after)) = split_time(rest) {
            out.push_str(before);
            let half = ["AM", "PM"].into_iter().find(|m| after.trim_start().starts_with(m));
            let of_day = match half {
                Some("PM") if seconds < 43_200 => seconds + 43_200,
                Some("AM") if seconds >= 43_200 => seconds - 43_200,
                _ => seconds,
            };
            let now = (of_day + self.shift_s).rem_euclid(86_400);
            let (mut h, m, s) = (now / 3600, now / 60 % 60, now % 60);
            if half.is_some() {
                h = if h % 12 == 0 { 12 } else { h % 12 };
            }
            out.push_str(&format!("{h:02}:{m:02}:{s:02}"));
            rest = after;
            if let Some(mark) = half {
                let at = after.find(mark).unwrap();
                out.push_str(&after[..at]);
                out.push_str(if now < 43_200 { "AM" } else { "PM" });
                rest = &after[at + 2..];
            }
        }
        out.push_str(rest);
        out
    }
}

/// What is before the first `HH:MM:SS`, its seconds of the day, and what follows it.
fn split_time(text: &str) -> Option<(&str, i64, &str)> {
    let bytes = text.as_bytes();
    let digit = |i: usize| bytes.get(i).is_some_and(u8::is_ascii_digit);
    for i in 0..bytes.len().saturating_sub(7) {
        let shape =
            [0, 1, 3, 4, 6, 7].iter().all(|d| digit(i + d)) && bytes[i + 2] == b':' && bytes[i + 5] == b':';
        let alone = (i == 0 || !(digit(i - 1) || bytes[i - 1] == b':')) && !digit(i + 8);
        if shape && alone {
            let n = |at: usize| text[at..at + 2].parse::<i64>().unwrap();
            let (h, m, s) = (n(i), n(i + 3), n(i + 6));
            if h < 24 && m < 60 && s < 60 {
                return Some((&text[..i], h * 3600 + m * 60 + s, &text[i + 8..]));
            }
        }
    }
    None
}
