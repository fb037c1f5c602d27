//! Connections: how many, how long, and how they end.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcp};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener as StdUnix, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use mitra_http::ServerConfig;
use rustix::fs::Mode;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::api::Server;
use super::counter::{Client, Counter, Place};
use super::stream;
use crate::cli::Listen;
use crate::log::log;

const CONNECTIONS_MAX: usize = 256;
const CONNECTIONS_OF_ONE_MAX: usize = 32;
/// For the head of a question, and between two questions.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// A client that takes nothing for so long is given up.
const TAKES_WITHIN: Duration = Duration::from_secs(30);
/// A question has a head of a few hundred bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// For answers that are being sent when it ends.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// What ends it.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn catch() -> Result<Self> {
        let catch = |kind| signal(kind).context("cannot catch signals");
        Ok(Signals { terminate: catch(SignalKind::terminate())?, interrupt: catch(SignalKind::interrupt())? })
    }

    pub async fn come(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// A socket that is bound.
pub enum Bound {
    Tcp(StdTcp),
    Unix(StdUnix, PathBuf),
}

pub fn bind(listen: &Listen) -> Result<Bound> {
    let bound = match listen {
        Listen::Tcp(address) => {
            let socket = StdTcp::bind(address).with_context(|| format!("cannot listen on {address}"))?;
            socket.set_nonblocking(true).map(|()| Bound::Tcp(socket))
        }
        Listen::Unix(path) => {
            let socket =
                bind_path(path).with_context(|| format!("cannot listen on unix:{}", path.display()))?;
            socket.set_nonblocking(true).map(|()| Bound::Unix(socket, path.clone()))
        }
    };
    bound.context("cannot listen")
}

/// Only its owner can connect. A socket that nobody listens on any more is in the way and goes.
fn bind_path(path: &Path) -> Result<StdUnix> {
    if std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        if StdUnixStream::connect(path).is_ok() {
            bail!("another process listens there");
        }
        std::fs::remove_file(path)?;
    }
    // There are no other threads whose files it would concern.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = StdUnix::bind(path);
    rustix::process::umask(before);
    Ok(bound?)
}

impl Bound {
    /// With the event loop that runs.
    pub fn watched(self, tls: Option<Arc<ServerConfig>>) -> Result<Socket> {
        let socket = match self {
            Bound::Tcp(socket) => {
                TcpListener::from_std(socket).map(|socket| Socket::Tcp(socket, tls.map(TlsAcceptor::from)))
            }
            Bound::Unix(socket, path) => {
                UnixListener::from_std(socket).map(|socket| Socket::Unix(socket, path))
            }
        };
        socket.context("cannot wait for connections")
    }
}

pub enum Socket {
    Tcp(TcpListener, Option<TlsAcceptor>),
    Unix(UnixListener, PathBuf),
}

impl Socket {
    pub fn port(&self) -> Option<u16> {
        match self {
            Socket::Tcp(socket, _) => socket.local_addr().ok().map(|address| address.port()),
            Socket::Unix(..) => None,
        }
    }

    /// What a browser or `curl --unix-socket` is told.
    pub fn told(&self) -> String {
        match self {
            Socket::Tcp(socket, tls) => {
                let scheme = if tls.is_some() { "https" } else { "http" };
                socket.local_addr().map_or_else(|_| "?".to_owned(), |a| format!("{scheme}://{a}/"))
            }
            Socket::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }
}

/// Answers until a signal comes.
pub async fn serve(socket: Socket, server: Arc<Server>, mut signals: Signals) -> Result<()> {
    let (stop, stopped) = watch::channel(false);
    let places = Counter::new(CONNECTIONS_MAX, CONNECTIONS_OF_ONE_MAX);
    tokio::spawn(stream::watch(Arc::clone(&server), stopped.clone()));
    loop {
        let accepted = tokio::select! {
            () = signals.come() => break,
            accepted = accept(&socket, &places, &server, &stopped) => accepted,
        };
        if let Err(error) = accepted {
            // No descriptor is free, or the client has gone already.
            log(&format!("a connection was not accepted: {error}"));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    drop(socket);
    _ = stop.send(true);
    let ended = async {
        while !places.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // Whoever has not taken the answer by then does not get it.
    _ = timeout(ENDS_WITHIN, ended).await;
    Ok(())
}

async fn accept(
    socket: &Socket,
    places: &Counter,
    server: &Arc<Server>,
    stopped: &watch::Receiver<bool>,
) -> io::Result<()> {
    // A connection too many is closed at once.
    match socket {
        Socket::Tcp(socket, tls) => {
            let (stream, address): (_, SocketAddr) = socket.accept().await?;
            let client = Some(address.ip().to_canonical());
            if let Ok(place) = places.take(client) {
                stream.set_nodelay(true)?;
                let takes_within = u32::try_from(TAKES_WITHIN.as_millis()).unwrap_or(u32::MAX);
                rustix::net::sockopt::set_tcp_user_timeout(&stream, takes_within)?;
                let (server, stopped) = (Arc::clone(server), stopped.clone());
                match tls.clone() {
                    None => tokio::spawn(connection(stream, client, server, stopped, place)),
                    // Who does not speak TLS, or has not the certificate that is wanted, gets no answer.
                    Some(tls) => tokio::spawn(async move {
                        if let Ok(Ok(stream)) = timeout(HEAD_WITHIN, tls.accept(stream)).await {
                            connection(stream, client, server, stopped, place).await;
                        }
                    }),
                };
            }
        }
        Socket::Unix(socket, _) => {
            let (stream, _) = socket.accept().await?;
            if let Ok(place) = places.take(None) {
                tokio::spawn(connection(stream, None, Arc::clone(server), stopped.clone(), place));
            }
        }
    }
    Ok(())
}

/// Answers what comes on a connection, one question after the other.
pub async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    client: Client,
    server: Arc<Server>,
    mut stopped: watch::Receiver<bool>,
    _place: Place,
) {
    let events_stop = stopped.clone();
    let service = service_fn(move |request| {
        let (server, stopped) = (Arc::clone(&server), events_stop.clone());
        async move { Ok::<_, Infallible>(server.answer(request, client, stopped).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .half_close(false);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    // Errors are the client's: it went away, was too slow, or spoke something else.
    tokio::select! {
        _ = connection.as_mut() => {}
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            _ = connection.await;
        }
    }
}
