//! `/proc/loadavg`: tasks runnable or in D state, averaged.
//!
//! ```text
//! 0.60 0.20 0.07 2/108 8148
//! ```
//!
//! See `loadavg_proc_show` in `fs/proc/loadavg.c`. The averages have two decimals; they are stored in hundredths.

use mitra_model::{Frame, NA, Strings};

use crate::Outcome;
use crate::column::{Column, scaled, sum};
use crate::scan::{digits, split_line};

/// The parser of `/proc/loadavg`.
#[derive(Debug)]
pub struct LoadAvg {
    columns: [Column; 3],
}

impl Default for LoadAvg {
    fn default() -> Self {
        LoadAvg { columns: Column::list(["sys.load1", "sys.load5", "sys.load15"]) }
    }
}

impl LoadAvg {
    /// Fills the system row.
    pub fn parse(&mut self, input: &[u8], _: &mut Strings, frame: &mut Frame) -> Outcome {
        let Some(averages) = averages(input) else { return Outcome::bad_file() };
        let row = frame.system_mut();
        for (column, value) in self.columns.iter().zip(averages) {
            column.set(row, value);
        }
        if averages.contains(&NA) { Outcome::bad_file() } else { Outcome::default() }
    }
}

fn averages(input: &[u8]) -> Option<[i64; 3]> {
    let (mut rest, []) = split_line(input)? else { return None };
    let mut averages = [NA; 3];
    for average in &mut averages {
        let (whole, tail) = digits(rest)?;
        let [b'.', tens @ b'0'..=b'9', ones @ b'0'..=b'9', b' ', tail @ ..] = tail else { return None };
        let hundredths = i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
        *average = sum(scaled(whole, 100), hundredths);
        rest = tail;
    }
    // Running and all tasks, and the last process id.
    let (_, rest) = digits(rest)?;
    let (_, rest) = digits(rest.strip_prefix(b"/")?)?;
    let (_, []) = digits(rest.strip_prefix(b" ")?)? else { return None };
    Some(averages)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        parsed("3.10", "proc/loadavg").is("sys.load1", 1_207);
        parsed("4.18", "proc/loadavg").is("sys.load5", 44);
        parsed("5.15", "proc/loadavg").is("sys.load1", 302);
        parsed("6.1", "proc/loadavg").is("sys.load15", 5);
        let s = parsed("6.18", "proc/loadavg");
        s.is("sys.load1", 60);
        s.is("sys.load5", 20);
        s.is("sys.load15", 7);
    }

    #[test]
    fn damage() {
        for bad in [
            &b""[..],
            b"\n",
            b"0.60 0.20 0.07 2/108 8148",
            b"0.6 0.20 0.07 2/108 8148\n",
            b"-0.60 0.20 0.07 2/108 8148\n",
            b"0.60 0.20\n",
            b"0.60 0.20 0.07 2/108 8148\r\n",
            b"0.60 0.20 0.07 2/108\n",
            b"0,60 0.20 0.07 2/108 8148\n",
            b"0.60 0.20 0.07 2/108 8148\n\n",
            b".60 0.20 0.07 2/108 8148\n",
        ] {
            let s = Sample::of("proc/loadavg", bad);
            s.count(0);
            assert_eq!(s.outcome.bad_lines, 1);
        }
        let s = Sample::of("proc/loadavg", b"99999999999999999999.00 0.20 0.07 2/108 8148\n");
        s.none("sys.load1");
        s.is("sys.load5", 20);
        assert_eq!(s.outcome.bad_lines, 1);
    }
}
