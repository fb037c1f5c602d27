//! `mitra mcp`: messages of an assistant as lines of standard input, answers as lines of standard output.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::Arc;

use anyhow::{Context, Result};
use mitra_ask::mcp::{Asked, Message, Refusal, Via, read};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::api::Server;
use super::{Options, mcp, runtime};
use crate::confined;
use crate::log::log;
use crate::render::style::clean_json;

/// A question has a few hundred bytes.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Requests that are worked on or wait; no more are read until one is answered.
const AT_ONCE: usize = 16;

/// Answers until standard input ends.
pub fn run(options: Options) -> Result<()> {
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        confined::to_serve(&options.dir, false);
        let server = Server::open(options, None, None)?;
        let (send, lines) = mpsc::channel(1);
        // Nothing interrupts a read of standard input; the thread ends with the process.
        std::thread::Builder::new()
            .name("stdin".to_owned())
            .spawn(move || each_line(std::io::stdin().lock(), |line| send.blocking_send(line).is_ok()))
            .context("cannot read standard input")?;
        answer(server, lines).await
    });
    runtime.shutdown_background();
    done
}

/// A line, or nothing of one that is too long.
type Line = Option<Vec<u8>>;

/// Reads lines until the end, or until nobody takes them any more.
fn each_line(mut input: impl BufRead, mut take: impl FnMut(Line) -> bool) {
    let mut line = Vec::new();
    let mut is_long = false;
    loop {
        let (used, ends) = match input.fill_buf() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return,
            Ok(bytes) => {
                let end = bytes.iter().position(|byte| *byte == b'\n');
                let part = &bytes[..end.unwrap_or(bytes.len())];
                is_long |= line.len() + part.len() > LINE_BYTES_MAX;
                if is_long {
                    line = Vec::new();
                } else {
                    line.extend_from_slice(part);
                }
                (end.map_or(bytes.len(), |end| end + 1), end.is_some() || bytes.is_empty())
            }
        };
        input.consume(used);
        if ends {
            let whole = std::mem::take(&mut line);
            let is_blank = !is_long && whole.trim_ascii().is_empty();
            if !is_blank && !take((!std::mem::take(&mut is_long)).then_some(whole)) || used == 0 {
                return;
            }
        }
    }
}

async fn answer(server: Arc<Server>, mut lines: mpsc::Receiver<Line>) -> Result<()> {
    let mut running: JoinSet<(String, Value)> = JoinSet::new();
    let mut handles: HashMap<String, AbortHandle> = HashMap::new();
    let mut greeted = false;
    let mut is_open = true;
    while is_open || !running.is_empty() {
        tokio::select! {
            line = lines.recv(), if is_open && running.len() < AT_ONCE => {
                let message = match line {
                    None => {
                        is_open = false;
                        continue;
                    }
                    Some(Some(line)) => read(&line, Via::Line { greeted }),
                    Some(None) => {
                        let why = format!("a message has at most {LINE_BYTES_MAX} bytes");
                        Message::Refused(Refusal::unreadable(why))
                    }
                };
                match message {
                    Message::Refused(refusal) => write(&refusal.answer())?,
                    Message::Ignored => {}
                    Message::Cancelled(id) => {
                        if let Some(handle) = handles.remove(&id.to_string()) {
                            handle.abort();
                        }
                    }
                    Message::Request(request) => {
                        greeted |= matches!(request.asked, Asked::Initialize(_));
                        let server = Arc::clone(&server);
                        let id = request.id.to_string();
                        let work = async move {
                            let answer = mcp::answer(&server, &request, None).await;
                            (request.id.to_string(), answer.unwrap_or_else(|refusal| refusal.answer()))
                        };
                        handles.insert(id, running.spawn(work));
                    }
                }
            }
            Some(done) = running.join_next() => match done {
                Ok((id, answer)) => {
                    handles.remove(&id);
                    write(&answer)?;
                }
                Err(error) if error.is_cancelled() => {}
                Err(error) => log(&format!("a bug: a message was not answered: {error}")),
            },
        }
    }
    Ok(())
}

fn write(answer: &Value) -> Result<()> {
    let text = clean_json(&answer.to_string()).into_owned() + "\n";
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_giant_line_is_left_out_and_the_next_one_is_read() {
        let giant = "x".repeat(3 * LINE_BYTES_MAX);
        let most = "y".repeat(LINE_BYTES_MAX);
        let text = format!("one\n\n{giant}\n{most}\n  \nlast");
        let mut lines = Vec::new();
        each_line(text.as_bytes(), |line| {
            lines.push(line.map(|line| line.len()));
            true
        });
        assert_eq!(lines, [Some(3), None, Some(LINE_BYTES_MAX), Some(4)]);
    }
}
