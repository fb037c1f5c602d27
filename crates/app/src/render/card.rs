//! The first screen of an incident: what happened, who caused it, what it cost, what to do, since when, and by which steps. It fits
//! twelve lines of eighty columns; what does not fit in there stands whole below it.

use mitra_model::Era;
use mitra_model::report::{How, Incident, Moment, Root};

use crate::render::page::Page;
use crate::render::style::{Ink, Style, UNKNOWN};
use crate::render::text::{Title, parts, percent};
use crate::render::units;

const LABEL: usize = "ROOT CAUSE".len();
/// Of the root cause: its title, and the statement with the numbers.
const CAUSE_LINES: usize = 4;
const ACTION_LINES: usize = 2;

/// Whether the statement of the root was shown whole.
pub fn first_screen(page: &mut Page<'_>, incident: &Incident, until: Moment, title: Title<'_>) -> bool {
    let root = &incident.root_cause;
    let words = words(root, title);
    let sure = match sure(root) {
        Some(sure) => format!("({}, {sure})", root.condition),
        None => format!("({})", root.condition),
    };
    let room = page.style.width.saturating_sub(LABEL + 2);
    let is_one_line = words.chars().count() + 1 + sure.chars().count() <= room;
    if is_one_line {
        page.card("ROOT CAUSE", LABEL, Some(Ink::Bad), &format!("{words} {sure}"), 1);
    } else {
        page.card("ROOT CAUSE", LABEL, Some(Ink::Bad), &words, 1);
        page.card("", LABEL, Some(Ink::Bad), &sure, 1);
    }
    let lines = CAUSE_LINES - if is_one_line { 1 } else { 2 };
    let is_whole = page.card("", LABEL, None, &root.statement, lines);
    page.card("CAUSED BY", LABEL, None, &with_how(parts(&root.culprit), root.culprit.how), 1);
    if let Some(cost) = cost(incident, until) {
        let share = root.share.map_or_else(String::new, |s| format!("; {} explained", percent(s)));
        let has_room = cost.chars().count() + share.chars().count() <= room;
        page.card("COST", LABEL, None, &if has_room { cost + &share } else { cost }, 1);
    }
    remedy(page, incident);
    if let Some(seen) = seen(page.style, incident, until) {
        page.card("SEEN", LABEL, None, &seen, 1);
    }
    if incident.chain.len() > 1 {
        let steps: Vec<&str> = incident.chain.iter().map(|link| link.condition.as_str()).collect();
        page.card("BECAUSE", LABEL, None, &shortened(steps, room), 1);
    }
    is_whole
}

/// The root in plain words.
pub fn words(root: &Root, title: Title<'_>) -> String {
    let words = title(&root.condition).unwrap_or(&root.condition);
    if root.unexplained { format!("not found; seen is: {words}") } else { words.to_owned() }
}

/// How sure it is. Nobody is of a cause that was not found.
pub fn sure(root: &Root) -> Option<String> {
    (!root.unexplained).then(|| format!("{} sure", percent(root.confidence)))
}

/// The steps from the first to the last; where there is no room for all, without some of the last but one.
fn shortened(mut steps: Vec<&str>, room: usize) -> String {
    const LEFT_OUT: &str = "…";
    loop {
        let text = steps.join(" → ");
        if text.chars().count() <= room || steps.len() < 4 {
            return text;
        }
        let before_last = steps.len() - 2;
        if steps[before_last] == LEFT_OUT {
            steps.remove(before_last - 1);
        } else {
            steps[before_last] = LEFT_OUT;
        }
    }
}

/// The names of a culprit, the first with how it is known, because the end may be cut off.
fn with_how(mut parts: Vec<String>, how: Option<How>) -> String {
    let how = how.map(|how| match how {
        How::Measured => "measured",
        How::Inferred => "inferred",
        How::Near => "only near",
    });
    if let (Some(first), Some(how)) = (parts.first_mut(), how) {
        *first = match first.strip_suffix(')') {
            Some(name) => format!("{name}, {how})"),
            None => format!("{first} ({how})"),
        };
    }
    parts.join(", ")
}

/// The first action, which is the safest, and its risk; without one what to measure.
fn remedy(page: &mut Page<'_>, incident: &Incident) {
    let (label, action, command, risk) = match (incident.remedies.first(), incident.next.first()) {
        (Some(remedy), _) => ("DO", &remedy.action, &remedy.command, Some(remedy.risk.as_str())),
        (None, Some(next)) => ("MEASURE", &next.measure, &next.command, None),
        (None, None) => return,
    };
    page.card(label, LABEL, Some(Ink::Strong), action, ACTION_LINES);
    if let Some(command) = command.lines().next() {
        page.verbatim(LABEL + 4, Ink::Command, command);
    }
    if let Some(risk) = risk.filter(|risk| !risk.is_empty()) {
        page.card("", LABEL, Some(Ink::Faint), &format!("risk: {risk}"), 1);
    }
}

/// How long whom, with the task-seconds beside: `on average 6.4 tasks stood still (3,010 task-seconds)`.
pub fn cost(incident: &Incident, until: Moment) -> Option<String> {
    const HARDLY_S: f64 = 0.05;
    let length = length_s(incident, until);
    let waited =
        incident.client_wait_seconds.filter(|w| incident.lost_task_seconds.is_none_or(|lost| *w > lost));
    if let Some(waited) = waited {
        return Some(match length {
            Some(length) if waited >= length => {
                let clients = mean(waited / length);
                format!("on average {clients} clients waited ({} in all)", units::value(waited, "s"))
            }
            _ => format!("clients waited {} longer than usual", units::value(waited, "s")),
        });
    }
    let lost = incident.lost_task_seconds?;
    let all = units::task_seconds(lost);
    Some(match length {
        _ if lost < HARDLY_S => "tasks waited less than 0.1 s for CPUs, disks and memory".to_owned(),
        Some(length) if lost >= 0.95 * length => {
            format!("on average {} tasks stood still ({all})", mean(lost / length))
        }
        Some(length) => format!("{} of one task's time ({all})", percent(lost / length)),
        None => format!("tasks stood still for {all}"),
    })
}

fn mean(count: f64) -> String {
    if count < 10.0 { format!("{count:.1}") } else { units::grouped(count) }
}

/// From the onset to the end, or to the end of what is known.
fn length_s(incident: &Incident, until: Moment) -> Option<f64> {
    let (from, to) = (incident.onset, incident.end.unwrap_or(until));
    let is_one_clock = Era::of(from.0) == Era::of(to.0) && from.is_known();
    let length = mitra_model::series::seconds_between(from.0, to.0);
    // One moment has no length.
    (is_one_clock && length > 0.0).then_some(length)
}

/// `03:42:07 to 03:44:12 (2 min 5 s)`.
pub fn seen(style: &Style, incident: &Incident, until: Moment) -> Option<String> {
    let clock = |moment: Moment| Some(style.moment(moment.0)).filter(|text| text != UNKNOWN);
    let onset = clock(incident.onset)?;
    let length = length_s(incident, until).map_or_else(String::new, |s| format!(" ({})", units::length(s)));
    Some(match (incident.end, clock(incident.end.unwrap_or(until))) {
        (Some(_), Some(end)) if end != onset => format!("{onset} to {end}{length}"),
        (Some(_), _) => onset,
        (None, Some(end)) => format!("since {onset}; not over at {end}{length}"),
        (None, None) => format!("since {onset}; not over"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::examples;

    fn of(incident: &Incident, width: usize) -> String {
        let style = Style::plain(width);
        let mut page = Page::new(&style);
        let until = examples::flood().window.until;
        first_screen(&mut page, incident, until, &|id| {
            (id == "streaming-read-flood").then_some("it reads too much")
        });
        page.finish()
    }

    #[test]
    fn nobody_is_sure_of_a_cause_that_was_not_found() {
        let mut incident = examples::flood().incidents.remove(0);
        assert!(of(&incident, 80).contains("it reads too much (streaming-read-flood, 94 % sure)"));
        incident.root_cause.unexplained = true;
        let card = of(&incident, 80);
        assert!(
            card.contains("ROOT CAUSE  not found; seen is: it reads too much (streaming-read-flood)"),
            "{card}"
        );
        assert!(!card.contains(" sure)"), "{card}");
    }

    #[test]
    fn it_answers_everything_within_twelve_lines() {
        let mut incident = examples::flood().incidents.remove(0);
        for text in [&mut incident.root_cause.statement, &mut incident.remedies[0].action] {
            *text = text.repeat(20);
        }
        incident.remedies[0].risk = "much ".repeat(100);
        incident.root_cause.culprit.cgroup = Some("/a/very/long/name".repeat(9));
        incident.chain.extend(incident.chain.clone());
        let card = of(&incident, 80);
        assert!(card.lines().count() <= 12, "{card}");
        assert!(card.lines().all(|line| line.chars().count() <= 80), "{card}");
        for label in ["ROOT CAUSE", "CAUSED BY", "COST", "DO", "SEEN", "BECAUSE", "risk: "] {
            assert!(card.contains(label), "{label}: {card}");
        }
    }

    #[test]
    fn what_it_cost_is_said_of_tasks_or_of_clients() {
        let mut incident = examples::flood().incidents.remove(0);
        let mut told = |lost: Option<f64>, waited: Option<f64>| {
            (incident.lost_task_seconds, incident.client_wait_seconds) = (lost, waited);
            cost(&incident, Moment(incident.onset.0 + 100_000_000_000)).unwrap_or_default()
        };
        assert_eq!(told(Some(640.0), None), "on average 6.4 tasks stood still (640 task-seconds)");
        assert_eq!(told(Some(30.0), Some(2.0)), "30 % of one task's time (30 task-seconds)");
        assert_eq!(told(Some(0.01), None), "tasks waited less than 0.1 s for CPUs, disks and memory");
        assert_eq!(told(Some(3.0), Some(250.0)), "on average 2.5 clients waited (4 min in all)");
        assert_eq!(told(None, Some(3.0)), "clients waited 3.0 s longer than usual");
        assert_eq!(told(None, None), "");
    }

    #[test]
    fn how_a_culprit_is_known_is_said() {
        let names = || vec!["dd (pid 7)".to_owned(), "device vda".to_owned()];
        assert_eq!(with_how(names(), Some(How::Measured)), "dd (pid 7, measured), device vda");
        assert_eq!(with_how(names(), Some(How::Near)), "dd (pid 7, only near), device vda");
        assert_eq!(
            (with_how(names(), None), with_how(Vec::new(), None)),
            ("dd (pid 7), device vda".into(), String::new())
        );
    }

    #[test]
    fn a_chain_keeps_its_ends() {
        let chain = vec!["first", "second", "third", "fourth", "last"];
        assert_eq!(shortened(chain.clone(), 99), "first → second → third → fourth → last");
        assert_eq!(shortened(chain.clone(), 35), "first → second → third → … → last");
        assert_eq!(shortened(chain, 20), "first → … → last");
    }

    #[test]
    fn nothing_is_said_of_what_is_not_known() {
        let card = of(&Incident::default(), 80);
        assert!(!card.contains("COST") && !card.contains("DO") && !card.contains("BECAUSE"), "{card}");
    }
}
