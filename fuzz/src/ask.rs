//! What assistants and the clients of Prometheus send.

use mitra_ask::mcp::{Info, Message, Via, bounds, read, schema};
use mitra_ask::promql::{Error, Labels, Matcher, Query, Series, Source, Steps, duration_ms};
use serde_json::{Value, json};

const INFO: Info<'static> = Info { name: "fuzzed", title: "Fuzzed", version: "1", instructions: "" };

/// A message of any bytes: it is answered with JSON of one line, or needs no answer. The first byte says how it came.
pub fn message(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let header = (first & 4 != 0).then_some(text.as_ref()).or(Some("2026-07-28"));
    let via = match first & 1 {
        0 => Via::Line { greeted: first & 2 != 0 },
        _ => Via::Post { version: Some("2026-07-28"), method: header, name: header },
    };
    let answer = match read(rest, via) {
        Message::Request(request) => {
            request.answered(&INFO, &[]).unwrap_or_else(|| request.failed(&INFO, &text))
        }
        Message::Refused(refusal) => {
            assert!([200, 400, 404].contains(&refusal.status()), "{}", refusal.status());
            refusal.answer()
        }
        Message::Cancelled(_) | Message::Ignored => return,
    };
    assert!(!answer.to_string().contains('\n'), "{answer}");
    if let Ok(mut value) = serde_json::from_slice::<Value>(rest) {
        if let Some(arguments) = value.as_object() {
            let text = json!({ "type": "string" });
            let whole = json!({ "type": "integer", "minimum": 1, "maximum": 9 });
            _ = schema::check(&json!({ "properties": { "a": text, "b": whole } }), arguments);
        }
        bounds::value(&mut value, 512);
    }
}

/// Three series of a minute, one of them with a gap.
struct Few;

impl Source for Few {
    fn select(&mut self, matchers: &[Matcher], from_ms: i64, to_ms: i64) -> Result<Vec<Series>, Error> {
        let one = |name: &str, row: &str, step: i64| {
            let labels =
                Labels::from([("__name__".to_owned(), name.to_owned()), ("row".to_owned(), row.to_owned())]);
            let samples = (0..60).filter(|second| step == 1 || !(20..30).contains(second));
            let samples = samples.map(|second| (second * 1000, (second * step) as f64));
            let samples = samples.filter(|(t, _)| *t > from_ms && *t <= to_ms).collect();
            Series { labels, samples, holds_ms: 1500 }
        };
        let all = [one("a", "x", 1), one("a", "y", 2), one("b", "x", -3)];
        let is_wanted = |series: &Series| {
            matchers
                .iter()
                .all(|matcher| matcher.is_match(series.labels.get(&matcher.name).map_or("", String::as_str)))
        };
        Ok(all.into_iter().filter(is_wanted).collect())
    }

    fn holds_max_ms(&self) -> i64 {
        1500
    }

    fn goes_on(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// A query of any text: it has an answer, or an error in words.
pub fn query(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(ms) = duration_ms(&text) {
        assert!(ms.abs() < 40_000_000_000_000, "{ms}");
    }
    let query = match Query::parse(&text) {
        Ok(query) => query,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    _ = query.matchers();
    _ = query.instant(&mut Few, 45_250);
    _ = query.range(&mut Few, Steps { start_ms: 10_250, end_ms: 50_250, step_ms: 5000 });
}
