//! How a message reaches a receiver: a file for each form.

mod alertmanager;
mod journal;
mod local;
mod pagerduty;
mod slack;
mod teams;

use std::io::Read;
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
    let mut said = Vec::new();
    // What came of a body that breaks off is good enough.
    _ = answer.body_mut().as_reader().take(QUOTE_MAX).read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said);
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::config::Config;
    use crate::message::Event;
    use crate::queue::tests::message;

    #[test]
    fn of_a_long_refusal_the_beginning_is_quoted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let table = format!("[[notify]]\nto = \"webhook\"\nurl = \"http://{address}\"\n");
        let thread = std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let mut head = String::new();
            while stream.read_line(&mut head).unwrap() > 2 {}
            let head = head.to_lowercase();
            let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")?.trim().parse().ok());
            stream.read_exact(&mut vec![0; length.unwrap_or(0)]).unwrap();
            let body = b"no such channel\xff\n".repeat(100);
            let head = format!("HTTP/1.1 400 x\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.get_mut().write_all(&[head.as_bytes(), &body].concat()).unwrap();
        });
        let receiver = Config::read(&table).unwrap().receivers.remove(0);
        let failure = Channel::open(receiver, |_| false).unwrap().send(&message("a", Event::Begun));
        thread.join().unwrap();
        let why = match failure {
            Err(Failure::Never(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(why.starts_with("HTTP 400 no such channel\u{fffd} no such"), "{why}");
        assert!((250..350).contains(&why.chars().count()), "{why}");
    }
}
