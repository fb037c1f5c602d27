//! The receive rings of network devices, by `SIOCETHTOOL`. The kernel takes the lock of the network for it and wakes a card that
//! sleeps, so that the helper asks, and seldom: a new device, and each hour those that answered. One without a carrier may sleep,
//! and is left alone.

use std::ffi::c_char;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rings are changed by hand.
const AGAIN: Duration = Duration::from_secs(3_600);

/// `ETHTOOL_GRINGPARAM`.
const GET_RINGS: u32 = 0x10;
/// The numbers of `struct ethtool_ringparam`: the command, the largest rings (receive, mini, jumbo, send), and the present ones.
const NUMBERS: usize = 9;

/// What the receive ring of a device has room for, and the most that its driver makes.
type Ring = [u32; 2];

#[derive(Debug)]
struct Asked {
    name: String,
    at: Instant,
    /// `None` where the driver has no answer: it is not asked again.
    ring: Option<Ring>,
}

/// What is known of the rings of some devices.
#[derive(Debug, Default)]
pub struct Rings {
    asked: Vec<Asked>,
    /// The rings of those that have some.
    pub all: Arc<[(String, Ring)]>,
}

impl Rings {
    /// Asks for the devices that are due, and forgets those that are not among the names.
    pub fn look<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
        now: Instant,
        has_carrier: impl Fn(&str) -> bool,
        ask: impl Fn(&str) -> Option<Ring>,
    ) {
        let mut before = std::mem::take(&mut self.asked);
        for name in names {
            let at = before.iter().position(|one| one.name == name);
            let known = at.map(|at| before.swap_remove(at));
            let is_old = |one: &Asked| one.ring.is_some() && now.saturating_duration_since(one.at) >= AGAIN;
            let is_due = known.as_ref().is_none_or(is_old) && has_carrier(name);
            let new = || Asked { name: name.to_owned(), at: now, ring: ask(name) };
            self.asked.extend(if is_due { Some(new()) } else { known });
        }
        let all = self.asked.iter().filter_map(|one| Some((one.name.clone(), one.ring?)));
        let all: Vec<(String, Ring)> = all.collect();
        if *self.all != *all {
            self.all = all.into();
        }
    }
}

/// A request about a device. `None`: no device has such a name.
fn request(device: &str, what: libc::__c_anonymous_ifr_ifru) -> Option<libc::ifreq> {
    let mut name: [c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
    // Leaves the last byte zero.
    if device.len() >= name.len() {
        return None;
    }
    name.iter_mut().zip(device.bytes()).for_each(|(to, byte)| *to = byte as c_char);
    Some(libc::ifreq { ifr_name: name, ifr_ifru: what })
}

/// Whether a device is up and has a carrier. The kernel looks at its flags and takes no lock. Any socket of the device's network
/// namespace will do.
pub fn has_carrier(socket: &OwnedFd, device: &str) -> bool {
    let Some(mut request) = request(device, libc::__c_anonymous_ifr_ifru { ifru_flags: 0 }) else {
        return false;
    };
    // SAFETY: the socket is open, and the kernel writes no more than the request.
    let status =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, ptr::from_mut(&mut request)) };
    // SAFETY: the union was made with the flags, and the kernel has written them.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    status == 0 && libc::c_int::from(flags) & libc::IFF_RUNNING != 0
}

/// The ring of a device. Any socket of its network namespace will do.
pub fn ring(socket: &OwnedFd, device: &str) -> Option<Ring> {
    let mut numbers = [0_u32; NUMBERS];
    numbers[0] = GET_RINGS;
    let data = ptr::from_mut(&mut numbers).cast();
    let mut request = request(device, libc::__c_anonymous_ifr_ifru { ifru_data: data })?;
    // SAFETY: the socket is open, and the request and the numbers that it points to live until the call returns. The numbers have
    // the size of the structure of the command, which is all that the kernel writes.
    let status =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, ptr::from_mut(&mut request)) };
    decode(&numbers).filter(|_| status == 0)
}

fn decode(numbers: &[u32; NUMBERS]) -> Option<Ring> {
    let [_, most, _, _, _, size, ..] = *numbers;
    (size > 0).then_some([size, most])
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::net::ask::Sockets;

    #[test]
    fn the_present_ring_and_the_largest_one_are_told_apart() {
        // `ethtool -g` of an igb: 256 of 4096 receive, 512 of 4096 send.
        let igb = [GET_RINGS, 4096, 0, 0, 4096, 256, 0, 0, 512];
        assert_eq!(decode(&igb), Some([256, 4096]));
        assert_eq!(decode(&[GET_RINGS, 0, 0, 0, 0, 0, 0, 0, 0]), None, "a device without rings");
    }

    #[test]
    fn a_device_is_asked_once_and_then_each_hour() {
        let asked: RefCell<Vec<String>> = RefCell::default();
        let mut rings = Rings::default();
        let start = Instant::now();
        let mut look = |names: &[&str], minutes: u64, without_carrier: &str| {
            let now = start + Duration::from_secs(60 * minutes);
            let ask = |name: &str| {
                asked.borrow_mut().push(name.to_owned());
                (name != "lo").then_some([256, 4096])
            };
            rings.look(names.iter().copied(), now, |name| name != without_carrier, ask);
            let known: Vec<String> = rings.all.iter().map(|(name, _)| name.clone()).collect();
            (asked.take(), known)
        };
        let strings = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let all = ["lo", "eth0", "eth1"];
        assert_eq!(look(&all, 0, "eth1"), (strings(&["lo", "eth0"]), strings(&["eth0"])));
        assert_eq!(look(&all, 1, ""), (strings(&["eth1"]), strings(&["eth0", "eth1"])));
        assert_eq!(look(&all, 2, ""), (strings(&[]), strings(&["eth0", "eth1"])));
        // What refused is not asked again, and what has lost its carrier keeps its ring.
        assert_eq!(look(&all, 62, "eth0"), (strings(&["eth1"]), strings(&["eth0", "eth1"])));
        assert_eq!(look(&["eth1"], 63, ""), (strings(&[]), strings(&["eth1"])));
        assert_eq!(look(&["lo", "eth1"], 64, ""), (strings(&["lo"]), strings(&["eth1"])), "another device");
    }

    #[test]
    fn what_is_no_device_with_a_ring_has_none() {
        let sockets = match Sockets::open() {
            Ok(sockets) => sockets,
            Err(error) => return println!("skipped: {error}"),
        };
        for name in ["lo", "none-such", "a-name-that-is-too-long-for-one"] {
            assert_eq!(sockets.ring(name), None, "{name}");
        }
        assert!(!sockets.has_carrier("none-such"));
    }
}
