//! Limits of their own that programs say in their logs to have reached, by the texts that they print. `limits.txt` has a line
//! for each text.

use std::sync::LazyLock;

/// A text of a program that names a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitText {
    programs: Vec<&'static str>,
    /// What the limit is called: `worker_connections`.
    pub kind: &'static str,
    /// Whether it is a limit of connections, sessions or workers, which keeps clients out or waiting.
    pub is_of_connections: bool,
    /// Whether the program says it only once, however often it turns clients away.
    pub is_said_once: bool,
    /// Whether the program does not read from its clients meanwhile: it has no request of them.
    pub is_unread: bool,
    /// Whether it is one of free space on a filesystem.
    pub is_of_space: bool,
    /// Whether the program turns clients away with an answer, so that no counter of connections tells.
    pub is_answered: bool,
    /// What is limited, in words.
    pub words: &'static str,
    /// What sets the limit.
    pub setting: &'static str,
    /// A line that says so, and one that looks like it and does not.
    pub examples: [&'static str; 2],
    meaning: Option<&'static str>,
    pieces: Vec<&'static str>,
    begins: bool,
    ends: bool,
    has_severity: bool,
}

/// PostgreSQL writes it behind the severity of a line.
const SEVERITY: &[u8] = b":  ";

static TEXTS: LazyLock<Vec<LimitText>> =
    LazyLock::new(|| include_str!("limits.txt").lines().filter_map(LimitText::parse).collect());

/// All texts.
#[must_use]
pub fn texts() -> &'static [LimitText] {
    &TEXTS
}

/// Those of a program, by the name of its process.
pub fn texts_of(comm: &str) -> impl Iterator<Item = &'static LimitText> {
    TEXTS.iter().filter(move |text| text.is_of(comm))
}

/// What a line of a program's log means, if it is in the table.
#[must_use]
pub fn explained(comm: &str, line: &str) -> Option<String> {
    texts_of(comm).find(|text| text.is_in(line.as_bytes())).map(|text| text.sentence(comm))
}

/// What a line of the kernel's log means, if it is in the table: of those that are events of their own it has none.
#[must_use]
pub fn explained_by_kernel(line: &str) -> Option<&'static str> {
    texts_of("kernel").find(|text| text.is_in(line.as_bytes()))?.meaning
}

/// The first text of a program about a limit.
#[must_use]
pub fn text_of(comm: &str, kind: &str) -> Option<&'static LimitText> {
    TEXTS.iter().find(|text| text.kind == kind && text.is_of(comm))
}

impl LimitText {
    /// The first program that says it.
    #[must_use]
    pub fn program(&self) -> &'static str {
        self.programs.first().copied().unwrap_or_default()
    }

    fn parse(line: &'static str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let cells: Vec<&str> = line.split('\t').collect();
        let [programs, kind, flags, pattern, words, setting, example, unlike, ref rest @ ..] = cells[..]
        else {
            return None;
        };
        let meaning = match *rest {
            [] => None,
            [meaning] => Some(meaning),
            _ => return None,
        };
        let has = |flag: &str| flags.split(' ').any(|word| word == flag);
        let (begins, pattern) = pattern.strip_prefix('^').map_or((false, pattern), |rest| (true, rest));
        let (ends, pattern) = pattern.strip_suffix('$').map_or((false, pattern), |rest| (true, rest));
        Some(LimitText {
            programs: programs.split(',').collect(),
            kind,
            is_of_connections: has("connections"),
            is_said_once: has("once"),
            is_unread: has("unread"),
            is_of_space: has("space"),
            is_answered: has("answered"),
            words,
            setting,
            examples: [example, unlike],
            meaning,
            pieces: pattern.split('*').collect(),
            begins,
            ends,
            has_severity: has("severity"),
        })
    }

    /// What it means that a program says so, in one sentence.
    #[must_use]
    pub fn sentence(&self, comm: &str) -> String {
        self.meaning.map_or_else(
            || format!("{comm} has reached a limit of its own: {}, set by {}.", self.words, self.setting),
            str::to_owned,
        )
    }

    fn is_of(&self, comm: &str) -> bool {
        self.programs.iter().any(|program| match program.strip_suffix('*') {
            Some(begin) => comm.starts_with(begin),
            None => comm == *program,
        })
    }

    /// Whether a line of the program's log says so; without its line feed.
    #[must_use]
    pub fn is_in(&self, line: &[u8]) -> bool {
        let mut rest = line;
        for (at, piece) in self.pieces.iter().map(|piece| piece.as_bytes()).enumerate() {
            let is_last = at + 1 == self.pieces.len();
            let found = if at == 0 && self.begins {
                is_like(rest, piece).then_some(0)
            } else if is_last && self.ends {
                rest.ends_with(piece).then(|| rest.len() - piece.len())
            } else {
                find(rest, piece)
            };
            let Some(begin) = found else { return false };
            if at == 0 && self.has_severity && find(rest.get(..begin).unwrap_or_default(), SEVERITY).is_some()
            {
                return false;
            }
            rest = rest.get(begin + piece.len()..).unwrap_or_default();
            if is_last && self.ends && !rest.is_empty() {
                return false;
            }
        }
        true
    }
}

/// Whether a line begins like this, where `#` is any digit.
fn is_like(line: &[u8], begin: &[u8]) -> bool {
    let is_same = |(byte, like): (&u8, &u8)| if *like == b'#' { byte.is_ascii_digit() } else { byte == like };
    line.len() >= begin.len() && line.iter().zip(begin).all(is_same)
}

fn find(text: &[u8], piece: &[u8]) -> Option<usize> {
    let Some(first) = piece.first() else { return Some(0) };
    let mut from = 0;
    while let Some(at) = text.get(from..)?.iter().position(|byte| byte == first) {
        if text.get(from + at..)?.starts_with(piece) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_the_table_is_found_by_its_example_and_not_by_what_looks_like_it() {
        let lines = include_str!("limits.txt").lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(texts().len(), lines, "a line that is none");
        assert!(lines >= 30);
        for text in texts() {
            let [example, unlike] = text.examples;
            assert!(text.is_in(example.as_bytes()), "{text:?}");
            assert!(!text.is_in(unlike.as_bytes()), "{text:?}");
            // Of all texts of the program none takes the line that only looks like one of them.
            for program in &text.programs {
                let others: Vec<_> = texts_of(program.trim_end_matches('*')).collect();
                assert!(others.contains(&text), "{program}");
                assert!(!others.iter().any(|other| other.is_in(unlike.as_bytes())), "{unlike}");
            }
            assert!(!text.words.is_empty() && !text.setting.is_empty(), "{text:?}");
            assert!(text.pieces.iter().any(|piece| piece.len() >= 8), "{text:?}: no text of its own");
            assert!(text.is_of_connections || !text.is_said_once, "{text:?}");
            assert!(text.is_said_once || !text.is_unread, "{text:?}");
            let sentence = text.sentence("it");
            assert!(sentence.ends_with('.') && !sentence.contains(". "), "one sentence: {sentence}");
        }
    }

    #[test]
    fn a_program_is_known_by_its_name_and_nobody_else_says_it() {
        assert!(texts_of("php-fpm8.2").next().is_some() && texts_of("php-fpm").next().is_some());
        assert!(texts_of("nginxd").next().is_none() && texts_of("cat").next().is_none());
        assert!(text_of("postgres", "max_connections").is_some_and(|text| text.is_answered));
        assert!(text_of("postgres", "worker_connections").is_none());
        assert!(text_of("beam.smp", "disk_free_limit").is_some_and(|text| text.is_unread));
    }

    #[test]
    fn a_line_is_explained_in_one_sentence_and_an_unknown_one_is_not() {
        for (comm, line, part) in [
            (
                "java",
                "Exception in thread \"main\" java.lang.OutOfMemoryError: GC overhead limit exceeded",
                "98 %",
            ),
            ("java", "[0.8s][warning][gc] GC locker is held; pre-dump GC was skipped", "JNI critical"),
            (
                "java",
                "[1.2s][warning][gc,alloc] main: Retried waiting for GCLocker too often allocating 524290 words",
                "does not mean that the heap is full",
            ),
            ("java", "java.net.SocketException: Too many open files", "as many files and sockets"),
            ("java", "java.lang.OutOfMemoryError: Java heap space", "-Xmx"),
            ("java", "java.lang.OutOfMemoryError: unable to create new native thread", "limit of threads"),
            ("java", "java.lang.OutOfMemoryError: Direct buffer memory", "MaxDirectMemorySize"),
            (
                "nginx",
                "2026/11/24 15:02:11 [alert] 812#812: 128 worker_connections are not enough",
                "nginx has reached a limit of its own: connections of a worker, set by worker_connections",
            ),
        ] {
            let sentence = explained(comm, line).unwrap_or_else(|| panic!("{line}"));
            assert!(sentence.contains(part), "{line}: {sentence}");
        }
        assert_eq!(explained("java", "INFO: started"), None);
        assert_eq!(explained("cat", "java.lang.OutOfMemoryError: Java heap space"), None);
    }

    #[test]
    fn who_sends_such_a_text_to_a_service_does_not_make_it_say_so() {
        let count =
            |comm: &str, line: &str| texts_of(comm).filter(|text| text.is_in(line.as_bytes())).count();
        let sent = [
            ("nginx", "10.0.0.7 - 2026/11/24 15:02:11 [alert] worker_connections are not enough"),
            (
                "nginx",
                "2026/11/24 15:02:11 [error] 8#8: *1 open() \"/[alert] 1 worker_connections are not enough\" failed",
            ),
            ("postgres", "x [8] ERROR:  relation \"FATAL:  sorry, too many clients already\" does not exist"),
            ("postgres", "x [8] STATEMENT:  SELECT 1 /* FATAL:  sorry, too many clients already"),
            ("postgres", "x [8] ERROR:  column FATAL:  too many connections for role x"),
            ("memcached", "<30 set Too many open connections"),
        ];
        for (comm, line) in sent {
            assert_eq!(count(comm, line), 0, "{line}");
        }
        assert_eq!(count("nginx", ""), 0);
    }
}
