//! The halves of `tools/endure/powerloss.py`: one writes on a disk that remembers each of its blocks, the other says what is
//! there after a power failure.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use mitra_archive::simulate::Machine;
use mitra_archive::{Options, Reader, Writer};
use mitra_model::{Frame, Span, Strings};

use crate::common::plain;
use crate::crash::fill;

const WRITE: &str = "MITRA_POWER_WRITE";
const CHECK: &str = "MITRA_POWER_CHECK";
const FRAMES: i64 = 120;

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    _ = out.write_all(format!("\n@ {line}\n").as_bytes());
    _ = out.flush();
}

/// Says each time up to which frame the disk has everything, and goes on with what is there.
#[test]
#[ignore = "half of tools/endure/powerloss.py"]
fn by_hand_writer() {
    let Some(dir) = std::env::var_os(WRITE).map(PathBuf::from) else { return };
    let options = Options { segment_frames: 17, sync_every: Duration::from_secs(3600), ..Options::default() };
    let mut writer = Writer::open(&dir, &Machine::host(), options).unwrap();
    let (mut frame, mut strings) = (Frame::new(), Strings::new());
    for number in 1..=FRAMES {
        fill(&mut frame, &mut strings, number);
        writer.append(&frame, &strings).unwrap();
        if number % 5 == 0 {
            writer.sync().unwrap();
            say(&format!("synced {number}"));
        }
    }
    writer.finish().unwrap();
    say(&format!("synced {FRAMES}"));
}

/// Says which frames are there, each as it was, before and after a recorder has taken the archive up again.
#[test]
#[ignore = "half of tools/endure/powerloss.py"]
fn by_hand_checker() {
    let Some(dir) = std::env::var_os(CHECK).map(PathBuf::from) else { return };
    let last = |dir: &PathBuf| {
        let reader = Reader::open(dir).unwrap();
        let (mut wanted, mut strings, mut last) = (Frame::new(), Strings::new(), 0);
        reader
            .frames(Span::ALL, &mut |frame, names| {
                let number = frame.time.boot / 1_000_000;
                assert_eq!(number, last + 1, "frames follow each other");
                last = number;
                fill(&mut wanted, &mut strings, number);
                assert_eq!(plain(frame, names), plain(&wanted, &strings));
            })
            .unwrap();
        last
    };
    if !dir.join("lock").exists() {
        return say("last 0");
    }
    let before = last(&dir);
    drop(Writer::open(&dir, &Machine::host(), Options::default()).unwrap());
    assert_eq!(last(&dir), before, "taking it up again costs nothing");
    say(&format!("last {before}"));
}
