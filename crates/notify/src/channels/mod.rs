//! How a message reaches a receiver: a file for each form.

mod alertmanager;
mod journal;
mod local;
mod pagerduty;
mod slack;
mod teams;

use std::path::Path;
use std::time::Duration;

use mitra_http::{Agent, secret};
use serde_json::{Value, json};

use crate::config::{Kind, Receiver, check_url};
use crate::message::Message;

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Of an answer that is quoted.
const QUOTE_MAX: u64 = 300;

/// Why a message was not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// It may be taken later.
    Later(String),
    /// It will never be taken.
    Never(String),
}

/// Which programs may be started: those that only root can change.
pub type Programs = fn(&Path) -> bool;

/// Delivers a message by means that this crate does not have.
pub type Deliver = Box<dyn FnMut(&Message) -> Result<(), Failure> + Send>;

/// A way to a receiver.
pub struct Channel {
    receiver: Receiver,
    to: To,
    trusted: Programs,
    /// Messages on the desktop, by incident, which take the place of one another.
    shown: Vec<(String, u32)>,
}

enum To {
    Http { agent: Agent, url: String, key: Option<String> },
    Here,
    By(Deliver),
}

impl Channel {
    /// Reads the files that the receiver names.
    ///
    /// # Errors
    /// If one of them cannot be used.
    pub fn open(receiver: Receiver, trusted: Programs) -> Result<Channel, String> {
        let name = receiver.name.clone();
        let failed = |error: String| format!("notify {name}: {error}");
        let read = |path: &Path| secret(path).map_err(|error| failed(error.to_string()));
        let to = if receiver.kind.is_http() {
            let url = match (&receiver.url, &receiver.url_file) {
                (Some(url), _) => url.clone(),
                (None, Some(file)) => read(file)?,
                (None, None) => pagerduty::URL.to_owned(),
            };
            check_url(&url, receiver.insecure).map_err(failed)?;
            let key = receiver.key_file.as_deref().map(read).transpose()?;
            let is_secure = url.starts_with("https:");
            let agent =
                mitra_http::client(is_secure, receiver.ca_file.as_deref(), CONNECT_WITHIN, ANSWER_WITHIN)
                    .map_err(|error| failed(error.to_string()))?;
            To::Http { agent, url, key }
        } else if receiver.kind == Kind::Opensearch {
            return Err(failed("a cluster is reached through the index".to_owned()));
        } else {
            To::Here
        };
        Ok(Channel { receiver, to, trusted, shown: Vec::new() })
    }

    /// A way that the caller provides: to [`Kind::Opensearch`].
    #[must_use]
    pub fn by(receiver: Receiver, deliver: Deliver) -> Channel {
        Channel { receiver, to: To::By(deliver), trusted: |_| false, shown: Vec::new() }
    }

    /// Whether it wants to hear again of what goes on, because it takes silence for an end.
    #[must_use]
    pub fn wants_reminders(&self) -> bool {
        self.receiver.kind == Kind::Alertmanager
    }

    /// Delivers a message.
    ///
    /// # Errors
    /// If the receiver does not take it.
    pub fn send(&mut self, message: &Message) -> Result<(), Failure> {
        match (&mut self.to, self.receiver.kind) {
            (To::By(deliver), _) => deliver(message),
            (To::Http { agent, url, key }, kind) => {
                let url = url.as_str();
                let (path, body) = match kind {
                    Kind::Slack => ("", slack::body(message)),
                    Kind::Teams => ("", teams::body(message)),
                    Kind::Alertmanager => (alertmanager::PATH, alertmanager::body(message)),
                    Kind::Pagerduty => ("", pagerduty::body(message, key.as_deref().unwrap_or_default())),
                    _ => ("", json!(message)),
                };
                let bearer = key.as_deref().filter(|_| kind != Kind::Pagerduty);
                post(
                    agent,
                    &format!("{}{path}", if path.is_empty() { url } else { url.trim_end_matches('/') }),
                    bearer,
                    &body,
                )
            }
            (To::Here, Kind::Journal) => journal::send(message),
            (To::Here, Kind::Desktop) => local::desktop(message, &mut self.shown, self.trusted),
            (To::Here, _) => local::command(message, &self.receiver.command, self.trusted),
        }
    }
}

fn post(agent: &Agent, url: &str, bearer: Option<&str>, body: &Value) -> Result<(), Failure> {
    let mut request = agent.post(url).header("content-type", "application/json");
    if let Some(key) = bearer {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    // An address may be a secret, and errors of a connection do not quote it.
    let mut answer = request
        .send(body.to_string().as_bytes())
        .map_err(|error| Failure::Later(format!("cannot be reached: {error}")))?;
    let status = answer.status().as_u16();
    if (200..300).contains(&status) {
        return Ok(());
    }
    let said = answer.body_mut().with_config().limit(QUOTE_MAX).read_to_string().unwrap_or_default();
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let why = format!("HTTP {status} {}", said.trim());
    match status {
        408 | 425 | 429 | 500.. => Err(Failure::Later(why)),
        _ => Err(Failure::Never(why)),
    }
}

/// The first characters of a text, where a form allows no more.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}
