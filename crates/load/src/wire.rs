//! One connection: TCP, TLS, and HTTP/1.1 or HTTP/2 on it.

use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use mitra_http::rustls::ClientConfig;
use mitra_http::rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::spawn_local;
use tokio_rustls::TlsConnector;

use crate::Error;
use crate::body::Body;
use crate::targets::Origin;

/// Which HTTP is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// One request at a time on a connection.
    Http1,
    /// Many at a time; in the clear with prior knowledge, in TLS by ALPN.
    Http2,
}

impl Protocol {
    /// `HTTP/1.1` or `HTTP/2`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Http1 => "HTTP/1.1",
            Protocol::Http2 => "HTTP/2",
        }
    }

    /// What TLS offers.
    pub(crate) fn alpn(self) -> &'static [u8] {
        match self {
            Protocol::Http1 => b"http/1.1",
            Protocol::Http2 => b"h2",
        }
    }
}

/// What became of a request that has no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    /// One of [`crate::ERROR_KINDS`].
    pub kind: &'static str,
    /// In the words of the system or the library.
    pub text: String,
}

impl Failure {
    pub fn new(kind: &'static str, text: impl ToString) -> Failure {
        Failure { kind, text: text.to_string() }
    }

    fn of_io(error: &io::Error) -> Failure {
        use io::ErrorKind as Kind;
        let kind = match error.kind() {
            Kind::ConnectionRefused => "refused",
            Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe => "reset",
            // A packet filter on this machine answers with "permission denied".
            Kind::TimedOut
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NetworkDown
            | Kind::PermissionDenied => "unreachable",
            Kind::UnexpectedEof => "closed",
            _ if error.get_ref().is_some_and(|inner| inner.is::<mitra_http::rustls::Error>()) => "tls",
            // No free port, no free descriptor, no memory: this machine is at its limits.
            Kind::AddrNotAvailable | Kind::OutOfMemory => "local",
            _ if matches!(error.raw_os_error(), Some(EMFILE | ENFILE | ENOBUFS)) => "local",
            _ => "protocol",
        };
        Failure::new(kind, error)
    }

    pub fn of_hyper(error: &hyper::Error) -> Failure {
        let (mut next, mut io, mut http2) = (error.source(), None, None);
        while let Some(cause) = next {
            io = io.or_else(|| cause.downcast_ref::<io::Error>());
            http2 = http2.or_else(|| cause.downcast_ref::<h2::Error>());
            next = cause.source();
        }
        if let Some(cause) = io.or_else(|| http2.and_then(h2::Error::get_io)) {
            // A body that cannot be read is no fault of the server.
            return if error.is_user() { Failure::new("body", cause) } else { Failure::of_io(cause) };
        }
        let kind = match http2 {
            Some(http2) if http2.is_remote() && http2.is_reset() => "reset",
            Some(http2) if http2.is_remote() => "closed",
            // This side resets a request only if its body cannot be read.
            Some(http2) if http2.is_reset() && !http2.is_library() => "body",
            _ if error.is_user() => "body",
            _ if error.is_incomplete_message() || error.is_canceled() || error.is_closed() => "closed",
            _ => "protocol",
        };
        let text = match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        Failure::new(kind, text)
    }
}

const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();
const ENFILE: i32 = rustix::io::Errno::NFILE.raw_os_error();
const ENOBUFS: i32 = rustix::io::Errno::NOBUFS.raw_os_error();

/// A host with its addresses, which are looked up once: names are no part of what is measured.
pub(crate) struct Host {
    pub origin: Origin,
    addresses: Vec<SocketAddr>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Host {
    pub async fn resolve(origin: &Origin, tls: Option<&Arc<ClientConfig>>) -> Result<Host, Error> {
        let failed = |source| Error::Resolve { host: origin.authority.clone(), source };
        let found = lookup_host((origin.host.as_str(), origin.port)).await.map_err(failed)?;
        let addresses: Vec<SocketAddr> = found.collect();
        if addresses.is_empty() {
            return Err(failed(io::Error::new(io::ErrorKind::NotFound, "no address")));
        }
        let tls = match tls.filter(|_| origin.is_secure) {
            Some(config) => {
                let name = ServerName::try_from(origin.host.clone())
                    .map_err(|_| Error::wanted(format!("'{}' is no name of a host", origin.host)))?;
                Some((TlsConnector::from(Arc::clone(config)), name))
            }
            None => None,
        };
        Ok(Host { origin: origin.clone(), addresses, tls })
    }

    /// Opens a connection.
    pub async fn connect(&self, protocol: Protocol) -> Result<Wire, Failure> {
        let stream = self.tcp().await.map_err(|error| Failure::of_io(&error))?;
        // Small requests are not to wait for the acknowledgement of others.
        stream.set_nodelay(true).map_err(|error| Failure::of_io(&error))?;
        let Some((connector, name)) = &self.tls else {
            return Wire::on(stream, protocol).await;
        };
        let stream = connector.connect(name.clone(), stream).await.map_err(|error| Failure::of_io(&error))?;
        if protocol == Protocol::Http2 && stream.get_ref().1.alpn_protocol() != Some(protocol.alpn()) {
            return Err(Failure::new("tls", "the server does not speak HTTP/2"));
        }
        Wire::on(stream, protocol).await
    }

    async fn tcp(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in &self.addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// An open connection.
pub(crate) enum Wire {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

impl Wire {
    async fn on<S>(stream: S, protocol: Protocol) -> Result<Wire, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let io = TokioIo::new(stream);
        let failed = |error: hyper::Error| Failure::of_hyper(&error);
        match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(io).await.map_err(failed)?;
                // What goes wrong is said to the request that is under way.
                spawn_local(async { _ = connection.await });
                Ok(Wire::Http1(sender))
            }
            Protocol::Http2 => {
                let (sender, connection) = http2::handshake(Here, io).await.map_err(failed)?;
                spawn_local(async { _ = connection.await });
                Ok(Wire::Http2(sender))
            }
        }
    }

    pub fn is_closed(&self) -> bool {
        match self {
            Wire::Http1(sender) => sender.is_closed(),
            Wire::Http2(sender) => sender.is_closed(),
        }
    }

    /// Sends a request.
    pub async fn send(&mut self, request: Request<Body>) -> Result<Response<Incoming>, SendFailure> {
        let answer = match self {
            Wire::Http1(sender) => sender.try_send_request(request).await,
            Wire::Http2(sender) => sender.try_send_request(request).await,
        };
        answer.map_err(|error| SendFailure {
            why: Failure::of_hyper(error.error()),
            is_unsent: error.message().is_some(),
        })
    }
}

/// Why there is no answer.
pub(crate) struct SendFailure {
    pub why: Failure,
    /// Whether nothing of the request has been sent.
    pub is_unsent: bool,
}

/// Runs what HTTP/2 needs beside its connection in this thread.
#[derive(Clone, Copy)]
struct Here;

impl<F> hyper::rt::Executor<F> for Here
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        spawn_local(future);
    }
}
