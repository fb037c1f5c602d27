//! OpenSearch, queried directly without Mitra.

use mitra_search::{Day, Scope};
use serde_json::{Value, json};

use super::Found;
use super::engine::Engine;

/// Queries per request.
const AT_ONCE: usize = 100;

/// A query as it is sent.
#[derive(Debug, Clone)]
pub struct Asked {
    pub text: String,
    pub all_words: bool,
}

/// The indices of some days.
pub struct Oracle {
    address: String,
    indices: Vec<String>,
}

impl Oracle {
    pub fn new(engine: &Engine, prefix: &str, scope: Scope) -> Self {
        let (first, last) = scope.days();
        let indices = first.through(last).map(|day| format!("{prefix}{day}")).collect();
        Self { address: engine.address(), indices }
    }

    /// The result of each query, or the reason for refusing it.
    pub fn ask(&self, queries: &[Asked]) -> Vec<Result<Found, String>> {
        let mut answers = Vec::new();
        for some in queries.chunks(AT_ONCE) {
            let mut lines = String::new();
            for query in some {
                lines.push_str(&format!("{}\n{}\n", json!({"index": self.indices}), body(query)));
            }
            let path = "/_msearch?filter_path=responses.status,responses.error.root_cause,responses.error.caused_by,responses.hits.hits._source";
            let answer = super::engine::send(&self.address, "POST", path, &lines);
            let answer: Value = serde_json::from_str(&answer).expect("JSON");
            let responses = answer["responses"].as_array().expect("answers");
            assert_eq!(responses.len(), some.len());
            answers.extend(responses.iter().map(read));
        }
        answers
    }
}

fn body(query: &Asked) -> Value {
    json!({"size": super::LIMIT, "_source": ["host", "filename", "day"], "query": {"query_string": {
        "query": query.text,
        // Without a default field ">quick" would be a word.
        "default_field": "content",
        "default_operator": if query.all_words { "and" } else { "or" },
        "lenient": true,
        "analyze_wildcard": false,
        // All expansions instead of the first fifty.
        "fuzzy_max_expansions": 1000,
    }}})
}

fn read(answer: &Value) -> Result<Found, String> {
    if answer["status"] != 200 {
        let why = &answer["error"]["root_cause"][0]["reason"];
        return Err(why.as_str().unwrap_or_default().lines().next().unwrap_or_default().to_owned());
    }
    let hits = answer.pointer("/hits/hits").and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |hit: &Value, name: &str| hit["_source"][name].as_str().expect("a word").to_owned();
    let day = |hit: &Value| text(hit, "day").parse::<Day>().expect("a day");
    Ok(hits.iter().map(|hit| (text(hit, "host"), text(hit, "filename"), day(hit))).collect())
}
