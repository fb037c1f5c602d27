//! Entry points for fuzzing: the cluster's answers during delivery, and the contents of the spool.

use std::time::Duration;

use super::bulk::{Pace, Report};
use super::work::{self, Work};
use super::{Cluster, deliver as delivery, wire};
use crate::document::{Document, Kind};
use crate::spool;

/// Delivers a batch as a writer does, but without waiting when the cluster asks for it.
pub fn deliver(cluster: &Cluster, at_ns: i64) {
    let Ok(mut known) = delivery::load(cluster, "web1") else { return };
    let document = |filename: &str| Document {
        content: Some("127.0.0.1 localhost".to_owned()),
        since_ns: at_ns,
        ..Document::new("web1", filename, Kind::File)
    };
    let documents = vec![document("/etc/hosts"), document("/etc/fstab")];
    let work = Work {
        host: "web1".to_owned(),
        at_ns,
        seen_ns: None,
        part: false,
        run: "r".to_owned(),
        seq: 1,
        digests: documents.iter().map(wire::state).collect(),
        documents,
        gone: vec!["/etc/motd".to_owned()],
    };
    let mut report = Report::default();
    _ = delivery::batch(cluster, &mut Pace::default(), &mut known, &work, Duration::ZERO, &mut report);
}

/// Reads a spool file or, if the first byte is odd, an unpacked batch.
pub fn spool(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    if which % 2 == 0 {
        return spool::fuzz(bytes);
    }
    let Ok(work) = work::read(bytes) else { return };
    // Packing and unpacking returns the same batch.
    let packed = work::pack(&work).unwrap_or_default();
    let again = work::unpack(&packed).and_then(|work| work::pack(&work));
    assert!(again.is_ok_and(|again| again == packed));
}
