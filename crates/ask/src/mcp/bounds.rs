//! Answers that an assistant can read: of what is too large, the first part.

use serde_json::Value;

/// Elements of a list, the most first. Texts are cut at so many times [`PER_ELEMENT`] bytes.
const STEPS: &[usize] = &[1000, 300, 100, 50, 20, 10, 5, 2, 1];
const PER_ELEMENT: usize = 200;

/// Cuts long lists and texts until the JSON has at most `bytes`. Returns how many elements of lists are left out; a text that was cut ends with `…`.
pub fn value(value: &mut Value, bytes: usize) -> usize {
    let mut left_out = 0;
    for step in STEPS {
        if serde_json::to_string(value).map_or(0, |text| text.len()) <= bytes {
            return left_out;
        }
        left_out += cut(value, *step);
    }
    left_out
}

fn cut(value: &mut Value, longest: usize) -> usize {
    match value {
        Value::Array(list) => {
            let left_out = list.len().saturating_sub(longest);
            list.truncate(longest);
            left_out + list.iter_mut().map(|element| cut(element, longest)).sum::<usize>()
        }
        Value::Object(fields) => fields.values_mut().map(|field| cut(field, longest)).sum(),
        Value::String(text) => {
            self::text(text, longest * PER_ELEMENT);
            0
        }
        _ => 0,
    }
}

/// Cuts a text. Returns whether it was longer.
pub fn text(text: &mut String, bytes: usize) -> bool {
    if text.len() <= bytes {
        return false;
    }
    let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    text.push('…');
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_too_large_keeps_its_beginning() {
        let mut small = json!({ "list": [1, 2, 3] });
        assert_eq!((value(&mut small, 100), small.clone()), (0, json!({ "list": [1, 2, 3] })));
        let mut large =
            json!({ "name": "x", "list": (0..5000).collect::<Vec<_>>(), "text": "ä".repeat(100_000) });
        let left_out = value(&mut large, 8 << 10);
        assert!(large.to_string().len() <= 8 << 10);
        let kept = large["list"].as_array().unwrap().len();
        assert!(kept > 0 && large["name"] == "x", "{large}");
        assert_eq!(left_out, 5000 - kept);
        assert!(large["text"].as_str().unwrap().ends_with("ä…"));
    }
}
