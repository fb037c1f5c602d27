//! Disks and network interfaces that appear and go while the machine runs, by what the sampler reads anyway: interfaces in each
//! sample, disks on slow ticks. What comes and goes between two looks is not seen.

use std::collections::BTreeSet;

use mitra_model::{Entity, Event, EventKind, Frame, NA, Stamp, Strings};

use crate::cells::col;
use crate::rate::RateLimit;

/// Events at once, and per second: containers make and remove interfaces as fast as they start.
const EVENT_BURST: i64 = 64;
const EVENTS_PER_SECOND: i64 = 1;
/// Until then after the boot what appears was there before: drivers, networks of containers and disks come late.
const BOOTED_NS: i64 = 120_000_000_000;

/// What there was at the last look; `None` before the first one.
pub struct Devices {
    packets: usize,
    /// The rows of `interfaces`, and the generation of texts in which they have these ids.
    rows: Vec<u64>,
    generation: u32,
    interfaces: Option<BTreeSet<String>>,
    disks: Option<BTreeSet<String>>,
    limit: RateLimit,
}

impl Devices {
    pub fn new() -> Self {
        Devices {
            packets: col("nic.rx_packets"),
            rows: Vec::new(),
            generation: 0,
            interfaces: None,
            disks: None,
            limit: RateLimit::new(EVENT_BURST, EVENTS_PER_SECOND),
        }
    }

    /// Adds an event for each device that appeared or went. The frame has the interfaces of the own network namespace only.
    pub fn look(
        &mut self,
        now: Stamp,
        disks: Option<&BTreeSet<String>>,
        strings: &Strings,
        frame: &mut Frame,
    ) {
        self.limit.refill(now.mono);
        let mut events = Vec::new();
        if let Some(disks) = disks {
            note("disk", &mut self.disks, disks, &mut events);
        }
        // Rows of slow sources are repeated after their interface has gone.
        let here = || {
            let rows = frame.table(Entity::Nic).rows();
            rows.filter(|(_, row)| row.get(self.packets).is_some_and(|cell| *cell != NA))
                .map(|(key, _)| key.id)
        };
        let is_same = self.generation == strings.generation() && here().eq(self.rows.iter().copied());
        if !is_same {
            let name = |id: &u64| u32::try_from(*id).ok().and_then(|id| strings.get(id)).map(str::to_owned);
            let (rows, generation): (Vec<u64>, u32) = (here().collect(), strings.generation());
            let names: BTreeSet<String> = rows.iter().filter_map(name).collect();
            // Each namespace has its loopback device: without any the file could not be read.
            if !names.is_empty() {
                (self.rows, self.generation) = (rows, generation);
                note("interface", &mut self.interfaces, &names, &mut events);
            }
        }
        if now.boot < BOOTED_NS {
            events.clear();
        }
        for kind in events {
            if self.limit.pass() {
                frame.events.push(Event { place: None, real: now.real, mono: Some(now.mono), kind });
            }
        }
        let dropped = self.limit.take_dropped();
        if dropped > 0 {
            let text = format!("{dropped} more devices appeared or went");
            let kind = EventKind::Recorder { text };
            frame.events.push(Event { place: None, real: now.real, mono: Some(now.mono), kind });
        }
    }
}

fn note(
    what: &str,
    before: &mut Option<BTreeSet<String>>,
    now: &BTreeSet<String>,
    events: &mut Vec<EventKind>,
) {
    if let Some(before) = before.as_ref().filter(|before| *before != now) {
        let gone = before.difference(now).map(|name| (name, "gone"));
        let appeared = now.difference(before).map(|name| (name, "appeared"));
        events.extend(gone.chain(appeared).map(|(device, state)| EventKind::Device {
            what: what.to_owned(),
            device: device.clone(),
            state: state.to_owned(),
        }));
    }
    if before.as_ref() != Some(now) {
        *before = Some(now.clone());
    }
}

#[cfg(test)]
mod tests {
    use mitra_model::{Key, Stamp};

    use super::*;

    struct Machine {
        devices: Devices,
        strings: Strings,
        mono: i64,
    }

    impl Machine {
        fn look(&mut self, interfaces: &[&str], disks: Option<&[&str]>) -> Vec<String> {
            self.mono += 1_000_000_000;
            let mut frame = Frame::new();
            for name in interfaces {
                let key = Key::named(self.strings.intern(name));
                frame.table_mut(Entity::Nic).push(key)[self.devices.packets] = 1;
            }
            // A row that a slow source repeats.
            let stale = Key::named(self.strings.intern("stale"));
            frame.table_mut(Entity::Nic).push(stale);
            let disks = disks.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            let now = Stamp { mono: self.mono, boot: self.mono, ..Stamp::default() };
            self.devices.look(now, disks.as_ref(), &self.strings, &mut frame);
            let said = |event: &Event| match &event.kind {
                EventKind::Device { what, device, state } => format!("{what} {device} {state}"),
                EventKind::Recorder { text } => text.clone(),
                other => panic!("{other:?}"),
            };
            frame.events.iter().map(said).collect()
        }
    }

    fn machine() -> Machine {
        Machine { devices: Devices::new(), strings: Strings::new(), mono: BOOTED_NS }
    }

    #[test]
    fn what_appears_and_goes_after_the_first_look_is_an_event() {
        let mut machine = machine();
        let none: [&str; 0] = [];
        assert_eq!(machine.look(&["lo", "eth0"], Some(&["sda"])), none);
        assert_eq!(machine.look(&["lo", "eth0"], None), none);
        assert_eq!(machine.look(&["lo", "eth0", "eth1"], None), ["interface eth1 appeared"]);
        assert_eq!(
            machine.look(&["lo", "eth1"], Some(&["sdb"])),
            ["disk sda gone", "disk sdb appeared", "interface eth0 gone"]
        );
        assert_eq!(machine.look(&[], None), none, "a file that cannot be read");
        // The last disk may go.
        assert_eq!(machine.look(&["lo", "eth1"], Some(&[])), ["disk sdb gone"]);
        // Texts that got other ids are the same interfaces.
        machine.strings.clear();
        machine.strings.intern("something else");
        assert_eq!(machine.look(&["lo", "eth1"], None), none);
        assert_eq!(machine.look(&["lo"], None), ["interface eth1 gone"]);
    }

    #[test]
    fn what_comes_late_at_boot_was_there_before() {
        let mut machine = Machine { mono: 0, ..machine() };
        let none: [&str; 0] = [];
        assert_eq!(machine.look(&["lo"], Some(&["sda"])), none);
        assert_eq!(machine.look(&["lo", "docker0"], Some(&["sda", "sdb"])), none);
        machine.mono = BOOTED_NS;
        assert_eq!(machine.look(&["lo", "docker0", "eth1"], None), ["interface eth1 appeared"]);
    }

    #[test]
    fn a_storm_is_counted() {
        let mut machine = machine();
        let names: Vec<String> = (0..100).map(|i| format!("veth{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        machine.look(&["lo"], None);
        let said = machine.look(&names, None);
        assert_eq!((said.len(), said[64].as_str()), (65, "37 more devices appeared or went"));
    }
}
