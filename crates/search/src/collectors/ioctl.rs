//! Values that only an ioctl returns: the geometry of XFS, and what `ethtool` shows of a network
//! interface. All of these ioctls only read.

use std::ffi::c_char;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::ptr;

/// Maximum number of features of an interface. Kernels have about sixty.
const FEATURES_MAX: usize = 256;
/// Size of a feature's name in bytes (`ETH_GSTRING_LEN`).
const NAME_BYTES: usize = 32;

/// `struct xfs_fsop_geom_v1`, which every kernel supports.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct XfsGeometry {
    pub(crate) block_bytes: u32,
    pub(crate) rt_extent_blocks: u32,
    pub(crate) ag_blocks: u32,
    pub(crate) ag_count: u32,
    pub(crate) log_blocks: u32,
    pub(crate) sector_bytes: u32,
    pub(crate) inode_bytes: u32,
    pub(crate) inode_percent_max: u32,
    pub(crate) data_blocks: u64,
    pub(crate) rt_blocks: u64,
    pub(crate) rt_extents: u64,
    pub(crate) log_start: u64,
    uuid: [u8; 16],
    /// In blocks, like `swidth`.
    pub(crate) sunit: u32,
    pub(crate) swidth: u32,
    version: i32,
    flags: u32,
    pub(crate) log_sector_bytes: u32,
    rt_sector_bytes: u32,
    pub(crate) dir_block_bytes: u32,
}

const _: () = assert!(size_of::<XfsGeometry>() == 112);

/// `XFS_IOC_FSGEOMETRY_V1`
const XFS_GEOMETRY: libc::Ioctl = libc::_IOR::<XfsGeometry>(b'X' as u32, 100);

/// The geometry of the XFS that holds this file or directory.
pub(crate) fn xfs_geometry(file: &OwnedFd) -> Option<XfsGeometry> {
    let mut geometry = XfsGeometry::default();
    // SAFETY: the descriptor is open. The kernel writes one `xfs_fsop_geom_v1`, whose layout this
    // is, or nothing.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), XFS_GEOMETRY, ptr::from_mut(&mut geometry)) };
    (status == 0).then_some(geometry)
}

/// `struct ethtool_drvinfo`
#[repr(C)]
struct Driver {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    bus: [u8; 32],
    rest: [u8; 64],
}

const _: () = assert!(size_of::<Driver>() == 196);

/// `struct ethtool_ringparam`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rings {
    command: u32,
    pub(crate) rx_max: u32,
    rx_mini_max: u32,
    rx_jumbo_max: u32,
    pub(crate) tx_max: u32,
    pub(crate) rx: u32,
    rx_mini: u32,
    rx_jumbo: u32,
    pub(crate) tx: u32,
}

/// `struct ethtool_sset_info` for one set
#[repr(C)]
struct SetInfo {
    command: u32,
    reserved: u32,
    sets: u64,
    length: u32,
}

/// `struct ethtool_gstrings` with space for the names
#[repr(C)]
struct Names {
    command: u32,
    set: u32,
    length: u32,
    names: [[u8; NAME_BYTES]; FEATURES_MAX],
}

/// `struct ethtool_gfeatures` with space for the blocks: available, requested, active, never
/// changed
#[repr(C)]
struct Features {
    command: u32,
    words: u32,
    blocks: [[u32; 4]; FEATURES_MAX / 32],
}

const GET_DRIVER: u32 = 0x03;
const GET_RINGS: u32 = 0x10;
const GET_STRINGS: u32 = 0x1b;
const GET_SET_INFO: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
/// `ETH_SS_FEATURES`
const SET_FEATURES: u32 = 4;

/// Queries network interfaces through `SIOCETHTOOL`.
pub(crate) struct Ethtool {
    socket: UnixDatagram,
    /// Feature names, which are the same for every interface.
    names: Vec<String>,
}

impl Ethtool {
    /// Opens a socket for the ioctl. Any kind of socket works.
    pub(crate) fn open() -> Option<Self> {
        Some(Self { socket: UnixDatagram::unbound().ok()?, names: Vec::new() })
    }

    /// The driver and its firmware version; the version is empty if there is none.
    pub(crate) fn driver(&self, interface: &str) -> Option<(String, String)> {
        let (driver, version, firmware, bus) = ([0; 32], [0; 32], [0; 32], [0; 32]);
        let mut answer = Driver { command: GET_DRIVER, driver, version, firmware, bus, rest: [0; 64] };
        self.ask(interface, &mut answer)?;
        Some((text(&answer.driver), text(&answer.firmware)))
    }

    /// The ring sizes.
    pub(crate) fn rings(&self, interface: &str) -> Option<Rings> {
        let mut answer = Rings { command: GET_RINGS, ..Rings::default() };
        self.ask(interface, &mut answer)?;
        Some(answer)
    }

    /// The kernel's names of the enabled features.
    pub(crate) fn features(&mut self, interface: &str) -> Option<Vec<String>> {
        if self.names.is_empty() {
            self.names = self.feature_names(interface)?;
        }
        let words = (FEATURES_MAX / 32) as u32;
        let mut answer = Features { command: GET_FEATURES, words, blocks: [[0; 4]; FEATURES_MAX / 32] };
        self.ask(interface, &mut answer)?;
        let is_on = |at: usize| {
            answer.blocks.get(at / 32).is_some_and(|[_, _, active, _]| active & (1 << (at % 32)) != 0)
        };
        Some(
            self.names
                .iter()
                .enumerate()
                .filter(|(at, n)| is_on(*at) && !n.is_empty())
                .map(|(_, n)| n.clone())
                .collect(),
        )
    }

    fn feature_names(&self, interface: &str) -> Option<Vec<String>> {
        let mut info = SetInfo { command: GET_SET_INFO, reserved: 0, sets: 1 << SET_FEATURES, length: 0 };
        self.ask(interface, &mut info)?;
        let length = usize::try_from(info.length).ok()?;
        // The kernel writes all the names that it has, regardless of `length`.
        if info.sets == 0 || length > FEATURES_MAX {
            return None;
        }
        let names = [[0; NAME_BYTES]; FEATURES_MAX];
        let mut answer = Names { command: GET_STRINGS, set: SET_FEATURES, length: info.length, names };
        self.ask(interface, &mut answer)?;
        Some(answer.names.iter().take(length).map(|name| text(name)).collect())
    }

    /// Runs the ioctl. `question` begins with its command, and the kernel writes the answer into
    /// it.
    fn ask<T>(&self, interface: &str, question: &mut T) -> Option<()> {
        let mut name: [c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
        // Leaves the last byte zero.
        if interface.len() >= name.len() {
            return None;
        }
        name.iter_mut().zip(interface.bytes()).for_each(|(to, byte)| *to = byte as c_char);
        let data = ptr::from_mut(question).cast();
        let mut request =
            libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: data } };
        // SAFETY: the socket is open, and the request and what it points to live until the call
        // returns. Every `T` in this file has the layout of its command's structure, with space for
        // all that the kernel may write: as many feature words as `words` says, as many names as it
        // counted just before.
        let status = unsafe {
            libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as _, ptr::from_mut(&mut request))
        };
        (status == 0).then_some(())
    }
}

/// The text before the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_features_and_no_rings() {
        let mut ethtool = Ethtool::open().unwrap();
        let Some(features) = ethtool.features("lo") else {
            println!("skipped: no loopback interface, or the kernel does not answer");
            return;
        };
        assert!(features.iter().any(|f| f == "loopback"), "{features:?}");
        assert!(ethtool.rings("lo").is_none());
        assert!(ethtool.features("none-such").is_none());
        assert!(ethtool.driver("a-name-that-is-too-long-for-one").is_none());
    }

    #[test]
    fn what_is_no_xfs_has_no_geometry() {
        let proc = std::fs::File::open("/proc").unwrap();
        assert!(xfs_geometry(&OwnedFd::from(proc)).is_none());
    }
}
