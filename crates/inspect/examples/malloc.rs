//! Prints the C heap of a process: `cargo run --release -p mitra-inspect --example malloc PID [SAMPLES]`.

use mitra_inspect::{Target, malloc};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let pid = args.next().ok_or("wanted: PID [SAMPLES]")?.parse()?;
    let samples = args.next().map_or(Ok(0), |text| text.parse())?;
    let target = Target::open(pid)?;
    let begun = std::time::Instant::now();
    let detection = malloc::find(&target)?;
    println!("{detection:#x?}\nfound in {:?}", begun.elapsed());
    let options = malloc::Options { sizes_max: 20, samples, ..malloc::Options::default() };
    let heap = malloc::walk_heap(&target, &detection, &options);
    println!("{}", serde_json::to_string_pretty(&heap)?);
    println!("{:#?}", heap.fragmentation());
    Ok(())
}
