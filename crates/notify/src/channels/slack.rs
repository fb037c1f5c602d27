//! Incoming webhooks of Slack, which Mattermost and Rocket.Chat understand, too: <https://api.slack.com/messaging/webhooks>.

use serde_json::{Value, json};

use super::cut;
use crate::message::{Event, Message};

/// A section takes 3,000 characters.
const SECTION_MAX: usize = 2900;

pub fn body(message: &Message) -> Value {
    let mark = match message.event {
        Event::Begun | Event::Revised | Event::RecorderStopped => ":red_circle:",
        Event::Ended | Event::RecorderBack => ":large_green_circle:",
        Event::Finding | Event::Device | Event::Test => ":large_blue_circle:",
    };
    let line = escaped(&message.line());
    let details = escaped(&message.details());
    let section = |text: String| json!({"type": "section", "text": {"type": "mrkdwn", "text": cut(&text, SECTION_MAX)}});
    json!({
        "text": cut(&line, SECTION_MAX),
        "blocks": [section(format!("{mark} *{line}*")), section(details)],
    })
}

/// The three characters that Slack asks for; names of processes hold anything. A star or a backtick changes how a line looks and
/// nothing else.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
