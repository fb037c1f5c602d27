//! Counts of strings: what `strings CORE | sort | uniq -c | sort -rn | head` leaves, or lines of a count and a name.
//!
//! ```text
//! 2082202 Unknown:Unknown
//! 2082193 couchbase.context_info
//! ```
//!
//! Much text begins with a number, so only what cannot be much else is taken: lines that all look so, in the order of
//! their counts or of their texts, the counts right-aligned as `uniq -c` does, or each text a single word. A line alone
//! has to have the look of an identifier.

use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format =
    Format::new("counts of strings", "what `strings CORE | sort | uniq -c | sort -rn` leaves", starts, read);

/// Strings of one list.
const ROWS_MAX: u32 = 200_000;
/// A longer string is cut.
const TEXT_MAX: usize = 200;

/// A list of counts.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let Some((_, first)) = lines.peek().and_then(count) else { return false };
    let alone = is_identifier(first);
    let mut counts = Vec::new();
    let mut texts: Vec<Vec<u8>> = Vec::new();
    let (mut padded, mut words) = (true, true);
    for n in 0..AHEAD_MAX {
        let Some(line) = lines.ahead(n) else { break };
        let Some((value, rest)) = count(line) else {
            // The list may end; another line right after it means that it is not one.
            if line.trim_ascii().is_empty() {
                break;
            }
            return false;
        };
        padded &= is_padded(line);
        words &= !rest.contains(&b' ');
        counts.push(value);
        texts.push(rest.to_vec());
    }
    if counts.len() < 2 {
        return alone;
    }
    // Numbers that grow are ids of processes more often than counts.
    let descending = counts.iter().rev().is_sorted();
    let ordered = descending || texts.is_sorted() || (padded && counts.is_sorted());
    ordered && (padded || words)
}

/// Count and text. What does not occur has no count; a text has a letter and does not begin with a digit.
fn count(line: &[u8]) -> Option<(u64, &[u8])> {
    let line = line.trim_ascii_start();
    let end = line.iter().position(|b| !b.is_ascii_digit())?;
    let value = integer(line.get(..end)?).filter(|value| *value > 0)?;
    let rest = line.get(end..)?;
    let rest = rest.strip_prefix(b" ").or_else(|| rest.strip_prefix(b"\t"))?;
    let good = rest.first().is_some_and(|b| !b.is_ascii_digit() && !b.is_ascii_whitespace())
        && rest.iter().any(|b| b.is_ascii_alphabetic() || *b >= 0x80);
    good.then_some((value, rest.trim_ascii_end()))
}

/// As `uniq -c` prints: the count right-aligned in seven columns, one blank.
fn is_padded(line: &[u8]) -> bool {
    let blanks = line.iter().take_while(|b| **b == b' ').count();
    let digits = line.iter().skip(blanks).take_while(|b| b.is_ascii_digit()).count();
    blanks + digits == 7 || (blanks == 0 && digits > 7)
}

/// One word that joins several: `couchbase.context_info`, `Unknown:Unknown`.
fn is_identifier(text: &[u8]) -> bool {
    text.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
        && text.last().is_some_and(|b| b.is_ascii_alphanumeric())
        && text.iter().any(|b| matches!(b, b'_' | b'.' | b':'))
        && text
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'/' | b'$' | b'-'))
}

/// Reads the list.
fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let when = import.now();
    let Some(column) = Column::new("census.count", Form::Level, 1.0) else { return };
    let group = import.group(vec![column]);
    for _ in 0..ROWS_MAX {
        let n = lines.number();
        let Some((value, rest)) = lines.peek().and_then(count) else { return };
        let row = text(rest.get(..TEXT_MAX).unwrap_or(rest));
        import.put(group, row.as_bytes(), when, n, &[value as f64]);
        import.text("census.tool", &row, when, "strings");
        lines.advance();
    }
}
