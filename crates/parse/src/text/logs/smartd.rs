//! What smartd says of a disk that fails or is about to.
//!
//! ```text
//! Device: /dev/sda [SAT], FAILED SMART self-check. BACK UP DATA NOW!
//! Device: /dev/sda [SAT], 8 Currently unreadable (pending) sectors (changed +8)
//! Device: /dev/sdb, SMART Failure: FAILURE PREDICTION THRESHOLD EXCEEDED: ascq=0x5
//! Device: /dev/nvme0, Critical Warning (0x04): Reliability
//! Device: /dev/bus/0 [megaraid_disk_05] [SAT], FAILED SMART self-check. BACK UP DATA NOW!
//! ```
//!
//! See `smartd.cpp` of smartmontools. Attributes that changed, a disk that is too hot, and commands that it does not know or that
//! failed once (`ATA error count increased`) are no failure.

use mitra_model::EventKind;

use crate::kernel_message::kept;

/// What it calls a failure.
const FAILURES: [&str; 5] = [
    "FAILED SMART self-check",
    "Failed SMART usage Attribute",
    "SMART Failure: ",
    "Currently unreadable (pending) sectors",
    "Offline uncorrectable sectors",
];
/// `Critical Warning (0x04)`: bit 1 is the temperature (NVM Express, "SMART / Health Information").
const WARNING: &str = "Critical Warning (0x";
const TEMPERATURE: u8 = 1 << 1;

fn is_failure(words: &str) -> bool {
    let mask = || {
        let (digits, _) = words.split_once(WARNING)?.1.split_once(')')?;
        u8::from_str_radix(digits, 16).ok()
    };
    FAILURES.iter().any(|failure| words.contains(failure))
        || mask().is_some_and(|bits| bits & !TEMPERATURE != 0)
}

/// `/dev/sda [SAT]` is `sda`. Disks behind a controller share a device: `bus/0 [megaraid_disk_05]`.
fn device(words: &str) -> String {
    let (path, rest) = words.split_once(' ').unwrap_or((words, ""));
    let path = path.trim_start_matches("/dev/");
    match rest
        .split_inclusive(']')
        .map(str::trim)
        .find(|word| word.starts_with('[') && word.contains("_disk"))
    {
        Some(disk) if !path.is_empty() => format!("{path} {disk}"),
        _ => path.to_owned(),
    }
}

/// The event of a line of smartd.
pub fn failing(program: &str, text: &str) -> Option<EventKind> {
    let (of, words) = text.strip_prefix("Device: ").filter(|_| program == "smartd")?.split_once(", ")?;
    let device = device(of);
    (!device.is_empty() && is_failure(words)).then(|| EventKind::DeviceError {
        what: "disk-failing".to_owned(),
        device,
        text: kept(text),
    })
}
