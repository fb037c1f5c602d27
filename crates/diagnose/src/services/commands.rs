//! Commands of a Redis server, by what they take of its one thread.

use mitra_model::Span;

use crate::sessions;
use crate::view::View;
use crate::words;

/// Time that the server ran a command.
pub const COMMAND_TIME: &str = "command.time";
/// What the functions of this module read.
pub const COMMANDS: &[&str] =
    &[COMMAND_TIME, "command.calls", "command.pid", "command.client", "command.client_pid", "task.comm"];
/// A command that takes less of the time of all of them is not what keeps the server.
const MOST: f64 = 0.5;

/// The row of the command that most of a server's time goes into, and a sentence about it.
#[must_use]
pub fn costly<'a>(view: &View<'a>, pid: Option<u32>, span: Span) -> Option<(&'a str, String)> {
    let pid = f64::from(pid?);
    let mean = |metric: &str, row: &str| view.set.get(metric, row).and_then(|s| s.mean(span)).unwrap_or(0.0);
    let is_own = |row: &str| view.set.get("command.pid", row).and_then(|s| s.last(span)) == Some(pid);
    let own: Vec<(&str, f64)> = view
        .each(COMMAND_TIME)
        .map(|(row, _)| (row, mean(COMMAND_TIME, row)))
        .filter(|(row, _)| is_own(row))
        .collect();
    let all: f64 = own.iter().map(|(_, time)| time).sum();
    let (row, time) = own.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    if time <= 0.0 || time < MOST * all {
        return None;
    }
    let name = row.split_once(':').map_or(row, |(_, name)| name).replace('|', " ").to_uppercase();
    let calls = mean("command.calls", row);
    let client = sessions::client(view, row, "command.client", "command.client_pid", span);
    let text = format!(
        "most of its time goes into {name}: {calls:.1} calls a second take {} of each second{client}",
        words::seconds(time)
    );
    Some((row, text))
}

#[cfg(test)]
mod tests {
    use mitra_model::SeriesSet;

    use super::*;
    use crate::locks::tests::{series, text};

    #[test]
    fn the_command_that_takes_most_is_named_with_its_client() {
        let mut set = SeriesSet::default();
        for (row, time, calls) in [("812:keys", 0.9, 12.0), ("812:ping", 0.01, 100.0), ("813:sort", 2.0, 1.0)]
        {
            series(&mut set, COMMAND_TIME, row, vec![time; 8]);
            series(&mut set, "command.calls", row, vec![calls; 8]);
            series(&mut set, "command.pid", row, vec![row.split(':').next().unwrap().parse().unwrap(); 8]);
        }
        text(&mut set, "command.client", "812:keys", "127.0.0.1:53122");
        series(&mut set, "command.client_pid", "812:keys", vec![900.0; 8]);
        series(&mut set, "task.tgid", "900@1", vec![900.0; 8]);
        text(&mut set, "task.comm", "900@1", "python3");
        let none = SeriesSet::default();
        let of = |set: &SeriesSet, pid| {
            costly(&View::new(set, Span::ALL, &none, None), pid, Span::ALL).map(|(_, text)| text)
        };
        assert_eq!(
            of(&set, Some(812)).unwrap(),
            "most of its time goes into KEYS: 12.0 calls a second take 900 ms of each second, and its client is python3 \
             (900) at 127.0.0.1:53122"
        );
        assert_eq!(of(&set, Some(814)), None);
        assert_eq!(of(&set, None), None);
        series(&mut set, COMMAND_TIME, "812:ping", vec![0.95; 8]);
        series(&mut set, COMMAND_TIME, "812:get", vec![0.9; 8]);
        series(&mut set, "command.pid", "812:get", vec![812.0; 8]);
        assert_eq!(of(&set, Some(812)), None, "none takes half of it");
    }
}
