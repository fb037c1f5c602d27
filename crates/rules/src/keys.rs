//! What the configuration file may hold, as a table for its documentation. `config.rs` reads it; a test compares the two.

use crate::rule::{COOL_DOWN_S, OUTPUT_BYTES, PER_HOUR, SECONDS, TIMEOUT_S};
use crate::{config, policy};

/// A key of the file.
pub struct Key {
    /// The table that it stands in: `escalation`, `databases`, `services`, or `rule` of which there are many.
    pub table: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it says.
    pub help: String,
    /// What holds without it.
    pub usual: String,
}

/// Every key, in the order in which people write them.
#[must_use]
pub fn keys() -> Vec<Key> {
    let key = |table, name, help: &str, usual: &str| Key {
        table,
        name,
        help: help.to_owned(),
        usual: usual.to_owned(),
    };
    let up_to = |text: &str, most: f64, unit: &str| format!("{text}, up to {most} {unit}");
    let time = |seconds: f64| format!("{seconds} s");
    vec![
        key("escalation", "arm", "whether probes and commands run at all", "true"),
        key("escalation", "builtin", "whether the built-in triggers are active", "true"),
        key("escalation", "off", "built-in triggers to switch off, by name", "none"),
        key(
            "escalation",
            "seconds-per-hour",
            "seconds that probes run in an hour, all rules together",
            &time(policy::BUDGET_S),
        ),
        key(
            "databases",
            "ask",
            "whether MariaDB, MySQL, PostgreSQL and Redis are asked what their sessions wait for and which commands take \
             their time, HAProxy and PHP-FPM how many sessions and workers are taken, while they keep clients waiting; over \
             their own Unix socket, Redis and PostgreSQL without one also over TCP at an address of this machine, and without a password",
            "true",
        ),
        key(
            "services",
            "read-answers",
            "whether the first bytes of answers of HTTP/1, Redis, PostgreSQL, MySQL and Memcached are looked at inside the \
             kernel, to count how many are errors; no byte is kept",
            "false",
        ),
        key("rule", "name", "letters a to z, digits and dashes", "has to be there"),
        key("rule", "when", "the condition", "has to be there"),
        key("rule", "for", "how long it has to hold, if the condition does not say so", "one sample"),
        key("rule", "suspects", "the condition of the diagnosis that is suspected", "none"),
        key("rule", "why", "why that is suspicious, for the reader of the recording", "none"),
        key("rule", "arm", "probes with their options: `\"offcpu d-only min=1ms\"`", "none"),
        key(
            "rule",
            "pid-of",
            "whose process the probes watch: `culprit`, the row's own, or a number of each task or process of which the largest counts",
            "everybody's",
        ),
        key("rule", "seconds", &up_to("for how long probes run", config::SECONDS_MAX, "s"), &time(SECONDS)),
        key("rule", "command", "a program by its whole path, with its arguments; no shell is used", "none"),
        key(
            "rule",
            "privileged",
            "whether the command has the capabilities of the recorder; it has none otherwise",
            "false",
        ),
        key(
            "rule",
            "timeout",
            &up_to("when the command is ended", config::TIMEOUT_MAX_S, "s"),
            &time(TIMEOUT_S),
        ),
        key(
            "rule",
            "output",
            &up_to("how much of its output is kept", config::OUTPUT_MAX_BYTES / 1_048_576.0, "MiB"),
            &format!("{} KiB", OUTPUT_BYTES / 1024),
        ),
        key(
            "rule",
            "per-hour",
            &up_to("how often it acts in an hour", f64::from(config::PER_HOUR_MAX), "times"),
            &format!("{PER_HOUR} times"),
        ),
        key(
            "rule",
            "cool-down",
            &format!(
                "how long it rests after it has acted, {} s at least; each time twice as long while it goes on holding",
                config::COOL_DOWN_MIN_S
            ),
            &time(COOL_DOWN_S),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words between backquotes after "expected" (of several "one of"), as the reader of the file lists what it knows.
    fn known(text: &str) -> Vec<String> {
        let known = config::Known { probes: &[], check: |_, _| Ok(()), conditions: &[], suspicions: &[] };
        let error = config::read("x", text, &known).unwrap_err();
        let (_, list) = error.message.split_once("expected ").expect("a list");
        list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_table_is_what_the_reader_takes() {
        for (table, text) in [
            ("escalation", "[escalation]\nx = 1\n"),
            ("databases", "[databases]\nx = 1\n"),
            ("services", "[services]\nx = 1\n"),
            ("rule", "[[rule]]\nx = 1\n"),
        ] {
            let mut documented: Vec<String> =
                keys().iter().filter(|k| k.table == table).map(|k| k.name.to_owned()).collect();
            let mut taken = known(text);
            documented.sort_unstable();
            taken.sort_unstable();
            assert_eq!(documented, taken, "{table}");
        }
    }
}
