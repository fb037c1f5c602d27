//! The archive from outside: what goes in, what comes out, and what damage costs.

mod clocks;
mod common;
mod compatibility;
mod crash;
mod damage;
mod faults;
mod full_disk;
mod oracle;
mod powerloss;
mod reading;
mod round_trip;
mod status;
