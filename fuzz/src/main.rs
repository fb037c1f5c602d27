//! `TARGET=name cargo +nightly fuzz run mitra-fuzz` under cargo-fuzz; without it `mitra-fuzz [TARGET [FILE…]]`.
#![cfg_attr(fuzzing, no_main)]

use mitra_fuzz::{TARGETS, Target};

/// The target of a name. An error names those that there are.
fn target(name: &str) -> Result<&'static Target, String> {
    TARGETS.iter().find(|target| target.name == name).ok_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        format!("no target is called '{name}'; there are {}", names.join(", "))
    })
}

#[cfg(fuzzing)]
mod engine {
    use std::sync::LazyLock;

    use mitra_fuzz::Target;

    /// libFuzzer keeps the command line to itself.
    static TARGET: LazyLock<&Target> = LazyLock::new(|| {
        let name = std::env::var("TARGET").unwrap_or_default();
        super::target(&name).unwrap_or_else(|error| {
            eprintln!("TARGET= wants one: {error}");
            std::process::exit(2)
        })
    });

    libfuzzer_sys::fuzz_target!(init: LazyLock::force(&TARGET), |bytes: &[u8]| (TARGET.run)(bytes));
}

#[cfg(not(fuzzing))]
fn main() -> Result<(), String> {
    let mut words = std::env::args().skip(1);
    let Some(name) = words.next() else {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        return Ok(());
    };
    let target = target(&name)?;
    for path in words {
        let bytes = std::fs::read(&path).map_err(|error| format!("{path}: {error}"))?;
        (target.run)(&bytes);
        println!("{path}: nothing found");
    }
    Ok(())
}
