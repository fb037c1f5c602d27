//! What a pass costs.

use std::thread;
use std::time::{Duration, Instant};

use mitra_collect::bpf::Seen;

use super::spawn::{Running, idle};
use super::{probes, spawn};

/// The figures that the design rests on; run by hand, alone and with `--release`.
#[test]
#[ignore = "a measurement of 3,000 processes"]
fn by_hand_cost_of_a_pass_with_three_thousand_idle_tasks() {
    const IDLE: usize = 3_000;
    let rss_before = spawn::own_rss_kb();
    let started = Instant::now();
    let Some((_guard, mut probes)) = probes() else { return };
    eprintln!("load: {} ms, rss {rss_before} -> {}", started.elapsed().as_millis(), spawn::own_rss_kb());
    let _sleepers: Vec<Running> = (0..IDLE).map(|_| idle()).collect();
    let tasks = probes.tasks.as_mut().expect("the task iterator");
    for (changes, pause_ms, passes) in [(false, 0, 20), (false, 1_000, 8), (true, 0, 20), (true, 1_000, 8)] {
        let mut costs = Vec::new();
        let (mut count, mut bytes, mut sum) = (0, 0, 0_u64);
        for _ in 0..passes {
            thread::sleep(Duration::from_millis(pause_ms));
            let cpu = spawn::thread_cpu_ns();
            let stats = if changes {
                tasks.pass_changes(false, |seen| {
                    if let Seen::Whole(record, _) = seen {
                        sum = sum.wrapping_add(record.sum_exec_runtime_ns);
                    }
                })
            } else {
                tasks.pass(|record, _| sum = sum.wrapping_add(record.sum_exec_runtime_ns))
            };
            let stats = stats.expect("a pass");
            costs.push((spawn::thread_cpu_ns() - cpu) as f64 / 1e3);
            (count, bytes) = (stats.tasks, stats.bytes);
        }
        costs.sort_by(f64::total_cmp);
        let (least, median) = (costs[0], costs[passes / 2]);
        let per_task_us = median / count as f64;
        eprintln!(
            "changes only {changes}, pause {pause_ms} ms: {count} tasks, {bytes} bytes, \
             {least:.0} us least, {median:.0} us median, {per_task_us:.3} us per task ({sum})"
        );
        assert!(per_task_us < 2.0, "{per_task_us} us per task");
    }
    eprintln!("rss {}", spawn::own_rss_kb());
}
