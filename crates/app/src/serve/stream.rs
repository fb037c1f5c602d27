//! Server-sent events: the recording has grown, or its incidents are others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Either;
use http_body_util::channel::Channel;
use hyper::Response;
use hyper::body::Bytes;
use mitra_model::report::Report;
use serde_json::json;
use tokio::sync::{broadcast, watch};

use super::api::Server;
use super::archive::View;
use super::response::{Body, with};
use crate::render::style::rfc3339;

/// Events that a client may be late.
pub const LATE_MAX: usize = 16;
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A line that says nothing, so that who has gone away is noticed.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// The shortest time between two explanations; longer ones make longer pauses.
pub const EXPLAIN_EVERY: Duration = Duration::from_secs(5);
pub const PAUSE_FACTOR: u32 = 20;

pub fn sample(view: &View) -> Bytes {
    format!("event: sample\ndata: {}\n\n", json!({ "until": rfc3339(view.span.until) })).into()
}

/// Starts the stream of one client with the state as it is.
pub fn answer(
    view: &View,
    mut events: broadcast::Receiver<Bytes>,
    mut stopped: watch::Receiver<bool>,
) -> Response<Body> {
    let (mut sender, body) = Channel::new(LATE_MAX);
    let first = sample(view);
    tokio::spawn(async move {
        let mut next = Some(first);
        while let Some(event) = next {
            if sender.send_data(event).await.is_err() {
                return;
            }
            next = tokio::select! {
                _ = stopped.changed() => None,
                event = events.recv() => match event {
                    Ok(event) => Some(event),
                    // It asks for what it needs when the next event comes.
                    Err(broadcast::error::RecvError::Lagged(_)) => Some(Bytes::from_static(b": late\n\n")),
                    Err(broadcast::error::RecvError::Closed) => None,
                },
                () = tokio::time::sleep(SIGN_OF_LIFE) => Some(Bytes::from_static(b": still here\n\n")),
            };
        }
    });
    with("text/event-stream", Either::Right(body))
}

/// Looks at the recording as long as somebody listens.
pub async fn watch(server: Arc<Server>, mut stopped: watch::Receiver<bool>) {
    let mut generation = None;
    let mut incidents = None;
    let mut explain_at = Instant::now();
    loop {
        tokio::select! {
            _ = stopped.changed() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        if server.events.receiver_count() == 0 {
            continue;
        }
        let view = server.archive.fresh().await;
        if generation.replace(view.generation).is_some_and(|known| known != view.generation) {
            // Who has gone away does not need it.
            _ = server.events.send(sample(&view));
        }
        if !view.is_live() || Instant::now() < explain_at {
            continue;
        }
        let start = Instant::now();
        if let Ok(report) = server.recent(None, Duration::ZERO).await {
            let now = list(&report);
            if incidents.as_ref().is_some_and(|known| *known != now) {
                let count = report.incidents.len();
                let event = format!("event: incidents\ndata: {}\n\n", json!({ "incidents": count }));
                _ = server.events.send(event.into());
            }
            incidents = Some(now);
        }
        explain_at = start + EXPLAIN_EVERY.max(start.elapsed() * PAUSE_FACTOR);
    }
}

/// What makes one list of incidents differ from another: what they are, and whether they are over.
fn list(report: &Report) -> Vec<(String, bool)> {
    report.incidents.iter().map(|i| (i.root_cause.condition.clone(), i.end.is_some())).collect()
}
