//! The table of stacks: stacks of one process with the same leaf frames are one row.

use std::borrow::Cow;
use std::collections::HashMap;

use super::{CaptureColumn, CaptureRow, CaptureTable, Cell, KERNEL_MARK, Profile, Stack, TOPS_MAX};

/// The table of stacks.
pub(super) const STACKS: &str = "stacks";
/// Frames of the kernel and of the program in a row; the whole stack is in the profile.
const KERNEL_LEAVES: usize = 4;
const USER_LEAVES: usize = 2;

/// Prefixes of kernel frames without information: scheduler and system call entry.
const PLUMBING: &[&str] = &[
    "__schedule",
    "schedule",
    "io_schedule",
    "__cond_resched",
    "preempt_schedule",
    "raw_irqentry_",
    "irqentry_",
    "asm_",
    "entry_",
    "do_syscall_64",
    "x64_sys_call",
    "el0_",
    "el0t_",
    "ret_from_fork",
];

/// The innermost frames of a stack, leaf first, without the kernel suffix.
fn leaf(profile: &Profile, stack: &Stack) -> String {
    let kernel = |frame: &&str| frame.ends_with(KERNEL_MARK);
    let telling = |frame: &&str| !PLUMBING.iter().any(|start| frame.starts_with(start));
    let leaves = || profile.frames(stack).rev();
    let mut frames: Vec<&str> = leaves().filter(kernel).filter(telling).take(KERNEL_LEAVES).collect();
    frames.extend(leaves().filter(|frame| !kernel(frame)).take(USER_LEAVES));
    if frames.is_empty() {
        frames = leaves().take(KERNEL_LEAVES).collect();
    }
    let mut frames: Vec<Cow<'_, str>> = frames.into_iter().map(shown).collect();
    frames.dedup();
    let mut text = frames.join(" < ");
    if !stack.tag.is_empty() {
        text = if text.is_empty() { stack.tag.clone() } else { format!("{}: {text}", stack.tag) };
    }
    text
}

/// A frame without the kernel suffix, and without the offset of an unsymbolized address: `[libm.so]`.
fn shown(frame: &str) -> Cow<'_, str> {
    let frame = frame.trim_end_matches(KERNEL_MARK);
    match frame.strip_prefix('[').and_then(|rest| rest.rsplit_once("+0x")) {
        Some((module, _)) => format!("[{module}]").into(),
        None => frame.into(),
    }
}

/// Stacks of one process that end alike are one row, with what stands beside its weight.
fn stack_rows(profile: &Profile) -> Vec<(CaptureRow, f64)> {
    let mut rows: Vec<(CaptureRow, f64)> = Vec::new();
    let mut known: HashMap<(u32, &str, String), usize> = HashMap::new();
    for stack in &profile.stacks {
        let what = leaf(profile, stack);
        let at = *known.entry((stack.pid, &stack.comm, what)).or_insert_with_key(|(pid, comm, what)| {
            let row = CaptureRow {
                pid: (*pid > 0).then_some(*pid),
                comm: (*comm).to_owned(),
                what: what.clone(),
                ..CaptureRow::default()
            };
            rows.push((row, 0.0));
            rows.len() - 1
        });
        if let Some((row, beside)) = rows.get_mut(at) {
            row.count += stack.count as f64;
            row.amount += stack.weight;
            *beside += stack.beside;
        }
    }
    rows.sort_by(|(a, beside_a), (b, beside_b)| {
        b.amount.total_cmp(&a.amount).then_with(|| beside_b.total_cmp(beside_a))
    });
    rows
}

pub(super) fn stack_tops(profile: &Profile) -> Vec<CaptureRow> {
    let rows = stack_rows(profile).into_iter().map(|(row, _)| row);
    let mut rows: Vec<CaptureRow> = rows.take(TOPS_MAX).collect();
    if profile.unit == "1" {
        // The weight is the count itself.
        rows.iter_mut().for_each(|row| row.amount = 0.0);
    }
    rows
}

pub(super) fn stack_table(profile: &Profile) -> CaptureTable {
    let column = |name: &'static str, unit: &str, help: &'static str| CaptureColumn {
        name: name.into(),
        unit: unit.to_owned().into(),
        help: help.into(),
    };
    let counts_only = profile.unit == "1";
    let mut columns = vec![
        column("pid", "", "the process"),
        column("comm", "", "the name of the thread"),
        column("count", "1", "how often"),
    ];
    if !counts_only {
        columns.push(CaptureColumn { name: profile.weight.clone().into(), ..column("", &profile.unit, "") });
    }
    let has_beside = !profile.beside.is_empty();
    if has_beside {
        columns.push(CaptureColumn { name: profile.beside.clone().into(), ..column("", &profile.unit, "") });
    }
    columns.push(column(
        "where",
        "",
        "the innermost frames of the kernel and of the program, the leaf first",
    ));
    let rows = stack_rows(profile).into_iter().map(|(row, beside)| {
        let mut cells = vec![
            row.pid.map_or(Cell::Unknown(()), |pid| Cell::number(f64::from(pid))),
            Cell::text(row.comm),
            Cell::number(row.count),
        ];
        if !counts_only {
            cells.push(Cell::number(row.amount));
        }
        if has_beside {
            cells.push(Cell::number(beside));
        }
        cells.push(Cell::text(row.what));
        cells
    });
    let rows = rows.collect();
    CaptureTable { name: STACKS.to_owned(), columns, rows, left_out: 0 }
}
