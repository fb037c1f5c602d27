//! Stacks: of addresses during a capture, symbolized after it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::Captured;
use super::leaves::{STACKS, stack_table, stack_tops};

/// The suffix of kernel frames.
pub const KERNEL_MARK: &str = "_[k]";

/// Weighted stacks. Each frame name is stored once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// The name of the weight: `time off CPU`.
    pub weight: String,
    /// Its unit: `s`, `B` or `1`.
    pub unit: String,
    /// The name of the second weight, [`Stack::beside`], in the same unit; empty if the kind has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub beside: String,
    /// The names of all frames.
    pub names: Vec<String>,
    /// The stacks, the heaviest first.
    pub stacks: Vec<Stack>,
}

/// One stack.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stack {
    /// The process; 0 if unknown.
    pub pid: u32,
    /// The name of the thread.
    pub comm: String,
    /// A label that separates equal stacks: the state of a waiting task, the kind of a fault.
    pub tag: String,
    /// Frames from root to leaf, as indices into [`Profile::names`]. Kernel frames end in `_[k]`.
    pub frames: Vec<u32>,
    /// The weight.
    pub weight: f64,
    /// The second weight, such as all allocated bytes beside those that remained. No flame graph shows it.
    #[serde(skip_serializing_if = "is_zero")]
    pub beside: f64,
    /// How often.
    pub count: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

impl Profile {
    /// The names of a stack's frames, from the root to the leaf.
    pub fn frames<'a>(&'a self, stack: &'a Stack) -> impl DoubleEndedIterator<Item = &'a str> {
        stack.frames.iter().map(|i| self.names.get(*i as usize).map_or("?", String::as_str))
    }
}

/// A program image of a process. `execve` starts another one, because addresses change their meaning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// Its number in this capture, from 1.
    pub id: u32,
    /// The process.
    pub pid: u32,
    /// Its name when it was seen first.
    pub comm: String,
}

/// A stack that is not symbolized.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawStack {
    /// The process; 0 is a thread of the kernel.
    pub pid: u32,
    /// The program, [`Image::id`]; 0 if unknown.
    pub image: u32,
    /// The name of the thread.
    pub comm: String,
    /// See [`Stack::tag`].
    pub tag: String,
    /// Addresses in the program, the leaf first.
    pub user: Vec<u64>,
    /// Interpreted functions by the address of their code object, the innermost first. The interpreter's own are in `user`.
    pub functions: Vec<u64>,
    /// Addresses in the kernel, the leaf first.
    pub kernel: Vec<u64>,
    /// How much of the weight.
    pub weight: f64,
    /// See [`Stack::beside`].
    pub beside: f64,
    /// How often.
    pub count: u64,
}

/// A capture whose stacks are not symbolized.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Raw {
    /// The capture, without [`Captured::profile`].
    pub captured: Captured,
    /// Name and unit of the weight; `None` if the kind has no stacks.
    pub weight: Option<(&'static str, &'static str)>,
    /// See [`Profile::beside`].
    pub beside: &'static str,
    /// The stacks.
    pub stacks: Vec<RawStack>,
}

impl Raw {
    /// Symbolizes the stacks. `name` returns the frames of one stack from root to leaf; kernel frames end in `_[k]`. Adds
    /// the table of stacks unless the kind has made one.
    #[must_use]
    pub fn resolve(mut self, name: &mut dyn FnMut(&RawStack) -> Vec<String>) -> Captured {
        let Some((weight, unit)) = self.weight else { return self.captured };
        let mut profile = Profile {
            weight: weight.to_owned(),
            unit: unit.to_owned(),
            beside: self.beside.to_owned(),
            ..Profile::default()
        };
        let mut known: HashMap<String, u32> = HashMap::new();
        self.stacks.sort_by(|a, b| b.weight.total_cmp(&a.weight).then_with(|| b.beside.total_cmp(&a.beside)));
        for raw in self.stacks {
            let mut frames = Vec::new();
            for frame in name(&raw) {
                let next = u32::try_from(profile.names.len()).unwrap_or(u32::MAX);
                frames.push(*known.entry(frame).or_insert_with_key(|frame| {
                    profile.names.push(frame.clone());
                    next
                }));
            }
            let RawStack { pid, comm, tag, weight, beside, count, .. } = raw;
            profile.stacks.push(Stack { pid, comm, tag, frames, weight, beside, count });
        }
        if !self.captured.tables.iter().any(|table| table.name == STACKS) {
            self.captured.tables.push(stack_table(&profile));
        }
        if self.captured.tops.is_empty() {
            self.captured.tops = stack_tops(&profile);
        }
        self.captured.profile = Some(profile);
        self.captured
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CaptureRow, Cell, Ended, TOPS_MAX};
    use super::*;
    use crate::event::EventKind;

    fn raw() -> Raw {
        let stack = |comm: &str, user: &[u64], kernel: &[u64], weight| RawStack {
            pid: 7,
            comm: comm.to_owned(),
            user: user.to_vec(),
            kernel: kernel.to_vec(),
            weight,
            count: 2,
            ..RawStack::default()
        };
        Raw {
            captured: Captured { kind: "offcpu".into(), seconds: 2.0, ..Captured::default() },
            weight: Some(("time off CPU", "s")),
            beside: "",
            stacks: vec![
                stack("a", &[2, 1], &[20], 0.5),
                stack("a", &[3, 1], &[20, 21], 1.5),
                stack("b", &[], &[20], 0.25),
            ],
        }
    }

    fn name(stack: &RawStack) -> Vec<String> {
        let user = stack.user.iter().rev().map(|a| format!("u{a}"));
        let kernel = stack.kernel.iter().rev();
        user.chain(kernel.map(|a| if *a == 20 { "schedule_[k]".into() } else { format!("k{a}_[k]") }))
            .collect()
    }

    #[test]
    fn stacks_get_names_and_become_rows() {
        let captured = raw().resolve(&mut name);
        let profile = captured.profile.as_ref().unwrap();
        let frames: Vec<Vec<&str>> = profile.stacks.iter().map(|s| profile.frames(s).collect()).collect();
        assert_eq!(frames[0], ["u1", "u3", "k21_[k]", "schedule_[k]"]);
        assert_eq!(profile.names.len(), 5, "a name is stored once");
        let tops: Vec<(&str, f64)> = captured.tops.iter().map(|r| (r.what.as_str(), r.amount)).collect();
        assert_eq!(tops, [("k21 < u3 < u1", 1.5), ("u2 < u1", 0.5), ("schedule", 0.25)]);
        assert!(captured.tables[0].rows.iter().all(|row| row.len() == captured.tables[0].columns.len()));
    }

    #[test]
    fn places_without_a_name_are_one_row_for_each_module() {
        let mut raw = raw();
        raw.stacks.iter_mut().for_each(|stack| stack.kernel.clear());
        let place = |stack: &RawStack| stack.user.iter().rev().map(|a| format!("[libm.so+{a:#x}]")).collect();
        let captured = raw.resolve(&mut { place });
        let tops: Vec<(&str, f64)> = captured.tops.iter().map(|r| (r.what.as_str(), r.amount)).collect();
        assert_eq!(tops, [("[libm.so]", 2.0), ("", 0.25)]);
        assert_eq!(captured.profile.unwrap().names.len(), 3, "the profile keeps the places");
    }

    #[test]
    fn what_stands_beside_the_weight_has_a_column_and_says_what_comes_first_among_equals() {
        let mut raw = raw();
        (raw.weight, raw.beside) = (Some(("still there", "B")), "came");
        for (stack, (weight, beside)) in raw.stacks.iter_mut().zip([(0.0, 5.0), (3.0, 4.0), (0.0, 7.0)]) {
            (stack.weight, stack.beside) = (weight, beside);
        }
        let captured = raw.resolve(&mut name);
        let table = &captured.tables[0];
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_ref()).collect();
        assert_eq!(names, ["pid", "comm", "count", "still there", "came", "where"]);
        let numbers: Vec<&[Cell]> = table.rows.iter().map(|row| &row[3..5]).collect();
        let row = |weight, beside| [Cell::Number(weight), Cell::Number(beside)];
        assert_eq!(numbers, [&row(3.0, 4.0)[..], &row(0.0, 7.0), &row(0.0, 5.0)]);
        let profile = captured.profile.as_ref().unwrap();
        assert_eq!((profile.beside.as_str(), profile.stacks[1].beside), ("came", 7.0));
        let text = serde_json::to_string(&captured).unwrap();
        assert_eq!(serde_json::from_str::<Captured>(&text).unwrap(), captured);
    }

    #[test]
    fn what_is_written_is_read_and_the_event_is_short() {
        let mut captured = raw().resolve(&mut name);
        captured.tables[0].rows[0][0] = Cell::Unknown(());
        captured.ended = Ended::Failed("no room".into());
        captured.tops = vec![CaptureRow::default(); 30];
        let text = serde_json::to_string(&captured).unwrap();
        assert_eq!(serde_json::from_str::<Captured>(&text).unwrap(), captured);
        let EventKind::Capture { ended, tops, .. } = captured.event(None).kind else {
            panic!("another event")
        };
        assert_eq!((ended.as_str(), tops.len()), ("failed: no room", TOPS_MAX));
        assert_eq!(captured.event(None).real, 2_000_000_000);
    }

    #[test]
    fn what_a_later_version_adds_is_passed_over() {
        let read: Captured = serde_json::from_str(r#"{"kind":"tachyons","hue":3}"#).unwrap();
        assert_eq!(read.kind, "tachyons");
    }
}
