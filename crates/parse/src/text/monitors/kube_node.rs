//! `kubectl describe node`: what a node reports about itself, and what its pods may take.
//!
//! ```text
//! Name:               node-3
//! Conditions:
//!   Type                 Status  LastHeartbeatTime                 LastTransitionTime                Reason                       Message
//!   ----                 ------  -----------------                 ------------------                ------                       -------
//!   MemoryPressure       True    Fri, 27 Nov 2026 23:10:00 +0000   Fri, 27 Nov 2026 23:02:11 +0000   KubeletHasInsufficientMemory kubelet has insufficient memory available
//! Allocated resources:
//!   Resource           Requests      Limits
//!   cpu                1950m (97%)   4 (200%)
//! Events:
//!   Type     Reason     Age   From     Message
//!   Warning  SystemOOM  8m    kubelet  System OOM encountered, victim process: java, pid: 4242
//! ```
//!
//! Killed processes are events, at their age before the time of the output where that is known; conditions that a healthy node does not have and overcommitted limits are notes.

use mitra_model::EventKind;
use mitra_model::time::SECOND;

use crate::text::prelude::*;
use crate::text::procps::common::duration;

/// See the module.
pub const FORMAT: Format = Format::new(
    "kubectl describe node",
    "killed processes; conditions, limits and warnings as notes",
    |lines, _| {
        lines.at(|line| line.starts_with(b"Name:  "))
            && lines.soon(2, |line| line.starts_with(b"Roles:  ") || line.starts_with(b"Labels:  "))
    },
    read,
);

/// What lines without a blank in front begin with; another one is somebody else's.
const TITLES: &[&[u8]] = list!(
    "Roles:|Labels:|Annotations:|CreationTimestamp:|Taints:|Unschedulable:|Lease:|Conditions:|Addresses:|Capacity:|Allocatable:|\
     System Info:|PodCIDR:|PodCIDRs:|ProviderID:|Non-terminated Pods:|Allocated resources:|Events:",
    b'|'
);
/// The same for lines of the events, which come last.
const EVENTS: &[&[u8]] = list!("  Type |  ---- |  Normal |  Warning ", b'|');
/// A node of a hundred pods has some three hundred lines.
const LINES_MAX: u32 = 20_000;

#[derive(Clone, Copy, PartialEq)]
enum Section {
    Other,
    Conditions,
    Allocated,
    Events,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let when = import.now();
    let mut name = String::new();
    let mut section = Section::Other;
    let mut taken = 0;
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        taken += 1;
        let is_title = begins(line, TITLES) || taken == 1;
        let is_below = if section == Section::Events { begins(line, EVENTS) } else { line.starts_with(b" ") };
        if !is_title && !is_below || taken > LINES_MAX {
            return if line.trim_ascii().is_empty() { Took::Yes } else { Took::No };
        }
        if is_title {
            if let Some(rest) = line.strip_prefix(b"Name:") {
                name = text(rest.trim_ascii());
                import.has_read();
            }
            section = match line {
                _ if line.starts_with(b"Conditions:") => Section::Conditions,
                _ if line.starts_with(b"Allocated resources:") => Section::Allocated,
                _ if line.starts_with(b"Events:") => Section::Events,
                _ => Section::Other,
            };
            return Took::Yes;
        }
        match section {
            Section::Conditions => condition(line, &name, import),
            Section::Allocated => allocated(line, &name, import),
            Section::Events => event(line, &name, when, at, import),
            Section::Other => {}
        }
        Took::Yes
    });
}

/// A node is ill where `Ready` is not true, or anything else is.
fn condition(line: &[u8], name: &str, import: &mut Import) {
    let mut list = words(line);
    let (Some(kind), Some(status)) = (list.next(), list.next()) else { return };
    let is_well = match status {
        b"True" => kind == b"Ready",
        b"False" => kind != b"Ready",
        b"Unknown" => false,
        _ => return,
    };
    if !is_well {
        import.note(format!("node {name}: {} is {}", text(kind), text(status)));
    }
}

/// `cpu  1950m (97%)  4 (200%)`: requests and limits as shares of what the node has.
fn allocated(line: &[u8], name: &str, import: &mut Import) {
    let Some(resource @ (b"cpu" | b"memory")) = words(line).next() else { return };
    let mut shares =
        line.split(|b| *b == b'(').skip(1).filter_map(leading).filter(|(_, rest)| rest.starts_with(b"%"));
    let (requests, limits) = (shares.next(), shares.next());
    if let (Some((requests, _)), Some((limits, _))) = (requests, limits)
        && limits > 100.0
    {
        let resource = text(resource);
        import.note(format!(
            "node {name}: the limits of its pods are {limits:.0} % of its {resource}, their requests {requests:.0} %"
        ));
    }
}

fn event(line: &[u8], name: &str, when: When, at: u32, import: &mut Import) {
    let mut list = words(line);
    if list.next() != Some(b"Warning") {
        return;
    }
    let (Some(reason), age) = (list.next(), list.next().and_then(duration)) else { return };
    let when = match (when, age) {
        (When::At(now), Some(age)) => When::At(now.saturating_sub((age * SECOND as f64) as i64)),
        _ => When::Fact,
    };
    let victim = behind(line, b"victim process: ").zip(behind(line, b", pid: "));
    if let Some((rest, pid)) = victim.filter(|_| reason == b"SystemOOM") {
        let comm = rest.split(|b| *b == b',').next().unwrap_or(rest);
        if let Some(pid) = first(pid).filter(|pid| (1.0..4e9).contains(pid)) {
            let kind =
                EventKind::OomKill { pid: pid as u32, comm: text(comm), cgroup: None, anon_bytes: None };
            import.event(when, at, kind);
            return;
        }
    }
    import.note(format!("node {name}: warning {}", text(reason)));
}
