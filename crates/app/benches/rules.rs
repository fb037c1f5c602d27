//! What the built-in rules cost for each frame, on machines of several sizes.
//!
//! `cargo bench -p mitra-app --bench rules`. A quiet machine: nothing holds. A busy one: every guard before the rows of tasks is
//! open, so each rule over tasks looks at all of them.

use std::hint::black_box;
use std::time::Instant;

use mitra_model::{Entity, Frame, Key, Kind, Strings, columns, lookup};
use mitra_rules::{Config, Watcher};

const FRAMES: u32 = 300;

fn main() {
    for tasks in [100, 1_000, 10_000] {
        for is_busy in [false, true] {
            let mut watcher = Watcher::new(
                Config::builtin(mitra_diagnose::suspicions())
                    .rules
                    .into_iter()
                    .map(|rule| (rule.program, rule.choice.map(|(_, p)| p)))
                    .collect(),
                4096.0,
            );
            let mut strings = Strings::new();
            let mut frame = machine(tasks, &mut strings);
            let mut ns = Vec::new();
            let mut held = 0;
            for _ in 0..FRAMES {
                pass(&mut frame, is_busy);
                let began = Instant::now();
                watcher.observe(
                    &frame,
                    &strings,
                    &mut |_| {
                        held += 1;
                        false
                    },
                    &mut |_, news| drop(black_box(news)),
                );
                ns.push(began.elapsed().as_nanos());
            }
            ns.sort_unstable();
            let kind = if is_busy { "busy" } else { "quiet" };
            println!(
                "{tasks:>6} tasks, {kind:5}: {:>7.1} us median, {:>7.1} us at most; {held} times some rule held",
                ns[ns.len() / 2] as f64 / 1e3,
                ns[ns.len() - 1] as f64 / 1e3
            );
        }
    }
}

fn machine(tasks: u32, strings: &mut Strings) -> Frame {
    let mut frame = Frame::new();
    frame.system_mut().fill(0);
    for (entity, rows) in [
        (Entity::Disk, 12),
        (Entity::Filesystem, 20),
        (Entity::Cpu, 16),
        (Entity::Cgroup, 60),
        (Entity::Slab, 120),
        (Entity::Nic, 4),
    ] {
        for i in 0..rows {
            let name = strings.intern(&format!("{entity}{i}"));
            frame.table_mut(entity).push(Key::named(name)).fill(0);
        }
    }
    let comm = strings.intern("worker");
    for tid in 0..tasks {
        let row = frame.table_mut(Entity::Task).push(Key::task(tid, 7));
        row.fill(0);
        for (cell, metric) in row.iter_mut().zip(columns(Entity::Task)) {
            match metric.name {
                "task.tgid" => *cell = i64::from(tid / 2 * 2),
                "task.fd_limit" => *cell = 1024,
                "task.comm" => *cell = i64::from(comm),
                _ => {}
            }
        }
    }
    frame
}

/// A second goes by. A busy machine switches, faults and spends its time in the kernel, all tasks alike.
fn pass(frame: &mut Frame, is_busy: bool) {
    frame.time.mono += 1_000_000_000;
    frame.time.boot += 1_000_000_000;
    if !is_busy {
        return;
    }
    for name in ["sys.ctxt", "vm.pgfault", "sys.cpu_system", "sys.cpu_idle"] {
        let column = mitra_model::column(name).expect("a metric");
        let by = if lookup(name).is_some_and(|m| m.unit == mitra_model::Unit::Ticks) { 150 } else { 200_000 };
        frame.system_mut()[column] += by;
    }
    let table = frame.table_mut(Entity::Task);
    for row in 0..table.len() {
        for (cell, metric) in table.row_mut(row).iter_mut().zip(columns(Entity::Task)) {
            *cell += i64::from(metric.kind == Kind::Counter);
        }
    }
}
