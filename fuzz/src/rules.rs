//! The language of rules and the configuration file: what is wrong is said with its place, what is right says itself again.

use mitra_rules::{Config, Known, Mistake, compile, config, parse, parser};

const KNOWN: Known<'_> = Known { probes: &[], check: |_, _| Ok(()), conditions: &[], suspicions: &[] };

/// Reads the bytes as what the first of them says.
pub fn run(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(bytes);
    match which % 3 {
        0 => expression(&text),
        1 => match parser::literal(&text) {
            Ok(literal) => assert!(!literal.value().is_nan(), "{text}"),
            Err(mistake) => is_placed(&mistake, &text),
        },
        _ => match config::read("mitra.toml", &text, &KNOWN) {
            Ok(Config { budget_s, .. }) => assert!((0.0..=3600.0).contains(&budget_s)),
            Err(error) => assert!(error.line > 0 && error.column > 0, "{error}"),
        },
    }
}

fn expression(text: &str) {
    let expression = match parse(text) {
        Ok(expression) => expression,
        Err(mistake) => return is_placed(&mistake, text),
    };
    let printed = expression.to_string();
    match parse(&printed) {
        Ok(again) => assert_eq!(again.to_string(), printed, "{text}"),
        // What is printed may be longer than what may be read.
        Err(mistake) => assert!(printed.len() > text.len(), "{text}: {printed}: {mistake}"),
    }
    for compiled in [compile::condition(&expression), compile::choice(&expression)] {
        if let Err(mistake) = compiled {
            is_placed(&mistake, text);
        }
    }
}

fn is_placed(mistake: &Mistake, text: &str) {
    assert!(mistake.column(text) > 0 && mistake.caret(text).contains('^'), "{mistake}");
}
