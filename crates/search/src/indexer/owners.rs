//! The names of users and groups, from the machine's files.
//!
//! ```text
//! root:x:0:0:root:/root:/bin/bash
//! ```

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use super::open::{Root, Stamp};
use super::text::Reader;

/// Maximum size of a file in bytes. Above it, owners have no names.
const TABLE_BYTES_MAX: u64 = 8 << 20;

/// The names of users and groups.
#[derive(Debug, Default)]
pub struct Owners {
    users: Table,
    groups: Table,
}

#[derive(Debug, Default)]
struct Table {
    stamp: Option<Stamp>,
    names: BTreeMap<u32, String>,
}

impl Owners {
    /// Reads a file again if it changed.
    pub fn refresh(&mut self, root: &Root) {
        self.users.refresh(root, "/etc/passwd");
        self.groups.refresh(root, "/etc/group");
    }

    /// The name of a user.
    #[must_use]
    pub fn user(&self, uid: u32) -> Option<String> {
        self.users.names.get(&uid).cloned()
    }

    /// The name of a group.
    #[must_use]
    pub fn group(&self, gid: u32) -> Option<String> {
        self.groups.names.get(&gid).cloned()
    }
}

impl Table {
    fn refresh(&mut self, root: &Root, path: &str) {
        let stamp = root.look(path).ok();
        if stamp.is_some() && stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        // While the file is missing or being replaced, owners have no names.
        let Ok(fd) = root.file(path) else { return self.names.clear() };
        self.names = read(&fd).map(|text| names(&text)).unwrap_or_default();
    }
}

fn read(fd: &OwnedFd) -> Option<String> {
    Reader::new(Some(TABLE_BYTES_MAX)).read(fd, false).ok()?.text
}

/// The first name of each id, as the C library resolves it.
fn names(text: &str) -> BTreeMap<u32, String> {
    let mut names = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        let (name, number) = (fields.next(), fields.nth(1));
        if let (Some(name), Some(Ok(number))) = (name, number.map(str::parse))
            && !name.is_empty()
        {
            names.entry(number).or_insert_with(|| name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_a_number_counts() {
        let all =
            names("root:x:0:0:root:/root:/bin/bash\ntoor:x:0:0::/:\n+nis\nbroken\nx:y:z:\nweb:x:33:33\n");
        assert_eq!(all, BTreeMap::from([(0, "root".to_owned()), (33, "web".to_owned())]));
    }

    #[test]
    fn a_table_that_changed_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let mut owners = Owners::default();
        owners.refresh(&root);
        assert_eq!(owners.user(0), None);
        std::fs::write(dir.path().join("etc/passwd"), "root:x:0:0\n").unwrap();
        owners.refresh(&root);
        assert_eq!(owners.user(0).as_deref(), Some("root"));
        std::fs::write(dir.path().join("etc/passwd"), "admin:x:0:0\n").unwrap();
        owners.refresh(&root);
        assert_eq!(owners.user(0).as_deref(), Some("admin"));
    }
}
