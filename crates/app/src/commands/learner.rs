//! Between the probes and the files of programs: stacks that the kernel could not follow are followed here, and from then
//! on it can.

use mitra_collect::capture::Armed;
use mitra_inspect::Unwinder;

/// Follows the stacks of a capture.
#[derive(Default)]
pub struct Learner {
    /// Of one process: kinds that follow stacks so watch one.
    unwinder: Option<(u32, Unwinder)>,
}

impl Learner {
    /// Follows what the probes ask for, on the account of the capture. Says whether there was anything.
    pub fn look(&mut self, armed: &mut Armed) -> bool {
        let copies = armed.take_copies();
        let followed = armed.charge(|| {
            let mut followed = Vec::new();
            for copy in &copies {
                if self.unwinder.as_ref().is_none_or(|(pid, _)| *pid != copy.pid) {
                    self.unwinder = Some((copy.pid, Unwinder::new(copy.pid)));
                }
                let unwinder = self.unwinder.iter_mut();
                followed.extend(unwinder.map(|(_, unwinder)| (copy.chain, unwinder.follow(copy))));
            }
            followed
        });
        for (chain, followed) in followed {
            armed.teach(chain, followed);
        }
        !copies.is_empty()
    }
}
