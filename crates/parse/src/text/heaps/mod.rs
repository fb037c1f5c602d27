//! Heaps and run times: smaps, counts of strings, guppy, recon_alloc, jcmd, logs of garbage collectors.

use super::Format;

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[];
