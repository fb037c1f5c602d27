//! The crontabs: one document for each line that runs a command, and one for each script in
//! `/etc/cron.daily` and the like.
//!
//! ```text
//! schedule = 5-55/10 * * * *
//! user = root
//! command = command -v debian-sa1 > /dev/null && debian-sa1 1 1
//! file = /etc/cron.d/sysstat
//! line = 6
//! ```

use rustix::fs::FileType;

use super::{Schedule, Source, line, number, word};
use crate::document::{Document, Facts, Kind};

/// Maximum size of a crontab in bytes.
const FILE_MAX: usize = 1 << 20;
/// Maximum number of entries in all crontabs together.
const ENTRIES_MAX: usize = 10_000;

/// The system crontab, whose lines name a user.
const SYSTEM: &str = "/etc/crontab";
const SYSTEM_FOLDER: &str = "/etc/cron.d";
/// Directories with one crontab per user, named after the user: Debian, SUSE, Red Hat.
const SPOOLS: &[&str] = &["/var/spool/cron/crontabs", "/var/spool/cron/tabs", "/var/spool/cron"];
/// Directories whose scripts all run at a time set in a crontab, and the schedule to assume if no
/// crontab names them.
const SCRIPTS: &[(&str, &str)] = &[
    ("/etc/cron.hourly", "@hourly"),
    ("/etc/cron.daily", "@daily"),
    ("/etc/cron.weekly", "@weekly"),
    ("/etc/cron.monthly", "@monthly"),
];

/// What one crontab line or one script runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The five fields separated by a space, or a word such as `@daily`.
    pub schedule: String,
    /// The user that it runs as.
    pub user: String,
    /// The command line.
    pub command: String,
    /// The crontab, or the script itself.
    pub file: String,
    /// The line number from 1; `None` for a script.
    pub line: Option<u32>,
    /// Whether the times are in another time zone (`CRON_TZ=`) than the machine's.
    pub elsewhere: bool,
}

/// One document for each entry.
pub fn collect(source: &Source<'_>) -> Result<Vec<Document>, String> {
    let there = |path: &str| source.stat(path).is_some();
    if !there(SYSTEM) && !there(SYSTEM_FOLDER) && !SPOOLS.iter().any(|spool| there(spool)) {
        return Err(format!("{SYSTEM}: no crontabs"));
    }
    Ok(entries(source).iter().map(|entry| document(source, entry)).collect())
}

/// The recurring jobs of the crontabs.
#[must_use]
pub fn schedules(source: &Source<'_>) -> Vec<Schedule> {
    let mut found = Vec::new();
    for entry in entries(source).into_iter().filter(|entry| !entry.elsewhere) {
        let name = entry.line.map_or_else(|| entry.file.clone(), |line| format!("{}:{line}", entry.file));
        found.push(Schedule {
            name,
            unit_or_command: entry.command,
            file: entry.file,
            line: entry.line.unwrap_or(1),
            calendar: entry.schedule,
            delay_max_s: 0,
        });
    }
    found
}

fn entries(source: &Source<'_>) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut add = |path: &str, user: Option<&str>| {
        if let Ok(text) = source.text(path, FILE_MAX) {
            found.extend(parse(path, &text, user));
        }
    };
    add(SYSTEM, None);
    for name in files(source, SYSTEM_FOLDER) {
        add(&format!("{SYSTEM_FOLDER}/{name}"), None);
    }
    for spool in SPOOLS {
        for user in files(source, spool) {
            add(&format!("{spool}/{user}"), Some(&user));
        }
    }
    for (folder, word) in SCRIPTS {
        let schedule =
            found.iter().find(|entry| runs(&entry.command, folder)).map(|entry| entry.schedule.clone());
        let schedule = schedule.unwrap_or_else(|| (*word).to_owned());
        for name in files(source, folder) {
            let file = format!("{folder}/{name}");
            let (schedule, user, command) = (schedule.clone(), "root".to_owned(), file.clone());
            found.push(Entry { schedule, user, command, file, line: None, elsewhere: false });
        }
    }
    found.truncate(ENTRIES_MAX);
    found
}

/// Whether a command names this directory, and not one that merely has it as a prefix.
fn runs(command: &str, folder: &str) -> bool {
    let end = |rest: &str| rest.is_empty() || rest.starts_with([' ', ';', '&', '|', '"', '\'', ')', '/']);
    command.match_indices(folder).any(|(at, _)| command.get(at + folder.len()..).is_some_and(end))
}

/// The files of a directory that cron reads. Leaves out symbolic links and leftovers of editors and
/// package managers.
fn files(source: &Source<'_>, folder: &str) -> Vec<String> {
    const LEFT_BEHIND: &[&str] = &[
        "~",
        ".bak",
        ".dpkg-dist",
        ".dpkg-new",
        ".dpkg-old",
        ".rpmnew",
        ".rpmorig",
        ".rpmsave",
        ".swp",
        ",v",
    ];
    let is_read = |name: &str| !name.starts_with('.') && !LEFT_BEHIND.iter().any(|end| name.ends_with(end));
    let found = source.list(folder).unwrap_or_default().into_iter();
    found.filter(|e| e.kind == FileType::RegularFile && is_read(&e.name)).map(|e| e.name).collect()
}

/// The entries of a crontab. Skips lines that cron does not understand either.
#[must_use]
pub fn parse(path: &str, text: &str, user: Option<&str>) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut elsewhere = false;
    for (at, text) in text.lines().enumerate() {
        if let Some((name, zone)) = assignment(text) {
            elsewhere |= name == "CRON_TZ" && !zone.is_empty();
            continue;
        }
        if let Ok(Some((schedule, user, command))) = parse_line(text, user) {
            let (file, line) = (path.to_owned(), Some(at as u32 + 1));
            found.push(Entry { schedule, user, command, file, line, elsewhere });
        }
    }
    found
}

/// Parses a crontab line into schedule, user and command. The line names the user only if `user` is
/// `None`. Comments and empty lines give `None`.
///
/// ```text
/// 25 6    * * *   root    test -x /usr/sbin/anacron || run-parts /etc/cron.daily
/// @reboot /home/zoe/start
/// ```
pub fn parse_line(line: &str, user: Option<&str>) -> Result<Option<(String, String, String)>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    // SUSE: a leading dash keeps the job out of the log.
    let mut rest = line.strip_prefix('-').unwrap_or(line);
    let mut fields = Vec::new();
    let wanted = if rest.starts_with('@') { 1 } else { 5 };
    for _ in 0..wanted {
        fields.push(next(&mut rest).ok_or("five fields of a schedule were wanted")?);
    }
    let is_field =
        |field: &&str| field.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '*' | '@' | '~'));
    if let Some(wrong) = fields.iter().find(|field| !is_field(field)) {
        return Err(format!("'{wrong}' is no field of a schedule"));
    }
    let user = match user {
        Some(user) => user,
        None => next(&mut rest).ok_or("a user was wanted")?,
    };
    if rest.is_empty() {
        return Err("a command was wanted".to_owned());
    }
    Ok(Some((fields.join(" "), user.to_owned(), rest.to_owned())))
}

/// Takes the next word and the space behind it.
fn next<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let (word, after) = rest.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((rest, ""));
    *rest = after.trim_start();
    (!word.is_empty()).then_some(word)
}

/// The name and value of a variable assignment.
fn assignment(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim().trim_matches(['"', '\'']);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_name.then(|| (name, value.trim().trim_matches(['"', '\''])))
}

fn document(source: &Source<'_>, entry: &Entry) -> Document {
    let mut content = String::new();
    let mut facts = Facts::new();
    for (key, value) in [
        ("schedule", &entry.schedule),
        ("user", &entry.user),
        ("command", &entry.command),
        ("file", &entry.file),
    ] {
        line(&mut content, key, value);
        word(&mut facts, &format!("cron.{key}"), value);
    }
    let mut filename = format!("@cron{}", entry.file);
    if let Some(at) = entry.line {
        line(&mut content, "line", &at.to_string());
        number(&mut facts, "cron.line", at.into());
        filename.push_str(&format!("/{at}"));
    }
    source.document(filename, Kind::Cron, content, facts)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::collectors::Cache;

    #[test]
    fn every_line_and_every_script_has_a_document() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            (
                "etc/crontab",
                "# x\nSHELL=/bin/sh\n\n25 6\t* * *\troot\ttest -x a || run-parts /etc/cron.daily; }\n",
            ),
            ("etc/cron.d/sysstat", "5-55/10 * * * * root sa1 1 1\nnonsense\n"),
            ("etc/cron.d/sysstat.dpkg-old", "* * * * * root no\n"),
            ("etc/cron.daily/man-db", "#!/bin/sh\n"),
            ("etc/cron.daily/.placeholder", ""),
            ("etc/cron.weekly/man-db", "#!/bin/sh\n"),
            ("var/spool/cron/crontabs/zoe", "CRON_TZ=Asia/Tokyo\n@reboot  start now\n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let cache = Cache::default();
        let source = Source { root: root.path(), now_ns: 0, cache: &cache };
        let documents = collect(&source).unwrap();
        let names: Vec<&str> = documents.iter().map(|d| d.filename.as_str()).collect();
        assert_eq!(
            names,
            [
                "@cron/etc/crontab/4",
                "@cron/etc/cron.d/sysstat/1",
                "@cron/var/spool/cron/crontabs/zoe/2",
                "@cron/etc/cron.daily/man-db",
                "@cron/etc/cron.weekly/man-db",
            ]
        );
        assert_eq!(
            documents[2].content.as_deref(),
            Some(
                "schedule = @reboot\nuser = zoe\ncommand = start now\nfile = /var/spool/cron/crontabs/zoe\nline = 2\n"
            )
        );
        let schedules = schedules(&source);
        let short: Vec<_> = schedules.iter().map(|s| (s.name.as_str(), s.calendar.as_str())).collect();
        assert_eq!(
            short,
            [
                ("/etc/crontab:4", "25 6 * * *"),
                ("/etc/cron.d/sysstat:1", "5-55/10 * * * *"),
                ("/etc/cron.daily/man-db", "25 6 * * *"),
                ("/etc/cron.weekly/man-db", "@weekly"),
            ]
        );
        // 1970-01-01 06:25
        assert_eq!(schedules[2].next_after(0, 0), Some((6 * 60 + 25) * 60 * 1_000_000_000));
    }

    #[test]
    fn what_is_no_line_of_a_crontab_is_refused() {
        for (line, user) in [
            ("25 6 * * root", None),
            ("25 6 * * * root", None),
            ("25 6 * * *", Some("zoe")),
            ("@daily", Some("zoe")),
            ("( 6 * * * x y", None),
        ] {
            assert!(parse_line(line, user).is_err(), "{line}");
        }
        assert_eq!(parse_line("  # 25 6 * * * root x", None), Ok(None));
        assert_eq!(
            parse_line("-* * * * * root a  b", None),
            Ok(Some(("* * * * *".to_owned(), "root".to_owned(), "a  b".to_owned())))
        );
    }

    #[test]
    fn variables_are_told_from_schedules() {
        assert_eq!(assignment("MAILTO = \"root\""), Some(("MAILTO", "root")));
        assert_eq!(assignment("* * * * * root X=1 run"), None);
        assert_eq!(assignment("@daily X=1 run"), None);
    }
}
