//! `/proc/PID/mountinfo`: the mounts of a mount namespace, with their ids and device numbers.
//!
//! ```text
//! 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//! ```
//!
//! See `proc_pid_mountinfo(5)` and `show_mountinfo` in `fs/proc_namespace.c`. Blanks, tabs, newlines and backslashes in
//! names are written as three octal digits.

/// One mount. Names are as the file has them, see [`crate::mounts::unescaped`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountInfo<'a> {
    /// The mount id, `stx_mnt_id` of statx(2).
    pub id: u64,
    /// Major and minor number of the file system: `8:1`.
    pub device_number: &'a str,
    /// The directory of the file system that is mounted; `/` for all of it.
    pub root: &'a str,
    /// The mount point.
    pub mount_point: &'a str,
    /// The options of the mount.
    pub options: &'a str,
    /// The type of the file system.
    pub kind: &'a str,
    /// The device or other source; may be empty.
    pub source: &'a str,
    /// The options of the file system.
    pub super_options: &'a str,
}

impl MountInfo<'_> {
    /// Major and minor number of the file system.
    #[must_use]
    pub fn device(&self) -> Option<(u32, u32)> {
        let (major, minor) = self.device_number.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }
}

/// The mounts in the order of the file: a later one on the same mount point hides the earlier. An error names the damaged
/// line and the expected field.
pub fn mount_infos(input: &str) -> impl Iterator<Item = Result<MountInfo<'_>, String>> {
    let numbered = input.lines().enumerate();
    numbered.map(|(at, line)| mount_info(line).map_err(|error| format!("line {}: {error}", at + 1)))
}

fn mount_info(line: &str) -> Result<MountInfo<'_>, String> {
    // A dash ends the optional fields, of which there may be none.
    let Some((mount, file_system)) = line.split_once(" - ") else {
        return Err("' - ' was wanted before the type of the file system".to_owned());
    };
    let mut words = mount.split(' ');
    let (Some(id), Some(_parent), Some(device_number), Some(root), Some(mount_point), Some(options)) =
        (words.next(), words.next(), words.next(), words.next(), words.next(), words.next())
    else {
        return Err("six fields were wanted before ' - '".to_owned());
    };
    let mut words = file_system.split(' ');
    let (Some(kind), Some(source), Some(super_options), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("type, device and options were wanted after ' - '".to_owned());
    };
    let id = id.parse().map_err(|_| format!("'{id}' is not the number of a mount"))?;
    Ok(MountInfo { id, device_number, root, mount_point, options, kind, source, super_options })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_fields_and_an_empty_source() {
        let text = "23 22 0:21 / /mnt/my\\040data rw,nosuid master:1 propagate_from:2 - tmpfs tmpfs rw,size=4k\n\
                    28 22 253:25 /sub /empty rw - xfs  rw\n";
        let list: Vec<MountInfo<'_>> = mount_infos(text).map(Result::unwrap).collect();
        assert_eq!((list[0].id, list[0].mount_point, list[0].kind), (23, "/mnt/my\\040data", "tmpfs"));
        assert_eq!((list[0].options, list[0].super_options), ("rw,nosuid", "rw,size=4k"));
        assert_eq!((list[1].device(), list[1].root, list[1].source), (Some((253, 25)), "/sub", ""));
    }

    #[test]
    fn damage() {
        for (line, wanted) in [
            ("22 1 8:1 / / rw", "line 1: ' - ' was wanted"),
            ("22 1 8:1 / - ext4 /dev/sda1 rw", "line 1: six fields"),
            ("22 1 8:1 / / rw - ext4 /dev/sda1", "line 1: type, device"),
            ("x 1 8:1 / / rw - ext4 /dev/sda1 rw", "line 1: 'x' is not"),
        ] {
            let error = mount_infos(line).next().unwrap().unwrap_err();
            assert!(error.starts_with(wanted), "{error}");
        }
        let other = mount_infos("22 1 8 / / rw - ext4 /dev/sda1 rw").next().unwrap();
        assert_eq!(other.unwrap().device(), None);
    }
}
