//! Text made of wrapped, indented, coloured lines.

use crate::render::style::{Ink, Style, clean, wrap};

pub struct Page<'a> {
    pub style: &'a Style,
    lines: Vec<String>,
}

impl<'a> Page<'a> {
    pub fn new(style: &'a Style) -> Self {
        Page { style, lines: Vec::new() }
    }

    /// An empty line, unless the page is empty or ends in one.
    pub fn gap(&mut self) {
        if self.lines.last().is_some_and(|line| !line.is_empty()) {
            self.lines.push(String::new());
        }
    }

    pub fn heading(&mut self, text: &str) {
        self.gap();
        self.paragraph(0, 2, Some(Ink::Strong), text);
    }

    /// A paragraph. Its first line is indented by `first` columns, the others by `rest`.
    pub fn paragraph(&mut self, first: usize, rest: usize, ink: Option<Ink>, text: &str) {
        let text = clean(text);
        let width = self.style.width.saturating_sub(first.max(rest)).max(20);
        for (i, line) in wrap(&text, width).iter().enumerate() {
            let indent = if i == 0 { first } else { rest };
            let line = ink.map_or_else(|| line.clone(), |ink| self.style.paint(ink, line));
            self.lines.push(format!("{:indent$}{line}", ""));
        }
    }

    /// A paragraph of a manual page. Items of a list begin lines.
    pub fn prose(&mut self, text: &str) {
        let mut block = String::new();
        for line in text.lines() {
            let is_item = line.trim_start().starts_with("- ");
            if is_item && !block.is_empty() {
                self.block(&std::mem::take(&mut block));
            }
            block.push_str(line);
            block.push(' ');
        }
        self.block(&block);
    }

    fn block(&mut self, text: &str) {
        let rest = if text.trim_start().starts_with("- ") { 2 } else { 0 };
        self.paragraph(0, rest, None, text);
    }

    /// A label in its own column with a paragraph beside it, or below it if the label is too long.
    pub fn labelled(&mut self, indent: usize, label: &str, label_width: usize, ink: Option<Ink>, text: &str) {
        let (label, text) = (clean(label), clean(text));
        let at = indent + label_width + 2;
        let width = self.style.width.saturating_sub(at).max(20);
        let lines = wrap(&text, width);
        let paint = |t: &str| ink.map_or_else(|| t.to_owned(), |ink| self.style.paint(ink, t));
        let mut first = format!("{:indent$}{}", "", paint(&label));
        let long = label.chars().count();
        let mut rest = lines.iter();
        if long <= label_width {
            let fill = label_width - long + 2;
            first.push_str(&format!("{:fill$}{}", "", rest.next().map_or("", String::as_str)));
        }
        self.lines.push(first.trim_end().to_owned());
        self.lines.extend(rest.map(|line| format!("{:at$}{line}", "")));
    }

    /// The same in at most so many lines; what is cut off ends in `…`. Whether nothing was.
    pub fn card(
        &mut self,
        label: &str,
        label_width: usize,
        ink: Option<Ink>,
        text: &str,
        most: usize,
    ) -> bool {
        let text = clean(text);
        if text.trim().is_empty() {
            return true;
        }
        let at = label_width + 2;
        let width = self.style.width.saturating_sub(at).max(20);
        let lines = wrap(&text, width);
        let is_whole = lines.len() <= most && lines.iter().all(|line| line.chars().count() <= width);
        let label = self.style.paint(Ink::Strong, &format!("{label:label_width$}"));
        for (i, line) in lines.iter().take(most).enumerate() {
            let is_cut = (i + 1 == most && lines.len() > most) || line.chars().count() > width;
            let line = if is_cut {
                // Of a long word the beginning is better than much space.
                let rest = lines[i..].join(" ");
                let text = if 4 * line.chars().count() < 3 * width { &rest } else { line };
                format!("{}…", text.chars().take(width - 1).collect::<String>())
            } else {
                line.clone()
            };
            let line = ink.map_or_else(|| line.clone(), |ink| self.style.paint(ink, &line));
            let head = if i == 0 { label.clone() } else { format!("{:label_width$}", "") };
            self.lines.push(format!("{head}  {line}"));
        }
        is_whole
    }

    /// An unbroken line: commands are copied.
    pub fn verbatim(&mut self, indent: usize, ink: Ink, text: &str) {
        self.lines.push(format!("{:indent$}{}", "", self.style.paint(ink, &clean(text))));
    }

    /// A line of a file beside its place, unbroken if there is room.
    pub fn quoted(&mut self, indent: usize, place: &str, place_width: usize, text: &str) {
        let text = expanded(text);
        let text = clean(text.trim_end());
        let place = clean(place);
        let at = indent + place.chars().count().max(place_width) + 2;
        let room = self.style.width.saturating_sub(at);
        let lines =
            if text.chars().count() <= room { vec![text.into_owned()] } else { wrap(&text, room.max(20)) };
        for (i, line) in lines.iter().enumerate() {
            let head = if i == 0 { format!("{:indent$}{place}", "") } else { String::new() };
            let fill = at.saturating_sub(head.chars().count());
            let head = self.style.paint(Ink::Faint, &head);
            self.lines.push(format!("{head}{:fill$}{}", "", self.style.paint(Ink::Faint, line)));
        }
    }

    /// A finished line.
    pub fn line(&mut self, line: String) {
        self.lines.push(line);
    }

    /// The lines of a table.
    pub fn lines(&mut self, indent: usize, text: &str) {
        self.lines.extend(text.lines().map(|line| format!("{:indent$}{line}", "")));
    }

    /// Says how many entries were not shown.
    pub fn more(&mut self, total: usize, shown: usize) {
        if let Some(more) = total.checked_sub(shown).filter(|n| *n > 0) {
            self.paragraph(2, 2, Some(Ink::Faint), &format!("and {more} more: see -v or --json"));
        }
    }

    /// The text, with a final line break.
    pub fn finish(self) -> String {
        let mut text = self.lines.join("\n");
        text.truncate(text.trim_end_matches('\n').len());
        text.push('\n');
        text
    }
}

/// Tabs become spaces, so that columns stay aligned.
fn expanded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for c in text.chars() {
        let fill = if c == '\t' { 8 - at % 8 } else { 0 };
        out.extend(std::iter::repeat_n(' ', fill));
        if fill == 0 {
            out.push(c);
        }
        at += fill.max(1);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_line_keeps_its_columns_or_is_broken() {
        let style = Style::plain(40);
        let mut page = Page::new(&style);
        page.quoted(2, "a.txt:7", 8, "x\ty   z\x1b[2J");
        page.quoted(2, "a.txt:11", 8, "one two three four five six seven eight nine");
        assert_eq!(
            page.finish(),
            "  a.txt:7   x       y   z?[2J\n  a.txt:11  one two three four five six\n            seven eight nine\n"
        );
    }
}
