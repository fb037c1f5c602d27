//! What is seen of the network, against trouble that the tests make: on loopback and in namespaces of their own.
//! Each needs root and tools of the network; it says so and passes where they are missing.

#[path = "net_truth/answers.rs"]
mod answers;
#[path = "net_truth/ends.rs"]
mod ends;
#[path = "net_truth/names.rs"]
mod names;
#[path = "net_truth/services.rs"]
mod services;
#[path = "net_truth/space.rs"]
mod space;
#[path = "net_truth/spaces.rs"]
mod spaces;
#[path = "net_truth/trouble.rs"]
mod trouble;
#[path = "net_truth/ways.rs"]
mod ways;

use std::sync::{Mutex, MutexGuard, PoisonError};

use mitra_collect::{Config, Sampler};
use mitra_model::frame::row_name;
use mitra_model::{Entity, Frame, NA, column};

/// The tests count what the whole machine does: one at a time.
static ONE: Mutex<()> = Mutex::new(());

/// A sampler of this machine and the frame it fills, with the lock that keeps the other tests away.
struct Bench {
    sampler: Sampler,
    frame: Frame,
    _one: MutexGuard<'static, ()>,
}

impl Bench {
    fn open() -> Option<Self> {
        Self::open_as(Config::default())
    }

    fn open_as(config: Config) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root");
            return None;
        }
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let sampler = Sampler::open(config).expect("a sampler");
        Some(Bench { sampler, frame: Frame::new(), _one: one })
    }

    fn sample(&mut self) {
        self.sampler.sample(&mut self.frame).expect("a sample");
    }

    /// Whether a source works; says why it does not.
    fn has(&self, source: &str) -> bool {
        let why = self.sampler.unavailable().into_iter().find(|(name, _)| name == source);
        if let Some((_, why)) = &why {
            println!("skipped: {source}: {why}");
        }
        why.is_none()
    }

    fn cell(&self, entity: Entity, name: &str, metric: &str) -> Option<i64> {
        let column = column(metric).expect(metric);
        let strings = self.sampler.strings();
        let rows = self.frame.table(entity).rows();
        let mut found = rows.filter(|(key, _)| row_name(entity, *key, strings) == name);
        found.next().and_then(|(_, row)| row.get(column).copied()).filter(|value| *value != NA)
    }

    fn text(&self, entity: Entity, name: &str, metric: &str) -> Option<String> {
        self.sampler.strings().cell(self.cell(entity, name, metric)?).map(str::to_owned)
    }

    fn names(&self, entity: Entity) -> Vec<String> {
        let keys = self.frame.table(entity).keys().iter();
        keys.map(|key| row_name(entity, *key, self.sampler.strings())).collect()
    }
}
