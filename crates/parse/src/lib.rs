//! Bytes of /proc files to typed rows. No I/O, never panics.
