//! `dmidecode`: which machine it is, its BIOS and its memory modules, as notes.
//!
//! ```text
//! # dmidecode 3.3
//! Getting SMBIOS data from sysfs.
//! SMBIOS 3.2.0 present.
//!
//! Handle 0x1100, DMI type 17, 84 bytes
//! Memory Device
//!     Size: 32 GB
//!     Locator: A1
//!     Type: DDR4
//!     Speed: 2933 MT/s
//!     Configured Memory Speed: 2666 MT/s
//! ```
//!
//! Before version 3.2 the last line is `Configured Clock Speed`, and the unit `MHz` before 3.1; the number is the same.

use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format =
    Format::new("dmidecode", "product, BIOS and memory modules, as notes", starts, read);

/// What stands before the first handle.
const BANNER: &[&[u8]] = list!(
    "# dmidecode |# SMBIOS implementations |# fully supported |Getting SMBIOS data |Scanning /dev/mem |SMBIOS |\
     Table at 0x|Reading SMBIOS/DMI data ",
    b'|'
);
const BANNER_LINES: usize = 8;
/// Slots for memory; the largest machines have some hundred.
const MODULES_MAX: usize = 4096;
/// Kinds of modules that are told.
const KINDS_TOLD: usize = 6;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// The type in `Handle 0x1100, DMI type 17, 84 bytes`.
fn handle(line: &[u8]) -> Option<u64> {
    let rest = behind(line.strip_prefix(b"Handle 0x")?, b", DMI type ")?;
    integer(rest.split(|b| *b == b',').next()?)
}

fn is_banner(line: &[u8]) -> bool {
    // `68 structures occupying 4230 bytes.`
    begins(line, BANNER) || has(line, b" structures occupying ")
}

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let is_handle = |line: &[u8]| handle(line).is_some();
    lines.at(is_handle) || lines.at(is_banner) && lines.soon(BANNER_LINES, is_handle)
}

/// One slot for memory, as it was printed.
#[derive(Default)]
struct Slot {
    /// `None` if there is no module, or none whose size is known.
    bytes: Option<f64>,
    is_empty: bool,
    kind: String,
    /// What the module can do, and what it does.
    speed: Option<f64>,
    configured: Option<f64>,
}

impl Slot {
    fn take(&mut self, key: &[u8], value: &[u8]) {
        match key {
            b"Size" => {
                self.is_empty = value == b"No Module Installed" || value == b"Not Installed";
                self.bytes = size(value);
            }
            b"Type" => self.kind = text(value),
            b"Speed" => self.speed = speed(value),
            b"Configured Memory Speed" | b"Configured Clock Speed" => self.configured = speed(value),
            _ => {}
        }
    }

    /// `32 GB DDR4 at 2666 MT/s (made for 2933)`.
    fn words(&self, bytes: f64) -> String {
        let kind = match self.kind.as_str() {
            "" | "Unknown" | "Other" | "<OUT OF SPEC>" => String::new(),
            kind => format!(" {kind}"),
        };
        let at = match (self.configured, self.speed) {
            (Some(is), Some(made)) if is < made => format!(" at {is:.0} MT/s (made for {made:.0})"),
            (Some(is), _) | (None, Some(is)) => format!(" at {is:.0} MT/s"),
            (None, None) => String::new(),
        };
        format!("{} GB{kind}{at}", bytes / GIB)
    }
}

/// `16384 MB`, `32 GB`.
fn size(value: &[u8]) -> Option<f64> {
    let (number, unit) = leading(value)?;
    let power = match unit.trim_ascii() {
        b"kB" => 1,
        b"MB" => 2,
        b"GB" => 3,
        b"TB" => 4,
        _ => return None,
    };
    Some(number * 1024_f64.powi(power)).filter(|bytes| *bytes > 0.0)
}

/// `2933 MT/s`, `1600 MHz`, `1333 MHz (0.8 ns)`.
fn speed(value: &[u8]) -> Option<f64> {
    let (number, unit) = leading(value)?;
    begins(unit, &[b" MT/s", b" MHz"]).then_some(number).filter(|speed| *speed > 0.0)
}

#[derive(Default)]
struct Machine {
    maker: String,
    product: String,
    bios: String,
    bios_date: String,
    slots: Vec<Slot>,
}

impl Machine {
    fn take(&mut self, kind: u64, key: &[u8], value: &[u8]) {
        let slot = match (kind, key) {
            (0, b"Version") => &mut self.bios,
            (0, b"Release Date") => &mut self.bios_date,
            (1, b"Manufacturer") => &mut self.maker,
            (1, b"Product Name") => &mut self.product,
            (17, _) => {
                if let Some(slot) = self.slots.last_mut() {
                    slot.take(key, value);
                }
                return;
            }
            _ => return,
        };
        if slot.is_empty() && value != b"Not Specified" {
            *slot = text(value);
        }
    }

    fn put(self, import: &mut Import) {
        let machine = format!("{} {}", self.maker, self.product);
        let machine = machine.trim();
        let date = if self.bios_date.is_empty() { String::new() } else { format!(" of {}", self.bios_date) };
        let bios = if self.bios.is_empty() { String::new() } else { format!("BIOS {}{date}", self.bios) };
        let parts: Vec<&str> = [machine, &bios].into_iter().filter(|part| !part.is_empty()).collect();
        if !parts.is_empty() {
            import.has_read();
            import.note(format!("dmidecode: {}", parts.join(", ")));
        }
        self.put_memory(import);
    }

    fn put_memory(&self, import: &mut Import) {
        // The firmware's own chip is of this type too.
        let slots = || self.slots.iter().filter(|slot| slot.kind != "Flash");
        let mut kinds: Vec<(String, u32)> = Vec::new();
        let (mut used, mut bytes) = (0_u32, 0.0);
        for (slot, size) in slots().filter_map(|slot| Some((slot, slot.bytes?))) {
            (used, bytes) = (used + 1, bytes + size);
            let words = slot.words(size);
            match kinds.iter_mut().find(|(known, _)| *known == words) {
                Some((_, count)) => *count += 1,
                None => kinds.push((words, 1)),
            }
        }
        if used == 0 {
            return;
        }
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let empty = slots().filter(|slot| slot.is_empty).count();
        let mut told: Vec<String> =
            kinds.iter().take(KINDS_TOLD).map(|(words, count)| format!("{count} × {words}")).collect();
        if kinds.len() > KINDS_TOLD {
            told.push(format!("{} other kinds", kinds.len() - KINDS_TOLD));
        }
        import.has_read();
        import.note(format!(
            "dmidecode: {} GB of memory in {used} modules, {empty} slots are empty: {}",
            bytes / GIB,
            told.join(", ")
        ));
    }
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut machine = Machine::default();
    // The type of the structure, and whether its title comes next.
    let (mut kind, mut is_titled) = (None, true);
    lines.each(import, |lines, _, _| {
        let line = lines.line();
        if let Some(found) = handle(line) {
            (kind, is_titled) = (Some(found), false);
            if found == 17 && machine.slots.len() < MODULES_MAX {
                machine.slots.push(Slot::default());
            }
            return Took::Yes;
        }
        let below = line.trim_ascii();
        if below.is_empty() {
            return Took::Yes;
        }
        let Some(kind) = kind else {
            return if is_banner(line) { Took::Yes } else { Took::No };
        };
        if !is_titled {
            is_titled = true;
        } else if below.len() == line.trim_ascii_end().len() {
            return Took::No;
        } else if let Some(colon) = memchr::memchr(b':', below) {
            let (key, value) = below.split_at_checked(colon).unwrap_or_default();
            machine.take(kind, key, value.get(1..).unwrap_or_default().trim_ascii());
        }
        Took::Yes
    });
    machine.put(import);
}
