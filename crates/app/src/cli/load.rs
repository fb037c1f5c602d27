//! `mitra load`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use mitra_load::{HeaderName, HeaderValue, Method, Shape};

use super::examples;
use crate::values::time::{TimeExpr, duration};

/// Longer than any run.
const LENGTH_MAX: Duration = Duration::from_secs(365 * 86_400);

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = examples::below(
    "load",
    "Requests are due at the rate, whether the server answers or not. Latency counts from when a request was due, service time from \
                        when it was sent; a request that is due while all connections are taken waits in a queue, and is counted. With \
                        --find-knee the rate grows by a quarter from step to step, as long as it is kept and p99 stays below p99.9 of the first \
                        step. Runs by root are noted in the kernel log, so that mitra explain names them. docs/load.md has more.\n\n\
                        Exits with 1 if no request was answered, or the load could not be made."
))]
pub struct LoadArgs {
    #[command(subcommand)]
    pub command: Option<LoadCommand>,
    /// What to ask for, in turns: http://HOST:PORT/PATH or https://…
    #[arg(value_name = "URL", required_unless_present = "targets")]
    pub urls: Vec<String>,
    /// Also ask for what this file lists: URL or METHOD URL on each line
    #[arg(long, value_name = "FILE")]
    pub targets: Option<PathBuf>,
    /// Ask for the paths of an access log, with its own timing; URL is the host
    #[arg(long, value_name = "LOG", conflicts_with_all = ["rate", "find_knee", "targets", "method", "body"])]
    pub replay: Option<PathBuf>,
    /// Replay so many times as fast
    #[arg(long, value_name = "N", default_value_t = 1.0, requires = "replay")]
    pub speed: f64,
    /// How many requests: 500/s, 30/m, or 100..2000/s for a ramp
    #[arg(long, value_name = "RATE", required_unless_present_any = ["replay"])]
    pub rate: Option<Shape>,
    /// Raise the rate step by step, and say up to where the server follows
    #[arg(long, requires = "rate", conflicts_with = "duration")]
    pub find_knee: bool,
    /// How long a step is
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = length, requires = "find_knee")]
    pub step: Duration,
    /// For how long [default: 30s, of a log to its end]
    #[arg(long, value_name = "DURATION", value_parser = length)]
    pub duration: Option<Duration>,
    /// Open so many connections at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// Speak HTTP/2: without TLS with prior knowledge
    #[arg(long)]
    pub http2: bool,
    /// Send so many requests at a time on a connection of HTTP/2
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000), requires = "http2")]
    pub streams: u32,
    /// Open a connection for each request
    #[arg(long)]
    pub no_keep_alive: bool,
    /// Give a request up after this time
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = length)]
    pub timeout: Duration,
    /// The method, where a target has none
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    pub method: Method,
    /// Send a header; a value @FILE is read from a file that only its owner may read
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    pub headers: Vec<Header>,
    /// Send this file as body, read piece by piece
    #[arg(long, value_name = "FILE")]
    pub body: Option<PathBuf>,
    /// Trust the certificates in this file, and not those of the system
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Send values of @FILE to another machine by http:// too, where everybody on the way can read them
    #[arg(long)]
    pub insecure: bool,
    /// Begin at a time, as others do: +5s, or seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = start)]
    pub at: Option<SystemTime>,
    /// Do not note the run in the kernel log
    #[arg(long)]
    pub no_mark: bool,
    /// Print JSON, schema mitra.load/1 or mitra.load.knee/1
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum LoadCommand {
    /// Add up the results of several machines
    Merge(LoadMergeArgs),
}

#[derive(Debug, Args)]
#[command(after_help = examples::below("load merge", "Histograms are added up, so percentiles are as exact as those of one machine."))]
pub struct LoadMergeArgs {
    /// What mitra load --json printed
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Print JSON, schema mitra.load/1
    #[arg(long)]
    pub json: bool,
}

/// A header, and where its value stands.
#[derive(Debug, Clone)]
pub struct Header {
    pub name: HeaderName,
    pub value: HeaderContent,
}

#[derive(Debug, Clone)]
pub enum HeaderContent {
    Text(HeaderValue),
    Secret(PathBuf),
}

fn header(text: &str) -> Result<Header, String> {
    let bad = || "not a header; want 'Accept: text/html' or 'Authorization: @FILE'".to_owned();
    let (name, value) = text.split_once(':').ok_or_else(bad)?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| bad())?;
    if ["content-length", "transfer-encoding", "connection"].contains(&name.as_str()) {
        return Err(format!("{name} is set by mitra load itself"));
    }
    let value = match value.trim().strip_prefix('@') {
        Some(file) => HeaderContent::Secret(file.into()),
        None => HeaderContent::Text(HeaderValue::from_str(value.trim()).map_err(|_| bad())?),
    };
    Ok(Header { name, value })
}

/// A length of time that is not empty.
fn length(text: &str) -> Result<Duration, String> {
    let length = duration(text)?;
    if length.is_zero() || length > LENGTH_MAX { Err("want 1ms to 365d".to_owned()) } else { Ok(length) }
}

/// `+5s` from now, `1795232527` or `@1795232527`.
fn start(text: &str) -> Result<SystemTime, String> {
    let bad = || "not a start; want +5s, or seconds since 1970 such as 1795232527".to_owned();
    let now = SystemTime::now();
    let at = match text.strip_prefix('+') {
        Some(later) => now.checked_add(length(later)?),
        None => {
            let text = if text.starts_with('@') { text.to_owned() } else { format!("@{text}") };
            match text.parse() {
                Ok(TimeExpr::At(ns)) => u64::try_from(ns).ok().map(Duration::from_nanos),
                _ => None,
            }
            .and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since))
        }
    };
    let at = at.ok_or_else(bad)?;
    match at.duration_since(now) {
        Ok(wait) if wait > LENGTH_MAX => Err(bad()),
        Ok(_) => Ok(at),
        Err(_) => Err("that time has passed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_text_or_secrets() {
        let read = header("Authorization: @/run/token").unwrap();
        assert!(matches!(read.value, HeaderContent::Secret(file) if file.ends_with("token")));
        assert!(matches!(header("A:b:c").unwrap().value, HeaderContent::Text(v) if v == "b:c"));
        for bad in ["", "a", "a b: c", "a: b\nc", "Content-Length: 5"] {
            assert!(header(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn starts_lie_ahead() {
        assert!(start("+5s").is_ok());
        assert!(start("@7000000000").is_err() && start("4").is_err() && start("tomorrow").is_err());
        assert!(start("+0s").is_err() && length("0s").is_err() && length("366d").is_err());
    }
}
