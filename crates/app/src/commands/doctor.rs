//! `mitra doctor`: what this kernel and these privileges let Mitra see.

mod hints;

use std::path::Path;

use anyhow::Result;
use mitra_collect::{Ability, State};
use serde_json::{Value, json};

use crate::cli::DoctorArgs;
use crate::commands::{print, print_json};
use crate::render::page::Page;
use crate::render::style::{Ink, Style};

pub fn run(args: &DoctorArgs, style: &Style) -> Result<()> {
    let abilities = mitra_collect::doctor(Path::new("/"));
    if args.fix_hints {
        return print(&hints::text(&abilities));
    }
    if args.json {
        return print_json(&abilities.iter().map(as_json).collect::<Vec<_>>());
    }
    print(&text(&abilities, style))
}

fn text(abilities: &[Ability], style: &Style) -> String {
    let mut page = Page::new(style);
    let width = abilities.iter().map(|a| a.name.chars().count()).max().unwrap_or(0).min(28);
    for ability in abilities {
        let (ink, mark) = match ability.state {
            State::Yes => (Ink::Good, "yes"),
            State::Degraded => (Ink::Warn, "partly"),
            State::No => (Ink::Bad, "no"),
        };
        page.labelled(0, &format!("{mark:<6}  {}", ability.name), width + 8, Some(ink), &ability.why);
        if let Some(fix) = &ability.fix {
            page.verbatim(8, Ink::Command, &fix.to_string());
        }
    }
    let missing = abilities.iter().filter(|a| a.state != State::Yes).count();
    page.gap();
    page.paragraph(
        0,
        0,
        Some(Ink::Strong),
        &match missing {
            0 => format!("All {} abilities are there.", abilities.len()),
            n => format!("{n} of {} abilities are missing or partly there.", abilities.len()),
        },
    );
    page.finish()
}

fn as_json(a: &Ability) -> Value {
    let state = match a.state {
        State::Yes => "yes",
        State::Degraded => "degraded",
        State::No => "no",
    };
    json!({ "name": a.name, "state": state, "why": a.why, "fix": a.fix.as_ref().map(ToString::to_string) })
}

#[cfg(test)]
mod tests {
    use mitra_collect::Fix;

    use super::*;

    #[test]
    fn what_is_there_in_part_and_missing() {
        let one =
            |name: &str, state, why: &str, fix| Ability { name: name.into(), state, why: why.into(), fix };
        let abilities = [
            one("kernel", State::Yes, "6.18.44", None),
            one("privileges", State::No, "no root, and no capabilities", Some(Fix::Advice("run it as root"))),
            one("counters that this kernel has and Mitra does not know", State::Yes, "none", None),
            one(
                "delay accounting",
                State::No,
                "kernel.task_delayacct is 0; what a task waited for is then estimated from its states",
                Some(Fix::Command("sysctl -w kernel.task_delayacct=1".into())),
            ),
            one(
                "pressure (PSI)",
                State::Degraded,
                "no /proc/pressure/irq",
                Some(Fix::Argument { text: "psi=1", is_wanted: true }),
            ),
        ];
        let whole = [80, 120].map(|width| format!("[{width}]\n{}", text(&abilities, &Style::plain(width))));
        insta::assert_snapshot!(whole.join("\n"));
        let all = text(&abilities[..1], &Style::plain(80));
        assert!(all.ends_with("All 1 abilities are there.\n"), "{all}");
    }
}
