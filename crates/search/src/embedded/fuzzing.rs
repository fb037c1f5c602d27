//! Entry points for fuzzing: what a store reads, without the checksums and the compression that keep random bytes out.

use super::batch::Batch;
use super::block::Index;
use super::codec::Input;
use super::content::Content;
use super::sealed::{Head, read_hosts, read_rows};
use super::table::Table;
use super::text::read_anything;

/// Reads the bytes as every payload of the store; the first byte says as which. Returning at all is the test.
pub fn all(bytes: &[u8]) {
    let Some((kind, payload)) = bytes.split_first() else { return };
    let mut table = Table::default();
    match kind {
        0 => drop(Content::decode(payload)),
        1 => drop(Index::read(&mut Input::new(payload))),
        2 => drop(Batch::decode(payload)),
        3 => drop(Batch::decode_rows(payload)),
        4 => drop(Head::decode(payload)),
        5 => {
            let _ = read_hosts(payload, &mut table);
        }
        7 => read_anything(payload),
        _ => {
            let _ = read_rows(payload, &mut table);
        }
    }
    // Whatever was read keeps to the order of time.
    for row in &table.rows {
        let before = row.previous.and_then(|at| table.rows.get(at as usize));
        assert!(before.is_none_or(|before| before.since_ns < row.since_ns || before.since_ns == i64::MAX));
    }
}
