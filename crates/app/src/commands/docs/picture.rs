//! A terminal as a picture: text with colours to SVG. It has its own background, so it can be read on light and on dark pages.

use std::fmt::Write;

use crate::render::html::escape;

/// Of the text and around it.
const LETTER: f64 = 8.0;
const LINE: usize = 19;
const PADDING: usize = 16;

/// The screen after a command.
pub fn terminal(command: &str, said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    let columns =
        lines.iter().map(|line| parts(line).map(|p| p.1.chars().count()).sum()).max().unwrap_or(0).max(80);
    let width = 2 * PADDING + (columns as f64 * LETTER) as usize;
    let height = 2 * PADDING + (lines.len() + 1) * LINE;
    let mut svg = format!(
        "<!-- written by `make docs` -->\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"The first screen of {command}\">\n<style>\n\
         text {{ font: 13.3px ui-monospace, SFMono-Regular, Menlo, Consolas, \"DejaVu Sans Mono\", monospace; fill: #d5dbe3; }}\n\
         .strong {{ font-weight: 700; fill: #fff; }} .faint {{ fill: #95a1b0; }} .bad {{ font-weight: 700; fill: #ff8f86; }}\n\
         .warn {{ fill: #f0bd62; }} .good {{ fill: #7fd0a3; }} .command {{ fill: #6fd3e0; }}\n</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#14181d\"/>\n",
    );
    let prompt = format!("\x1b[2m$\x1b[0m {command}");
    // A colour lasts beyond the end of its line.
    let mut class = "plain";
    for (i, line) in [prompt.as_str()].into_iter().chain(lines).enumerate() {
        let y = PADDING + LINE * i + LINE * 3 / 4;
        let mut column = 0;
        for (changed, text) in parts(line) {
            class = changed.unwrap_or(class);
            let letters = text.chars().count();
            let indent = letters - text.trim_start().chars().count();
            if let Some(text) = Some(text.trim()).filter(|text| !text.is_empty()) {
                let x = PADDING as f64 + (column + indent) as f64 * LETTER;
                // Every system has letters of another width.
                let length = text.chars().count() as f64 * LETTER;
                _ = writeln!(
                    svg,
                    "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" textLength=\"{length}\" xml:space=\"preserve\">{}</text>",
                    escape(text)
                );
            }
            column += letters;
        }
    }
    svg + "</svg>\n"
}

/// The parts of a line by their colours: the class that begins there, and the text.
fn parts(line: &str) -> impl Iterator<Item = (Option<&'static str>, &str)> {
    line.split("\x1b[").enumerate().map(|(i, part)| match part.split_once('m') {
        Some((code, text)) if i > 0 => (Some(class_of(code)), text),
        _ => (None, part),
    })
}

fn class_of(code: &str) -> &'static str {
    match code {
        "1" => "strong",
        "2" => "faint",
        "1;31" => "bad",
        "33" => "warn",
        "32" => "good",
        "36" => "command",
        _ => "plain",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_become_classes_and_columns_stay() {
        let svg = terminal("x", "\x1b[1;31mBAD\nWORSE\x1b[0m  <dd> m\n");
        assert!(svg.contains("class=\"bad\" x=\"16\"") && svg.contains(">BAD</text>"), "{svg}");
        assert!(svg.contains("class=\"bad\" x=\"16\" y=\"68\"") && svg.contains(">WORSE</text>"), "{svg}");
        assert!(svg.contains("class=\"plain\" x=\"72\"") && svg.contains(">&lt;dd&gt; m</text>"), "{svg}");
    }
}
