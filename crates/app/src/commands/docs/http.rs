//! `docs/http.md`, from the OpenAPI document and the tools of an assistant.

use serde_json::Value;

use super::{cell, filled};
use crate::serve::{OPENAPI, TOOLS};

pub fn page() -> String {
    let document: Value = serde_json::from_str(OPENAPI).unwrap_or_default();
    let paths = document["paths"].as_object().into_iter().flatten();
    let asked =
        |of: &Value| ["get", "post"].into_iter().find_map(|how| of.get(how)).cloned().unwrap_or_default();
    // A form of the same question has no section of its own.
    let done = |of: &Value| {
        let (get, post) = (of.get("get")?, of.get("post")?);
        (get["summary"] != post["summary"]).then(|| post.clone())
    };
    let both = |(path, of): (&String, &Value)| {
        let more = done(of).map(|post| section(&format!("POST {path}"), &post, &document));
        section(path, &asked(of), &document) + &more.unwrap_or_default()
    };
    let sections: String = paths.map(both).collect();
    let tools: Value = serde_json::from_str(TOOLS).unwrap_or_default();
    let tools: String = tools.as_array().into_iter().flatten().map(tool).collect();
    filled(include_str!("http.md"), &[("paths", &sections), ("tools", &tools)])
}

fn tool(of: &Value) -> String {
    let word = |name: &str| of[name].as_str().unwrap_or_default().to_owned();
    let arguments = of["inputSchema"]["properties"].as_object().into_iter().flatten();
    let arguments: Vec<String> = arguments.map(|(name, _)| format!("`{name}`")).collect();
    format!("| `{}` | {} | {} |\n", word("name"), arguments.join(" "), cell(&word("description")))
}

fn section(path: &str, of: &Value, document: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let parameter = |given: &Value| {
        let shared = given["$ref"].as_str().and_then(|place| document.pointer(place.trim_start_matches('#')));
        let parameter = shared.unwrap_or(given);
        format!("| `{}` | {} |\n", word(&parameter["name"]), cell(&word(&parameter["description"])))
    };
    let parameters: String = of["parameters"].as_array().into_iter().flatten().map(parameter).collect();
    let parameters = match parameters.as_str() {
        "" => String::new(),
        rows => format!("\n| parameter | what it means |\n|---|---|\n{rows}"),
    };
    let good = of["responses"].get("200").or_else(|| of["responses"].get("202"));
    let (summary, answer) =
        (word(&of["summary"]), good.map(|of| word(&of["description"])).unwrap_or_default());
    let more = of["description"].as_str().map(|more| format!(" {more}")).unwrap_or_default();
    format!("\n## {path}\n\n{summary}. {answer}{more}\n{parameters}")
}
