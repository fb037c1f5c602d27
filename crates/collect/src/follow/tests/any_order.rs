//! Whatever is done to a log in any order, each line counts once.

use std::fs::{self, OpenOptions};
use std::io::Write as _;

use proptest::prelude::*;

use super::Case;

/// What is done to a log.
#[derive(Debug, Clone)]
enum Step {
    Write(usize),
    Half,
    Rename {
        is_late: bool,
    },
    Compress,
    CopyAndCut,
    Look,
    Restart,
    /// Between what was counted and the state that says so.
    KilledBeforeState,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..40_usize).prop_map(Step::Write),
        1 => Just(Step::Half),
        2 => any::<bool>().prop_map(|is_late| Step::Rename { is_late }),
        2 => Just(Step::Compress),
        1 => Just(Step::CopyAndCut),
        3 => Just(Step::Look),
        1 => Just(Step::Restart),
        1 => Just(Step::KilledBeforeState),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Writes numbered lines.
struct Writer {
    lines: u64,
    matches: u64,
    half: Option<String>,
}

impl Writer {
    fn line(&mut self) -> String {
        self.lines += 1;
        self.matches += u64::from(self.lines.is_multiple_of(3));
        let what = if self.lines.is_multiple_of(3) { "timeout" } else { "fine" };
        format!("{} line {} {}\n", what, self.lines, "x".repeat((self.lines * 7919 % 300) as usize))
    }

    /// The end of a line that was begun.
    fn end(&mut self, case: &Case) {
        if let Some(rest) = self.half.take() {
            case.write(rest);
        }
    }
}

fn shift(case: &Case) {
    for old in (1..100).rev() {
        for ending in ["", ".gz"] {
            let name = case.path(&format!("app.log.{old}{ending}"));
            if name.exists() {
                fs::rename(name, case.path(&format!("app.log.{}{ending}", old + 1))).unwrap();
            }
        }
    }
}

fn take(step: &Step, case: &mut Case, writer: &mut Writer) {
    match step {
        Step::Write(lines) => {
            writer.end(case);
            let text: String = (0..*lines).map(|_| writer.line()).collect();
            case.write(text);
        }
        Step::Half => {
            writer.end(case);
            let line = writer.line();
            case.write(&line[..7]);
            writer.half = Some(line[7..].to_owned());
        }
        Step::Rename { is_late } => {
            writer.end(case);
            shift(case);
            let mut old = OpenOptions::new().append(true).open(case.path("app.log")).unwrap();
            case.rename("app.log", "app.log.1");
            if *is_late {
                case.look();
                old.write_all(writer.line().as_bytes()).unwrap();
            }
            case.write("");
        }
        Step::Compress => {
            if case.path("app.log.1").exists() {
                case.compress("app.log.1");
            }
        }
        Step::CopyAndCut => {
            writer.end(case);
            shift(case);
            case.copy_and_cut("app.log.1");
        }
        Step::Look => _ = case.look(),
        Step::Restart => case.restart(),
        Step::KilledBeforeState => {
            let before = fs::read(case.state()).unwrap();
            case.look();
            case.restart();
            fs::write(case.state(), before).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn each_line_counts_once(steps in steps()) {
        count(&steps);
    }
}

fn count(steps: &[Step]) {
    let mut case = Case::begun();
    let mut writer = Writer { lines: 0, matches: 0, half: None };
    for step in steps {
        take(step, &mut case, &mut writer);
    }
    writer.end(&case);
    for _ in 0..12 {
        case.look();
    }
    assert_eq!(case.look(), (writer.lines, writer.matches), "{:?}", case.lost);
    assert_eq!(case.skipped(), 0);
}

/// File systems give the inode of a file that was removed to the next one, here to a copy.
#[test]
fn an_inode_that_is_used_again_is_another_file() {
    let is_late = false;
    let (copy, write) = (Step::CopyAndCut, Step::Write(1));
    count(&[Step::Rename { is_late }, Step::Compress, write, Step::Look, Step::Restart, copy.clone(), copy]);
}

/// The recorder held a file that was empty; with its end the inode is free for whoever compresses a copy.
#[test]
fn an_inode_of_an_empty_file_is_no_proof() {
    let is_late = false;
    count(&[
        Step::Rename { is_late },
        Step::Compress,
        Step::Write(1),
        Step::Look,
        Step::CopyAndCut,
        Step::Look,
        Step::Restart,
        Step::Compress,
    ]);
}
