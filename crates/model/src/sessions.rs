//! Words of databases about their sessions.

/// What sessions of MariaDB and MySQL wait for while another one keeps the lock of all tables (FLUSH TABLES WITH READ LOCK, a backup).
/// Nobody says which one that is.
pub const GLOBAL_LOCKS: &[&str] = &["backup lock", "global read lock", "commit lock"];
