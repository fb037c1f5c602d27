//! What is asked, how and when.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue};
use hyper::http::uri::{Authority, InvalidUri};
use hyper::{HeaderMap, Method, Request, Uri, Version};
use mitra_http::rustls::ClientConfig;

use crate::body::Body;
use crate::outcome::SCHEMA;
use crate::targets::Origin;
use crate::wire::Failure;
use crate::{BodySource, Error, Outcome, Protocol, Replay, Schedule, Source, Target, Targets};

/// When requests are due.
#[derive(Debug, Clone)]
pub enum Work {
    /// By a schedule.
    Timed(Schedule),
    /// As a log has them.
    Logged {
        /// The log.
        log: std::path::PathBuf,
        /// 2 replays it in half of its time.
        speed: f64,
        /// For how long, if not to its end.
        length: Option<Duration>,
    },
}

/// What is asked, how and when.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The load in words, for the result.
    pub load: String,
    /// Who is asked. A replayed log has its own paths, and wants one.
    pub targets: Targets,
    /// When.
    pub work: Work,
    /// How, where a target says nothing else.
    pub method: Method,
    /// Headers of each request.
    pub headers: HeaderMap,
    /// The body of each request.
    pub body: BodySource,
    /// Which HTTP.
    pub protocol: Protocol,
    /// Connections at most.
    pub connections: usize,
    /// Requests at a time on each of them, with HTTP/2.
    pub streams: usize,
    /// Whether a connection is used again.
    pub keeps_alive: bool,
    /// How long an answer may take, from when the request was sent.
    pub timeout: Duration,
    /// The certificates that are trusted; `https` wants them.
    pub tls: Option<Arc<ClientConfig>>,
    /// When it begins; at once if that has passed.
    pub at: Option<SystemTime>,
}

impl Plan {
    /// Whether it makes sense.
    ///
    /// # Errors
    /// If it does not.
    pub fn check(&self) -> Result<(), Error> {
        let hosts = self.targets.origins.len();
        match &self.work {
            _ if self.targets.all.is_empty() => Err(Error::wanted("nothing to ask for")),
            _ if self.connections < hosts => {
                let wanted = self.connections;
                Err(Error::wanted(format!("{wanted} connections are too few for {hosts} hosts")))
            }
            Work::Logged { .. } if self.targets.all.len() != 1 => {
                Err(Error::wanted("a log is replayed to one host"))
            }
            _ if self.targets.is_secure() && self.tls.is_none() => {
                Err(Error::wanted("https wants certificates to trust"))
            }
            _ if self.protocol == Protocol::Http2 && self.host().is_some_and(|host| host.is_err()) => {
                Err(Error::wanted("the header Host is no host; want HOST or HOST:PORT"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn source(&self) -> Result<Source, Error> {
        Ok(match &self.work {
            Work::Timed(schedule) => {
                Source::Timed { schedule: *schedule, targets: self.targets.all.clone(), next: 0 }
            }
            Work::Logged { log, speed, length } => {
                Source::Logged(Box::new(Replay::open(log, *speed)?), *length)
            }
        })
    }

    /// The result of a run that has not begun.
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome {
            schema: SCHEMA.to_owned(),
            target: self.targets.names(),
            load: self.load.clone(),
            protocol: self.protocol.name().to_owned(),
            runs: 1,
            ..Outcome::default()
        }
    }

    /// The header `Host`, if one is given.
    fn host(&self) -> Option<Result<Authority, InvalidUri>> {
        self.headers.get(HOST).map(|value| Authority::try_from(value.as_bytes()))
    }

    /// One request. What the connection takes of its body is added to `sent`.
    pub(crate) fn request(
        &self,
        origin: &Origin,
        target: &Target,
        sent: &Rc<Cell<u64>>,
    ) -> Result<Request<Body>, Failure> {
        let bad = |error: hyper::http::Error| Failure::new("protocol", error);
        let mut request = Request::new(self.body.start(sent));
        *request.method_mut() = target.method.clone().unwrap_or_else(|| self.method.clone());
        *request.headers_mut() = self.headers.clone();
        match self.protocol {
            Protocol::Http1 => {
                *request.uri_mut() = Uri::from(target.path.clone());
                if !self.headers.contains_key(HOST) {
                    let value = HeaderValue::from_str(&origin.authority).map_err(|e| bad(e.into()))?;
                    request.headers_mut().insert(HOST, value);
                }
                if !self.keeps_alive {
                    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
            }
            Protocol::Http2 => {
                // HTTP/2 has the host in `:authority`.
                let host = request.headers_mut().remove(HOST);
                *request.version_mut() = Version::HTTP_2;
                *request.uri_mut() = Uri::builder()
                    .scheme(if origin.is_secure { "https" } else { "http" })
                    .authority(host.as_ref().map_or(origin.authority.as_bytes(), HeaderValue::as_bytes))
                    .path_and_query(target.path.clone())
                    .build()
                    .map_err(bad)?;
            }
        }
        if let Some(bytes) = self.body.bytes() {
            request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        }
        Ok(request)
    }
}
