//! The server's end of what `asked.rs` describes: asks the recorder that started it for a probe.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net;
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::StatusCode;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use super::response::Failure;
use crate::asked::{Answer, Ask, LINE_MAX, Outcome, SECONDS_MAX};

/// Why nobody is asked.
pub const NO_RECORDER: &str = "this server asks no recorder for probes: want mitra record --serve or --dbus, and ask = true in the table \
                               [captures]; or, as root: mitra capture KIND --seconds 5 --pid PID";
/// The recorder looks once in each of its intervals.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

pub struct Asks {
    /// The probes that may be asked for.
    pub kinds: Vec<String>,
    recorder: Mutex<Line>,
}

struct Line {
    stream: BufReader<UnixStream>,
    asked: u64,
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
        let recorder = Mutex::new(Line { stream: BufReader::new(stream), asked: 0 });
        Ok(Some(Asks { kinds: kinds.to_vec(), recorder }))
    }

    /// Has a probe armed.
    pub async fn arm(&self, kind: &str, pid: Option<u32>, seconds: f64, who: String) -> Result<(), Failure> {
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
        let asked = async {
            let mut recorder = self.recorder.lock().await;
            recorder.asked += 1;
            let ask = Ask { id: recorder.asked, kind: kind.to_owned(), pid, seconds, who };
            recorder.ask(&ask).await
        };
        let lost = |why: &dyn std::fmt::Display| {
            let why = format!("the recorder does not answer: {why}");
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, "no_recorder", why)
        };
        let answer = tokio::time::timeout(ANSWERS_WITHIN, asked).await;
        let answer = answer.map_err(|why| lost(&why))?.map_err(|why| lost(&why))?;
        match answer.outcome {
            Outcome::Armed => Ok(()),
            Outcome::Later => Err(Failure::new(StatusCode::CONFLICT, "not_now", answer.why)),
            Outcome::Refused => Err(Failure::bad("refused", answer.why)),
        }
    }
}

impl Line {
    async fn ask(&mut self, ask: &Ask) -> io::Result<Answer> {
        let mut line = serde_json::to_vec(ask)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).await?;
        loop {
            let mut line = Vec::new();
            let most = LINE_MAX as u64 * 4;
            if (&mut self.stream).take(most).read_until(b'\n', &mut line).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // What was asked before and not waited for is answered, too.
            let answer: Answer = serde_json::from_slice(&line)?;
            if answer.id == ask.id {
                return Ok(answer);
            }
        }
    }
}
