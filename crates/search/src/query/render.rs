//! Displays the meaning of a query in one line: `mitra search --explain-query`.
//!
//! ```text
//! a OR b AND c            content:"b" AND content:"c"
//! size:>4k -package:*     size:{4096 TO *] AND NOT kind:"package"
//! "foo bar"~2 vm.s*       content:"foo"+"bar"~2 OR content:/vm.s…/
//! ```

use std::fmt;

use jiff::Timestamp;

use super::set::{Bound, Leaf, Set};

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*:*"),
            Self::Nothing => f.write_str("nothing"),
            Self::And(parts) => joined(f, parts, " AND "),
            Self::Or(parts) => joined(f, parts, " OR "),
            Self::Not(inner) => {
                f.write_str("NOT ")?;
                bracketed(f, inner)
            }
            Self::Leaf { field, leaf } => write!(f, "{field}:{leaf}"),
        }
    }
}

fn joined(f: &mut fmt::Formatter<'_>, parts: &[Set], between: &str) -> fmt::Result {
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            f.write_str(between)?;
        }
        bracketed(f, part)?;
    }
    Ok(())
}

fn bracketed(f: &mut fmt::Formatter<'_>, set: &Set) -> fmt::Result {
    match set {
        Set::And(_) | Set::Or(_) => write!(f, "({set})"),
        _ => write!(f, "{set}"),
    }
}

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Term(text) => write!(f, "{text:?}"),
            Self::Phrase { words, slop } => {
                for (i, (_, word)) in words.iter().enumerate() {
                    write!(f, "{}{word:?}", if i > 0 { "+" } else { "" })?;
                }
                if *slop > 0 { write!(f, "~{slop}") } else { Ok(()) }
            }
            Self::Terms(matcher) => write!(f, "/{}…/", matcher.literal()),
            Self::Between { low, high } => range(f, low, high, |text| format!("{text:?}")),
            Self::Number { low: Bound::Included(low), high: Bound::Included(high) } if low == high => {
                write!(f, "{low}")
            }
            Self::Number { low, high } => range(f, low, high, f64::to_string),
            Self::Time { low_ms, high_ms } => write!(f, "[{} TO {}]", moment(*low_ms), moment(*high_ms)),
            Self::Exists => f.write_str("*"),
        }
    }
}

fn range<T>(
    f: &mut fmt::Formatter<'_>,
    low: &Bound<T>,
    high: &Bound<T>,
    shown: fn(&T) -> String,
) -> fmt::Result {
    let text = |bound: &Bound<T>| match bound {
        Bound::Included(value) | Bound::Excluded(value) => shown(value),
        Bound::Unbounded => "*".to_owned(),
    };
    let open = if matches!(low, Bound::Excluded(_)) { '{' } else { '[' };
    let close = if matches!(high, Bound::Excluded(_)) { '}' } else { ']' };
    write!(f, "{open}{} TO {}{close}", text(low), text(high))
}

fn moment(ms: i64) -> String {
    match ms {
        i64::MIN | i64::MAX => "*".to_owned(),
        _ => Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |t| t.to_string()),
    }
}
