//! Disks and network interfaces that appeared, went, or lost their link, each with what the kernel said of it.

use mitra_model::time::SECOND;
use mitra_model::{Event as Recorded, EventKind};
use mitra_notify::{Event, Message, SCHEMA};
use mitra_parse::kernel_message::explained;

use super::{meanings, said};
use crate::render::style::rfc3339;
use crate::render::units;

/// A disk is missed this long after it went: the recorder lists disks every ten seconds.
const BEFORE_NS: i64 = 12 * SECOND;
/// What the kernel says of a device comes in one burst.
const AFTER_NS: i64 = 2 * SECOND;
const LINES_MAX: usize = 5;

/// What became of a device.
struct Change<'a> {
    at: i64,
    /// `disk`, `network interface`, or what it is where the kernel does not say.
    what: &'static str,
    device: &'a str,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Appeared,
    Gone,
    /// The kernel has given it up.
    Lost,
    LinkUp,
    LinkDown,
}

impl State {
    /// Stands as the condition of a message.
    fn id(self) -> &'static str {
        match self {
            State::Appeared => "device-appeared",
            State::Gone => "device-gone",
            State::Lost => "device-lost",
            State::LinkUp => "link-up",
            State::LinkDown => "link-down",
        }
    }

    fn title(self) -> &'static str {
        match self {
            State::Appeared => "a device appeared",
            State::Gone => "a device went away",
            State::Lost => "the kernel gave a device up",
            State::LinkUp => "a link came up",
            State::LinkDown => "a link went down",
        }
    }
}

/// A message for each change, and when it was.
pub fn changes(host: &str, events: &[Recorded]) -> Vec<(i64, Message)> {
    let all: Vec<Change<'_>> = events.iter().filter_map(change).collect();
    let message = |(i, change): (usize, &Change<'_>)| {
        (change.at, message(host, change, all.get(..i).unwrap_or_default(), events))
    };
    all.iter().enumerate().map(message).collect()
}

fn change(event: &Recorded) -> Option<Change<'_>> {
    let (what, device, state) = match &event.kind {
        EventKind::Device { what, device, state } => {
            let what = if what == "disk" { "disk" } else { "network interface" };
            let state = match state.as_str() {
                "appeared" => State::Appeared,
                "gone" => State::Gone,
                "up" => State::LinkUp,
                _ => return None,
            };
            (what, device, state)
        }
        EventKind::DeviceError { what, device, .. } => match what.as_str() {
            "link-down" => ("network interface", device, State::LinkDown),
            "device-lost" => ("device", device, State::Lost),
            _ => return None,
        },
        _ => return None,
    };
    (!device.is_empty()).then_some(Change { at: event.real, what, device, state })
}

fn message(host: &str, change: &Change<'_>, before: &[Change<'_>], events: &[Recorded]) -> Message {
    let device = said(change.device);
    let went = before.iter().rfind(|other| other.device == change.device);
    // A disk is listed every ten seconds: how long it was away is known for interfaces and links only.
    let away = went
        .filter(|went| {
            matches!(
                (went.state, change.state, change.what),
                (State::Gone, State::Appeared, "network interface") | (State::LinkDown, State::LinkUp, _)
            )
        })
        .map(|went| format!(" again, after {}", units::length((change.at - went.at) as f64 / SECOND as f64)));
    let headline = match change.state {
        State::Appeared => format!(
            "the {} {device} is {}",
            change.what,
            away.map_or_else(|| "new".to_owned(), |away| format!("there{away}"))
        ),
        State::Gone => format!("the {} {device} is gone", change.what),
        State::Lost => format!("the kernel has given the device {device} up"),
        State::LinkUp => format!("the link of {device} is up{}", away.unwrap_or_default()),
        State::LinkDown => format!("the link of {device} is down"),
    };
    let is_lost = matches!(change.state, State::Gone | State::Lost | State::LinkDown);
    let look = "check its cable, slot and power, and what the kernel said: dmesg -T | tail -50".to_owned();
    let lines = kernel_lines(change, events);
    let explained = lines.iter().filter_map(|line| explained(line));
    Message {
        schema: SCHEMA.to_owned(),
        event: Event::Device,
        id: format!("{host}-{}-{device}-{}", change.state.id(), rfc3339(change.at)),
        host: host.to_owned(),
        since: rfc3339(change.at),
        until: None,
        condition: change.state.id().to_owned(),
        title: change.state.title().to_owned(),
        unexplained: false,
        confidence: 1.0,
        culprit: Some(device),
        cost: None,
        actions: if is_lost { vec![look] } else { Vec::new() },
        meanings: meanings::first(explained.map(str::to_owned)),
        text: std::iter::once(headline.as_str())
            .chain(lines.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join("\n"),
        headline,
        facts: None,
        withheld: 0,
    }
}

/// What the kernel said of the device at that time.
fn kernel_lines(change: &Change<'_>, events: &[Recorded]) -> Vec<String> {
    let near = events
        .iter()
        .filter(|event| event.real >= change.at - BEFORE_NS && event.real <= change.at + AFTER_NS);
    let lines = near.filter_map(|event| match &event.kind {
        EventKind::KernelLog { text, .. } => names(text, change.device).then(|| said(text)),
        _ => None,
    });
    lines.take(LINES_MAX).collect()
}

/// Whether a line names a device, and not one whose name only begins so. Partitions are of their disk.
fn names(text: &str, device: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(device).any(|(at, found)| {
        let (before, after) = (text.get(..at), text.get(at + found.len()..));
        let mut rest = after.unwrap_or_default();
        if device.ends_with(|c: char| c.is_ascii_alphabetic()) {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        !before.is_some_and(|text| text.ends_with(is_name)) && !rest.starts_with(is_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, kind: EventKind) -> Recorded {
        Recorded::at(seconds * SECOND, kind)
    }

    fn device(what: &str, device: &str, state: &str) -> EventKind {
        let [what, device, state] = [what, device, state].map(str::to_owned);
        EventKind::Device { what, device, state }
    }

    #[test]
    fn each_change_is_a_message_with_what_the_kernel_said_of_that_device() {
        let line = |text: &str| EventKind::KernelLog { priority: 6, text: text.to_owned() };
        let down = "e1000e: eth1 NIC Link is Down";
        let error = |what: &str, device: &str, text: &str| {
            let [what, device, text] = [what, device, text].map(str::to_owned);
            EventKind::DeviceError { what, device, text }
        };
        let events = [
            at(10, line("sd 2:0:0:0: [sdb] Synchronizing SCSI cache")),
            at(10, line("I/O error, dev sdbc, sector 7")),
            at(10, line("Buffer I/O error on dev sdb1, logical block 0")),
            at(18, device("disk", "sdb", "gone")),
            at(20, line(down)),
            at(20, line("e1000e: eth10 NIC Link is Down")),
            at(20, error("link-down", "eth1", down)),
            at(24, device("interface", "eth1", "up")),
            at(25, device("interface", "veth7", "gone")),
            at(27, device("interface", "veth7", "appeared")),
            at(30, error("io-error", "sda", "I/O error, dev sda, sector 7")),
            at(31, device("interface", "veth7", "strange")),
        ];
        let all = changes("web1", &events);
        let headlines: Vec<&str> = all.iter().map(|(_, message)| message.headline.as_str()).collect();
        assert_eq!(
            headlines,
            [
                "the disk sdb is gone",
                "the link of eth1 is down",
                "the link of eth1 is up again, after 4 s",
                "the network interface veth7 is gone",
                "the network interface veth7 is there again, after 2 s",
            ]
        );
        let (at, gone) = &all[0];
        assert_eq!(
            (*at, gone.condition.as_str(), gone.culprit.as_deref()),
            (18 * SECOND, "device-gone", Some("sdb"))
        );
        assert_eq!(
            gone.text,
            "the disk sdb is gone\nsd 2:0:0:0: [sdb] Synchronizing SCSI cache\nBuffer I/O error on dev sdb1, logical block 0"
        );
        assert_eq!(gone.id, "web1-device-gone-sdb-1970-01-01T00:00:18.000Z");
        assert!(gone.actions[0].contains("dmesg") && all[2].1.actions.is_empty());
        let meaning = &gone.meanings[0];
        assert!(gone.meanings.len() == 1 && meaning.starts_with("The device failed a request"), "{meaning}");
        assert!(all[1].1.meanings[0].starts_with("The interface has no link"));
        assert_eq!(all[1].1.text, format!("the link of eth1 is down\n{down}"));
    }
}
