//! A batch to be delivered, and its format in the spool: compressed JSON.
//!
//! ```json
//! {"host": "web1", "at": 1795232232500000000, "seen": 1795231932500000000, "run": "b7…", "seq": 4,
//!  "gone": ["/etc/motd"], "documents": [{"host": "web1", "filename": "/etc/fstab", …}]}
//! ```

use std::io::Read;

use serde_json::{Value, json};

use crate::day::Day;
use crate::document::Document;

use super::wire::{self, About};

/// Compression level. It is low, because the spool must not take much CPU time.
const LEVEL: i32 = 1;
/// Maximum size of an unpacked batch in bytes.
const PLAIN_MAX: u64 = 512 << 20;

/// A batch to be delivered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Work {
    pub host: String,
    pub at_ns: i64,
    /// The time of the host's pass before, if the process that made the batch knew it.
    pub seen_ns: Option<i64>,
    /// The spool run of the batch.
    pub run: String,
    /// More batches of the same pass follow.
    pub part: bool,
    /// Its number in that run, from 1; 0 for a batch that was never in the spool.
    pub seq: u64,
    pub documents: Vec<Document>,
    /// The digest of each document's state, see [`wire::state`].
    pub digests: Vec<String>,
    pub gone: Vec<String>,
}

/// Packs a batch for the spool.
pub(super) fn pack(work: &Work) -> Result<Vec<u8>, String> {
    let documents: Vec<Value> = work
        .documents
        .iter()
        .zip(&work.digests)
        .map(|(document, state)| {
            let day = Day::of(document.since_ns);
            let about = About { day, until_ns: None, before_ns: None, state: state.clone() };
            Value::Object(wire::write(document, &about))
        })
        .collect();
    let all = json!({"host": work.host, "at": work.at_ns, "seen": work.seen_ns, "run": work.run, "seq": work.seq,
                     "part": work.part, "gone": work.gone, "documents": documents});
    let plain = serde_json::to_vec(&all).map_err(|e| e.to_string())?;
    zstd::bulk::compress(&plain, LEVEL).map_err(|e| e.to_string())
}

/// Unpacks a batch from the spool.
pub(super) fn unpack(bytes: &[u8]) -> Result<Work, String> {
    let mut plain = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(bytes).map_err(|e| e.to_string())?;
    decoder.take(PLAIN_MAX + 1).read_to_end(&mut plain).map_err(|e| e.to_string())?;
    if plain.len() as u64 > PLAIN_MAX {
        return Err(format!("a batch of more than {PLAIN_MAX} bytes"));
    }
    read(&plain)
}

/// Parses an unpacked batch.
pub(super) fn read(plain: &[u8]) -> Result<Work, String> {
    let all: Value = serde_json::from_slice(plain).map_err(|e| e.to_string())?;
    let text =
        |name: &str| all.get(name).and_then(Value::as_str).map(str::to_owned).ok_or(format!("no {name}"));
    let list = |name: &str| all.get(name).and_then(Value::as_array).ok_or(format!("no {name}"));
    let (mut documents, mut digests) = (Vec::new(), Vec::new());
    for source in list("documents")? {
        let (document, about) = wire::read(source)?;
        documents.push(document);
        digests.push(about.state);
    }
    Ok(Work {
        host: text("host")?,
        at_ns: all.get("at").and_then(Value::as_i64).ok_or("no time")?,
        seen_ns: all.get("seen").and_then(Value::as_i64),
        part: all.get("part").and_then(Value::as_bool).unwrap_or(false),
        run: text("run")?,
        seq: all.get("seq").and_then(Value::as_u64).ok_or("no number")?,
        documents,
        digests,
        gone: list("gone")?.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Kind;

    #[test]
    fn a_batch_is_packed_and_unpacked() {
        let document = Document {
            content: Some("ä\0\n".into()),
            since_ns: 1_795_232_232_500_000_001,
            ..Document::new("web1", "/etc/fstab", Kind::File)
        };
        let digests = vec![wire::state(&document)];
        let work = Work {
            host: "web1".into(),
            at_ns: 5,
            seen_ns: Some(4),
            part: true,
            run: "r".into(),
            seq: 9,
            documents: vec![document],
            digests,
            gone: vec!["/etc/motd".into()],
        };
        assert_eq!(unpack(&pack(&work).unwrap()).unwrap(), work);
        assert!(unpack(b"nothing of the kind").is_err());
        assert!(unpack(&zstd::bulk::compress(b"{}", 1).unwrap()).is_err());
    }
}
