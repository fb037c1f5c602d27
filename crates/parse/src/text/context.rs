//! Lines that say something of the lines after them: a shell prompt with a command, a time stamp between blocks, the
//! header with host, date and number of CPUs that the sysstat tools print.
//!
//! ```text
//! # iostat -xz 1
//! zzz ***Sat Sep 10 10:53:32 CEST 2016
//! Linux 4.15.0-1044-aws (content-03)  08/11/19    _x86_64_    (16 CPU)
//! ```

use mitra_model::time::SECOND;

use super::clock;
use super::import::{DAY, Import, When};
use super::list::list;
use super::number::{Words, number, text, words};

/// What a file has said so far.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// The name of the file, which may tell what a file of bare numbers is: `proc/sys/net/ipv4/tcp_mem`.
    pub file_name: String,
    /// The date of the times of day that follow, in days since 1970.
    pub date: Option<i64>,
    /// The time of the block that follows, from a line of its own.
    pub stamp: Option<When>,
    /// Seconds between samples that have no time.
    pub interval_s: Option<f64>,
    /// The words of the command whose output follows, without the path of the program: `iostat`, `-xz`, `1`.
    pub command: Vec<String>,
    /// Whether the sampler that runs since the last header or prompt has printed a report: the first one of `iostat`
    /// is of the time since boot.
    pub underway: bool,
    /// Blank lines since the last header: `iostat -y` prints two where it leaves out the first report.
    pub blank_lines: Option<u32>,
    /// The next free position in the file's sequence of samples without times.
    pub step: u32,
    /// The names of the benchmark runs that the file has shown so far, and how often: a second run of a name needs one
    /// of its own.
    pub runs: Vec<(String, u32)>,
}

impl Context {
    /// Whether the command whose output follows is this program, with this flag somewhere (`None`: any).
    #[must_use]
    pub fn ran(&self, program: &str, flag: Option<char>) -> bool {
        self.command.first().is_some_and(|p| p == program)
            && flag.is_none_or(|f| {
                self.command.iter().any(|w| w.starts_with('-') && !w.starts_with("--") && w.contains(f))
            })
    }
}

/// Takes the line if it is one of these.
pub fn take(line: &[u8], import: &mut Import) -> bool {
    sysstat_header(line, import) || prompt(line, import) || stamp(line, import)
}

/// `Linux 6.1.0-30-amd64 (web-17)  11/21/26  _x86_64_  (4 CPU)`; the date follows the locale. A `Linux` line of
/// `uname -a` has no parenthesis after the release.
fn sysstat_header(line: &[u8], import: &mut Import) -> bool {
    let mut w = words(line);
    if w.next() != Some(b"Linux") {
        return false;
    }
    let (Some(release), Some(host)) = (w.next(), w.next()) else { return false };
    let Some(host) = host.strip_prefix(b"(").and_then(|h| h.strip_suffix(b")")) else { return false };
    let korean = clock::korean_date(w.rest()).map(|(date, _)| date);
    let Some(date) = w.next().and_then(clock::date).or(korean) else { return false };
    import.context.date = Some(date);
    import.context.stamp = None;
    import.context.underway = false;
    import.context.blank_lines = Some(0);
    if import.host.kernel.is_empty() {
        import.host.kernel = text(release);
    }
    if import.host.hostname.is_empty() {
        import.host.hostname = text(host);
    }
    let mut last = None;
    for word in w {
        if word.starts_with(b"CPU") {
            let cpus = last.and_then(|c: &[u8]| number(c.strip_prefix(b"(").unwrap_or(c)));
            if let Some(cpus) = cpus.filter(|c| (1.0..=65_536.0).contains(c)) {
                import.host.cpus = import.host.cpus.max(cpus as u32);
            }
        }
        last = Some(word);
    }
    true
}

/// Programs whose last whole number is an interval, or whose last two are interval and count.
const SAMPLERS: &[&[u8]] = list!("iostat vmstat mpstat pidstat sar cachestat nfsiostat cifsiostat");

/// The program of `$ vmstat 1`, `# iostat -xz 1`, `root@host:~# free -m`, `[me@host ~]$ top -b`, and the words behind it.
fn program(line: &[u8]) -> Option<(&[u8], Words<'_>)> {
    const NAMES: &[&[u8]] = list!(
        "iostat vmstat mpstat pidstat sar sadf cachestat free top ps df mount lsblk ip ifconfig tc
         conntrack ethtool netstat nstat ss sysctl cat grep slabtop numastat uptime strace perf
         biolatency bitesize biosnoop runqlat dmesg journalctl atop uname date head tail watch mkfs.xfs
         wrk fio sysbench ab hey vegeta bpftrace offcputime execsnoop opensnoop tcpretrans smem pmap
         jstat jcmd smartctl turbostat nfsstat iftop crictl kubectl below psql
         multipath lvs dmsetup dmidecode nvme pmrep jfr numactl mdadm xfs_info
         nfsiostat cifsiostat tapestat iotop dstat dool collectl docker podman blkparse curl mysql"
    );
    let mut list = words(behind_mark(line.trim_ascii())?);
    let mut program = list.next();
    let is_root = program == Some(b"sudo");
    if is_root {
        program = list.next();
    }
    let program = program?;
    let name = program.rsplit(|b| *b == b'/').next().unwrap_or(program);
    let name =
        [&b"-bpfcc"[..], b".bt", b".py"].iter().find_map(|end| name.strip_suffix(*end)).unwrap_or(name);
    // What is run from the folder or as root is a command, whatever its name.
    (NAMES.contains(&name) || program.starts_with(b"./") || is_root).then_some((name, list))
}

/// A line with a command.
fn prompt(line: &[u8], import: &mut Import) -> bool {
    let Some((name, list)) = program(line) else { return false };
    let command: Vec<String> = std::iter::once(name).chain(list).map(text).collect();
    import.context.interval_s = None;
    import.context.underway = false;
    import.context.blank_lines = None;
    if SAMPLERS.contains(&name) {
        let numbers: Vec<f64> =
            command.iter().skip(1).rev().map_while(|w| number(w.as_bytes())).filter(|n| *n > 0.0).collect();
        import.context.interval_s = match numbers.as_slice() {
            [] => None,
            [one] => Some(*one),
            [.., _] => numbers.get(1).copied(),
        };
    }
    import.context.command = command;
    true
}

/// What stands behind the mark of a prompt. A prompt is one or two words: `me@host:~/dir`, `[root@host ~]`.
fn behind_mark(line: &[u8]) -> Option<&[u8]> {
    const MARKS: &[u8] = b"#$%>";
    let mut found = [None; MARKS.len()];
    let (mut words, mut inside) = (0, false);
    for (i, byte) in line.iter().enumerate().take(82) {
        // The word that the mark itself may be is not before it.
        if words > 2 {
            break;
        }
        if let Some(slot) = MARKS.iter().position(|m| m == byte).and_then(|m| found.get_mut(m))
            && i <= 80
            && slot.is_none()
            && line.get(i + 1) == Some(&b' ')
        {
            *slot = Some(i);
        }
        let blank = matches!(byte, b' ' | b'\t');
        words += i32::from(!blank && !inside);
        inside = !blank;
    }
    found.into_iter().flatten().next().and_then(|at| line.get(at + 2..))
}

/// A time on a line of its own, or after a mark: `zzz ***Sat Sep 10 10:53:32 CEST 2016`, `Sat 21 Nov 2026 …` of
/// `date`, `2016-09-10 10:53:32`, `TS 1474363244`, `@1474363244`.
fn stamp(line: &[u8], import: &mut Import) -> bool {
    let Some(t) = time_of(line, import.context.date) else { return false };
    // OSWatcher runs each tool anew behind its mark.
    import.context.underway &= behind_zzz(line).is_none();
    import.context.stamp = Some(t);
    if let When::At(t) = t {
        import.context.date.get_or_insert(t.div_euclid(DAY));
    }
    true
}

fn behind_zzz(line: &[u8]) -> Option<&[u8]> {
    let rest = line.trim_ascii().strip_prefix(b"zzz")?.trim_ascii();
    Some(rest.strip_prefix(b"***").unwrap_or(rest).trim_ascii())
}

/// Whether a line stands between outputs: a command, or a time with a date. A row may have a time of day.
pub fn is_between(line: &[u8]) -> bool {
    matches!(time_of(line, None), Some(When::At(_))) || program(line).is_some()
}

/// The time that such a line says.
fn time_of(line: &[u8], date: Option<i64>) -> Option<When> {
    let whole = behind_zzz(line).unwrap_or(line.trim_ascii());
    let of_mark = |mark: &&[u8]| {
        let seconds = whole.strip_prefix(*mark).and_then(number).filter(|s| (1e9..4e9).contains(s))?;
        Some(When::At((seconds * SECOND as f64) as i64))
    };
    clock::whole_line(whole, date).or_else(|| [&b"TS "[..], b"@", b"ts="].iter().find_map(of_mark))
}
