//! An access log, asked again with its own timing.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use hyper::Method;
use hyper::http::uri::PathAndQuery;
use mitra_parse::text::monitors::logged_request;

use crate::targets::LINE_MAX;
use crate::{Error, Target};

const SECOND_NS: i64 = 1_000_000_000;
/// Lines are sorted over so long a time. Servers write a line when a request has ended, some with the time at which it
/// came: a line is as late as its request took.
const WINDOW_NS: i64 = 5 * SECOND_NS;
/// Requests that are sorted at a time. With more, those of the earliest time go first.
const WINDOW_REQUESTS_MAX: usize = 500_000;

/// A log that is read while it is replayed.
///
/// The common format has whole seconds. The requests of such a second are spread evenly over it: all at its beginning
/// would be a burst that was not there. A line that comes too late to be sorted is due with the one before.
pub struct Replay {
    path: PathBuf,
    reader: Box<dyn BufRead>,
    line: Vec<u8>,
    speed: f64,
    origin: usize,
    /// The time of the first request.
    first: Option<i64>,
    last: Duration,
    ready: VecDeque<(Duration, Rc<Target>)>,
    /// Requests by their time, and whether that has a fraction.
    window: BTreeMap<(i64, bool), Vec<Rc<Target>>>,
    /// How many those are.
    window_requests: usize,
    /// The latest time that was read.
    newest: i64,
    is_read: bool,
    /// Why it was not read to its end.
    error: Option<io::Error>,
    /// Lines that are no request of an access log, or are too long.
    pub unread: u64,
    /// Requests whose method has a body, which the log does not have.
    pub left_out: u64,
}

struct Logged {
    real: i64,
    has_fraction: bool,
    target: Rc<Target>,
}

impl Replay {
    /// Opens a log. `speed` 2 replays it in half of its time.
    ///
    /// # Errors
    /// If the file cannot be read or `speed` is no positive number.
    pub fn open(path: &Path, speed: f64) -> Result<Replay, Error> {
        if !(speed.is_finite() && speed > 0.0) {
            return Err(Error::wanted("a speed is a number above 0"));
        }
        let file = File::open(path).map_err(Error::io(path))?;
        let mut replay = Replay::of(path, BufReader::with_capacity(LINE_MAX, file), speed);
        // The first request is not to wait for it.
        replay.fill();
        match replay.error.take() {
            Some(error) => Err(Error::io(path)(error)),
            None => Ok(replay),
        }
    }

    pub(crate) fn of(path: &Path, reader: impl BufRead + 'static, speed: f64) -> Replay {
        Replay {
            path: path.to_owned(),
            reader: Box::new(reader),
            line: Vec::new(),
            speed,
            origin: 0,
            first: None,
            last: Duration::ZERO,
            ready: VecDeque::new(),
            window: BTreeMap::new(),
            window_requests: 0,
            newest: i64::MIN,
            is_read: false,
            error: None,
            unread: 0,
            left_out: 0,
        }
    }

    /// The next request, and when it is due from the start on.
    ///
    /// # Errors
    /// If the file cannot be read. All that could be read comes before.
    pub fn next_request(&mut self) -> Result<Option<(Duration, Rc<Target>)>, Error> {
        if self.ready.is_empty() {
            self.fill();
            self.spread();
        }
        match (self.ready.pop_front(), self.error.take()) {
            (None, Some(error)) => Err(Error::io(&self.path)(error)),
            (next, error) => {
                self.error = error;
                Ok(next)
            }
        }
    }

    /// Reads until nothing can come before the earliest requests.
    fn fill(&mut self) {
        while !self.is_read && self.window_requests < WINDOW_REQUESTS_MAX && !self.is_sorted() {
            match self.read() {
                Ok(Some(one)) => {
                    self.newest = self.newest.max(one.real);
                    self.window.entry((one.real, one.has_fraction)).or_default().push(one.target);
                    self.window_requests += 1;
                }
                Ok(None) => self.is_read = true,
                Err(error) => (self.is_read, self.error) = (true, Some(error)),
            }
        }
    }

    fn is_sorted(&self) -> bool {
        let first = self.window.first_key_value();
        first.is_some_and(|((real, _), _)| self.newest.saturating_sub(*real) > WINDOW_NS)
    }

    /// Makes the requests of the earliest time ready.
    fn spread(&mut self) {
        let Some(((real, has_fraction), same)) = self.window.pop_first() else { return };
        self.window_requests -= same.len();
        let start = *self.first.get_or_insert(real);
        let apart = if has_fraction { 0 } else { SECOND_NS / same.len().max(1) as i64 };
        for (n, target) in same.into_iter().enumerate() {
            let since = real.saturating_sub(start).saturating_add(apart.saturating_mul(n as i64)).max(0);
            let due = Duration::try_from_secs_f64(since as f64 / 1e9 / self.speed).unwrap_or(Duration::MAX);
            self.last = self.last.max(due);
            self.ready.push_back((self.last, target));
        }
    }

    /// The next line that is a request to be asked.
    fn read(&mut self) -> io::Result<Option<Logged>> {
        loop {
            self.line.clear();
            let n = (&mut self.reader).take(LINE_MAX as u64).read_until(b'\n', &mut self.line)?;
            if n == 0 {
                return Ok(None);
            }
            if n == LINE_MAX && !self.line.ends_with(b"\n") {
                self.reader.skip_until(b'\n')?;
                self.unread += 1;
                continue;
            }
            if self.line.trim_ascii().is_empty() {
                continue;
            }
            let found = logged_request(&self.line).and_then(|found| {
                let method = Method::from_bytes(found.method).ok()?;
                let is_path = found.target.starts_with(b"/");
                let path = PathAndQuery::try_from(found.target).ok().filter(|_| is_path)?;
                Some((found.real, found.has_fraction, method, path))
            });
            let Some((real, has_fraction, method, path)) = found else {
                self.unread += 1;
                continue;
            };
            if ![Method::GET, Method::HEAD, Method::OPTIONS].contains(&method) {
                self.left_out += 1;
                continue;
            }
            let target = Rc::new(Target { origin: self.origin, method: Some(method), path });
            return Ok(Some(Logged { real, has_fraction, target }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(log: &[u8], speed: f64) -> (Vec<u64>, Replay) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), log).unwrap();
        let mut replay = Replay::open(file.path(), speed).unwrap();
        let mut times = Vec::new();
        while let Some((due, _)) = replay.next_request().unwrap() {
            times.push(due.as_millis() as u64);
        }
        (times, replay)
    }

    fn line(time: &str, request: &str) -> String {
        format!("10.0.0.7 - - [27/Nov/2026:{time} +0000] \"{request}\" 200 1 \"-\" \"-\"\n")
    }

    #[test]
    fn requests_of_a_second_are_spread_over_it() {
        let mut log = String::new();
        for time in ["10:00:00", "10:00:00", "10:00:00", "10:00:00", "10:00:02", "10:00:05"] {
            log += &line(time, "GET /a HTTP/1.1");
        }
        log += "no line of a log\n";
        log += &line("10:00:06", "POST /a HTTP/1.1");
        log += &line("10:00:06", "GET http://elsewhere/ HTTP/1.1");
        let (times, replay) = times(log.as_bytes(), 1.0);
        assert_eq!(times, [0, 250, 500, 750, 2000, 5000]);
        assert_eq!((replay.unread, replay.left_out), (2, 1));
    }

    /// Apache writes a line when a request has ended, with the time at which it came.
    #[test]
    fn lines_that_are_late_are_sorted() {
        let mut log = String::new();
        for time in ["10:00:00", "10:00:01", "10:00:00", "10:00:02", "10:00:01", "10:00:01", "10:00:20"] {
            log += &line(time, "GET /a HTTP/1.1");
        }
        log += &line("10:00:03", "GET /a HTTP/1.1");
        log += &line("10:00:21", "GET /a HTTP/1.1");
        let (times, replay) = times(log.as_bytes(), 1.0);
        assert_eq!(times, [0, 500, 1000, 1333, 1666, 2000, 3000, 20_000, 21_000]);
        assert_eq!(replay.window_requests, 0);
    }

    #[test]
    fn a_line_that_is_too_late_is_due_with_the_one_before() {
        let mut log = String::new();
        for time in ["10:00:00", "10:00:10", "10:00:20", "10:00:01", "10:00:30"] {
            log += &line(time, "GET /a HTTP/1.1");
        }
        // The line of the second 1 is read when that of the second 10 is the earliest.
        assert_eq!(times(log.as_bytes(), 1.0).0, [0, 10_000, 10_000, 20_000, 30_000]);
    }

    #[test]
    fn speed_and_fractions() {
        let line = |ms: u32| {
            format!(
                "x haproxy[1]: 1:2 [27/Nov/2026:10:00:00.{ms:03}] a b/c 0/0/0/0/0 200 1 - - ---- 1/1/0/0/0 0/0 \"GET / HTTP/1.1\"\n"
            )
        };
        let log = line(100) + &line(100) + &line(500) + &line(900);
        assert_eq!(times(log.as_bytes(), 2.0).0, [0, 0, 200, 400]);
        assert!(times(b"", 1.0).0.is_empty());
        assert!(Replay::open(Path::new("/dev/null"), 0.0).is_err());
    }

    #[test]
    fn a_line_without_an_end_needs_no_memory() {
        let mut log = vec![b'x'; 3 * LINE_MAX];
        log.push(b'\n');
        log.extend(line("10:00:00", "GET / HTTP/1.1").bytes());
        let (times, replay) = times(&log, 1.0);
        assert_eq!((times, replay.unread), (vec![0], 1));
        assert!(replay.line.capacity() <= 2 * LINE_MAX);
    }
}
