//! Everything that was read, put on one axis of time.
//!
//! Files without a date are placed by what they share with the others: where all dates that are known lie on one day
//! and the times of day of a file lie among theirs, the file is of that day. Otherwise its times stay times of day, and
//! nothing is said of their order against others.

use std::collections::BTreeMap;
use std::sync::Arc;

use mitra_model::report::FileRead;
use mitra_model::time::SECOND;
use mitra_model::{Axis, Entity, Era, Series, SeriesSet, SourceLine, Span, TextSeries, Values, lookup};

use super::import::{DAY, Form, Import};
use super::number::known;

/// What a number of files say.
#[derive(Debug, Default)]
pub struct Imported {
    /// All of it.
    pub set: SeriesSet,
    /// What was made of each file.
    pub files: Vec<FileRead>,
}

impl Import {
    /// Puts everything together.
    #[must_use]
    pub fn finish(mut self) -> Imported {
        let files = self.take_files();
        self.drop_doubtful_zeros();
        self.date_by_neighbours(files.len());
        self.count_cpus();
        let mut set = SeriesSet::default();
        "files".clone_into(&mut set.source);
        set.host = self.host.clone();
        set.files = files.iter().map(|f| f.file.clone()).collect();
        let mut parts: BTreeMap<_, Vec<(usize, usize)>> = BTreeMap::new();
        let axes: Vec<Arc<Axis>> = (0..self.tracks.len()).map(|i| Arc::new(self.axis(i))).collect();
        for (i, track) in self.tracks.iter().enumerate() {
            let row: Arc<str> = String::from_utf8_lossy(&track.row).into();
            for (c, column) in self.groups[track.group].columns.iter().enumerate() {
                let key = (column.metric.name, row.clone(), column.form == Form::Total);
                parts.entry(key).or_default().push((i, c));
            }
        }
        for ((name, row, total), list) in parts {
            let Some(metric) = lookup(name) else { continue };
            let pieces: Vec<Series> =
                list.iter().filter_map(|(t, c)| self.series(*t, *c, &axes[*t])).collect();
            if pieces.is_empty() {
                continue;
            }
            if total {
                let readings = joined(pieces);
                if let Some(series) = rates(&readings, metric) {
                    // Rates that a tool printed count more than those of readings beside them.
                    let known = set.get(name, &row).cloned();
                    let series = joined(known.into_iter().chain([series]).collect());
                    set.insert(metric, row.clone(), series);
                }
                set.insert_total(metric, row, readings);
            } else if let Some(known) = set.get(name, &row) {
                // Rates that a tool printed and readings of the counter: what was printed is finer or the same.
                let all = std::iter::once(known.clone()).chain(pieces).collect();
                set.insert(metric, row, joined(all));
            } else {
                set.insert(metric, row, joined(pieces));
            }
        }
        for ((name, row), list) in std::mem::take(&mut self.texts) {
            let Some(metric) = lookup(name) else { continue };
            let place = list.iter().max_by_key(|c| c.t).map(|c| c.place).filter(|p| p.line > 0);
            let mut changes: Vec<(i64, Option<Arc<str>>)> =
                list.into_iter().map(|c| (c.t, Some(c.text.into()))).collect();
            changes.sort_by_key(|(t, _)| *t);
            set.insert_text(metric, row.into(), TextSeries { changes, place });
        }
        set.events = std::mem::take(&mut self.events);
        set.events.sort_by_key(|e| e.real);
        note_host(&mut set);
        super::derive::derive(&mut set, self.has_all_cpus);
        Imported { set, files }
    }

    /// Where no header says how many CPUs there are, the rows of single CPUs do.
    fn count_cpus(&mut self) {
        if self.host.cpus == 0 {
            let is_cpu =
                |group: &usize| self.groups[*group].columns.iter().any(|c| c.metric.entity == Entity::Cpu);
            let rows: std::collections::BTreeSet<&[u8]> =
                self.tracks.iter().filter(|t| is_cpu(&t.group)).map(|t| t.row.as_ref()).collect();
            self.host.cpus = u32::try_from(rows.len()).unwrap_or(0);
        }
    }

    /// Moves files of known times and unknown date to the one day that the other files are of.
    fn date_by_neighbours(&mut self, files: usize) {
        let dated: Vec<i64> = self
            .groups
            .iter()
            .flat_map(|g| g.times.iter().copied())
            .chain(self.events.iter().map(|e| e.real))
            .filter(|t| Era::of(*t) == Era::Dated)
            .collect();
        let (Some(first), Some(last)) = (dated.iter().min().copied(), dated.iter().max().copied()) else {
            return;
        };
        let day = first.div_euclid(DAY);
        if last.div_euclid(DAY) != day {
            return;
        }
        for file in 0..files {
            let file = u32::try_from(file).unwrap_or(u32::MAX);
            let of_day = |t: &i64| Era::of(*t) == Era::Day;
            let times = self
                .groups
                .iter()
                .filter(|g| g.file == file)
                .flat_map(|g| g.times.iter().copied())
                .chain(self.events.iter().filter(|e| e.place.is_some_and(|p| p.file == file)).map(|e| e.real))
                .filter(of_day);
            let Some((from, to)) = times.fold(None, |range: Option<(i64, i64)>, t| {
                Some(range.map_or((t, t), |(a, b)| (a.min(t), b.max(t))))
            }) else {
                continue;
            };
            let by = day * DAY - Era::Day.zero();
            let shared = (to + by).min(last) - (from + by).max(first);
            // At least half of the shorter of the two ranges is common.
            if shared < 0 || 2 * shared < (to - from).min(last - first) {
                continue;
            }
            let shift = |t: &mut i64| {
                if of_day(t) {
                    *t += by;
                }
            };
            for (i, group) in self.groups.iter_mut().enumerate().filter(|(_, g)| g.file == file) {
                group.times.iter_mut().chain(group.since.as_mut()).for_each(shift);
                for track in self.tracks.iter_mut().filter(|t| t.group == i) {
                    track.t.iter_mut().for_each(shift);
                }
            }
            for event in self.events.iter_mut().filter(|e| e.place.is_some_and(|p| p.file == file)) {
                shift(&mut event.real);
            }
        }
    }

    /// The moments of a track, in order of time, with what each covers.
    fn axis(&mut self, i: usize) -> Axis {
        let track = &mut self.tracks[i];
        let group = &mut self.groups[track.group];
        let width = group.columns.len();
        if !track.t.is_sorted_by(|a, b| a < b) {
            sort_track(&mut track.t, &mut track.lines, &mut track.values, width);
        }
        if !group.times.is_sorted_by(|a, b| a < b) {
            group.times.sort_unstable();
            group.times.dedup();
        }
        // What lies between two eras is no time.
        let same_era = |w: &&[i64]| Era::of(w[0]) == Era::of(w[1]);
        let mut steps: Vec<i64> =
            group.times.windows(2).filter(same_era).map(|w| w[1].saturating_sub(w[0])).collect();
        let middle = steps.len() / 2;
        let usual = if steps.is_empty() { None } else { Some(*steps.select_nth_unstable(middle).1) };
        let dt = track
            .t
            .iter()
            .map(|t| {
                if Era::of(*t) == Era::Fact {
                    return f64::NAN;
                }
                let at = group.times.partition_point(|other| other < t);
                let same_era = |b: &i64| Era::of(*b) == Era::of(*t);
                let before = at.checked_sub(1).and_then(|p| group.times.get(p)).copied();
                let before = before.filter(same_era).or(group.since.filter(same_era));
                let step = match (before.map(|b| t.saturating_sub(b)).filter(|step| *step > 0), usual) {
                    // What is far longer than usual is a hole in the file, not an interval.
                    (Some(step), Some(usual)) if step > usual.saturating_mul(3) => usual,
                    (Some(step), _) => step,
                    (None, Some(usual)) => usual,
                    (None, None) => return f64::NAN,
                };
                step as f64 / SECOND as f64
            })
            .collect();
        let places = track.lines.iter().map(|line| SourceLine { file: group.file, line: *line }).collect();
        Axis { t: track.t.clone(), dt, places }
    }

    /// One column of a track in base units; `None` when it has no value at all.
    fn series(&self, track: usize, column: usize, axis: &Arc<Axis>) -> Option<Series> {
        let track = &self.tracks[track];
        let columns = &self.groups[track.group].columns;
        let mut factor = columns[column].factor;
        if columns[column].form == Form::Share {
            factor *= f64::from(self.host.cpus.max(1));
        }
        let values: Values =
            track.values.chunks_exact(columns.len().max(1)).map(|row| known(row[column] * factor)).collect();
        values.iter().any(|v| v.is_finite()).then(|| Series { axis: axis.clone(), start: 0, values })
    }
}

fn sort_track(t: &mut Vec<i64>, lines: &mut Vec<u32>, values: &mut Vec<f64>, width: usize) {
    let mut order: Vec<usize> = (0..t.len()).collect();
    order.sort_by_key(|i| t[*i]);
    order.dedup_by_key(|i| t[*i]);
    *values = order.iter().flat_map(|i| values[i * width..(i + 1) * width].iter().copied()).collect();
    *lines = order.iter().map(|i| lines[*i]).collect();
    *t = order.iter().map(|i| t[*i]).collect();
}

/// Several pieces of one series as one. Where two cover the same time, the finer one counts.
fn joined(mut pieces: Vec<Series>) -> Series {
    if pieces.len() == 1 {
        return pieces.remove(0);
    }
    let step = |s: &Series| {
        let step = s.axis.step_s();
        if step.is_finite() { step } else { f64::MAX }
    };
    pieces.sort_by(|a, b| step(a).total_cmp(&step(b)));
    let mut samples: Vec<(i64, f64, SourceLine, f64)> = Vec::new();
    let mut covered: Vec<Span> = Vec::new();
    for piece in &pieces {
        let place = |i: usize| piece.axis.places.get(i).copied().unwrap_or_default();
        for (i, (t, value)) in piece.axis.t.iter().zip(&piece.values).enumerate() {
            let dt = piece.axis.dt[i];
            let since = t - if dt.is_finite() { (dt * SECOND as f64) as i64 } else { 0 };
            let taken = covered.iter().any(|c| c.contains(*t) || (c.since > since && c.since < *t));
            if value.is_finite() && !taken {
                samples.push((*t, dt, place(i), *value));
            }
        }
        if let (Some(first), Some(last)) = (piece.axis.t.first(), piece.axis.t.last()) {
            covered.push(Span { since: *first, until: last.saturating_add(1) });
        }
    }
    samples.sort_by_key(|s| s.0);
    samples.dedup_by_key(|s| s.0);
    let axis = Axis {
        t: samples.iter().map(|s| s.0).collect(),
        dt: samples.iter().map(|s| s.1).collect(),
        places: samples.iter().map(|s| s.2).collect(),
    };
    Series { axis: Arc::new(axis), start: 0, values: samples.iter().map(|s| s.3).collect() }
}

/// Rates of readings of a counter, where there are at least two with times.
fn rates(readings: &Series, metric: &mitra_model::Metric) -> Option<Series> {
    let t = &readings.axis.t;
    let mut values = vec![f64::NAN; t.len()];
    for i in 1..t.len() {
        let (before, now) = (readings.values[i - 1], readings.values[i]);
        let same = Era::of(t[i]) == Era::of(t[i - 1]) && Era::of(t[i]) != Era::Fact;
        let dt = (t[i] - t[i - 1]) as f64 / SECOND as f64;
        if same && dt > 0.0 && now >= before && metric.is_rate() {
            values[i] = known((now - before) / dt);
        }
    }
    values.iter().any(|v| v.is_finite()).then(|| Series {
        axis: readings.axis.clone(),
        start: 0,
        values: values.into(),
    })
}

/// What the numbers say of the machine where no header did.
fn note_host(set: &mut SeriesSet) {
    let memory = set.get("mem.total", "").and_then(|s| s.last(Span::ALL));
    if let Some(bytes) = memory.filter(|_| set.host.memory_bytes == 0) {
        set.host.memory_bytes = bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::super::import::{Column, When};
    use super::*;

    fn column(name: &str, form: Form) -> Vec<Column> {
        vec![Column::new(name, form, 1.0).unwrap()]
    }

    fn put(import: &mut Import, metric: &str, form: Form, when: When, line: u32, value: f64) {
        let group = import.group(column(metric, form));
        import.row(group, b"", when, line)[0] = value;
    }

    #[test]
    fn a_clock_passes_midnight_and_sections_begin_anew() {
        let mut import = Import::new(Some(20_000));
        import.begin_file("sar.txt");
        for metric in ["sys.ctxt", "sys.forks"] {
            for (i, clock) in [86_000, 86_300, 200, 500].iter().enumerate() {
                put(&mut import, metric, Form::Rate, When::Clock(clock * SECOND), i as u32 + 1, 1.0);
            }
        }
        let set = import.finish().set;
        for metric in ["sys.ctxt", "sys.forks"] {
            let axis = &set.get(metric, "").unwrap().axis;
            let seconds: Vec<i64> = axis.t.iter().map(|t| t / SECOND - 20_000 * 86_400).collect();
            assert_eq!(seconds, [86_000, 86_300, 86_600, 86_900]);
            assert_eq!(axis.dt, [300.0; 4]);
            assert_eq!(axis.places[2], SourceLine { file: 0, line: 3 });
        }
    }

    #[test]
    fn the_finer_of_two_files_counts_where_both_have_the_same_time() {
        let mut import = Import::new(None);
        import.begin_file("coarse");
        for i in 1..=6 {
            put(&mut import, "sys.ctxt", Form::Rate, When::At(i * 600 * SECOND), 1, 10.0);
        }
        import.begin_file("fine");
        for i in 1_300..=1_700 {
            put(&mut import, "sys.ctxt", Form::Rate, When::At(i * SECOND), 1, 99.0);
        }
        let set = import.finish().set;
        let series = set.get("sys.ctxt", "").unwrap();
        assert!(series.axis.t.is_sorted());
        assert_eq!(series.values.iter().filter(|v| **v == 99.0).count(), 401);
        assert_eq!(series.values.iter().filter(|v| **v == 10.0).count(), 5);
        assert_eq!(set.files, ["coarse", "fine"]);
    }

    #[test]
    fn a_file_without_a_date_takes_that_of_its_neighbours() {
        let mut import = Import::new(None);
        import.begin_file("dated");
        for i in 0..100 {
            put(&mut import, "sys.ctxt", Form::Rate, When::At(10 * DAY + i * SECOND), 1, 1.0);
        }
        import.begin_file("clock");
        for i in 10..60 {
            put(&mut import, "sys.forks", Form::Rate, When::Clock(i * SECOND), 1, 1.0);
        }
        import.begin_file("elsewhen");
        put(&mut import, "sys.intr", Form::Rate, When::Clock(DAY / 2), 1, 1.0);
        let set = import.finish().set;
        assert_eq!(set.get("sys.forks", "").unwrap().axis.t[0], 10 * DAY + 10 * SECOND);
        assert_eq!(Era::of(set.get("sys.intr", "").unwrap().axis.t[0]), Era::Day);
    }

    #[test]
    fn readings_of_a_counter_become_rates_and_stay_readings() {
        let mut import = Import::new(None);
        import.begin_file("vmstat");
        for (i, reading) in [100.0, 160.0, 20.0, 30.0].into_iter().enumerate() {
            put(&mut import, "vm.pgfault", Form::Total, When::At(i as i64 * 10 * SECOND), 1, reading);
        }
        put(&mut import, "vm.pgmajfault", Form::Total, When::Fact, 9, 7.0);
        let set = import.finish().set;
        let rates = &set.get("vm.pgfault", "").unwrap().values;
        assert!(rates[0].is_nan() && rates[2].is_nan());
        assert_eq!((rates[1], rates[3]), (6.0, 1.0));
        assert_eq!(set.total("vm.pgmajfault", "").unwrap().values, [7.0]);
        assert!(set.get("vm.pgmajfault", "").is_none());
    }
}
