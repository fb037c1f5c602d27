//! Prints the heap of a Python process: `cargo run --release -p mitra-inspect --example python -- PID`.

use std::process::ExitCode;

use mitra_inspect::{Target, python};

/// Types that are printed.
const TYPES: usize = 25;

fn main() -> ExitCode {
    let Some(pid) = std::env::args().nth(1).and_then(|pid| pid.parse().ok()) else {
        eprintln!("usage: python PID");
        return ExitCode::FAILURE;
    };
    match show(pid) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn show(pid: u32) -> Result<(), mitra_inspect::Error> {
    let target = Target::open(pid)?;
    let mut heap = python::open(&target)?;
    let found = heap.walk();
    let (objects, bytes) = (found.objects, found.bytes);
    println!("CPython {}: {objects} objects, {bytes} bytes, in {:.3} s", found.version, found.took);
    for interpreter in &found.interpreters {
        let (generations, modules) = (&interpreter.generations, interpreter.modules);
        println!("interpreter {:?}: generations {generations:?}, {modules} modules", interpreter.id);
        for thread in &interpreter.threads {
            let frames: Vec<&str> = thread.frames.iter().map(|frame| frame.function.as_str()).collect();
            println!("  thread {:?}: {}", thread.native_id.unwrap_or(thread.ident), frames.join(" < "));
        }
    }
    println!("{:>12} {:>12} {:>14}  type", "objects", "tracked", "bytes");
    for row in found.types.iter().take(TYPES) {
        println!("{:>12} {:>12} {:>14}  {}", row.count, row.tracked_count, row.bytes, row.name);
    }
    println!("{:?}, complete: {}, beside: {}", found.doubts, found.is_complete, found.beside_bytes);
    Ok(())
}
