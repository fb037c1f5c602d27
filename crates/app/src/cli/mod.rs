//! Every flag of every command, in one place: help, manual, completions and `docs/commands.md` come from here.

mod about;
mod archive;
mod demo;
pub mod examples;
mod explain;
mod inspect;
mod probes;
mod record;
mod rules;
mod search;
mod serve;
mod services;
mod shared;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::{ColorChoice, Parser, Subcommand};

use crate::values::time::TimeRange;
pub use about::{
    CompletionsArgs, ConditionsArgs, DocsArgs, DoctorArgs, GraphFormat, ManArgs, MetricsArgs, XfsGeometryArgs,
};
pub use archive::{DumpArgs, DumpFormat, ExportArgs, StatusArgs};
pub use demo::{DemoArgs, DemoIncident};
pub use explain::{Baseline, CompareArgs, ExplainArgs, ImportArgs, ReportFormat};
pub use inspect::{
    HeapPart, InspectArgs, InspectCommand, InspectDiffArgs, InspectHeapArgs, InspectMemoryArgs,
};
pub use probes::{ArmedArgs, CaptureArgs};
pub use record::{LiveArgs, RecordArgs, SamplingArgs};
pub use rules::{RulesArgs, RulesCheckArgs, RulesCommand, RulesListArgs, RulesTestArgs};
pub use search::{DiffArgs, IndexArgs, IndexLocationArgs, OutliersArgs, ScopeArgs, SearchArgs, ShowArgs};
pub use serve::{Listen, ServeArgs};
pub use services::ServicesArgs;
pub use shared::{ArchiveArgs, RangeArgs, SelectArgs};

/// Why was this machine slow? Mitra records it at one-second resolution and names the root cause.
#[derive(Debug, Parser)]
#[command(name = "mitra", version, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = examples::of_all())]
pub struct Cli {
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
    pub color: ColorChoice,
}

/// Takes a command line apart. A wrong one ends the process, with what is wrong.
pub fn parse(given: impl Iterator<Item = OsString>) -> Cli {
    Cli::try_parse_from(arguments(given)).unwrap_or_else(|error| with_tip(error).exit())
}

/// Says what to do with a process id where a subcommand was wanted: `mitra inspect 4242`.
fn with_tip(mut error: clap::Error) -> clap::Error {
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
    /// Explain an incident that was recorded on another machine and comes with Mitra
    Demo(DemoArgs),
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
    /// Look into the memory of a running process, from outside and without stopping it
    Inspect(InspectArgs),
    /// Read files and settings of this machine into the index, once or as a service
    Index(IndexArgs),
    /// Ask the index: documents, hosts or values, today or on any day
    Search(SearchArgs),
    /// Show what a file of a host said, now or at any time
    Show(ShowArgs),
    /// Show what changed in a file of a host, or what differs between two hosts
    Diff(DiffArgs),
    /// Show which hosts differ from their peers, and in what
    Outliers(OutliersArgs),
    /// Show what each service answered, how fast, and what it waits for
    Services(ServicesArgs),
    /// Answer questions about an archive over HTTP, and show it in a browser
    Serve(ServeArgs),
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
    /// Read programs that anybody may have written, for the process that started it: questions come on standard input
    #[command(hide = true)]
    Names,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::values::time::TimeExpr;

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
