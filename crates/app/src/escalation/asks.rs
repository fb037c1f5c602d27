//! The recorder's end of what `asked.rs` describes: one question in each sample, and nothing that waits.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use mitra_model::{EventKind, Frame};
use mitra_rules::{Probe, Verdict};

use super::{Escalation, event, probes};
use crate::asked::{Answer, Ask, LINE_MAX, Outcome, SECONDS_MAX, WHY};
use crate::log::log;

/// What is refused is logged and recorded so often at most.
const REFUSED_EVERY_S: f64 = 10.0;

pub struct Asks {
    socket: UnixStream,
    line: Vec<u8>,
    /// When it was last told that something was refused.
    refused_s: f64,
}

impl Asks {
    pub fn new(socket: UnixStream) -> io::Result<Asks> {
        socket.set_nonblocking(true)?;
        Ok(Asks { socket, line: Vec::new(), refused_s: f64::NEG_INFINITY })
    }

    /// Whether it is told that something was refused.
    fn is_told(&mut self, now_s: f64) -> bool {
        let is_told = now_s - self.refused_s >= REFUSED_EVERY_S;
        if is_told {
            self.refused_s = now_s;
        }
        is_told
    }

    /// The next question, if there is one. Whoever says something else is not listened to any more.
    pub fn next(&mut self) -> io::Result<Option<Ask>> {
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let mut byte = [0];
        loop {
            match self.socket.read(&mut byte) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) if byte == *b"\n" => break,
                Ok(_) if self.line.len() < LINE_MAX => self.line.push(byte[0]),
                Ok(_) => return Err(wrong("a line is too long")),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let line = std::mem::take(&mut self.line);
        serde_json::from_slice(&line).map(Some).map_err(|_| wrong("a line is no question"))
    }

    /// An answer that does not fit into the socket is an error: the other end reads none.
    pub fn answer(&mut self, answer: &Answer) -> io::Result<()> {
        let mut line = serde_json::to_vec(answer)?;
        line.push(b'\n');
        match self.socket.write(&line)? {
            n if n == line.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

impl Escalation {
    /// The probes that may be asked for: those that show no content of memory and no arguments of calls.
    pub fn may_be_asked(&self) -> Vec<&'static str> {
        const NOT: [&str; 2] = [mitra_model::capture::heap::KIND, "trace"];
        let kinds = self.kinds.iter().copied().filter(|kind| self.is_armed && !NOT.contains(kind));
        kinds.collect()
    }

    /// Answers what is asked over this socket.
    pub fn listen(&mut self, socket: UnixStream) -> io::Result<()> {
        self.asks.push(Asks::new(socket)?);
        Ok(())
    }

    /// Answers one question of each that may ask, and records it.
    pub(super) fn answer(&mut self, frame: &mut Frame, now_s: f64) {
        let mut all = std::mem::take(&mut self.asks);
        all.retain_mut(|asks| match self.answer_one(asks, frame, now_s) {
            Ok(()) => true,
            Err(error) => {
                log(&format!("a server beside this recorder can ask for no more probes: {error}"));
                false
            }
        });
        self.asks = all;
    }

    fn answer_one(&mut self, asks: &mut Asks, frame: &mut Frame, now_s: f64) -> io::Result<()> {
        let Some(ask) = asks.next()? else { return Ok(()) };
        let what = words_of(&ask);
        let answer = self.arm_asked(&ask, now_s);
        let text = match answer.outcome {
            Outcome::Armed => Some(format!("{what}: armed")),
            _ => asks.is_told(now_s).then(|| format!("{what}: not armed, {}", answer.why)),
        };
        if let Some(text) = text {
            log(&text);
            frame.events.push(event(frame.time, EventKind::Recorder { text }));
        }
        asks.answer(&answer)
    }

    fn arm_asked(&mut self, ask: &Ask, now_s: f64) -> Answer {
        let answer = |outcome: Outcome, why: &str| Answer { id: ask.id, outcome, why: why.to_owned() };
        let kinds = self.may_be_asked();
        if !kinds.contains(&ask.kind.as_str()) {
            return answer(
                Outcome::Refused,
                &format!("no such probe can be asked for: {}", kinds.join(", ")),
            );
        }
        if !(1.0..=SECONDS_MAX).contains(&ask.seconds) {
            return answer(Outcome::Refused, &format!("want 1 to {SECONDS_MAX} seconds"));
        }
        if ask.pid == Some(0) {
            return answer(Outcome::Refused, "no process has the number 0");
        }
        let probe = Probe { kind: ask.kind.clone(), options: Vec::new() };
        if let Err(why) = probes::check(&probe, ask.pid.is_some()) {
            // The words are those of a rule.
            return answer(Outcome::Refused, why.split(": say which").next().unwrap_or_default());
        }
        let verdict = self.policy.ask(now_s, ask.seconds, !self.probes.is_empty());
        if verdict != Verdict::Go {
            return answer(Outcome::Later, verdict.why_no_probes());
        }
        let why = format!("{WHY}{}", who(ask));
        match self.start_probes(
            &why,
            ask.seconds,
            ask.pid.map(|pid| (pid, None)),
            std::slice::from_ref(&ask.kind),
        ) {
            Ok(thread) => {
                self.probes.push(thread);
                answer(Outcome::Armed, "")
            }
            Err(why) => answer(Outcome::Later, &why),
        }
    }
}

/// Who asks, as far as it looks like an address or a user: the server may say anything.
fn who(ask: &Ask) -> String {
    const LONGEST: usize = 45;
    let is_address = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | ' ');
    ask.who.chars().filter(is_address).take(LONGEST).collect()
}

fn words_of(ask: &Ask) -> String {
    // A kind that is not in the list is no text for a log.
    let kind: String = ask.kind.chars().filter(char::is_ascii_lowercase).take(32).collect();
    let of = ask.pid.map_or_else(|| "the machine".to_owned(), |pid| format!("process {pid}"));
    format!("probe {kind} of {of} for {} s, {WHY}{}", ask.seconds, who(ask))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_a_line_and_nothing_else_is() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut asks = Asks::new(ours).unwrap();
        assert_eq!(asks.next().unwrap(), None);
        let ask = r#"{"id":7,"kind":"offcpu","pid":null,"seconds":5,"who":"127.0.0.1"}"#;
        theirs.write_all(&ask.as_bytes()[..20]).unwrap();
        assert_eq!(asks.next().unwrap(), None);
        theirs.write_all(format!("{}\n{ask}\n", &ask[20..]).as_bytes()).unwrap();
        for _ in 0..2 {
            let ask = asks.next().unwrap().unwrap();
            assert_eq!((ask.id, ask.kind.as_str(), ask.pid, ask.seconds), (7, "offcpu", None, 5.0));
        }
        assert_eq!(asks.next().unwrap(), None);
        asks.answer(&Answer { id: 7, outcome: Outcome::Armed, why: String::new() }).unwrap();
        let mut bytes = [0; 64];
        let n = theirs.read(&mut bytes).unwrap();
        assert_eq!(
            std::str::from_utf8(&bytes[..n]).unwrap(),
            "{\"id\":7,\"outcome\":\"armed\",\"why\":\"\"}\n"
        );
        for wrong in ["x\n".to_owned(), ask.replace("who", "argv") + "\n", "a".repeat(LINE_MAX + 1)] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(wrong.as_bytes()).unwrap();
            assert!(Asks::new(ours).unwrap().next().is_err(), "{wrong}");
        }
        drop(theirs);
        // A process that another test is starting has a copy of it for a moment.
        let has_ended = |_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            asks.next().is_err()
        };
        assert!((0..500).any(has_ended));
        // Who reads no answers is not waited for.
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut asks = Asks::new(ours).unwrap();
        let answer = Answer { id: 1, outcome: Outcome::Later, why: "x".repeat(400) };
        assert!((0..100_000).any(|_| asks.answer(&answer).is_err()));
    }
}
