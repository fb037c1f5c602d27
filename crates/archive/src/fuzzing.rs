//! Entry points for fuzzing: everything that reads bytes, without the checksums that keep random bytes out.

use std::path::Path;

use crate::log::{decode, record};
use crate::schema::Schema;
use crate::segment::decode::{Columns, Rows, events, texts};
use crate::segment::file::Segment;
use crate::segment::index::{Index, parse_times};
use crate::{block, captures, segment};

/// Frames that a fuzzed segment claims to have; more only cost time.
const FRAMES: u32 = 64;

/// Reads the bytes as every kind of file and payload. Returning at all is the test.
pub fn all(bytes: &[u8]) {
    log(bytes);
    let _ = Segment::from_memory(bytes.to_vec(), Path::new("log"));
    let _ = Index::scan(bytes);
    let _ = block::unpack(bytes);
    let Some((kind, payload)) = bytes.split_first() else { return };
    payload_of(*kind, payload);
}

/// Reads the bytes as a capture: packed, or where the first byte is no beginning of a pack, as it is.
pub fn capture(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        std::hint::black_box(captures::parse(text));
    }
    let unpacked = captures::unpack(bytes).ok();
    let Some(captured) = unpacked.or_else(|| serde_json::from_slice(bytes).ok()) else { return };
    std::hint::black_box((captures::stem(&captured), captured.cost_share()));
    // The archive reads of a capture what an event has of it, and comes to the same.
    let event = captured.event(Some("name".to_owned()));
    if let (Some(b'{'), Ok(read)) = (bytes.trim_ascii_start().first(), captures::head_of(bytes)) {
        assert_eq!(read.event(Some("name".to_owned())), event);
    }
}

/// Reads the bytes as a log.
pub fn log(bytes: &[u8]) {
    decode::read(bytes, Path::new("fuzz"), &mut |_, frame, _, _| {
        std::hint::black_box(frame.tables.len());
    });
}

/// What [`all`] takes, made of a sealed segment or a log: each payload without its checksum and packing.
#[must_use]
pub fn seeds(file: &[u8]) -> Vec<Vec<u8>> {
    let mut seeds = vec![file.to_vec()];
    let mut at = 0;
    while let Some(offset) = block::find(file, at) {
        at = offset + 1;
        let Ok((header, payload)) = block::unpack(file.get(offset..).unwrap_or_default()) else { continue };
        let kind = match header.kind {
            block::Kind::Schema => 0,
            block::Kind::Times => 1,
            block::Kind::Texts => 2,
            block::Kind::Rows => 3,
            block::Kind::Events => 4,
            block::Kind::Index => 5,
            block::Kind::Columns => 7,
            block::Kind::Meta => continue,
        };
        seeds.push([&[kind], payload.as_slice()].concat());
    }
    let mut frames = vec![6];
    let mut at = record::FILE_HEADER_BYTES;
    while let Some(found) = record::find(file, at) {
        let record::Found::Record(kind, payload, next) = record::record_at(file, found) else { break };
        if kind == record::FRAME {
            crate::varint::put_bytes(&mut frames, &payload);
        }
        at = next;
    }
    if frames.len() > 1 {
        seeds.push(frames);
    }
    seeds
}

fn payload_of(kind: u8, payload: &[u8]) {
    match kind % 8 {
        0 => drop(Schema::parse(payload)),
        1 => drop(parse_times(payload)),
        2 => drop(texts(payload)),
        3 => drop(Rows::parse(payload, FRAMES)),
        4 => drop(events(payload, &mut |_, _| {})),
        5 => drop(Index::parse(payload)),
        6 => decode::fuzz_frame(payload),
        _ => {
            for rows in [1, 3] {
                let Ok(columns) = Columns::parse(payload, rows) else { continue };
                for (_, body) in &columns.bodies {
                    let Ok(column) = columns.column(body) else { continue };
                    for active in &column.active {
                        let mut out = Vec::new();
                        let _ =
                            segment::column::read(active.form, 0, FRAMES as usize, active.bytes, &mut out);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{all, seeds};
    use crate::simulate::Noise;

    #[test]
    fn payloads_that_are_damaged_below_their_checksums_make_nothing_panic() {
        let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1");
        let mut noise = Noise::new(1);
        let mut tried = 0;
        for file in std::fs::read_dir(fixtures).unwrap() {
            for seed in seeds(&std::fs::read(file.unwrap().path()).unwrap()) {
                all(&seed);
                for _ in 0..150 {
                    let mut bytes = seed.clone();
                    for _ in 0..=noise.below(4) {
                        let at = 1 + noise.below(bytes.len() as u64 - 1) as usize;
                        match noise.below(4) {
                            0 => bytes.truncate(at + 1),
                            1 => bytes[at] = 0xff,
                            _ => bytes[at] ^= 1 << noise.below(8),
                        }
                    }
                    all(&bytes);
                    tried += 1;
                }
            }
        }
        assert!(tried > 2000, "{tried}");
    }
}
