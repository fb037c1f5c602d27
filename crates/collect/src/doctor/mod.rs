//! What Mitra can observe on this machine, and what would have to change for more.

mod captures;
mod files;
mod kernel;
mod network;

use std::fmt;
use std::path::Path;

use crate::file::Root;

/// Whether something can be observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Yes.
    Yes,
    /// In part, or at a higher cost.
    Degraded,
    /// No.
    No,
}

/// One thing that Mitra wants to be able to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ability {
    /// What it is called.
    pub name: String,
    /// Whether it is there.
    pub state: State,
    /// Why, and what is lost without it.
    pub why: String,
    /// What would change it.
    pub fix: Option<Fix>,
}

/// What would change something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fix {
    /// A command of a shell.
    Command(String),
    /// Something that no command does by itself.
    Advice(&'static str),
    /// An argument of the kernel; how it gets there differs from distribution to distribution.
    Argument {
        /// The argument.
        text: &'static str,
        /// Whether it has to be there or has to go.
        is_wanted: bool,
    },
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fix::Command(text) => f.write_str(text),
            Fix::Advice(text) => f.write_str(text),
            Fix::Argument { text, is_wanted: true } => {
                write!(f, "add {text} to the kernel's command line and boot")
            }
            Fix::Argument { text, is_wanted: false } => {
                write!(f, "remove {text} from the kernel's command line and boot")
            }
        }
    }
}

impl Ability {
    fn yes(name: &str, why: impl Into<String>) -> Self {
        Ability { name: name.to_owned(), state: State::Yes, why: why.into(), fix: None }
    }

    fn no(name: &str, why: impl Into<String>) -> Self {
        Ability { state: State::No, ..Self::yes(name, why) }
    }

    fn degraded(name: &str, why: impl Into<String>) -> Self {
        Ability { state: State::Degraded, ..Self::yes(name, why) }
    }

    fn with_command(self, command: impl Into<String>) -> Self {
        Ability { fix: Some(Fix::Command(command.into())), ..self }
    }

    fn with_advice(self, advice: &'static str) -> Self {
        Ability { fix: Some(Fix::Advice(advice)), ..self }
    }

    fn with_argument(self, text: &'static str, is_wanted: bool) -> Self {
        Ability { fix: Some(Fix::Argument { text, is_wanted }), ..self }
    }
}

/// One look at one area.
type Check = fn(&Root, &mut Vec<Ability>);

/// Every look, in the order of the answer.
const CHECKS: &[Check] = &[
    kernel::version,
    kernel::privileges,
    kernel::lockdown,
    kernel::type_information,
    kernel::probes,
    captures::kinds,
    kernel::delay_accounting,
    kernel::pressure,
    kernel::run_delay,
    kernel::kernel_log,
    files::slabinfo,
    files::tasks_of_others,
    files::hidden_tasks,
    files::control_groups,
    files::block_statistics,
    network::queues,
    network::namespaces,
    files::own_limits,
    files::unknown_counters,
];

/// Looks at everything. Loads the BPF programs to see whether the kernel takes them, those of the armed probes too, which
/// needs a second and leaves nothing behind.
pub fn doctor(root: &Path) -> Vec<Ability> {
    let mut abilities = Vec::new();
    match Root::open(root) {
        Ok(root) => CHECKS.iter().for_each(|check| check(&root, &mut abilities)),
        Err(error) => {
            let cause =
                std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
            abilities.push(Ability::no("root", format!("{error}{cause}")));
        }
    }
    abilities
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ability_of_this_machine_has_a_reason_and_a_name_of_its_own() {
        let abilities = doctor(Path::new("/"));
        let mut names: Vec<_> = abilities.iter().map(|ability| ability.name.as_str()).collect();
        assert!(abilities.iter().all(|ability| !ability.why.is_empty()), "{abilities:#?}");
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(all >= 15, "{names:?}");
    }

    #[test]
    fn a_root_that_is_not_there_is_an_answer_too() {
        let abilities = doctor(Path::new("/nowhere/at/all"));
        assert_eq!(abilities.len(), 1);
        assert!(abilities[0].why.contains("/nowhere/at/all") && abilities[0].why.contains("No such file"));
    }

    #[test]
    fn a_tree_is_judged_by_its_own_files() {
        let dir = tempfile::tempdir().unwrap();
        let put = |below: &str, text: &str| {
            let path = dir.path().join(below);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("proc/sys/kernel/osrelease", "4.18.0-553.el8.x86_64\n");
        put("proc/sys/kernel/task_delayacct", "0\n");
        put("proc/vmstat", "nr_free_pages 5\nnr_of_tomorrow 7\n");
        put("proc/meminfo", "MemTotal: 1 kB\nTomorrow: 2 kB\n");
        put("sys/block/sda/queue/iostats", "0\n");
        let abilities = doctor(dir.path());
        let find = |name: &str| {
            abilities.iter().find(|ability| ability.name == name).unwrap_or_else(|| panic!("{name}"))
        };
        assert_eq!(find("kernel").state, State::Degraded);
        assert_eq!(
            find("delay accounting").fix,
            Some(Fix::Command("sysctl -w kernel.task_delayacct=1".to_owned()))
        );
        assert_eq!(find("pressure (PSI)").state, State::No);
        assert_eq!(find("probes").state, State::No);
        let unknown = &find("counters that this kernel has and Mitra does not know").why;
        assert!(
            unknown.contains("vmstat: nr_of_tomorrow") && unknown.contains("meminfo: Tomorrow"),
            "{unknown}"
        );
        assert!(
            find("block statistics")
                .fix
                .as_ref()
                .unwrap()
                .to_string()
                .contains("/sys/block/sda/queue/iostats")
        );
    }
}
