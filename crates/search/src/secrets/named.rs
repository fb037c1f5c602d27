//! A name that is itself a value. The named value is next to it or on one of the next lines:
//!
//! ```text
//! - name: DB_PASSWORD        <name>password</name>      variable "password" {      --password \\
//!   value: x                 <value>x</value>             default = "x"              x
//! ```

use super::blocks::{self, Kind, Pending};
use super::extent::{self, Extent};
use super::keys::Key;
use super::line::{BACK_MAX, Line};
use super::pairs::{self, Findings};
use super::words;

/// Checks a name that is a value: `name: DB_PASSWORD`, with `value: …` behind it or on one of the
/// next lines.
pub(super) fn look(line: &Line, name: (usize, usize), key: Key, found: &mut Findings) {
    let Key::Sure(reason) = key else { return };
    let back = line.get(name.0.saturating_sub(32), name.0);
    let end = back.iter().rposition(|b| b.is_ascii_alphanumeric()).map_or(0, |i| i + 1);
    let start = back
        .get(..end)
        .unwrap_or_default()
        .iter()
        .rposition(|b| !(b.is_ascii_alphanumeric() || *b == b'_'))
        .map_or(0, |i| i + 1);
    let (naming, between) = (back.get(start..end).unwrap_or_default(), back.get(end..).unwrap_or_default());
    let assigned = between.iter().any(|b| matches!(b, b':' | b'=' | b'>'));
    let block = naming == b"variable" && line.before(line.trimmed_end()) == b'{';
    if flag_alone(line, name) {
        let kind =
            if line.rest(line.indent).starts_with(b"- ") { Kind::Item } else { Kind::Next { all: false } };
        if kind == Kind::Item || line.rest(line.trimmed_end().saturating_sub(1)).starts_with(b"\\") {
            *found.pending = Some(Pending::new(kind, reason));
        }
        return;
    }
    if !(assigned || block) || !words::has("naming", &naming.to_ascii_lowercase()) {
        return;
    }
    if let Some(from) = blocks::value_of_named(line, name.1).or_else(|| value_before(line, name)) {
        let value = extent::of(line, from, from, false);
        let value = if line.before(from) == b'>' {
            Extent { end: line.until(from, |b| b == b'<'), ..value }
        } else {
            value
        };
        pairs::push_if(name, key, line, value.start, value.end, found);
    } else if line.rest(name.1).len() < 40 {
        *found.pending = Some(Pending::new(Kind::Named, reason));
    }
}

/// Whether the line has only `--password`, and perhaps a continuation mark.
fn flag_alone(line: &Line, name: (usize, usize)) -> bool {
    line.before(name.0) == b'-'
        && line.rest(name.1).iter().all(|b| matches!(b, b' ' | b'\t' | b'\\' | b'"' | b'\'' | b','))
}

/// The position of the value in `<property value="x" name="password"/>`.
fn value_before(line: &Line, name: (usize, usize)) -> Option<usize> {
    let back = line.get(name.0.saturating_sub(BACK_MAX), name.0);
    let base = name.0 - back.len();
    let open = back.iter().rposition(|b| *b == b'<')?;
    let at = back.get(open..)?.windows(7).position(|w| w.eq_ignore_ascii_case(b" value="))?;
    Some(base + open + at + 7)
}
