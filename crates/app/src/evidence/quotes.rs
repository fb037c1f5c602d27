//! The lines of files that a report quotes, read when it is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};

use mitra_model::report::{Comparison, Evidence, Quote, Report};

use crate::redact;

/// Characters that are shown of a line.
const SHOWN_MAX: usize = 300;
/// Bytes that are read of a line: four per character.
const LINE_BYTES_MAX: u64 = 4 * SHOWN_MAX as u64;

/// Opens a file by its name in reports.
type Open<'a> = &'a mut dyn FnMut(&str) -> Option<Box<dyn Read>>;
/// Calls a function for every quote.
type Each<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&mut Quote));

/// Fills in the text of every quoted line. Quotes of files that cannot be read stay without text.
/// Every file is read once, up to the last wanted line.
pub fn fill_quotes(report: &mut Report, open: Open<'_>) {
    fill(&mut |then| each(report, then), open);
}

/// The same for the runs of a comparison only.
pub fn fill_runs(comparison: &mut Comparison, open: Open<'_>) {
    fill(&mut |then| each_of_runs(comparison, then), open);
}

fn fill(each: Each<'_>, open: Open<'_>) {
    let mut wanted: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    each(&mut |quote| {
        if quote.text.is_none() && quote.line > 0 {
            wanted.entry(quote.file.clone()).or_default().insert(quote.line);
        }
    });
    let mut texts: BTreeMap<(String, u32), String> = BTreeMap::new();
    for (file, lines) in wanted {
        let Some(input) = open(&file) else { continue };
        for (line, text) in read(input, &lines) {
            texts.insert((file.clone(), line), text);
        }
    }
    each(&mut |quote| {
        if quote.text.is_none() {
            quote.text = texts.get(&(quote.file.clone(), quote.line)).cloned();
        }
    });
}

fn each(report: &mut Report, then: &mut dyn FnMut(&mut Quote)) {
    let chains = report.incidents.iter_mut().flat_map(|i| &mut i.chain).chain(&mut report.observed);
    let of_chains = chains.flat_map(|link| &mut link.evidence);
    let of_findings = report.findings.iter_mut().flat_map(|a| &mut a.evidence);
    let proofs: Vec<&mut Evidence> = of_chains.chain(of_findings).collect();
    proofs.into_iter().flat_map(|e| &mut e.quotes).for_each(&mut *then);
    report.comparison.iter_mut().for_each(|comparison| each_of_runs(comparison, then));
}

fn each_of_runs(comparison: &mut Comparison, then: &mut dyn FnMut(&mut Quote)) {
    comparison.runs.iter_mut().flat_map(|run| &mut run.quotes).for_each(then);
}

/// The wanted lines. A read error ends the file.
fn read(input: Box<dyn Read>, wanted: &BTreeSet<u32>) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    let mut input = BufReader::with_capacity(1 << 16, input);
    let mut number: u32 = 1;
    let mut bytes = Vec::new();
    for line in wanted {
        while number < *line {
            match input.skip_until(b'\n') {
                Ok(0) | Err(_) => return found,
                Ok(_) => number += 1,
            }
        }
        bytes.clear();
        match (&mut input).take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes) {
            Ok(0) | Err(_) => return found,
            Ok(_) => {}
        }
        found.push((number, shown(&bytes)));
        if bytes.last() != Some(&b'\n') && input.skip_until(b'\n').is_err() {
            return found;
        }
        number += 1;
    }
    found
}

/// The line without its end and without secrets, cut if it is long.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = redact::text(text.trim_end_matches(['\n', '\r']));
    match text.char_indices().nth(SHOWN_MAX) {
        Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use mitra_model::report::{Incident, Link, Moment, Root};

    use super::*;

    fn quote(file: &str, line: u32) -> Quote {
        Quote { file: file.into(), line, value: None, at: None, text: None }
    }

    fn with(quotes: Vec<Quote>) -> Report {
        let evidence = vec![Evidence { quotes, ..Evidence::default() }];
        let link = Link { condition: "x".into(), onset: Moment(0), lag_s: 0.0, evidence, ..Link::default() };
        let incident = Incident {
            onset: Moment(0),
            end: None,
            changes: Vec::new(),
            lost_task_seconds: None,
            client_wait_seconds: None,
            symptoms: Vec::new(),
            root_cause: Root::default(),
            other_roots: Vec::new(),
            chain: vec![link],
            ruled_out: Vec::new(),
            unknown: Vec::new(),
            remedies: Vec::new(),
            next: Vec::new(),
        };
        Report { incidents: vec![incident], ..Report::default() }
    }

    fn filled(mut report: Report, file: &'static [u8]) -> (Vec<Option<String>>, usize) {
        let mut opened = 0;
        fill_quotes(&mut report, &mut |name| {
            opened += 1;
            (name == "sar.txt").then(|| Box::new(file) as Box<dyn Read>)
        });
        let quotes = &report.incidents[0].chain[0].evidence[0].quotes;
        (quotes.iter().map(|q| q.text.clone()).collect(), opened)
    }

    #[test]
    fn every_quoted_line_gets_its_text_from_one_reading() {
        let report =
            with(vec![quote("sar.txt", 3), quote("sar.txt", 1), quote("sar.txt", 3), quote("gone", 1)]);
        let (texts, opened) = filled(report, b"one\r\ntwo\nthree");
        assert_eq!(texts, [Some("three".into()), Some("one".into()), Some("three".into()), None]);
        assert_eq!(opened, 2);
    }

    #[test]
    fn a_line_beyond_the_end_and_line_zero_have_no_text() {
        let (texts, _) = filled(with(vec![quote("sar.txt", 4), quote("sar.txt", 0)]), b"one\ntwo\n");
        assert_eq!(texts, [None, None]);
    }

    #[test]
    fn a_quoted_line_has_no_secrets() {
        let file =
            b"04:11 api: login failed, password=hunter2-hunter2 for web1\nGET http://mitra:hunter3@db/\n";
        let (texts, _) = filled(with(vec![quote("sar.txt", 1), quote("sar.txt", 2)]), file);
        assert_eq!(
            texts[0].as_deref(),
            Some("04:11 api: login failed, password=<withheld:password> for web1")
        );
        assert_eq!(texts[1].as_deref(), Some("GET http://mitra:<withheld:password>@db/"));
    }

    #[test]
    fn a_line_of_any_length_is_cut_and_the_next_one_found() {
        let file: &'static [u8] = Box::leak([vec![b'a'; 1_000_000], b"\nnext\n".to_vec()].concat().into());
        let (texts, _) = filled(with(vec![quote("sar.txt", 1), quote("sar.txt", 2)]), file);
        assert_eq!(texts[0].as_ref().unwrap().chars().count(), SHOWN_MAX + 1);
        assert_eq!(texts[1].as_deref(), Some("next"));
    }
}
