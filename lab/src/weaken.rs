//! Takes evidence out of a recording. What happened stays the same, but there is less to tell it
//! by: the verdicts are weaker, and more of them are wrong.
//!
//! Most ways are those in which machines differ: a kernel without BPF or an older one, no delay
//! accounting, no cgroups, an interval of five seconds, a recording that begins too late or is asked
//! too early. Those by chance stand for everything else.

use std::path::Path;

use mitra_archive::{Options, Reader, Writer};
use mitra_model::time::SECOND;
use mitra_model::{Entity, Frame, Kernel, Metric, NA, Span, columns};

use crate::Draw;
use crate::record::Record;

/// What is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// Nothing.
    Nothing,
    /// What only BPF programs see, and what is derived from it.
    Bpf,
    /// Metrics that kernels of 2018 did not have: pressure, most delays.
    NewMetrics,
    /// Delays and pressure.
    Delays,
    /// All tasks: what `sar` knows.
    Tasks,
    /// All cgroups.
    Cgroups,
    /// Services, who asks whom, who waits for whom.
    Services,
    /// The kernel log, exits, results of captures.
    Events,
    /// Four of five samples.
    Samples,
    /// The healthy time before the trouble.
    Before,
    /// What is later than five seconds after the onset.
    Late,
    /// Each metric with a chance of so many percent; the second number is the seed.
    Chance(u64, u64),
}

impl Withheld {
    /// All ways, nothing first.
    pub const ALL: [Self; 17] = [
        Self::Nothing,
        Self::Bpf,
        Self::NewMetrics,
        Self::Delays,
        Self::Tasks,
        Self::Cgroups,
        Self::Services,
        Self::Events,
        Self::Samples,
        Self::Before,
        Self::Late,
        Self::Chance(10, 1),
        Self::Chance(20, 2),
        Self::Chance(30, 3),
        Self::Chance(40, 4),
        Self::Chance(50, 5),
        Self::Chance(60, 6),
    ];

    /// The part of the window that is still recorded, and asked about.
    pub fn window(self, record: &Record) -> (f64, f64) {
        let onset_s = record.acts.iter().filter(|a| !a.noise).map(|a| a.onset_s).fold(f64::MAX, f64::min);
        let has_onset = record.kind != crate::record::Kind::Control && onset_s < record.until_s;
        match self {
            Self::Before if has_onset => (onset_s + 1.0, record.until_s),
            Self::Late if has_onset => (record.since_s, record.until_s.min(onset_s + 5.0)),
            _ => (record.since_s, record.until_s),
        }
    }

    fn drops_entity(self, entity: Entity) -> bool {
        let of_services = [
            Entity::Service,
            Entity::Dependency,
            Entity::Lock,
            Entity::Wait,
            Entity::Session,
            Entity::Command,
            Entity::Limit,
            Entity::Jvm,
        ];
        match self {
            Self::Tasks => matches!(entity, Entity::Task | Entity::Exited),
            Self::Cgroups => entity == Entity::Cgroup,
            Self::Services => of_services.contains(&entity),
            _ => false,
        }
    }

    fn drops(self, metric: &Metric, key: &str) -> bool {
        let of_bpf = || ["tp_btf", "BPF", "bpf_"].iter().any(|s| metric.source.contains(s));
        match self {
            // Where the kernel's file has it too, it stands behind a semicolon.
            Self::Bpf => of_bpf() && !metric.source.contains("/proc/"),
            Self::NewMetrics => metric.since > Kernel(4, 19),
            Self::Delays => metric.name.ends_with("_delay") || metric.name.contains("psi"),
            Self::Chance(percent, seed) => {
                Draw::new(seed, &format!("{key} {}", metric.name)).number() % 100 < percent
            }
            _ => false,
        }
    }
}

/// Cells that are not there.
struct Holes(Vec<(Entity, Vec<usize>)>);

impl Holes {
    fn of(withheld: Withheld, key: &str) -> Self {
        let of = |entity: Entity| {
            let metrics = columns(entity).iter().enumerate();
            (entity, metrics.filter(|(_, m)| withheld.drops(m, key)).map(|(i, _)| i).collect())
        };
        Self(
            Entity::ALL
                .into_iter()
                .map(of)
                .filter(|(_, columns): &(_, Vec<_>)| !columns.is_empty())
                .collect(),
        )
    }

    fn make(&self, frame: &mut Frame) {
        for (entity, columns) in &self.0 {
            let table = frame.table_mut(*entity);
            for row in 0..table.len() {
                let cells = table.row_mut(row);
                columns.iter().for_each(|column| cells[*column] = NA);
            }
        }
    }
}

/// Writes what is left of an archive to `to`.
pub fn weaken(record: &Record, from: &Path, to: &Path, withheld: Withheld) -> anyhow::Result<()> {
    let reader = Reader::open(from)?;
    let mut writer = Writer::open(to, reader.host(), Options { behind_bytes: 0, ..Options::default() })?;
    let holes = Holes::of(withheld, &record.key);
    let (since_s, until_s) = withheld.window(record);
    let at = |s: f64| (s * SECOND as f64) as i64;
    // Two seconds before, as in the shipped recordings: rates need the sample before.
    let span = Span { since: at(since_s - 2.0), until: at(until_s + 1.0) };
    let (mut number, mut failed) = (0_u64, None);
    reader.frames(span, &mut |frame, strings| {
        number += 1;
        if failed.is_some() || withheld == Withheld::Samples && number % 5 != 1 {
            return;
        }
        let mut frame = frame.clone();
        holes.make(&mut frame);
        frame.tables.iter_mut().filter(|t| withheld.drops_entity(t.entity())).for_each(|t| t.clear());
        match withheld {
            Withheld::Events => frame.events.clear(),
            Withheld::Samples => frame.interval_ns = 5 * SECOND as u64,
            _ => {}
        }
        failed = writer.append(&frame, strings).err();
    })?;
    writer.finish()?;
    failed.map_or(Ok(()), |e| Err(e.into()))
}
