//! Elements of SVG.

use super::escape;

pub fn open(width: f64, height: f64, label: &str) -> String {
    let label = escape(label);
    format!("<svg viewBox=\"0 0 {width} {height:.0}\" role=\"img\" aria-label=\"{label}\">\n")
}

pub fn line(class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> String {
    format!("<line class=\"{class}\" x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\"/>\n")
}

/// The anchor is `start`, `middle` or `end`.
pub fn text(class: &str, anchor: &str, (x, y): (f64, f64), text: &str) -> String {
    let text = escape(text);
    format!("<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>\n")
}
