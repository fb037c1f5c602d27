//! A thread that looks something up beside the recorder, which never waits for it.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub struct Aside<Question, Answer> {
    questions: SyncSender<Question>,
    answers: Receiver<Answer>,
}

impl<Question: Send + 'static, Answer: Send + 'static> Aside<Question, Answer> {
    /// Starts it. One question and one answer may wait.
    pub fn start(name: &str, mut work: impl FnMut(Question) -> Answer + Send + 'static) -> io::Result<Self> {
        let (questions, asked) = sync_channel(1);
        let (answered, answers) = sync_channel(1);
        let work = move || asked.into_iter().try_for_each(|question| answered.send(work(question)));
        let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(256 * 1024);
        thread.spawn(move || drop(work()))?;
        Ok(Aside { questions, answers })
    }

    /// Asks, unless it has not answered the question before: then false.
    pub fn ask(&self, question: Question) -> bool {
        self.questions.try_send(question).is_ok()
    }

    /// The same, where a question is of use to whoever asks as long as it was not asked: a buffer.
    pub fn ask_with(&self, question: &mut Question)
    where
        Question: Default,
    {
        if let Err(TrySendError::Full(kept) | TrySendError::Disconnected(kept)) =
            self.questions.try_send(std::mem::take(question))
        {
            *question = kept;
        }
    }

    /// The answers that have come since this was called before.
    pub fn answers(&self) -> impl Iterator<Item = Answer> {
        self.answers.try_iter()
    }
}
