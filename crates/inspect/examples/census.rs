//! The census of the strings of a process, as JSON: `census PID [START-END]`, the addresses in hexadecimal as in `/proc/PID/maps`.
//! `tools/bench/census.py` measures it.

use std::ops::Range;

use mitra_inspect::census::{self, Census, Options};
use mitra_inspect::{Error, Target};

fn region(text: &str) -> Option<Range<u64>> {
    let (start, end) = text.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

fn main() -> Result<(), Error> {
    let usage = || Error::Unusable("usage: census PID [START-END]".to_owned());
    let args: Vec<String> = std::env::args().skip(1).collect();
    let pid = args.first().and_then(|pid| pid.parse().ok()).ok_or_else(usage)?;
    let target = Target::open(pid)?;
    let regions = match args.get(1) {
        Some(text) => vec![region(text).ok_or_else(usage)?],
        None => Census::default_regions(&target),
    };
    let census = census::take(&target, &regions, &Options::default(), &mut |_, _| true);
    match serde_json::to_string(&census) {
        Ok(text) => println!("{text}"),
        Err(error) => return Err(Error::Unusable(error.to_string())),
    }
    Ok(())
}
