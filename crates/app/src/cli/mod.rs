//! Every flag of every command, in one place: help, manual, completions and `docs/commands.md` come from here.

mod about;
mod archive;
mod demo;
pub mod examples;
mod experiment;
mod explain;
mod fleet;
mod inspect;
mod load;
mod notify;
mod probes;
mod record;
mod replay;
mod rules;
mod search;
mod send;
mod serve;
mod services;
mod shared;
mod upload;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::values::time::TimeRange;
pub use about::{
    CompletionsArgs, ConditionsArgs, DocsArgs, DoctorArgs, GraphFormat, ManArgs, MetricsArgs, XfsGeometryArgs,
};
pub use archive::{DumpArgs, DumpFormat, ExportArgs, StatusArgs};
pub use demo::{DemoArgs, DemoIncident};
pub use experiment::ExperimentArgs;
pub use explain::{Baseline, CompareArgs, ExplainArgs, ImportArgs};
pub use fleet::{FleetArgs, FleetCommand, FleetListArgs, FleetSetupArgs, FleetTimeArgs, FleetWhyArgs};
pub use inspect::{
    HeapPart, InspectArgs, InspectCommand, InspectDiffArgs, InspectHeapArgs, InspectMemoryArgs,
    InspectResolverArgs,
};
pub use load::{HeaderContent, LoadArgs, LoadCommand, LoadMergeArgs};
pub use notify::NotifyArgs;
pub use probes::{ArmedArgs, CaptureArgs};
pub use record::{LiveArgs, RecordArgs, SamplingArgs};
pub use replay::ReplayArgs;
pub use rules::{RulesArgs, RulesCheckArgs, RulesCommand, RulesListArgs, RulesTestArgs};
pub use search::{DiffArgs, IndexArgs, IndexLocationArgs, OutliersArgs, ScopeArgs, SearchArgs, ShowArgs};
pub use send::SendArgs;
pub use serve::{DbusArgs, Listen, McpArgs, ServeArgs, StartedBy};
pub use services::ServicesArgs;
pub use shared::{ArchiveArgs, FolderArgs, RangeArgs, ReportArgs, ReportFormat, SelectArgs};
pub use upload::UploadArgs;

/// Why was this machine slow? Mitra records it at one-second resolution and names the root cause.
#[derive(Debug, Parser)]
#[command(name = "mitra", version, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = examples::of_all())]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Colours: auto, always or never
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "auto",
        value_name = "WHEN",
        hide_possible_values = true
    )]
    pub color: ColorChoice,
    /// Print long output to the terminal without a pager
    #[arg(long, global = true)]
    pub no_pager: bool,
}

/// The commands as the help of the program groups them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Record", &["record", "live", "notify", "send", "status", "import", "export", "upload"]),
    (
        "Explain",
        &["explain", "replay", "compare", "experiment", "services", "dump", "serve", "mcp", "dbus", "demo"],
    ),
    ("Probe", &["capture", "load", "rules", "doctor"]),
    ("Inspect", &["inspect"]),
    ("Search", &["index", "search", "show", "diff", "outliers", "fleet"]),
    ("Reference", &["conditions", "metrics", "xfs-geometry", "completions", "man", "help"]),
];

/// Lines are never wider.
const HELP_WIDTH_MAX: usize = 120;

/// The program with its commands in groups, which clap cannot do.
pub fn program() -> clap::Command {
    let mut command = Cli::command().max_term_width(HELP_WIDTH_MAX);
    command.build();
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        groups.push_str(&format!("{heading}:\n"));
        for name in *names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            groups
                .push_str(&format!("  {name:<12}  {}\n", about.map(ToString::to_string).unwrap_or_default()));
        }
        groups.push('\n');
    }
    Cli::command().max_term_width(HELP_WIDTH_MAX).help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

impl Cli {
    /// Whether a pager is for its output: it ends by itself, and is meant to be read.
    pub fn is_paged(&self) -> bool {
        let is_endless = match &self.command {
            Command::Record(_)
            | Command::Live(_)
            | Command::Dbus(_)
            | Command::Mcp(_)
            | Command::Load(_)
            | Command::Notify(_)
            | Command::Send(_)
            | Command::Replay(_)
            | Command::Upload(_)
            | Command::Armed(_)
            | Command::Names
            | Command::Page => true,
            Command::Experiment(args) => args.again.is_none(),
            Command::Index(args) => args.service,
            Command::Inspect(args) => {
                matches!(&args.command, InspectCommand::Heap(heap) if heap.watch.is_some())
            }
            _ => false,
        };
        !self.no_pager && !is_endless
    }
}

/// Takes a command line apart. A wrong one ends the process, with what is wrong.
pub fn parse(given: impl Iterator<Item = OsString>) -> Cli {
    let read =
        program().try_get_matches_from(arguments(given)).and_then(|found| Cli::from_arg_matches(&found));
    read.unwrap_or_else(|error| with_tip(error).exit())
}

/// Says what a number should be, and what to do with a process id where a subcommand was wanted: `mitra inspect 4242`.
fn with_tip(mut error: clap::Error) -> clap::Error {
    if let Some(wanted) = std::error::Error::source(&error).and_then(|why| number_wanted(&why.to_string()))
        && let (Some(value), Some(flag)) =
            (error.get(ContextKind::InvalidValue), error.get(ContextKind::InvalidArg))
    {
        let text = format!(
            "invalid value '{value}' for '{flag}': {wanted}\n\nFor more information, try '--help'.\n"
        );
        return clap::Error::raw(error.kind(), text);
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand).cloned() else {
        return error;
    };
    if word.bytes().all(|b| b.is_ascii_digit()) {
        let tip =
            format!("to look into process {word}: mitra inspect memory {word}, or mitra inspect heap {word}");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// What was wanted where a number cannot be read, in place of Rust's words.
fn number_wanted(why: &str) -> Option<&'static str> {
    match why {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            Some("not a whole number")
        }
        "invalid float literal" => Some("not a number; want 10 or 0.5"),
        _ if why.ends_with(" is not in 1..=4294967295") => Some("not the id of a process"),
        _ => None,
    }
}

/// The arguments of this process. Clap would take a range that begins with a dash, `-2h..-1h`, for a
/// flag: it gets a space in front, which the parser of times ignores.
pub fn arguments(given: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    given.map(|argument| match argument.to_str() {
        Some(text) if is_range(text) => format!(" {text}").into(),
        _ => argument,
    })
}

fn is_range(text: &str) -> bool {
    let digit = text.strip_prefix('-').and_then(|rest| rest.chars().next());
    digit.is_some_and(|c| c.is_ascii_digit()) && text.parse::<TimeRange>().is_ok()
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Explain an incident that comes with Mitra
    Demo(DemoArgs),
    /// Record this machine until stopped
    Record(RecordArgs),
    /// Say why the machine was slow
    Explain(ExplainArgs),
    /// Travel through a recording on a screen as of top
    Replay(ReplayArgs),
    /// Say what differs between two times, folders or benchmark runs
    Compare(CompareArgs),
    /// Compare variants of a system by repeated runs of a workload
    Experiment(ExperimentArgs),
    /// Write other tools' output into an archive
    Import(ImportArgs),
    /// Record, and explain incidents as they happen
    Live(LiveArgs),
    /// Tell people and programs of incidents, as they happen
    Notify(NotifyArgs),
    /// Send samples to Prometheus, OpenTelemetry and other stores
    Send(SendArgs),
    /// Run an on-demand probe: off-CPU time, CPU time, page faults, …
    Capture(CaptureArgs),
    /// Make HTTP load at a constant rate, and measure the answers
    Load(LoadArgs),
    /// Look into the memory of a process, or follow lookups of a name
    Inspect(InspectArgs),
    /// Read files and settings of this machine into the index
    Index(IndexArgs),
    /// Find documents, hosts or values, today or on any day
    Search(SearchArgs),
    /// Show a file of a host, now or at any time
    Show(ShowArgs),
    /// Show what changed in a file, or differs between two hosts
    Diff(DiffArgs),
    /// Show which hosts differ from their peers, and in what
    Outliers(OutliersArgs),
    /// Show incidents of a cluster's hosts, and what ill ones share
    Fleet(FleetArgs),
    /// Show how services answer, how fast, and what they wait for
    Services(ServicesArgs),
    /// Show an archive in a browser; answer questions over HTTP
    Serve(ServeArgs),
    /// Give an assistant the tools to ask an archive (MCP)
    Mcp(McpArgs),
    /// Answer on the system bus (D-Bus), and signal incidents there
    Dbus(DbusArgs),
    /// Show recorded values
    Dump(DumpArgs),
    /// Show what an archive holds and what recording costs
    Status(StatusArgs),
    /// Write an archive as Parquet, PCP, sar, sadf, atop or a trace
    Export(ExportArgs),
    /// Store the segments of an archive in an object store (S3)
    Upload(UploadArgs),
    /// Say what this kernel and these privileges let Mitra see
    Doctor(DoctorArgs),
    /// List the conditions Mitra knows, or show the manual of one
    Conditions(ConditionsArgs),
    /// Check, list and test the rules that start probes and commands
    Rules(RulesArgs),
    /// Work out the layout of XFS on a RAID, for mkfs.xfs
    XfsGeometry(XfsGeometryArgs),
    /// List everything that is measured
    Metrics(MetricsArgs),
    /// Write the completions of a shell
    Completions(CompletionsArgs),
    /// Write the manual pages
    Man(ManArgs),
    /// Write docs/ from the tables in the code
    #[command(hide = true)]
    Docs(DocsArgs),
    /// Arm probes for a recorder: what they saw goes to its archive, an event on each line to standard output
    #[command(hide = true)]
    Armed(ArmedArgs),
    /// Read programs that anybody may have written, for the process that started it: questions come on standard input
    #[command(hide = true)]
    Names,
    /// Show standard input through the pager, for the process that started it
    #[command(hide = true)]
    Page,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::time::TimeExpr;

    #[test]
    fn flags_are_consistent() {
        Cli::command().debug_assert();
        program().debug_assert();
    }

    /// The help of a command and of all below it, as `--help` prints it.
    fn help(command: &mut clap::Command, name: &str, out: &mut String) {
        out.push_str(&format!("$ {name} --help\n{}\n", command.render_long_help()));
        for below in command.get_subcommands_mut().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
            help(below, &format!("{name} {}", below.get_name()), out);
        }
    }

    #[test]
    fn the_whole_help() {
        for width in [120, 80] {
            let mut all = String::new();
            let mut root = program().term_width(width);
            root.build();
            help(&mut root, "mitra", &mut all);
            let too_wide: Vec<&str> = all.lines().filter(|line| line.chars().count() > width).collect();
            assert!(too_wide.is_empty(), "{too_wide:#?}");
            // The words are the same at each width.
            if width == 80 {
                insta::assert_snapshot!("help_80", all);
            }
        }
    }

    #[test]
    fn each_command_is_in_one_group() {
        let mut root = Cli::command();
        root.build();
        let public = root.get_subcommands().filter(|c| !c.is_hide_set()).map(clap::Command::get_name);
        let mut public: Vec<&str> = public.collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        public.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(public, grouped);
    }

    #[test]
    fn ranges_may_begin_with_a_dash_beside_flags() {
        let given = ["mitra", "compare", "-2h..-1h", "-1h..now", "--all", "--archive", "/x"];
        let cli = Cli::try_parse_from(arguments(given.into_iter().map(OsString::from))).unwrap();
        let Command::Compare(args) = cli.command else { panic!("not compare") };
        assert!(args.all && args.sides.len() == 2);
        let Baseline::Range(range) = &args.sides[0] else { panic!("not a range") };
        assert_eq!(range.since, TimeExpr::Ago(7_200_000_000_000));
        assert!(!is_range("-h") && !is_range("--all") && !is_range("-2h"));
    }

    #[test]
    fn limits_have_one_name_and_the_old_one_is_understood() {
        for (given, limit) in [("--limit", 7), ("--rows", 7)] {
            let parsed = |args: &[&str]| {
                Cli::try_parse_from([&["mitra"], args, &[given, "7"]].concat()).unwrap().command
            };
            let Command::Capture(capture) = parsed(&["capture", "offcpu"]) else { panic!("not capture") };
            assert_eq!(capture.limit, limit);
            let Command::Inspect(args) = parsed(&["inspect", "memory", "1"]) else { panic!("not inspect") };
            let InspectCommand::Memory(memory) = args.command else { panic!("not memory") };
            assert_eq!(memory.limit, limit);
        }
        let mut root = Cli::command();
        let help = root.find_subcommand_mut("capture").unwrap().render_help().to_string();
        assert!(help.contains("--limit <N>") && !help.contains("--rows"), "{help}");
    }

    #[test]
    fn a_process_id_without_a_subcommand_gets_a_tip() {
        let said = |word: &str| {
            let error = Cli::try_parse_from(["mitra", "inspect", word]).unwrap_err();
            with_tip(error).to_string()
        };
        let tip = "mitra inspect memory 4242, or mitra inspect heap 4242";
        assert!(said("4242").contains(tip), "{}", said("4242"));
        let typo = said("haep");
        assert!(typo.contains("'heap'") && !typo.contains("process"), "{typo}");
    }

    #[test]
    fn a_time_may_begin_with_a_dash() {
        let cli = Cli::try_parse_from(["mitra", "explain", "--since", "-2h", "--until", "-1h"]).unwrap();
        let Command::Explain(args) = cli.command else { panic!("not explain") };
        assert_eq!(args.range.since, Some(TimeExpr::Ago(7_200_000_000_000)));
    }
}
