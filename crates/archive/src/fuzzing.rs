//! Entry points for fuzzing: everything that reads bytes, without the checksums that keep random bytes out.

use std::path::Path;

use crate::log::decode;
use crate::schema::Schema;
use crate::segment::decode::{Columns, Rows, events, texts};
use crate::segment::file::Segment;
use crate::segment::index::{Index, parse_times};
use crate::{block, segment};

/// Frames that a fuzzed segment claims to have; more only cost time.
const FRAMES: u32 = 64;

/// Reads the bytes as every kind of file and payload. Returning at all is the test.
pub fn all(bytes: &[u8]) {
    log(bytes);
    let _ = Segment::from_memory(bytes.to_vec());
    let _ = Index::scan(bytes);
    let _ = block::unpack(bytes);
    let Some((kind, payload)) = bytes.split_first() else { return };
    payload_of(*kind, payload);
}

/// Reads the bytes as a log.
pub fn log(bytes: &[u8]) {
    decode::read(bytes, Path::new("fuzz"), &mut |_, frame, _, _| {
        std::hint::black_box(frame.tables.len());
    });
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
