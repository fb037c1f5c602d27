//! `/proc/sys/fs/{dentry-state,inode-state,file-nr}`: names, inodes and open files of the whole machine.
//!
//! ```text
//! 56276 54592 45 0 12006 0
//! 44081 0 0 0 0 0 0
//! 696 0 2466170
//! ```
//!
//! See `Documentation/admin-guide/sysctl/fs.rst`.

use mitra_model::{Frame, NA, Strings};

use crate::Outcome;
use crate::column::Column;
use crate::scan::{numbers, split_line};

/// The parser of `/proc/sys/fs/dentry-state`.
#[derive(Debug)]
pub struct DentryState {
    nr: Column,
    unused: Column,
    negative: Column,
    /// The fifth number was not 0 at some time, so the kernel counts negative entries.
    counts_negative: bool,
}

impl Default for DentryState {
    fn default() -> Self {
        DentryState {
            nr: Column::of("dentry.nr"),
            unused: Column::of("dentry.unused"),
            negative: Column::of("dentry.negative"),
            counts_negative: false,
        }
    }
}

impl DentryState {
    /// Fills the system row.
    ///
    /// Before 5.0 the fifth number was a 0 without meaning, some vendors' older kernels have it, and a machine that
    /// counts has some negative entries soon after boot. So a 0 is unavailable until another value was seen.
    pub fn parse(&mut self, input: &[u8], _: &mut Strings, frame: &mut Frame) -> Outcome {
        let Some([nr, unused, _, _, negative, _]) = state(input) else { return Outcome::bad_file() };
        let row = frame.system_mut();
        self.nr.set(row, nr);
        self.unused.set(row, unused);
        self.counts_negative |= negative > 0;
        if self.counts_negative {
            self.negative.set(row, negative);
        }
        outcome(&[nr, unused, negative])
    }
}

/// The parser of `/proc/sys/fs/inode-state`.
#[derive(Debug)]
pub struct InodeState {
    nr: Column,
    free: Column,
}

impl Default for InodeState {
    fn default() -> Self {
        InodeState { nr: Column::of("inode.nr"), free: Column::of("inode.free") }
    }
}

impl InodeState {
    /// Fills the system row.
    pub fn parse(&mut self, input: &[u8], _: &mut Strings, frame: &mut Frame) -> Outcome {
        let Some([nr, free, _, _, _, _, _]) = state(input) else { return Outcome::bad_file() };
        let row = frame.system_mut();
        self.nr.set(row, nr);
        self.free.set(row, free);
        outcome(&[nr, free])
    }
}

/// The parser of `/proc/sys/fs/file-nr`.
#[derive(Debug)]
pub struct FileNr {
    columns: [Column; 3],
}

impl Default for FileNr {
    fn default() -> Self {
        FileNr { columns: Column::list(["files.nr", "files.free", "files.max"]) }
    }
}

impl FileNr {
    /// Fills the system row. systemd sets the limit to the largest number that there is, which means none.
    pub fn parse(&mut self, input: &[u8], _: &mut Strings, frame: &mut Frame) -> Outcome {
        let Some(values @ [nr, free, _]) = state::<3>(input) else { return Outcome::bad_file() };
        let row = frame.system_mut();
        for (column, value) in self.columns.iter().zip(values) {
            column.set(row, value);
        }
        outcome(&[nr, free])
    }
}

/// The numbers of a file of one line that has exactly so many.
fn state<const N: usize>(input: &[u8]) -> Option<[i64; N]> {
    let (line, []) = split_line(input)? else { return None };
    let mut values = [NA; 16];
    let count = numbers(line, &mut values)?;
    if count != N {
        return None;
    }
    values.get(..N)?.try_into().ok()
}

fn outcome(values: &[i64]) -> Outcome {
    if values.contains(&NA) { Outcome::bad_file() } else { Outcome::default() }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        let s = parsed("3.10", "proc/sys/fs/dentry-state");
        s.is("dentry.nr", 211_880);
        s.none("dentry.negative");
        parsed("4.18", "proc/sys/fs/inode-state").is("inode.free", 1_204);
        parsed("5.15", "proc/sys/fs/dentry-state").is("dentry.negative", 41_107);
        let s = parsed("6.1", "proc/sys/fs/file-nr");
        s.is("files.nr", 3_392);
        s.is("files.max", i64::MAX);
        let s = parsed("6.18", "proc/sys/fs/dentry-state");
        s.is("dentry.nr", 56_276);
        s.is("dentry.unused", 54_592);
        s.is("dentry.negative", 12_006);
        parsed("6.18", "proc/sys/fs/inode-state").is("inode.nr", 44_081);
        parsed("6.18", "proc/sys/fs/file-nr").is("files.max", 2_466_170);
    }

    #[test]
    fn damage() {
        for bad in [
            &b""[..],
            b"56276\t54592\t45\t0\t12006\t0",
            b"56276\t54592\t45\t0\t12006\t0\r\n",
            b"56276\t54592\t45\t0\t12006\n",
            b"56276\t54592\t45\t0\t12006\t0\t0\n",
            b"-56276\t54592\t45\t0\t12006\t0\n",
            b"56276\t54592\t45\t0\t12006\t0\n\n",
        ] {
            let s = Sample::of("proc/sys/fs/dentry-state", bad);
            s.count(0);
            assert_eq!(s.outcome.bad_lines, 1);
        }
        Sample::of("proc/sys/fs/inode-state", b"1 2\n").count(0);
        Sample::of("proc/sys/fs/file-nr", b"1 2 3 4\n").count(0);
        let s = Sample::of("proc/sys/fs/file-nr", b"99999999999999999999 0 5\n");
        s.none("files.nr");
        assert_eq!(s.outcome.bad_lines, 1);
        let mut s = Sample::of("proc/sys/fs/dentry-state", b"5 4 45 0 3 0\n");
        s.again(b"5 4 45 0 0 0\n");
        s.is("dentry.negative", 0);
    }
}
