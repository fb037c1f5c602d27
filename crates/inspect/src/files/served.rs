//! The other end: takes files in, and answers until nobody asks any more.

use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::shelf::Shelf;
use super::wire::{Answer, BYTES_MAX, Question};

/// Answers on a socket that [`super::apart`] has made, until its other end is closed.
pub fn serve(socket: impl AsFd) -> std::io::Result<()> {
    let mut shelf = Shelf::default();
    let mut bytes = [0; BYTES_MAX];
    loop {
        let (length, file) = match receive(&socket, &mut bytes) {
            Ok((0, _)) => return Ok(()),
            Ok(received) => received,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let question = bytes.get(..length).and_then(Question::parse);
        let answer = match (question, file) {
            (Some(Question::Take(kind)), Some(file)) => shelf.take(kind, &File::from(file)),
            (Some(question), _) => shelf.answer(&question),
            (None, _) => Answer::Nothing,
        };
        match rustix::io::write(&socket, &answer.to_bytes()) {
            Err(Errno::PIPE) => return Ok(()),
            sent => drop(sent?),
        }
    }
}

fn receive(socket: &impl AsFd, bytes: &mut [u8]) -> rustix::io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut file = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.into_iter().next();
        }
    }
    Ok((received.bytes, file))
}
