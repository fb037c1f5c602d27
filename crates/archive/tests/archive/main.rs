//! The archive from outside: what goes in, what comes out, and what damage costs.

mod common;
mod compatibility;
mod crash;
mod damage;
mod full_disk;
mod oracle;
mod reading;
mod round_trip;
mod status;
