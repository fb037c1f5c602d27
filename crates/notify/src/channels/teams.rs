//! Webhooks of workflows in Microsoft Teams: an Adaptive Card,
//! <https://learn.microsoft.com/en-us/connectors/teams/#microsoft-teams-webhook>.

use serde_json::{Value, json};

use super::cut;
use crate::message::{Event, Message};

/// A message has at most 28 kB.
const BLOCK_MAX: usize = 4000;

pub fn body(message: &Message) -> Value {
    let colour = match message.event {
        Event::Begun | Event::Revised | Event::RecorderStopped => "attention",
        Event::Ended | Event::RecorderBack => "good",
        Event::Finding | Event::Device | Event::Test => "accent",
    };
    let block =
        |text: &str| json!({"type": "TextBlock", "wrap": true, "text": cut(&escaped(text), BLOCK_MAX)});
    let mut title = block(&message.line());
    title["weight"] = json!("bolder");
    title["color"] = json!(colour);
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "body": [title, block(&message.details())],
            },
        }],
    })
}

/// What Markdown would take for a link, an emphasis or a list; a line break there is two.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '*' | '_' | '[' | ']' | '(' | ')' | '`' | '#' | '~' => out.extend(['\\', c]),
            '\n' => out.push_str("\n\n"),
            '<' => out.push_str("&lt;"),
            c => out.push(c),
        }
    }
    out
}
