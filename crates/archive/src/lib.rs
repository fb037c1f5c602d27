//! Frames to disk and back: crash-safe log, sealed segments, retention, range reads.
