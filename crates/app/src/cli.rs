//! Every flag of every command, in one place: help, manual, completions and `docs/commands.md` come from here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use mitra_diagnose::geometry::Level;

use crate::commands::xfs_geometry;
use crate::render::style::Color;
use crate::when::{Range, When, duration, size};

/// Why was this machine slow? Mitra records it at one-second resolution and names the root cause.
#[derive(Debug, Parser)]
#[command(name = "mitra", version, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage.\n\
                        Times: now, -2h, -1h30m, 14:03, 2026-11-21 14:03, RFC 3339, @epoch.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Colours: auto (on a terminal, NO_COLOR respected), always or never
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "auto",
        value_name = "WHEN",
        hide_possible_values = true
    )]
    pub color: Color,
}

/// The arguments of this process. A range that begins with a dash, `-2h..-1h`, would be taken for a flag where it stands
/// by itself: it gets a space in front, which the parser of times passes over.
pub fn arguments(given: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    given.map(|argument| match argument.to_str() {
        Some(text) if is_range(text) => format!(" {text}").into(),
        _ => argument,
    })
}

fn is_range(text: &str) -> bool {
    let digit = text.strip_prefix('-').and_then(|rest| rest.chars().next());
    digit.is_some_and(|c| c.is_ascii_digit()) && text.parse::<Range>().is_ok()
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Record this machine into an archive until stopped
    Record(RecordArgs),
    /// Say why the machine was slow
    Explain(ExplainArgs),
    /// Say what differs between two times of a recording, two folders of other tools' output, or runs of a benchmark
    Compare(CompareArgs),
    /// Write other tools' output into an archive, so that every command works on it
    Import(ImportArgs),
    /// Record and watch: incidents are explained as they happen
    Live(LiveArgs),
    /// Arm a probe that costs too much to run always: off-CPU time, CPU time, page faults, … by stack
    Capture(CaptureArgs),
    /// Show recorded values
    Dump(DumpArgs),
    /// Show what an archive holds and what it costs
    Status(StatusArgs),
    /// Write an archive in a format of other tools
    Export(ExportArgs),
    /// Say what this kernel and these privileges let Mitra see
    Doctor(DoctorArgs),
    /// Show the conditions that Mitra knows, or the manual page of one
    Conditions(ConditionsArgs),
    /// Check, list and try the rules that arm probes and run commands
    Rules(RulesArgs),
    /// Work out the layout of XFS on a RAID, and the options of mkfs.xfs
    XfsGeometry(XfsGeometryArgs),
    /// Show the table of everything that is measured
    Metrics(MetricsArgs),
    /// Write the completions of a shell to standard output
    Completions(CompletionsArgs),
    /// Write the manual pages
    Man(ManArgs),
    /// Write docs/ from the tables in the code
    #[command(hide = true)]
    Docs(DocsArgs),
    /// Arm probes for a recorder: what they saw goes to its archive, an event on each line to standard output
    #[command(hide = true)]
    Armed(ArmedArgs),
}

/// Which archive.
#[derive(Debug, Clone, Args)]
pub struct ArchiveArgs {
    /// The archive's directory [default: /var/lib/mitra as root, else $XDG_STATE_HOME/mitra]
    #[arg(long, value_name = "DIR")]
    pub archive: Option<PathBuf>,
}

/// Which part of it.
#[derive(Debug, Clone, Args)]
pub struct RangeArgs {
    /// From when on: 14:03, -2h, 2026-11-21 14:03, RFC 3339 or @epoch
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub since: Option<When>,
    /// Until when [default: the end of the recording]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub until: Option<When>,
}

/// How to record.
#[derive(Debug, Clone, Args)]
pub struct SamplingArgs {
    /// Time between two samples, 100ms to 10m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub interval: Duration,
    /// Oldest data go when the archive is larger than this
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = size)]
    pub max_bytes: u64,
    /// Data older than this go
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = duration)]
    pub max_age: Duration,
    /// Read /proc only, load no BPF program
    #[arg(long)]
    pub no_bpf: bool,
    /// The configuration file with rules of one's own [default: /etc/mitra/mitra.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Arm no probe and run no command, whatever looks wrong
    #[arg(long)]
    pub no_arm: bool,
    /// Share of one CPU above which detail is left out
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, value_parser = share)]
    pub cpu_budget: f64,
    /// Memory above which detail is left out
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    pub memory_budget: u64,
}

/// A share: `0.05` or `5%`.
fn share(text: &str) -> Result<f64, String> {
    let bad = || "not a share; want 0.05 or 5%".to_owned();
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map_err(|_| bad())? / 100.0,
        None => text.parse().map_err(|_| bad())?,
    };
    if share > 0.0 && share <= 1.0 { Ok(share) } else { Err(bad()) }
}

/// `mitra record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Where to.
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// How.
    #[command(flatten)]
    pub sampling: SamplingArgs,
}

/// `mitra explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// From where.
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// What [default: the last hour of the recording]
    #[command(flatten)]
    pub range: RangeArgs,
    /// The good side to compare with: a time as SINCE..UNTIL, or a file or folder of other tools' output [default: the
    /// quiet time beside each incident; folders named baseline…, good…, before…, at-start, after-fix]
    #[arg(long, value_name = "RANGE|PATH", allow_hyphen_values = true)]
    pub baseline: Option<Baseline>,
    /// Print the report as JSON, schema mitra.report/1
    #[arg(long)]
    pub json: bool,
    /// Also write the report with drawings as one page for a browser; - is standard output, and then only the page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// The date of files that have times but no date, as 2026-11-21
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub date: Option<i64>,
    /// Files and folders of other tools' output to explain in place of an archive: sar, iostat, vmstat, pidstat, top,
    /// strace, kernel logs, /proc files, heaps, benchmarks, … (all of them: docs/formats.md)
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// `mitra compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Of times: from where.
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// What to compare, the usual or earlier side first: times of the archive as SINCE..UNTIL, or files and folders of
    /// other tools' output; several runs of a benchmark in a folder are repetitions
    #[arg(value_name = "RANGE|PATH", required = true)]
    pub sides: Vec<Baseline>,
    /// List also what is not sure, or too small to matter
    #[arg(long)]
    pub all: bool,
    /// Print JSON, schema mitra.compare/1
    #[arg(long)]
    pub json: bool,
    /// Also write one page with drawings for a browser; - is standard output, and then only the page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// The date of files that have times but no date, as 2026-11-21
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub date: Option<i64>,
}

/// `mitra import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Where to; made if it is not there.
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// The date of files that have times but no date, as 2026-11-21
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub date: Option<i64>,
    /// Files and folders of other tools' output
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
}

/// The good side: a time of the archive or a place of files.
#[derive(Debug, Clone)]
pub enum Baseline {
    /// A time.
    Range(Range),
    /// A file or folder.
    Path(PathBuf),
}

impl std::str::FromStr for Baseline {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse::<Range>() {
            Ok(range) => Ok(Baseline::Range(range)),
            Err(_) if std::path::Path::new(text).exists() => Ok(Baseline::Path(text.into())),
            Err(error) => Err(format!("{error}, and there is no file or folder of that name")),
        }
    }
}

/// A date in days since 1970.
fn date(text: &str) -> Result<i64, String> {
    mitra_parse::text::clock::date(text.as_bytes()).ok_or_else(|| "not a date; want 2026-11-21".to_owned())
}

/// `mitra live`.
#[derive(Debug, Args)]
pub struct LiveArgs {
    /// Where to, or what a recorder is already writing to.
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// How.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Print incidents as plain lines even on a terminal
    #[arg(long)]
    pub plain: bool,
}

/// `mitra capture`.
#[derive(Debug, Args)]
#[command(after_help = "Needs root, or CAP_BPF and CAP_PERFMON. It needs no recorder, and runs beside one.")]
pub struct CaptureArgs {
    /// What: offcpu, oncpu, faults, …; --list shows all
    #[arg(value_name = "KIND", required_unless_present_any = ["list", "show"])]
    pub kind: Option<String>,
    /// List the kinds, with what they cost
    #[arg(long, conflicts_with = "show")]
    pub list: bool,
    /// Show a capture that was made before: a file, the beginning of its name in the archive, or latest
    #[arg(long, value_name = "FILE|latest")]
    pub show: Option<String>,
    /// Only this process, with all its threads
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Only threads of this name
    #[arg(long, value_name = "NAME")]
    pub comm: Option<String>,
    /// Only this group of cgroup2: /system.slice/nginx.service
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<String>,
    /// For how long; Ctrl-C ends it early
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub seconds: f64,
    /// End after so many events
    #[arg(long, value_name = "COUNT")]
    pub events: Option<u64>,
    /// Share of one CPU that it may take, on average; it ends when it has had it
    #[arg(long, value_name = "SHARE", default_value = "2%", value_parser = share)]
    pub budget: f64,
    /// Only what lasts at least so long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub min: Option<Duration>,
    /// Of offcpu: only waits that nothing can interrupt (state D)
    #[arg(long)]
    pub d_only: bool,
    /// An option of the kind; --list shows them
    #[arg(long, value_name = "NAME=VALUE")]
    pub option: Vec<String>,
    /// Why it is made; it is kept with the capture
    #[arg(long, value_name = "TEXT", default_value = "by hand", hide_default_value = true)]
    pub why: String,
    /// Rows of each table that are printed
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub rows: usize,
    /// Print JSON, schema mitra.capture/1
    #[arg(long)]
    pub json: bool,
    /// Write the stacks as lines of frames and a weight; - is standard output, and then only they
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// Write the stacks as a flame graph, one page for a browser; - is standard output, and then only the page
    #[arg(long, value_name = "FILE")]
    pub flame: Option<PathBuf>,
    /// Where it is kept: in the folder captures of the archive.
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// Do not keep it
    #[arg(long, conflicts_with = "archive")]
    pub no_archive: bool,
}

/// How `mitra dump` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DumpFormat {
    /// Columns for people
    Table,
    /// One line for each value: time,metric,entity,row,value
    Csv,
    /// One JSON object for each value
    Json,
}

/// Which metrics, of which things.
#[derive(Debug, Clone, Args)]
pub struct SelectArgs {
    /// Names with * and ?, separated by commas: mem.*,vm.pgscan_*
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub metric: Vec<String>,
    /// Only metrics of this kind of thing: system, cpu, disk, task, …
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub entity: Vec<String>,
    /// Only things whose name matches, with * and ?: vda, /system.slice/*; of a task its thread id
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub row: Vec<String>,
}

/// `mitra dump`.
#[derive(Debug, Args)]
pub struct DumpArgs {
    /// From where.
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// When [default: the last minute of the recording]
    #[command(flatten)]
    pub range: RangeArgs,
    /// What.
    #[command(flatten)]
    pub select: SelectArgs,
    /// How to print: table, csv (a line for each value) or json (an object on a line for each value)
    #[arg(long, value_enum, default_value = "table", hide_possible_values = true)]
    pub format: DumpFormat,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Counters as the kernel counts them, not as rates
    #[arg(long)]
    pub raw: bool,
    /// List what the archive holds instead of the values
    #[arg(long)]
    pub list: bool,
}

/// `mitra status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Of which.
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `mitra export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// From where.
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// When [default: everything]
    #[command(flatten)]
    pub range: RangeArgs,
    /// What.
    #[command(flatten)]
    pub select: SelectArgs,
    /// Write Parquet to this file, or to a file in this directory
    #[arg(long, value_name = "FILE", required = true)]
    pub parquet: PathBuf,
}

/// `mitra doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `mitra conditions`.
#[derive(Debug, Args)]
pub struct ConditionsArgs {
    /// Show the manual page of this one
    #[arg(value_name = "ID", conflicts_with = "graph")]
    pub id: Option<String>,
    /// Show which condition can cause which
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "text", require_equals = true, value_name = "FORMAT")]
    pub graph: Option<GraphFormat>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How to show the mechanism graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    /// Lines: what each condition can cause
    Text,
    /// The language of Graphviz
    Dot,
}

/// `mitra xfs-geometry`.
#[derive(Debug, Args)]
pub struct XfsGeometryArgs {
    /// raid0, raid1, raid5, raid6 or raid10
    #[arg(long, value_name = "LEVEL", value_parser = xfs_geometry::level)]
    pub level: Level,
    /// Disks of the array, without spares
    #[arg(long, value_name = "N")]
    pub disks: u64,
    /// The chunk: bytes on one disk before the next comes; k, m, g are powers of 1024. Not needed for raid1
    #[arg(long, value_name = "SIZE", value_parser = xfs_geometry::bytes)]
    pub stripe_unit: Option<u64>,
    /// Size of the device, as 12t or in blocks as 2925527040b: then the size of the allocation groups is worked out
    #[arg(long, value_name = "SIZE", value_parser = xfs_geometry::size)]
    pub size: Option<xfs_geometry::Size>,
    /// Number of allocation groups [default: what mkfs.xfs chooses]
    #[arg(long, value_name = "N", requires = "size")]
    pub ag_count: Option<u64>,
    /// Bytes of a block of the file system
    #[arg(long, value_name = "SIZE", default_value = "4096", value_parser = xfs_geometry::bytes)]
    pub block_size: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `mitra rules`.
#[derive(Debug, Args)]
pub struct RulesArgs {
    /// What to do with them.
    #[command(subcommand)]
    pub command: RulesCommand,
}

/// What to do with the rules.
#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Say whether the configuration file makes sense
    Check(RulesCheckArgs),
    /// Show the rules, one's own and the built-in ones
    List(RulesListArgs),
    /// Say when rules would have held in a recording or other tools' output, and what they would have done; does nothing
    Test(RulesTestArgs),
}

/// Which rules.
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    /// The configuration file [default: /etc/mitra/mitra.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `mitra rules check`.
#[derive(Debug, Args)]
pub struct RulesCheckArgs {
    /// The file [default: /etc/mitra/mitra.toml]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// `mitra rules list`.
#[derive(Debug, Args)]
pub struct RulesListArgs {
    /// From where.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Show only this one, with all that is known of it
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `mitra rules test`.
#[derive(Debug, Args)]
pub struct RulesTestArgs {
    /// On which recording.
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// On which part [default: everything]
    #[command(flatten)]
    pub range: RangeArgs,
    /// The rules.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Only this rule
    #[arg(long, value_name = "NAME")]
    pub rule: Option<String>,
    /// In place of the rules, this condition: "sys.forks > 500/s for 3s"
    #[arg(long, value_name = "CONDITION", conflicts_with = "rule")]
    pub when: Option<String>,
    /// Print JSON, schema mitra.rules-test/1
    #[arg(long)]
    pub json: bool,
    /// Files and folders of other tools' output in place of an archive
    #[arg(value_name = "PATH", conflicts_with_all = ["archive", "since", "until"])]
    pub paths: Vec<PathBuf>,
}

/// `mitra armed`.
#[derive(Debug, Args)]
pub struct ArmedArgs {
    /// Where to.
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// Who or what wants it
    #[arg(long, value_name = "TEXT")]
    pub why: String,
    /// For how long
    #[arg(long, value_name = "SECONDS")]
    pub seconds: f64,
    /// Only this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Kinds with their options, each one argument: "offcpu d-only min=1ms"
    #[arg(value_name = "PROBE", required = true)]
    pub probes: Vec<String>,
}

/// `mitra metrics`.
#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// Names with * and ?
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Print the documentation page
    #[arg(long)]
    pub markdown: bool,
}

/// `mitra completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// `mitra man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write mitra.1 and one page for each command to this directory; without it, mitra.1 to standard output
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// `mitra docs`.
#[derive(Debug, Args)]
pub struct DocsArgs {
    /// The directory
    #[arg(value_name = "DIR", default_value = "docs")]
    pub dir: PathBuf,
    /// Write nothing; fail if a file would change
    #[arg(long)]
    pub check: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn flags_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn ranges_may_begin_with_a_dash_beside_flags() {
        let given = ["mitra", "compare", "-2h..-1h", "-1h..now", "--all", "--archive", "/x"];
        let cli = Cli::try_parse_from(arguments(given.into_iter().map(OsString::from))).unwrap();
        let Command::Compare(args) = cli.command else { panic!("not compare") };
        assert!(args.all && args.sides.len() == 2);
        let Baseline::Range(range) = &args.sides[0] else { panic!("not a range") };
        assert_eq!(range.since, When::Ago(7_200_000_000_000));
        assert!(!is_range("-h") && !is_range("--all") && !is_range("-2h"));
    }

    #[test]
    fn shares_have_bounds() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.05"), Ok(0.05));
        for bad in ["0", "-1", "1.5", "200%", "x", "nan"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_time_may_begin_with_a_dash() {
        let cli = Cli::try_parse_from(["mitra", "explain", "--since", "-2h", "--until", "-1h"]).unwrap();
        let Command::Explain(args) = cli.command else { panic!("not explain") };
        assert_eq!(args.range.since, Some(When::Ago(7_200_000_000_000)));
    }
}
