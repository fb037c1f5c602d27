//! Records a simulated machine and prints what it took: `simulate DIR [SECONDS] [TASKS] [BUSY]`.

use std::path::PathBuf;
use std::time::Instant;

use mitra_archive::simulate::Machine;
use mitra_archive::{Options, Reader, Writer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("usage: simulate DIR [SECONDS] [TASKS] [BUSY]")?);
    let mut number = |or: usize| arguments.next().map_or(Ok(or), |text| text.parse());
    let (seconds, tasks, busy) = (number(86_400)?, number(1000)?, number(50)?);
    let mut machine = Machine::new(tasks, busy, 1);
    let options = Options { max_bytes: u64::MAX, ..Options::default() };
    let mut writer = Writer::open(&dir, &Machine::host(), options)?;
    let start = Instant::now();
    for _ in 0..seconds {
        machine.tick();
        writer.append(machine.frame(), machine.strings())?;
    }
    let written = writer.written_bytes();
    writer.finish()?;
    let status = Reader::open(&dir)?.status()?;
    println!("{seconds} s of {tasks} tasks, {busy} of them busy, in {:.1} s", start.elapsed().as_secs_f64());
    println!(
        "sealed {:.0} B/s, written {:.0} B/s",
        status.bytes_per_second.unwrap_or(0.0),
        written as f64 / seconds as f64
    );
    for part in status.parts {
        println!("{:>10.1} B/s  {}", part.bytes as f64 / seconds as f64, part.name);
    }
    Ok(())
}
