//! The screen of `mitra live`.
