//! Numbers of the whole machine that no tool prints and that follow from the tasks that one printed.
//!
//! A recorder counts all tasks. `pidstat` lists those that did something in the interval and leaves the others out, so
//! a sum over its rows is what the machine had at least; tasks that lived between two samples are in none of them.
//! Nothing here replaces a number that a file holds itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mitra_model::{Axis, Era, Series, SeriesSet, SourceLine, lookup};

use super::number::known;

/// What a number of the machine is of those of its tasks.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    Sum,
    Most,
}

/// Summaries with the metric of each task that they are made of.
const SUMMARIES: &[(&str, &str, Of)] = &[
    ("tasks.run_delay", "task.run_delay", Of::Sum),
    ("tasks.cpu_time", "task.cpu_time", Of::Sum),
    ("tasks.busiest", "task.cpu_time", Of::Most),
    ("tasks.majflt", "task.majflt", Of::Sum),
    ("tasks.read_bytes", "task.read_bytes", Of::Sum),
    ("tasks.write_bytes", "task.write_bytes", Of::Sum),
];

/// Times of all CPUs that follow from those of each.
const CPU_TIMES: &[(&str, &str)] = &[
    ("sys.cpu_user", "cpu.user"),
    ("sys.cpu_nice", "cpu.nice"),
    ("sys.cpu_system", "cpu.system"),
    ("sys.cpu_idle", "cpu.idle"),
    ("sys.cpu_iowait", "cpu.iowait"),
    ("sys.cpu_irq", "cpu.irq"),
    ("sys.cpu_softirq", "cpu.softirq"),
    ("sys.cpu_steal", "cpu.steal"),
];

/// The times of all CPUs, where a file has each CPU and not their sum.
fn all_cpus(set: &mut SeriesSet) {
    for (sum, part) in CPU_TIMES {
        let cpus = set.each(part).count();
        let Some(metric) = lookup(sum).filter(|_| cpus > 0 && set.host.cpus as usize == cpus) else {
            continue;
        };
        if set.get(sum, "").is_some() || set.total(sum, "").is_some() {
            continue;
        }
        let parts: Vec<&Series> = set.each(part).map(|(_, series)| series).collect();
        // One that has other times than the rest makes no sum.
        let Some(first) = parts.first() else { continue };
        if parts.iter().all(|series| series.axis.t == first.axis.t && series.start == first.start)
            && let Some(series) = combined(parts.iter().copied(), Of::Sum)
        {
            set.insert(metric, "".into(), series);
        }
    }
}

/// Adds them to a set.
pub(super) fn derive(set: &mut SeriesSet, has_all_cpus: bool) {
    if has_all_cpus {
        all_cpus(set);
    }
    whole_cpu_time(set);
    for (summary, part, of) in SUMMARIES {
        let Some(metric) = lookup(summary) else { continue };
        if set.get(summary, "").is_some() {
            continue;
        }
        if let Some(series) = combined(set.each(part).map(|(_, series)| series), *of) {
            set.insert(metric, "".into(), series);
        }
    }
}

/// Tasks whose user and system time are known apart.
fn whole_cpu_time(set: &mut SeriesSet) {
    let Some(metric) = lookup("task.cpu_time") else { return };
    let rows: BTreeSet<Arc<str>> = set
        .each("task.user_time")
        .map(|(row, _)| row)
        .filter(|row| set.get(metric.name, row).is_none())
        .map(Arc::from)
        .collect();
    for row in rows {
        let (Some(user), Some(system)) = (set.get("task.user_time", &row), set.get("task.system_time", &row))
        else {
            continue;
        };
        // Both stand in the same rows of the same file, or they are not added.
        if user.axis.t == system.axis.t && user.start == system.start {
            let values = user.values.iter().zip(&system.values).map(|(a, b)| known(a + b)).collect();
            let series = Series { axis: user.axis.clone(), start: user.start, values };
            set.insert(metric, row, series);
        }
    }
}

/// Several series as one. Only what has a length of time counts: averages since boot do not.
fn combined<'a>(parts: impl Iterator<Item = &'a Series>, of: Of) -> Option<Series> {
    let mut at: BTreeMap<i64, (f64, SourceLine, f64)> = BTreeMap::new();
    for series in parts {
        for (i, value) in (series.start..).zip(&series.values) {
            let (Some(t), Some(dt)) = (series.axis.t.get(i), series.axis.dt.get(i)) else { break };
            if !value.is_finite() || !dt.is_finite() || Era::of(*t) == Era::Fact {
                continue;
            }
            let place = || series.axis.places.get(i).copied().unwrap_or_default();
            match at.get_mut(t) {
                None => _ = at.insert(*t, (*dt, place(), *value)),
                Some(known) if of == Of::Sum => known.2 += value,
                // The line of the largest is the one to look up.
                Some(known) if *value > known.2 => *known = (*dt, place(), *value),
                Some(_) => {}
            }
        }
    }
    if at.is_empty() {
        return None;
    }
    let axis = Axis {
        t: at.keys().copied().collect(),
        dt: at.values().map(|v| v.0).collect(),
        // A sum stands on no line.
        places: if of == Of::Sum { Vec::new() } else { at.values().map(|v| v.1).collect() },
    };
    Some(Series { axis: Arc::new(axis), start: 0, values: at.values().map(|v| known(v.2)).collect() })
}

#[cfg(test)]
mod tests {
    use super::super::Import;

    const TWO_TASKS: &str = "\
Linux 6.1.0 (host) \t11/21/26 \t_x86_64_\t(2 CPU)

12:00:00      UID       PID    %usr %system  %guest   %wait    %CPU   CPU  Command
12:00:01        0        11   40.00   10.00    0.00   30.00   50.00     0  a
12:00:01        0        12   90.00    5.00    0.00   20.00   95.00     1  b

12:00:01      UID       PID    %usr %system  %guest   %wait    %CPU   CPU  Command
12:00:02        0        12    1.00    1.00    0.00    0.00    2.00     1  b
";

    #[test]
    fn tasks_add_up_to_the_machine_they_ran_on() {
        let mut import = Import::new(None);
        super::super::read(&mut TWO_TASKS.as_bytes(), "pidstat.txt", &mut import).unwrap();
        let set = import.finish().set;
        let values = |metric: &str| set.get(metric, "").map(|s| s.values.to_vec()).unwrap_or_default();
        let near =
            |a: Vec<f64>, b: [f64; 2]| a.len() == 2 && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(near(values("tasks.run_delay"), [0.5, 0.0]));
        assert!(near(values("tasks.busiest"), [0.95, 0.02]));
        assert!(near(values("tasks.cpu_time"), [1.45, 0.02]));
        let busiest = set.get("tasks.busiest", "").unwrap();
        assert_eq!(busiest.axis.places[0].line, 5);
        assert!(set.get("tasks.read_bytes", "").is_none(), "what no file holds is not made up");
    }

    #[test]
    fn what_was_measured_as_a_whole_stays() {
        let mut import = Import::new(None);
        super::super::read(&mut TWO_TASKS.as_bytes(), "pidstat.txt", &mut import).unwrap();
        let moment = super::super::When::At(1_795_262_401_000_000_000);
        import.value("tasks.run_delay", "", super::super::Form::Rate, moment, 1, 7.0);
        let set = import.finish().set;
        assert_eq!(set.get("tasks.run_delay", "").unwrap().values, [7.0]);
    }
}
