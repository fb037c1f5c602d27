//! What the kernel tells this process of queues, and of other network namespaces.

use std::os::fd::AsFd as _;

use rustix::thread::{CapabilitySet, capabilities};

use super::{Ability, State};
use crate::file::{Root, each_entry};
use crate::missing::reason;
use crate::net::can_ask;

/// Where `ip netns` puts names.
const NAMES: &str = "run/netns";

pub fn queues(root: &Root, out: &mut Vec<Ability>) {
    const NAME: &str = "accept queues and queues of devices (netlink)";
    if !root.is_host() {
        return;
    }
    out.push(match can_ask() {
        Ok(()) => Ability::yes(NAME, "sock_diag and rtnetlink answer"),
        Err(error) => {
            let why = format!(
                "{}: which server does not accept and which device drops is not seen",
                reason(&error)
            );
            Ability::no(NAME, why).with_advice("allow AF_NETLINK (RestrictAddressFamilies= of the service)")
        }
    });
}

pub fn namespaces(root: &Root, out: &mut Vec<Ability>) {
    const NAME: &str = "other network namespaces";
    if !root.is_host() {
        return;
    }
    let mut named = 0;
    if let Ok(dir) = root.open_file(NAMES) {
        // A directory that cannot be listed has no names.
        let _listed = each_entry(dir.as_fd(), |_| named += 1);
    }
    let can_enter = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    out.push(if can_enter {
        Ability::yes(NAME, format!("counters from /proc/PID/net, queues from inside; {named} have a name"))
    } else {
        let why = "counters from /proc/PID/net; their queues and listening sockets need cap_sys_admin, to enter them";
        Ability { state: State::Degraded, ..Ability::no(NAME, why) }
            .with_command("systemctl edit mitra   # [Service] CapabilityBoundingSet=CAP_SYS_ADMIN, or run as root")
    });
}
