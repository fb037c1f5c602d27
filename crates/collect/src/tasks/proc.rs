//! Tasks from `/proc`, where the kernel's task iterator is not to be had.

use mitra_model::Frame;

use super::Tasks;
use crate::cgroup::Cgroups;
use crate::io::Io;

/// The reader.
#[derive(Debug)]
pub struct ProcTasks {}

impl ProcTasks {
    pub fn new() -> Self {
        ProcTasks {}
    }

    /// Visits every task.
    pub fn pass(&mut self, _: &mut Tasks, _: &Cgroups, _: &mut Io, _: &mut Frame) -> std::io::Result<()> {
        Ok(())
    }
}
