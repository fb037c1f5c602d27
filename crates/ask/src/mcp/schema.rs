//! Arguments against the part of JSON Schema that the tools here use.

use serde_json::{Map, Value};

/// What is wrong with the arguments, in words for whoever wrote them.
///
/// Knows `type` (`string`, `integer`, `boolean`), `enum`, `minimum`, `maximum`, `maxLength` and `required`; what has no
/// property is refused, so that a typing error is seen.
pub fn check(schema: &Value, arguments: &Map<String, Value>) -> Result<(), String> {
    let empty = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    for (name, value) in arguments {
        let Some(property) = properties.get(name) else {
            let known: Vec<&str> = properties.keys().map(String::as_str).collect();
            return Err(format!("no argument is called {name}; there are: {}", known.join(", ")));
        };
        one(property, value).map_err(|wanted| format!("{name}: want {wanted}"))?;
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    match required.into_iter().find(|name| !arguments.contains_key(*name)) {
        Some(name) => Err(format!("{name}: it is missing")),
        None => Ok(()),
    }
}

/// What would be right.
fn one(property: &Value, value: &Value) -> Result<(), String> {
    if let Some(choices) = property["enum"].as_array() {
        let names = || choices.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
        return if choices.contains(value) { Ok(()) } else { Err(format!("one of {}", names())) };
    }
    match property["type"].as_str() {
        Some("string") => {
            let longest = property["maxLength"].as_u64().unwrap_or(u64::MAX);
            match value.as_str() {
                Some(text) if text.chars().count() as u64 <= longest => Ok(()),
                Some(_) => Err(format!("at most {longest} characters")),
                None => Err("a text".to_owned()),
            }
        }
        Some("integer") => {
            let bound = |name: &str, without| property[name].as_i64().unwrap_or(without);
            let (least, most) = (bound("minimum", i64::MIN), bound("maximum", i64::MAX));
            let is_good = value.as_i64().is_some_and(|number| (least..=most).contains(&number));
            if is_good { Ok(()) } else { Err(format!("a whole number from {least} to {most}")) }
        }
        Some("boolean") if value.is_boolean() => Ok(()),
        Some("boolean") => Err("true or false".to_owned()),
        other => Err(format!("nothing: its type {other:?} is not known")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wrong_is_said() {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "maxLength": 4 },
                "count": { "type": "integer", "minimum": 1, "maximum": 9 },
                "order": { "enum": ["cpu", "rss"] },
                "all": { "type": "boolean" },
            },
            "required": ["name"],
        });
        let said =
            |arguments: Value| check(&schema, arguments.as_object().unwrap()).err().unwrap_or_default();
        assert_eq!(said(json!({ "name": "größ", "count": 9, "order": "rss", "all": false })), "");
        assert_eq!(said(json!({})), "name: it is missing");
        assert_eq!(said(json!({ "name": "hello" })), "name: want at most 4 characters");
        assert_eq!(said(json!({ "name": 7 })), "name: want a text");
        for count in [json!(0), json!(10), json!("3"), json!(1.5), json!(1e300), json!(null)] {
            assert_eq!(
                said(json!({ "name": "a", "count": count })),
                "count: want a whole number from 1 to 9"
            );
        }
        assert_eq!(said(json!({ "name": "a", "order": "size" })), "order: want one of cpu, rss");
        assert_eq!(said(json!({ "name": "a", "all": "yes" })), "all: want true or false");
        assert!(
            said(json!({ "name": "a", "nam": "a" })).starts_with("no argument is called nam; there are: ")
        );
    }
}
