//! What is sent with a request. A large file is read piece by piece while it is sent, each time anew.

use std::cell::Cell;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use http_body_util::Either;
use http_body_util::channel::{Channel, Sender};
use hyper::body::{Bytes, Frame, SizeHint};
use tokio::task::{spawn_blocking, spawn_local};

use crate::Error;

/// Up to this size a file is read once and kept.
const HELD_MAX: u64 = 65_536;
/// Bytes of one piece.
const PIECE: usize = 262_144;
/// Pieces that wait to be sent.
const PIECES: usize = 2;

pub(crate) type Body = Either<HeldBody, Channel<Bytes, io::Error>>;

/// A body in memory, which counts its bytes when the connection takes them.
pub(crate) struct HeldBody {
    /// `None` if there is nothing to send any more.
    bytes: Option<Bytes>,
    sent: Rc<Cell<u64>>,
}

impl hyper::body::Body for HeldBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let taken = self.bytes.take();
        self.sent.set(self.sent.get() + taken.as_ref().map_or(0, |bytes| bytes.len() as u64));
        Poll::Ready(taken.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// A body that can be sent any number of times.
#[derive(Debug, Clone, Default)]
pub enum BodySource {
    /// None.
    #[default]
    Empty,
    /// In memory.
    Held(Bytes),
    /// Read while it is sent.
    File {
        /// Which.
        path: PathBuf,
        /// Its size when the run began, which each request announces.
        bytes: u64,
    },
}

impl BodySource {
    /// The content of a file.
    ///
    /// # Errors
    /// If it cannot be read or is no file.
    pub fn of_file(path: &Path) -> Result<BodySource, Error> {
        let file = File::open(path).map_err(Error::io(path))?;
        let about = file.metadata().map_err(Error::io(path))?;
        if !about.is_file() {
            return Err(Error::wanted(format!("{}: not a file", path.display())));
        }
        if about.len() > HELD_MAX {
            return Ok(BodySource::File { path: path.to_owned(), bytes: about.len() });
        }
        let mut held = Vec::new();
        file.take(HELD_MAX).read_to_end(&mut held).map_err(Error::io(path))?;
        Ok(BodySource::Held(held.into()))
    }

    /// Its size; `None` if there is no body.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            BodySource::Empty => None,
            BodySource::Held(bytes) => Some(bytes.len() as u64),
            BodySource::File { bytes, .. } => Some(*bytes),
        }
    }

    /// The body of one request. What the connection takes of it is added to `sent`.
    pub(crate) fn start(&self, sent: &Rc<Cell<u64>>) -> Body {
        let held = |bytes| Either::Left(HeldBody { bytes, sent: Rc::clone(sent) });
        match self {
            BodySource::Empty => held(None),
            BodySource::Held(bytes) => held(Some(bytes.clone()).filter(|bytes| !bytes.is_empty())),
            BodySource::File { path, bytes } => {
                let (sender, body) = Channel::new(PIECES);
                spawn_local(read(path.clone(), *bytes, sender, Rc::clone(sent)));
                Either::Right(body)
            }
        }
    }
}

/// Reads beside the event loop, because a disk may take its time.
async fn read(path: PathBuf, mut left: u64, mut sender: Sender<Bytes, io::Error>, sent: Rc<Cell<u64>>) {
    let mut file = None;
    while left > 0 {
        let (opened, path) = (file.take(), path.clone());
        let wanted = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let piece = spawn_blocking(move || {
            let mut file = match opened {
                Some(file) => file,
                None => File::open(path)?,
            };
            let mut bytes = vec![0; wanted];
            file.read_exact(&mut bytes)?;
            Ok::<_, io::Error>((file, Bytes::from(bytes)))
        });
        let bytes = match piece.await.unwrap_or_else(|_| Err(io::Error::other("reading failed"))) {
            Ok((opened, bytes)) => {
                file = Some(opened);
                bytes
            }
            Err(error) => return sender.abort(error),
        };
        let n = bytes.len() as u64;
        // The request has ended without the rest.
        if sender.send_data(bytes).await.is_err() {
            return;
        }
        left = left.saturating_sub(n);
        sent.set(sent.get() + n);
    }
}
