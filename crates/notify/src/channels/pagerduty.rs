//! PagerDuty's Events API, version 2: <https://developer.pagerduty.com/docs/send-alert-event>.

use serde_json::{Value, json};

use super::cut;
use crate::message::Message;

pub const URL: &str = "https://events.pagerduty.com/v2/enqueue";
const SUMMARY_MAX: usize = 1024;
const KEY_MAX: usize = 255;

pub fn body(message: &Message, routing_key: &str) -> Value {
    let dedup_key = cut(&message.id, KEY_MAX);
    if message.event.is_end() {
        return json!({"routing_key": routing_key, "event_action": "resolve", "dedup_key": dedup_key});
    }
    json!({
        "routing_key": routing_key,
        // The same key again updates it.
        "event_action": "trigger",
        "dedup_key": dedup_key,
        "client": "Mitra",
        "payload": {
            "summary": cut(&message.line(), SUMMARY_MAX),
            "source": message.host,
            "severity": if message.is_urgent() { "error" } else { "info" },
            "timestamp": message.since,
            "class": message.condition,
            "component": message.culprit.as_deref().unwrap_or_default(),
            "custom_details": message,
        },
    })
}
