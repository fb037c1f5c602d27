//! From the inode number of a group's directory, which is what the kernel knows of a task, to its path.

use std::collections::HashMap;

use mitra_model::StrId;

use crate::mounts::Hierarchy;
use crate::tasks::reading::CgroupRef;

/// Paths of groups by hierarchy and inode number.
#[derive(Debug, Default)]
pub struct CgroupPaths {
    names: HashMap<(usize, u64), StrId>,
    unified: Option<usize>,
    cpu: Option<usize>,
    memory: Option<usize>,
    root_name: Option<StrId>,
    version: u32,
}

impl CgroupPaths {
    /// No group is known yet.
    #[must_use]
    pub fn new(hierarchies: &[Hierarchy]) -> Self {
        let unified = hierarchies.iter().position(Hierarchy::is_unified);
        let with = |controller: &str| hierarchies.iter().position(|h| h.has(controller)).or(unified);
        CgroupPaths { unified, cpu: with("cpu"), memory: with("memory"), ..Self::default() }
    }

    /// Takes the groups with their inode number in each hierarchy; the first group is the root.
    pub fn rename<'a>(&mut self, groups: impl Iterator<Item = (StrId, &'a [Option<u64>])>) {
        self.version = self.version.wrapping_add(1);
        self.names.clear();
        self.root_name = None;
        for (name, inodes) in groups {
            self.root_name.get_or_insert(name);
            for (hierarchy, inode) in inodes.iter().enumerate() {
                if let Some(inode) = inode {
                    self.names.insert((hierarchy, *inode), name);
                }
            }
        }
    }

    /// Changes whenever another answer is possible.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The path of a task's group: that of version 2, or where that is the root the one of the version 1 cpu or
    /// memory controller.
    #[must_use]
    pub fn resolve(&self, cgroup: CgroupRef) -> Option<StrId> {
        let CgroupRef::Ids { unified, cpu, memory } = cgroup else { return None };
        let mut is_root = false;
        for (hierarchy, inode) in [(self.unified, unified), (self.cpu, cpu), (self.memory, memory)] {
            let name = hierarchy.and_then(|h| self.names.get(&(h, inode))).copied();
            if name.is_some() && name != self.root_name {
                return name;
            }
            is_root |= name.is_some();
        }
        if is_root { self.root_name } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(unified: u64, cpu: u64, memory: u64) -> CgroupRef {
        CgroupRef::Ids { unified, cpu, memory }
    }

    #[test]
    fn the_first_group_that_is_not_the_root_names_the_task() {
        let hierarchies = [Hierarchy::v2("cg/unified"), Hierarchy::v1("cg/memory", &["memory"])];
        let mut paths = CgroupPaths::new(&hierarchies);
        let before = paths.version();
        paths.rename(
            [
                (7, [Some(1), Some(1)].as_slice()),
                (8, [Some(20), None].as_slice()),
                (9, [None, Some(20)].as_slice()),
            ]
            .into_iter(),
        );
        assert_ne!(paths.version(), before);
        assert_eq!(paths.resolve(ids(1, 1, 1)), Some(7));
        assert_eq!(paths.resolve(ids(20, 20, 1)), Some(8));
        assert_eq!(paths.resolve(ids(1, 1, 20)), Some(9));
        assert_eq!(paths.resolve(ids(99, u64::MAX, u64::MAX)), None, "made since the last walk");
    }
}
