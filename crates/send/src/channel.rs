//! How samples reach a store: a request over HTTP, a connection of TCP, or messages of Kafka.

use std::borrow::Cow;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mitra_http::rustls::ClientConfig;
use mitra_http::ureq::http::{HeaderMap, Uri};
use mitra_http::{Agent, client_tls_with, client_with, secret};

use crate::config::{Format, Kind, Output, Topic};
use crate::encode::{clickhouse, graphite, influx, opentsdb, otlp, remote_write, text};
use crate::endpoint::{ANSWER_MAX, ANSWER_WITHIN, CONNECT_WITHIN, Endpoint};
use crate::kafka::Kafka;
use crate::record::LogRecord;
use crate::series::Series;

/// Of an answer that is quoted.
const QUOTE_MAX: usize = 300;
/// Samples of a message, which a broker takes up to a megabyte of: a sample with long labels is some hundred bytes.
const MESSAGE_SAMPLES: usize = 1_000;
/// How many samples a store of remote write 2.0 has written.
const WRITTEN: &str = "x-prometheus-remote-write-samples-written";

/// Why nothing was taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// It may be taken later; the store may say when.
    Later(String, Option<Duration>),
    /// It will never be taken.
    Never(String),
}

/// What was taken.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// What the store answered, for whoever asks.
    pub answer: String,
    /// Samples or records that it refused nevertheless, and why.
    pub refused: Option<(u64, String)>,
}

/// A way to a store.
pub struct Channel {
    output: Output,
    to: To,
}

enum To {
    Http { agent: Agent, authorization: Option<String> },
    Tcp(Endpoint),
    Kafka(Kafka, Format),
}

impl Channel {
    /// Reads the files that the output names.
    ///
    /// # Errors
    /// If one of them cannot be used, or it is no store.
    pub fn open(output: &Output) -> Result<Channel, String> {
        let failed = |error: String| format!("output {}: {error}", output.name);
        let uri: Uri = output.url.parse().map_err(|error| failed(format!("no address: {error}")))?;
        let ca_file = output.ca_file.as_deref();
        let identity = output.identity.as_ref().map(|(cert, key)| (cert.as_path(), key.as_path()));
        let to = match (uri.scheme_str(), uri.host(), uri.port_u16()) {
            (Some(scheme @ ("tcp" | "tls")), Some(host), Some(port)) => {
                let tls = (scheme == "tls").then(|| client_tls_with(ca_file, identity)).transpose();
                let tls = tls.map_err(|error| failed(error.to_string()))?;
                match &output.topic {
                    Some(topic) => To::Kafka(kafka(output, topic, tls).map_err(failed)?, topic.format),
                    None => {
                        let host = host.trim_start_matches('[').trim_end_matches(']');
                        To::Tcp(Endpoint::new(host, port, tls).map_err(failed)?)
                    }
                }
            }
            (Some(scheme @ ("http" | "https")), ..) => {
                let is_secure = scheme == "https";
                let agent = client_with(is_secure, ca_file, identity, CONNECT_WITHIN, ANSWER_WITHIN);
                let agent = agent.map_err(|error| failed(error.to_string()))?;
                To::Http { agent, authorization: authorization(output).map_err(failed)? }
            }
            _ => return Err(failed("there is no way to it".to_owned())),
        };
        Ok(Channel { output: output.clone(), to })
    }

    /// Sends a batch.
    ///
    /// # Errors
    /// If the store does not take it.
    pub fn send(&self, batch: &[Series]) -> Result<Taken, Failure> {
        match &self.to {
            To::Kafka(kafka, format) => send_messages(kafka, *format, batch),
            To::Http { agent, authorization } => {
                let count = batch.iter().map(|series| series.samples.len() as u64).sum();
                self.post(agent, authorization.as_deref(), &self.bytes(batch)?, count)
            }
            To::Tcp(endpoint) => {
                let said = endpoint.send(&self.bytes(batch)?).map_err(|error| Failure::Later(error, None))?;
                // Only a telnet port of OpenTSDB answers: a line for each point that it does not like.
                let refused = (said.lines > 0).then(|| (said.lines, quote(&said.begin)));
                Ok(Taken { answer: "read to the end".to_owned(), refused })
            }
        }
    }

    /// Sends records of a log.
    ///
    /// # Errors
    /// If the store does not take them.
    pub fn send_records(&self, records: &[LogRecord]) -> Result<Taken, Failure> {
        match &self.to {
            To::Http { agent, authorization } => {
                let body = match self.output.kind {
                    Kind::Clickhouse => clickhouse::body(records),
                    _ => otlp::logs::body(records),
                };
                self.post(agent, authorization.as_deref(), &body, records.len() as u64)
            }
            To::Kafka(kafka, _) => {
                let Some(last) = records.last() else { return Ok(Taken::default()) };
                let answer = kafka.send(&last.host, last.observed_ns, vec![otlp::logs::body(records)])?;
                Ok(Taken { answer, refused: None })
            }
            To::Tcp(..) => Err(Failure::Never("records of a log are sent over HTTP".to_owned())),
        }
    }

    fn bytes(&self, batch: &[Series]) -> Result<Vec<u8>, Failure> {
        Ok(match (self.output.kind, &self.to) {
            (Kind::Prometheus, _) => {
                remote_write::body(batch, self.output.is_version_2).map_err(Failure::Never)?
            }
            (Kind::Otlp, _) => otlp::metrics::body(batch),
            (Kind::Influx, _) => influx::body(batch).into_bytes(),
            (Kind::Opentsdb, To::Http { .. }) => opentsdb::json(batch).into_bytes(),
            (Kind::Opentsdb, _) => opentsdb::lines(batch).into_bytes(),
            (Kind::Graphite, _) if self.output.pickle => graphite::pickles(batch),
            (Kind::Graphite, _) => graphite::lines(batch).into_bytes(),
            (kind, _) => return Err(Failure::Never(format!("no samples are sent to {}", kind.name()))),
        })
    }

    /// What [`Channel::send`] would send, for people to read: the lines themselves, or what stands in the binary ones.
    #[must_use]
    pub fn shown(output: &Output, batch: &[Series]) -> String {
        match output.kind {
            Kind::Influx => influx::body(batch),
            Kind::Kafka if output.topic.as_ref().is_some_and(|topic| topic.format == Format::Influx) => {
                influx::body(batch)
            }
            Kind::Opentsdb if !output.url.starts_with("http") => opentsdb::lines(batch),
            Kind::Opentsdb => opentsdb::json(batch) + "\n",
            Kind::Graphite => graphite::lines(batch),
            _ => text::body(batch),
        }
    }

    /// Posts a body with so many samples or records.
    fn post(
        &self,
        agent: &Agent,
        authorization: Option<&str>,
        body: &[u8],
        count: u64,
    ) -> Result<Taken, Failure> {
        let url = match self.output.kind {
            Kind::Clickhouse => clickhouse::address(&self.output.url),
            _ => Cow::Borrowed(self.output.url.as_str()),
        };
        let mut request = agent.post(&*url);
        for (name, value) in headers(&self.output) {
            request = request.header(*name, *value);
        }
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let mut answer = request
            .send(body)
            .map_err(|error| Failure::Later(format!("cannot be reached: {error}"), None))?;
        let status = answer.status().as_u16();
        let headers = answer.headers().clone();
        let mut said = Vec::new();
        // What came of a body that breaks off is good enough.
        _ = answer.body_mut().as_reader().take(ANSWER_MAX as u64).read_to_end(&mut said);
        let why = format!("HTTP {status} {}", quote(&said)).trim_end().to_owned();
        match status {
            200..=299 => self.taken(why, &headers, &said, count),
            // The sender or its address is wrong, not the samples: they keep in the archive until that is mended.
            300..=399 | 401..=405 | 407 | 408 | 415 | 425 | 429 | 500.. => {
                Err(Failure::Later(why, retry_after(&headers)))
            }
            _ => Err(Failure::Never(why)),
        }
    }

    fn taken(&self, answer: String, headers: &HeaderMap, said: &[u8], count: u64) -> Result<Taken, Failure> {
        let refused = match self.output.kind {
            Kind::Otlp | Kind::OtlpLogs => otlp::refused(said),
            Kind::Prometheus if self.output.is_version_2 => {
                // A store that knows only version 1.0 reads such a message as an empty one.
                let Some(written) = headers.get(WRITTEN).and_then(|value| value.to_str().ok()?.parse().ok())
                else {
                    let why =
                        "it does not say what it has written, so it knows only version 1 of remote write";
                    return Err(Failure::Later(why.to_owned(), None));
                };
                let missing = count.saturating_sub(written);
                (missing > 0).then(|| (missing, format!("{written} of {count} samples were written")))
            }
            _ => None,
        };
        Ok(Taken { answer, refused })
    }
}

/// Reads the password that the output names.
fn kafka(output: &Output, topic: &Topic, tls: Option<ClientConfig>) -> Result<Kafka, String> {
    let login = match (&output.user, &output.password_file) {
        (Some(user), Some(file)) => Some((user.clone(), secret(file).map_err(|error| error.to_string())?)),
        _ => None,
    };
    let (_, broker) = output.url.split_once("://").unwrap_or_default();
    Kafka::new(broker.trim_end_matches('/').to_owned(), topic.clone(), tls, login)
}

/// Sends samples of one machine as messages that a broker takes.
fn send_messages(kafka: &Kafka, format: Format, batch: &[Series]) -> Result<Taken, Failure> {
    let (mut messages, mut from, mut samples) = (Vec::new(), 0, 0);
    let message = |part: &[Series]| match format {
        Format::Otlp => otlp::metrics::body(part),
        Format::Influx => influx::body(part).into_bytes(),
    };
    for (i, series) in batch.iter().enumerate() {
        if samples > 0 && samples + series.samples.len() > MESSAGE_SAMPLES {
            messages.extend(batch.get(from..i).map(message));
            (from, samples) = (i, 0);
        }
        samples += series.samples.len();
    }
    messages.extend(batch.get(from..).filter(|rest| !rest.is_empty()).map(message));
    let of_host = |series: &Series| series.labels.iter().find(|(name, _)| &**name == "host").cloned();
    let host = batch.iter().find_map(of_host).map_or_else(String::new, |(_, host)| host.to_string());
    let last_ns = batch.iter().filter_map(|series| Some(series.samples.last()?.0)).max();
    let answer = kafka.send(&host, last_ns.unwrap_or_default(), messages)?;
    Ok(Taken { answer, refused: None })
}

fn headers(output: &Output) -> &'static [(&'static str, &'static str)] {
    match (output.kind, output.is_version_2) {
        (Kind::Prometheus, false) => &[
            ("content-type", "application/x-protobuf"),
            ("content-encoding", "snappy"),
            ("x-prometheus-remote-write-version", "0.1.0"),
        ],
        (Kind::Prometheus, true) => &[
            ("content-type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
            ("content-encoding", "snappy"),
            ("x-prometheus-remote-write-version", "2.0.0"),
        ],
        (Kind::Otlp | Kind::OtlpLogs, _) => &[("content-type", "application/x-protobuf")],
        (Kind::Opentsdb, _) => &[("content-type", "application/json")],
        _ => &[("content-type", "text/plain; charset=utf-8")],
    }
}

fn authorization(output: &Output) -> Result<Option<String>, String> {
    let read = |path: &Path| secret(path).map_err(|error| error.to_string());
    Ok(match (&output.token_file, &output.user, &output.password_file) {
        (Some(file), ..) => {
            let scheme = if output.kind == Kind::Influx { "Token" } else { "Bearer" };
            Some(format!("{scheme} {}", read(file)?))
        }
        (None, Some(user), Some(file)) => {
            Some(format!("Basic {}", STANDARD.encode(format!("{user}:{}", read(file)?))))
        }
        _ => None,
    })
}

/// Seconds; a date is not understood.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get("retry-after")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// One line of what a store says.
fn quote(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let line: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(QUOTE_MAX).collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::config::Config;
    use crate::record::tests::record;
    use crate::series::tests::series;

    fn channel(table: &str) -> Channel {
        let config = Config::read(&format!("[[output]]\n{table}"), &|_, _| Ok(())).unwrap();
        Channel::open(&config.outputs[0]).unwrap()
    }

    /// Answers one request; returns its address and the thread that ends with the head of what it got.
    fn answering(answer: &'static str) -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let mut head = String::new();
            while stream.read_line(&mut head).unwrap() > 2 {}
            let head = head.to_lowercase();
            let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")?.trim().parse().ok());
            stream.read_exact(&mut vec![0; length.unwrap_or(0)]).unwrap();
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
            head
        });
        (format!("http://{address}/w"), thread)
    }

    fn sent(to: &str, answer: &'static str) -> (Result<Taken, Failure>, String) {
        let (url, thread) = answering(answer);
        let result =
            channel(&format!("to = {to}\nurl = \"{url}\"")).send(&[series("mitra_a", None, &[(1, 1.0)])]);
        (result, thread.join().unwrap())
    }

    #[test]
    fn what_refuses_the_samples_is_told_from_what_may_take_them_later() {
        let (result, head) = sent("\"prometheus\"", "HTTP/1.1 204 x\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(result.unwrap(), Taken { answer: "HTTP 204".into(), refused: None });
        for header in
            ["content-encoding: snappy", "x-prometheus-remote-write-version: 0.1.0", "user-agent: mitra/"]
        {
            assert!(head.contains(header), "{head}");
        }
        let bad = "HTTP/1.1 400 x\r\nContent-Length: 12\r\n\r\nout of\norder";
        assert_eq!(sent("\"influx\"", bad).0, Err(Failure::Never("HTTP 400 out of order".into())));
        let busy = "HTTP/1.1 429 x\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n";
        let later = Failure::Later("HTTP 429".into(), Some(Duration::from_secs(7)));
        assert_eq!(sent("\"influx\"", busy).0, Err(later));
        for answer in
            ["HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 401 x\r\nContent-Length: 0\r\n\r\n", ""]
        {
            assert!(matches!(sent("\"influx\"", answer).0, Err(Failure::Later(..))), "{answer}");
        }
    }

    #[test]
    fn a_store_that_reads_nothing_of_version_2_is_found_out() {
        let version_2 = "\"prometheus\"\nversion = 2";
        let (result, head) = sent(version_2, "HTTP/1.1 204 x\r\nContent-Length: 0\r\n\r\n");
        assert!(matches!(result, Err(Failure::Later(why, _)) if why.contains("version 1")));
        assert!(head.contains("proto=io.prometheus.write.v2.request"), "{head}");
        let some =
            "HTTP/1.1 204 x\r\nX-Prometheus-Remote-Write-Samples-Written: 0\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(sent(version_2, some).0.unwrap().refused.unwrap().0, 1);
    }

    #[test]
    fn a_part_that_is_refused_is_counted() {
        // Three points, by OTLP's own message.
        let answer = "HTTP/1.1 200 x\r\nContent-Length: 4\r\n\r\n\x0a\x02\x08\x03";
        assert_eq!(sent("\"otlp\"", answer).0.unwrap().refused, Some((3, String::new())));
    }

    #[test]
    fn records_of_a_log_are_posted_and_counted() {
        let (url, thread) = answering("HTTP/1.1 200 x\r\nContent-Length: 4\r\n\r\n\x0a\x02\x08\x02");
        let channel = channel(&format!("to = \"otlp-logs\"\nurl = \"{url}\""));
        let records = [record("a"), record("b"), record("c")];
        assert_eq!(channel.send_records(&records).unwrap().refused, Some((2, String::new())));
        assert!(thread.join().unwrap().contains("content-type: application/x-protobuf"));
        let samples = [series("mitra_a", None, &[(1, 1.0)])];
        assert!(matches!(channel.send(&samples), Err(Failure::Never(why)) if why.contains("otlp-logs")));
        assert!(matches!(channel.send_records(&records), Err(Failure::Later(..))), "nobody listens");
    }

    #[test]
    fn clickhouse_leaves_out_columns_that_its_table_lacks() {
        let (url, thread) = answering("HTTP/1.1 200 x\r\nContent-Length: 0\r\n\r\n");
        let channel = channel(&format!("to = \"clickhouse\"\nurl = \"{url}\""));
        assert!(channel.send_records(&[record("a")]).is_ok());
        let head = thread.join().unwrap();
        assert!(head.starts_with("post /w?input_format_skip_unknown_fields=1 http/1.1"), "{head}");
    }

    #[test]
    fn a_connection_has_taken_what_it_read_to_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("tcp://{}", listener.local_addr().unwrap());
        let channel = channel(&format!("to = \"opentsdb\"\nurl = \"{url}\""));
        let thread = std::thread::spawn(move || {
            let mut got = Vec::new();
            for answer in ["", "put: illegal argument\n"] {
                let mut stream = listener.accept().unwrap().0;
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                got.push(text);
            }
            got
        });
        let batch = [series("mitra_a", None, &[(1_000_000_000, 1.0)])];
        assert!(channel.send(&batch).is_ok());
        let refused = channel.send(&batch).unwrap().refused;
        assert_eq!(refused, Some((1, "put: illegal argument".to_owned())));
        assert_eq!(thread.join().unwrap(), ["put mitra_a 1 1 host=web1\n"; 2]);
        assert!(matches!(channel.send(&batch), Err(Failure::Later(..))), "nobody listens");
    }

    #[test]
    fn a_long_answer_is_read_to_its_end_and_each_of_its_lines_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("tcp://{}", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.read_to_end(&mut Vec::new()).unwrap();
            for _ in 0..2_000 {
                stream.write_all(b"put: illegal argument\n\n").unwrap();
            }
            stream.write_all(b"put: the last one").unwrap();
        });
        let channel = channel(&format!("to = \"opentsdb\"\nurl = \"{url}\""));
        let taken = channel.send(&[series("mitra_a", None, &[(1_000_000_000, 1.0)])]).unwrap();
        thread.join().unwrap();
        let (lines, why) = taken.refused.unwrap();
        assert!(lines == 2_001 && why.starts_with("put: illegal argument  put: "), "{lines}: {why}");
        assert_eq!(why.len(), QUOTE_MAX);
    }

    #[test]
    fn a_token_comes_from_a_file_that_nobody_else_reads() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "sesame\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let (url, thread) = answering("HTTP/1.1 204 x\r\nContent-Length: 0\r\n\r\n");
        let table = format!("to = \"influx\"\nurl = \"{url}\"\ntoken-file = \"{}\"", file.display());
        channel(&table).send(&[series("a", None, &[(1, 1.0)])]).unwrap();
        assert!(thread.join().unwrap().contains("authorization: token sesame"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let config = Config::read(&format!("[[output]]\n{table}"), &|_, _| Ok(())).unwrap();
        assert!(Channel::open(&config.outputs[0]).err().unwrap().contains("others than its owner"));
    }
}
