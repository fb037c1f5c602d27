//! What stands behind the question mark. What is not known is refused, so that a typing error is seen.

use mitra_model::time::SECOND;
use mitra_model::{Kind, Metric, Span, lookup};
use percent_encoding::percent_decode_str;

use super::archive::View;
use super::response::Failure;
use crate::values::time::{LocalClock, TimeExpr};

/// Without `since`.
const USUAL_NS: i64 = 3600 * SECOND;
/// More parameters than a question has.
const PARAMETERS_MAX: usize = 80;

/// Names and values in order.
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Takes a query apart. `repeated` may stand more than once.
    pub fn parse(text: Option<&str>, known: &[&str], repeated: &[&str]) -> Result<Query, Failure> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for part in text.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (decoded(name)?, decoded(value)?);
            let is_repeated = repeated.contains(&name.as_str());
            if !is_repeated && !known.contains(&name.as_str()) {
                let all: Vec<&str> = repeated.iter().chain(known).copied().collect();
                let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
                return Err(Failure::bad(
                    "bad_parameter",
                    format!("no parameter is called {name}; there are: {all}"),
                ));
            }
            if !is_repeated && pairs.iter().any(|(other, _)| *other == name) {
                return Err(Failure::bad("bad_parameter", format!("{name} stands twice")));
            }
            if pairs.len() == PARAMETERS_MAX {
                return Err(Failure::bad("bad_parameter", "too many parameters"));
            }
            pairs.push((name, value));
        }
        Ok(Query(pairs))
    }

    /// Arguments that were checked: texts, whole numbers, and true or false.
    pub fn of(arguments: &serde_json::Map<String, serde_json::Value>) -> Query {
        let text =
            |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Query(arguments.iter().map(|(name, value)| (name.clone(), text(value))).collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// In order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A whole number in a range.
    pub fn number(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<usize>,
    ) -> Result<Option<usize>, Failure> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| range.contains(number));
        let wanted = || format!("{name}: want a whole number from {} to {}", range.start(), range.end());
        number.map(Some).ok_or_else(|| Failure::bad("bad_number", wanted()))
    }

    /// True or false, which it is where nothing is said.
    pub fn flag(&self, name: &str) -> Result<bool, Failure> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Failure::bad("bad_parameter", format!("{name}: want true or false"))),
        }
    }

    pub fn time(&self, name: &str) -> Result<Option<i64>, Failure> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let wanted = || format!("{name}: want RFC 3339 as 2026-11-21T14:03:07Z, or seconds since 1970");
        moment(text).map(Some).ok_or_else(|| Failure::bad("bad_time", wanted()))
    }

    /// The range that is asked for: without `since` the hour before its end, without `until` up to the end.
    pub fn span(&self, view: &View) -> Result<Span, Failure> {
        view.check()?;
        range(self.time("since")?, self.time("until")?, view.span)
    }

    /// The recorded part of the range, which is not longer than `max_ns`.
    pub fn recorded(&self, view: &View, max_ns: i64) -> Result<Span, Failure> {
        let span = self.span(view)?.intersect(view.span).ok_or_else(not_recorded)?;
        within(span, max_ns)?;
        Ok(span)
    }
}

/// Refuses a range that is longer.
pub fn within(span: Span, max_ns: i64) -> Result<(), Failure> {
    if span.until.saturating_sub(span.since) > max_ns {
        let hours = max_ns / (3600 * SECOND);
        let why = format!("at most {hours} hours can be asked for at once");
        return Err(Failure::bad("range_too_long", why));
    }
    Ok(())
}

fn not_recorded() -> Failure {
    Failure::not_found("not_recorded", "nothing was recorded in that time")
}

/// See [`Query::span`]. A side that is not given is no reason to call the range wrong.
fn range(since: Option<i64>, until: Option<i64>, known: Span) -> Result<Span, Failure> {
    let is_given = since.is_some() && until.is_some();
    let until = until.unwrap_or(known.until);
    let usual = until.saturating_sub(USUAL_NS);
    let since = since.unwrap_or(if known.since < until { usual.max(known.since) } else { usual });
    if since < until {
        Ok(Span { since, until })
    } else if is_given {
        Err(Failure::bad("bad_range", "the range ends before it begins"))
    } else {
        Err(not_recorded())
    }
}

/// The metric of that name, if it has numbers.
pub fn number_metric(name: &str) -> Result<&'static Metric, Failure> {
    let metric =
        lookup(name).ok_or_else(|| Failure::not_found("no_metric", format!("no metric is called {name}")))?;
    if metric.kind == Kind::Text {
        return Err(Failure::bad("not_a_number", format!("{name} is a text")));
    }
    Ok(metric)
}

fn decoded(text: &str) -> Result<String, Failure> {
    let text = text.replace('+', " ");
    let text = percent_decode_str(&text).decode_utf8();
    text.map(|text| text.into_owned()).map_err(|_| Failure::bad("bad_parameter", "the query is not UTF-8"))
}

pub fn moment(text: &str) -> Option<i64> {
    let is_seconds = text.strip_prefix('-').unwrap_or(text).starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-'))
        && !text.get(1..)?.contains('-');
    let expression = if is_seconds { format!("@{text}") } else { text.to_owned() };
    // A date in local time would mean another moment to whoever asks from elsewhere.
    match expression.parse().ok()? {
        exact @ TimeExpr::At(_) if is_seconds || text.contains(['T', 't']) => {
            Some(exact.resolve(&LocalClock::system()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_exact() {
        assert_eq!(moment("1795232527"), Some(1_795_232_527 * SECOND));
        assert_eq!(moment("1795232527.25"), Some(1_795_232_527 * SECOND + SECOND / 4));
        assert_eq!(moment("0"), Some(0));
        assert_eq!(moment("1970-01-01T00:00:01Z"), Some(SECOND));
        assert_eq!(moment("1970-01-01T01:00:01+01:00"), Some(SECOND));
        for bad in [
            "",
            "-",
            "now",
            "2h",
            "14:03",
            "2026-11-21",
            "2026-11-21T14:03:07",
            "NaN",
            "1e9",
            "1-2",
            "99999999999999999999",
        ] {
            assert_eq!(moment(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_range_may_have_one_side() {
        let known = Span { since: 7200 * SECOND, until: 7300 * SECOND };
        let of = |since: Option<i64>, until: Option<i64>| {
            let seconds = |s: Option<i64>| s.map(|s| s * SECOND);
            range(seconds(since), seconds(until), known)
                .map(|span| (span.since / SECOND, span.until / SECOND))
                .map_err(|failure| failure.code)
        };
        assert_eq!(of(None, None), Ok((7200, 7300)));
        assert_eq!(of(Some(7250), None), Ok((7250, 7300)));
        assert_eq!(of(None, Some(7250)), Ok((7200, 7250)));
        assert_eq!(of(None, Some(20_000)), Ok((16_400, 20_000)));
        assert_eq!(of(None, Some(5000)), Ok((1400, 5000)), "nothing is recorded there, but it is a range");
        assert_eq!(of(Some(7300), None), Err("not_recorded"));
        assert_eq!(of(Some(7250), Some(7250)), Err("bad_range"));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let code =
            |text: &str| Query::parse(Some(text), &["since"], &["row"]).err().map(|failure| failure.code);
        assert_eq!(code("since=1&row=a&row=b&"), None);
        assert_eq!(code("until=1"), Some("bad_parameter"));
        assert_eq!(code("since=1&since=2"), Some("bad_parameter"));
        assert_eq!(code("row=%ff"), Some("bad_parameter"));
        assert_eq!(code(&"row=1&".repeat(100)), Some("bad_parameter"));
        let query = Query::parse(Some("row=a%26b+c"), &[], &["row"]).unwrap();
        assert_eq!(query.get("row"), Some("a&b c"));
    }
}
