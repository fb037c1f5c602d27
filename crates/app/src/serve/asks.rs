//! The server's end of what `asked.rs` describes: asks the recorder that started it for a probe.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net;
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::StatusCode;
use mitra_collect::INTERVAL_MAX;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::response::Failure;
use crate::asked::{Answer, Ask, LINE_MAX, Outcome, SECONDS_MAX};

/// Why nobody is asked.
pub const NO_RECORDER: &str = "this server asks no recorder for probes: want mitra record --serve or --dbus, and ask = true in the table \
                               [captures]; or, as root: mitra capture KIND --seconds 5 --pid PID";
/// How late the recorder may be on a machine in trouble.
const LATE_MAX: Duration = Duration::from_secs(10);

/// How long the recorder may take to answer: it looks once in each of its intervals.
fn answers_within(interval_ns: Option<i64>) -> Duration {
    let interval_ns = interval_ns.and_then(|ns| u64::try_from(ns).ok()).unwrap_or_default();
    Duration::from_nanos(interval_ns).min(INTERVAL_MAX) + LATE_MAX
}

pub struct Asks {
    /// The probes that may be asked for.
    pub kinds: Vec<String>,
    recorder: Mutex<Line>,
}

struct Line {
    stream: BufReader<UnixStream>,
    asked: u64,
    /// Questions that it has not answered yet, also those that nobody waits for any more. It answers one in each interval.
    unanswered: u32,
    /// What was read of an answer so far.
    line: Vec<u8>,
}

impl Asks {
    /// Takes standard input for the way to the recorder, if there is anything to ask it for.
    pub fn open(kinds: &[String]) -> Result<Option<Asks>> {
        if kinds.is_empty() {
            return Ok(None);
        }
        let open = || -> io::Result<UnixStream> {
            let stream = net::UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
            stream.set_nonblocking(true)?;
            UnixStream::from_std(stream)
        };
        let stream = open().context("standard input is no way to a recorder")?;
        Ok(Some(Asks { kinds: kinds.to_vec(), recorder: Mutex::new(Line::new(stream)) }))
    }

    /// Has a probe armed by a recorder of this interval.
    pub async fn arm(
        &self,
        kind: &str,
        pid: Option<u32>,
        seconds: f64,
        who: String,
        interval_ns: Option<i64>,
    ) -> Result<(), Failure> {
        // A longer line would end the conversation.
        if !self.kinds.iter().any(|known| known == kind) {
            return Err(Failure::bad(
                "refused",
                format!("no such probe can be asked for: {}", self.kinds.join(", ")),
            ));
        }
        // JSON has no word for what is no number, which D-Bus may send.
        if !seconds.is_finite() {
            return Err(Failure::bad("refused", format!("want 1 to {SECONDS_MAX} seconds")));
        }
        let ask = Ask { id: 0, kind: kind.to_owned(), pid, seconds, who };
        let within = answers_within(interval_ns);
        let answer = self.ask(ask, within, within.saturating_sub(LATE_MAX)).await?;
        match answer.outcome {
            Outcome::Armed => Ok(()),
            Outcome::Later => Err(Failure::new(StatusCode::CONFLICT, "not_now", answer.why)),
            Outcome::Refused => Err(Failure::bad("refused", answer.why)),
        }
    }

    /// Asks one thing after the other. For each question that is not answered yet it waits an interval longer.
    async fn ask(&self, mut ask: Ask, within: Duration, interval: Duration) -> Result<Answer, Failure> {
        let Ok(mut recorder) = timeout(within, self.recorder.lock()).await else {
            let why = "others wait for an answer of the recorder; ask again";
            return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", why));
        };
        recorder.asked += 1;
        ask.id = recorder.asked;
        let within = within.saturating_add(interval.saturating_mul(recorder.unanswered));
        match timeout(within, recorder.ask(&ask)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                let why = format!("the recorder does not answer: {error}");
                Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "no_recorder", why))
            }
            // The question is with it, and cannot be taken back.
            Err(_) => {
                let seconds = within.as_secs();
                let why =
                    format!("the recorder has not answered for {seconds} s; it may arm the probe later");
                Err(Failure::new(StatusCode::GATEWAY_TIMEOUT, "no_answer", why))
            }
        }
    }
}

impl Line {
    fn new(stream: UnixStream) -> Line {
        Line { stream: BufReader::new(stream), asked: 0, unanswered: 0, line: Vec::new() }
    }

    async fn ask(&mut self, ask: &Ask) -> io::Result<Answer> {
        let mut line = serde_json::to_vec(ask)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).await?;
        self.unanswered += 1;
        loop {
            // Who gives up in the middle of an answer leaves its beginning here.
            let most = (LINE_MAX as u64 * 4).saturating_sub(self.line.len() as u64);
            if (&mut self.stream).take(most).read_until(b'\n', &mut self.line).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = std::mem::take(&mut self.line);
            self.unanswered = self.unanswered.saturating_sub(1);
            // What was asked before and not waited for is answered, too.
            let answer: Answer = serde_json::from_slice(&line)?;
            if answer.id == ask.id {
                return Ok(answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mitra_model::time::SECOND;
    use tokio::runtime::Builder;

    use super::*;

    type Recorder = BufReader<UnixStream>;

    const SOON: Duration = Duration::from_millis(20);

    fn pair() -> (Asks, Recorder) {
        let (near, far) = UnixStream::pair().unwrap();
        let recorder = Mutex::new(Line::new(near));
        (Asks { kinds: vec!["offcpu".to_owned()], recorder }, BufReader::new(far))
    }

    fn ask() -> Ask {
        Ask { id: 0, kind: "offcpu".to_owned(), pid: None, seconds: 5.0, who: "user 0".to_owned() }
    }

    async fn answer_one(recorder: &mut Recorder, outcome: Outcome) {
        let mut line = Vec::new();
        recorder.read_until(b'\n', &mut line).await.unwrap();
        let asked: Ask = serde_json::from_slice(&line).unwrap();
        let mut line = serde_json::to_vec(&Answer { id: asked.id, outcome, why: String::new() }).unwrap();
        line.push(b'\n');
        recorder.get_mut().write_all(&line).await.unwrap();
    }

    #[test]
    fn an_answer_may_take_an_interval() {
        let seconds = |interval_s: i64| answers_within(Some(interval_s * SECOND)).as_secs();
        assert_eq!([seconds(1), seconds(60), seconds(86_400)], [11, 70, 610]);
        assert_eq!([answers_within(None), answers_within(Some(-SECOND))], [LATE_MAX; 2]);
    }

    #[test]
    fn a_late_answer_is_not_that_of_the_next_question() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (asks, mut recorder) = pair();
            let patience = Duration::from_secs(60);
            let failure = asks.ask(ask(), SOON, Duration::ZERO).await.unwrap_err();
            assert_eq!((failure.status, failure.code), (StatusCode::GATEWAY_TIMEOUT, "no_answer"));
            answer_one(&mut recorder, Outcome::Armed).await;
            let (told, ()) = tokio::join!(
                asks.ask(ask(), patience, Duration::ZERO),
                answer_one(&mut recorder, Outcome::Later)
            );
            assert_eq!(told.unwrap().outcome, Outcome::Later);
            drop(recorder);
            let failure = asks.ask(ask(), patience, Duration::ZERO).await.unwrap_err();
            assert_eq!((failure.status, failure.code), (StatusCode::SERVICE_UNAVAILABLE, "no_recorder"));
        });
    }

    #[test]
    fn a_question_waits_for_the_answers_before_its_own() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (asks, mut recorder) = pair();
            let interval = Duration::from_secs(60);
            asks.ask(ask(), SOON, interval).await.unwrap_err();
            assert_eq!(asks.recorder.lock().await.unanswered, 1);
            let answers = async {
                tokio::time::sleep(SOON * 3).await;
                answer_one(&mut recorder, Outcome::Armed).await;
                answer_one(&mut recorder, Outcome::Later).await;
            };
            let (told, ()) = tokio::join!(asks.ask(ask(), SOON, interval), answers);
            assert_eq!(told.unwrap().outcome, Outcome::Later);
            assert_eq!(asks.recorder.lock().await.unanswered, 0);
        });
    }

    #[test]
    fn half_an_answer_is_kept_for_who_asks_next() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (asks, mut recorder) = pair();
            recorder.get_mut().write_all(br#"{"id":1,"outcome":"ar"#).await.unwrap();
            asks.ask(ask(), SOON, Duration::ZERO).await.unwrap_err();
            let mut line = Vec::new();
            recorder.read_until(b'\n', &mut line).await.unwrap();
            recorder.get_mut().write_all(b"med\",\"why\":\"\"}\n").await.unwrap();
            let patience = Duration::from_secs(60);
            let (told, ()) = tokio::join!(
                asks.ask(ask(), patience, Duration::ZERO),
                answer_one(&mut recorder, Outcome::Later)
            );
            assert_eq!(told.unwrap().outcome, Outcome::Later);
        });
    }
}
