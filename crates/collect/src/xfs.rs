//! The layout of a mounted XFS file system.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;

use rustix::fs::{Mode, OFlags};

/// The words of `struct xfs_fsop_geom_v1`, which every kernel knows; eight of them are the halves of larger numbers.
const WORDS: usize = 28;
type Geometry = [u32; WORDS];

const _: () = assert!(size_of::<Geometry>() == 112);

/// `XFS_IOC_FSGEOMETRY_V1`.
const GET_GEOMETRY: libc::Ioctl = libc::_IOR::<Geometry>(b'X' as u32, 100);

/// Bytes of a block, blocks of an allocation group, allocation groups, and blocks of a stripe unit and of a full stripe.
pub fn layout(mount: &Path) -> Option<[u32; 5]> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(mount, flags, Mode::empty()).ok()?;
    let mut geometry: Geometry = [0; WORDS];
    // SAFETY: the descriptor is open. The kernel writes one `xfs_fsop_geom_v1`, which has this size, or nothing.
    let status = unsafe { libc::ioctl(dir.as_raw_fd(), GET_GEOMETRY, ptr::from_mut(&mut geometry)) };
    decode(&geometry).filter(|_| status == 0)
}

fn decode(geometry: &Geometry) -> Option<[u32; 5]> {
    let [block, _, ag_blocks, ag_count, ..] = *geometry;
    // Behind eight words, four large numbers and an id of sixteen bytes.
    let [unit, width] = [geometry[20], geometry[21]];
    (block > 0).then_some([block, ag_blocks, ag_count, unit, width])
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    /// What Linux 6 says after `mkfs.xfs -d su=64k,sw=3` of a gigabyte, with blocks of 4 KiB.
    const OF_A_GIGABYTE: Geometry = [
        4096,
        1,
        32_768,
        8,
        16_384,
        512,
        512,
        25,
        262_144,
        0,
        0,
        0,
        0,
        0,
        131_088,
        0,
        4_290_074_293,
        172_344_847,
        3_335_327_637,
        3_296_833_796,
        16,
        48,
        0,
        7_851_226,
        512,
        4096,
        4096,
        0,
    ];

    #[test]
    fn a_layout_is_found_among_what_the_kernel_says() {
        assert_eq!(decode(&OF_A_GIGABYTE), Some([4096, 32_768, 8, 16, 48]));
        assert_eq!(decode(&[0; WORDS]), None);
    }

    /// Unmounts when the test ends, whichever way.
    struct Mounted(PathBuf);

    impl Drop for Mounted {
        fn drop(&mut self) {
            _ = Command::new("umount").arg(&self.0).status();
        }
    }

    #[test]
    #[ignore = "needs root: make test-kernel"]
    fn a_file_system_in_a_file_has_the_layout_that_it_was_made_with() {
        let dir = tempfile::tempdir().unwrap();
        let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
        std::fs::create_dir(&mount).unwrap();
        std::fs::File::create(&image).unwrap().set_len(1 << 30).unwrap();
        let run = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let options = ["-q", "-f", "-b", "size=4096", "-d", "su=64k,sw=3,agcount=8"];
        if !run(Command::new("mkfs.xfs").args(options).arg(&image)) {
            return println!("skipped: mkfs.xfs makes none here");
        }
        if !run(Command::new("mount").args(["-t", "xfs", "-o", "loop"]).arg(&image).arg(&mount)) {
            return println!("skipped: no XFS in a loop device can be mounted here");
        }
        let mounted = Mounted(mount);
        assert_eq!(layout(&mounted.0), Some([4096, 32_768, 8, 16, 48]));
    }

    #[test]
    fn what_is_no_xfs_has_no_layout() {
        assert_eq!(layout(Path::new("/proc")), None);
        assert_eq!(layout(Path::new("/no/such/folder")), None);
    }
}
