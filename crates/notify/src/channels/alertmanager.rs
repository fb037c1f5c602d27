//! Alertmanager's API, version 2: <https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml>.
//!
//! An alert is its labels, so what a second look may change stands in annotations. Without `endsAt` Alertmanager ends an alert
//! after its `resolve_timeout`, unless it is told again.

use serde_json::{Value, json};

use crate::message::{Event, Message};

pub const PATH: &str = "/api/v2/alerts";

pub fn body(message: &Message) -> Value {
    let mut alert = json!({
        "labels": {
            "alertname": match message.event {
                Event::Finding => "MitraFinding",
                Event::Device => "MitraDevice",
                Event::RecorderStopped | Event::RecorderBack => "MitraRecorder",
                Event::Test => "MitraTest",
                _ => "MitraIncident",
            },
            "instance": message.host,
            "incident": message.id,
            "severity": if matches!(message.event, Event::Finding | Event::Device) { "info" } else { "warning" },
        },
        "annotations": {
            "summary": message.line(),
            "description": message.details(),
            "condition": message.condition,
            "culprit": message.culprit.as_deref().unwrap_or_default(),
        },
        "startsAt": message.since,
    });
    if let (true, Some(until)) = (message.event.is_end(), &message.until) {
        alert["endsAt"] = json!(until);
    }
    json!([alert])
}
