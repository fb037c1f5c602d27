//! A report as JSON, with the questions that the tests ask of it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What `mitra explain --json` said.
pub struct Report(Value);

/// One number of the report.
#[derive(Debug)]
pub struct Number {
    pub before: f64,
    pub during: f64,
}

/// Explains a folder.
pub fn explain(path: &Path) -> Report {
    let run =
        Command::new(env!("CARGO_BIN_EXE_mitra")).args(["explain", "--json"]).arg(path).output().unwrap();
    assert!(run.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&run.stderr));
    Report(serde_json::from_slice(&run.stdout).unwrap())
}

impl Report {
    fn incident(&self) -> &Value {
        &self.0["incidents"][0]
    }

    pub fn root(&self) -> Option<&str> {
        self.incident()["root_cause"]["condition"].as_str()
    }

    pub fn culprit(&self, key: &str) -> Option<&str> {
        self.incident()["root_cause"]["culprit"][key].as_str()
    }

    /// Everything in the chain, and the symptoms.
    pub fn chain(&self) -> Vec<&str> {
        let links = self.incident()["chain"].as_array().into_iter().flatten();
        links.filter_map(|l| l["condition"].as_str()).collect()
    }

    fn numbers<'a>(&'a self, condition: &'a str, metric: &'a str) -> impl Iterator<Item = &'a Value> {
        let links = self.incident()["chain"].as_array().into_iter().flatten();
        links
            .filter(move |l| l["condition"] == condition)
            .flat_map(|l| l["evidence"].as_array().into_iter().flatten())
            .filter(move |e| e["metric"] == metric)
    }

    pub fn evidence(&self, condition: &str, metric: &str, entity: &str) -> Number {
        let found = self.numbers(condition, metric).find(|e| e["entity"] == entity);
        let found =
            found.unwrap_or_else(|| panic!("{condition} has no {metric} of {entity:?}:\n{}", self.text()));
        Number {
            before: found["before"].as_f64().unwrap_or(f64::NAN),
            during: found["during"].as_f64().unwrap_or(f64::NAN),
        }
    }

    fn all_quotes<'a>(&'a self, condition: &'a str, metric: &'a str) -> Vec<&'a Value> {
        self.numbers(condition, metric).flat_map(|e| e["quotes"].as_array().into_iter().flatten()).collect()
    }

    /// Whether a line of a file is quoted with a value.
    pub fn quotes(&self, condition: &str, metric: &str, file: &str, line: u64, value: f64) {
        let all = self.all_quotes(condition, metric);
        let close = |v: f64| (v - value).abs() <= 1e-6 * value.abs();
        let found = all.iter().any(|q| {
            q["file"].as_str().is_some_and(|f| f.ends_with(file))
                && q["line"] == line
                && q["value"].as_f64().is_some_and(close)
                && q["text"].as_str().is_some_and(|t| !t.is_empty())
        });
        assert!(found, "{condition} {metric}: {file}:{line} with {value} is not among {all:#?}");
    }

    /// Whether a line of a file is quoted.
    pub fn quotes_line(&self, condition: &str, metric: &str, file: &str, line: u64) {
        let all = self.all_quotes(condition, metric);
        let found =
            all.iter().any(|q| q["file"].as_str().is_some_and(|f| f.ends_with(file)) && q["line"] == line);
        assert!(found, "{condition} {metric}: {file}:{line} is not among {all:#?}");
    }

    /// Condition, metric and the number of quoted lines of each number of the chain.
    pub fn sources(&self) -> Vec<(String, String, usize)> {
        let links = self.incident()["chain"].as_array().into_iter().flatten();
        let numbers = links.flat_map(|l| {
            l["evidence"].as_array().into_iter().flatten().map(move |e| {
                let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
                (text(&l["condition"]), text(&e["metric"]), e["quotes"].as_array().map_or(0, Vec::len))
            })
        });
        numbers.collect()
    }

    pub fn ruled_out(&self, condition: &str) -> &str {
        let list = self.incident()["ruled_out"].as_array().into_iter().flatten();
        list.filter(|r| r["condition"] == condition)
            .find_map(|r| r["because"].as_str())
            .unwrap_or_else(|| panic!("{condition} is not ruled out:\n{}", self.text()))
    }

    /// Whether any text of the report holds some words.
    pub fn says(&self, words: &str) -> bool {
        fn in_value(value: &Value, words: &str) -> bool {
            match value {
                Value::String(text) => text.contains(words),
                Value::Array(list) => list.iter().any(|v| in_value(v, words)),
                // What files say is not what the report says.
                Value::Object(map) => map.iter().any(|(key, v)| key != "text" && in_value(v, words)),
                _ => false,
            }
        }
        in_value(&self.0, words)
    }

    pub fn text(&self) -> String {
        serde_json::to_string_pretty(&self.0).unwrap()
    }
}
