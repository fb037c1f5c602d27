//! The helper's side: parses files and answers until the socket is closed.

use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::protocol::{BYTES_MAX, Request, Response, to_bytes};
use super::store::FileStore;

/// Answers on a socket of [`super::use_helper`] until its other end is closed.
pub fn serve(socket: impl AsFd) -> std::io::Result<()> {
    let mut store = FileStore::default();
    let mut bytes = [0; BYTES_MAX];
    loop {
        let (length, file) = match receive(&socket, &mut bytes) {
            Ok((0, _)) => return Ok(()),
            Ok(received) => received,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let request = bytes.get(..length).and_then(|bytes| serde_json::from_slice(bytes).ok());
        let response = match (request, file) {
            (Some(Request::Take(kind)), Some(file)) => store.take(kind, &File::from(file)),
            (Some(request), _) => store.answer(&request),
            (None, _) => Response::Nothing,
        };
        match rustix::io::write(&socket, &to_bytes(&response)) {
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
