//! Who calls whom, as a tree.

use std::collections::BTreeSet;

use super::{Shown, text};
use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::services::{Caller, Edge};

/// Deeper calls are left out: the tree would not fit on a screen.
const DEPTH_MAX: usize = 12;
/// More processes are counted, not listed.
const PIDS_SHOWN: usize = 3;

pub fn text(shown: &Shown<'_>, style: &Style) -> String {
    let mut tree = Tree { shown, page: Page::new(style), expanded: BTreeSet::new() };
    let roots = shown.map.roots();
    for root in roots.iter().take(shown.limit) {
        tree.root(root);
    }
    text::more(&mut tree.page, roots.len(), shown.limit.min(roots.len()));
    if roots.is_empty() {
        tree.page.paragraph(0, 2, None, "Nobody called anybody.");
    }
    tree.page.finish()
}

struct Tree<'a> {
    shown: &'a Shown<'a>,
    page: Page<'a>,
    /// Services whose calls were shown.
    expanded: BTreeSet<usize>,
}

impl Tree<'_> {
    fn root(&mut self, caller: &Caller) {
        let services = &self.shown.services.services;
        let name = match caller {
            Caller::Service(i) => services[*i].title(),
            Caller::Processes(name, _) => {
                let pids: BTreeSet<u32> =
                    self.shown.map.from(caller).flat_map(|edge| edge.pids.iter().copied()).collect();
                if pids.len() > PIDS_SHOWN {
                    format!("{name} ({} processes)", pids.len())
                } else if pids.is_empty() {
                    name.clone()
                } else {
                    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
                    format!("{name} ({})", pids.join(", "))
                }
            }
            Caller::Elsewhere => "clients elsewhere".to_owned(),
        };
        if let Caller::Service(i) = caller {
            self.expanded.insert(*i);
        }
        let width = self.page.style.width;
        self.page.verbatim(0, Ink::Strong, &text::cut(&name, width));
        self.calls(caller, "", 1);
    }

    fn calls(&mut self, caller: &Caller, indent: &str, depth: usize) {
        let edges: Vec<&Edge> = self.shown.map.from(caller).collect();
        let shown = edges.len().min(self.shown.limit);
        for (n, edge) in edges.iter().take(shown).enumerate() {
            let is_last = n + 1 == edges.len();
            let (branch, below) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let again = edge.to.is_some_and(|to| !self.expanded.insert(to));
            self.line(&format!("{indent}{branch}"), edge, again);
            if let Some(to) = edge.to.filter(|_| !again && depth < DEPTH_MAX) {
                self.calls(&Caller::Service(to), &format!("{indent}{below}"), depth + 1);
            }
        }
        if edges.len() > shown {
            self.page.verbatim(0, Ink::Faint, &format!("{indent}└─ and {} more", edges.len() - shown));
        }
    }

    fn line(&mut self, indent: &str, edge: &Edge, again: bool) {
        let mut figures = text::figures(edge);
        // Its calls stand where it came first.
        let has_calls = edge.to.is_some_and(|to| self.shown.map.from(&Caller::Service(to)).next().is_some());
        if again && has_calls {
            figures.push_str(if figures.is_empty() { "see above" } else { ", see above" });
        }
        let taken = indent.chars().count() + figures.chars().count() + 2;
        let room = self.page.style.width.saturating_sub(taken).max(12);
        let target = text::cut(&text::target(edge, self.shown.services), room);
        let line = format!("{indent}{target}  {figures}");
        self.page.line(crate::render::style::clean(line.trim_end()).into_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{with, with_example};
    use super::*;
    use crate::services::example;

    #[test]
    fn a_tree_of_calls() {
        insta::assert_snapshot!(with_example(None, |shown| text(shown, &Style::plain(100))));
    }

    #[test]
    fn a_tree_of_calls_around_one_service() {
        insta::assert_snapshot!(with_example(Some("8080"), |shown| text(shown, &Style::plain(80))));
    }

    #[test]
    fn names_do_nothing_to_a_terminal() {
        let mut services = example::services();
        for service in &mut services.services {
            service.name = "\u{1b}[31m\u{202e}\n".to_owned();
        }
        let said = with(&services, None, |shown| text(shown, &Style::plain(80)));
        assert!(!said.contains(['\u{1b}', '\u{202e}']) && said.contains("?[31m??"), "{said}");
    }

    #[test]
    fn without_calls_it_says_so() {
        let said = with(&crate::services::Services::default(), None, |shown| text(shown, &Style::plain(80)));
        assert_eq!(said, "Nobody called anybody.\n");
    }
}
