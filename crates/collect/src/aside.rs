//! A thread that looks something up beside the recorder, which never waits for it.

use std::cell::Cell;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub struct Aside<Question, Answer> {
    questions: SyncSender<Question>,
    answers: Receiver<Answer>,
    /// Whether the answer to a question has not come yet.
    is_asked: Cell<bool>,
}

impl<Question: Send + 'static, Answer: Send + 'static> Aside<Question, Answer> {
    /// Starts it.
    pub fn start(name: &str, mut work: impl FnMut(Question) -> Answer + Send + 'static) -> io::Result<Self> {
        let (questions, asked) = sync_channel(1);
        let (answered, answers) = sync_channel(1);
        let work = move || asked.into_iter().try_for_each(|question| answered.send(work(question)));
        let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(256 * 1024);
        thread.spawn(move || drop(work()))?;
        Ok(Aside { questions, answers, is_asked: Cell::new(false) })
    }

    /// Asks, unless the answer to the question before has not been taken: then false. So an answer is never to a question that has
    /// waited for another one.
    pub fn ask(&self, question: Question) -> bool {
        if self.is_asked.get() {
            return false;
        }
        let is_asked = self.questions.try_send(question).is_ok();
        self.is_asked.set(is_asked);
        is_asked
    }

    /// The same, where a question is of use to whoever asks as long as it was not asked: a buffer.
    pub fn ask_with(&self, question: &mut Question)
    where
        Question: Default,
    {
        if !self.is_asked.get() {
            self.ask(std::mem::take(question));
        }
    }

    /// The answer, if one has come since this was called before.
    pub fn answers(&self) -> impl Iterator<Item = Answer> {
        self.answers.try_iter().inspect(move |_| self.is_asked.set(false))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn it_is_asked_again_only_once_it_has_answered() {
        let (begins, begun) = channel();
        let (end, ends) = channel::<()>();
        let work = move |question: u32| {
            begins.send(question).unwrap();
            ends.recv().unwrap();
            10 * question
        };
        let aside = Aside::start("test", work).unwrap();
        assert!(aside.ask(1));
        assert_eq!(begun.recv(), Ok(1), "it works, and no question waits");
        assert!(!aside.ask(2));
        let mut kept = 3;
        aside.ask_with(&mut kept);
        assert_eq!((kept, aside.answers().count()), (3, 0));
        end.send(()).unwrap();
        let answer = loop {
            if let Some(answer) = aside.answers().last() {
                break answer;
            }
            std::thread::yield_now();
        };
        assert_eq!(answer, 10);
        assert!(begun.try_recv().is_err(), "nothing else was asked");
        aside.ask_with(&mut kept);
        assert_eq!((begun.recv(), kept), (Ok(3), 0));
        end.send(()).unwrap();
    }
}
