//! What the tests of captures have in common: arming, a load with a name, and somebody else who watches the same load.

pub mod judge;

use std::thread::JoinHandle;

use mitra_collect::capture::{Armed, Capture, Refused, Request};

/// Arms, or says why this test cannot run here.
pub fn arm(request: &Request) -> Option<Armed> {
    match Capture::arm(request) {
        Ok(armed) => Some(armed),
        Err(error @ (Refused::Privilege(_) | Refused::Kernel { .. }))
            if !rustix::process::geteuid().is_root() =>
        {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs a thread of this name, which the captures can ask for.
pub fn thread<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).unwrap()
}
