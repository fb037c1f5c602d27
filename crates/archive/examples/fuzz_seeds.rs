//! Writes what a file of an archive consists of as seeds for fuzzing: `fuzz_seeds FILE DIR`.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(file), Some(dir)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: fuzz_seeds FILE DIR");
        return Ok(());
    };
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for (number, seed) in mitra_archive::fuzzing::seeds(&std::fs::read(&file)?).iter().enumerate() {
        std::fs::write(dir.join(format!("{name}-{number}")), seed)?;
    }
    Ok(())
}
