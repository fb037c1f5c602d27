//! A server whose behaviour is known. It runs in a thread of its own, so that it is not slowed by the load.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mitra_http::rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_rustls::TlsAcceptor;

/// The time of the first request and the stall after it.
#[derive(Default)]
struct Stall {
    first: Option<Instant>,
    after: Duration,
    length: Duration,
}

#[derive(Default)]
struct Known {
    connections: AtomicU64,
    requests: AtomicU64,
    authority: Mutex<String>,
    stall: Mutex<Stall>,
    one: tokio::sync::Mutex<()>,
}

/// A running server; it ends when dropped.
pub struct Server {
    pub address: SocketAddr,
    known: Arc<Known>,
    _end: oneshot::Sender<()>,
}

impl Server {
    pub fn start() -> Server {
        Server::with(None)
    }

    pub fn start_tls(keys: &Keys) -> Server {
        let made = mitra_http::server(&keys.path("server.pem"), &keys.path("server.key"), None).unwrap();
        let mut config = ServerConfig::clone(&made);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Server::with(Some(Arc::new(config)))
    }

    /// From so long after the first request on, nothing is answered for a while.
    pub fn stall(&self, after: Duration, length: Duration) {
        *self.known.stall.lock().unwrap() = Stall { first: None, after, length };
    }

    /// Connections that were accepted.
    pub fn connections(&self) -> u64 {
        self.known.connections.load(Ordering::Relaxed)
    }

    /// Requests that were seen.
    pub fn requests(&self) -> u64 {
        self.known.requests.load(Ordering::Relaxed)
    }

    /// Which host the last request was for: in its address (`:authority` of HTTP/2), and in its header.
    pub fn authority(&self) -> String {
        self.known.authority.lock().unwrap().clone()
    }

    fn with(tls: Option<Arc<ServerConfig>>) -> Server {
        let known = Arc::new(Known::default());
        let (end, ended) = oneshot::channel::<()>();
        let (told, address) = mpsc::channel();
        let shared = Arc::clone(&known);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                told.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    _ = ended => {}
                    () = accept(listener, tls, shared) => {}
                }
            });
        });
        Server { address: address.recv().unwrap(), known, _end: end }
    }
}

async fn accept(listener: TcpListener, tls: Option<Arc<ServerConfig>>, known: Arc<Known>) {
    while let Ok((stream, _)) = listener.accept().await {
        known.connections.fetch_add(1, Ordering::Relaxed);
        stream.set_nodelay(true).unwrap();
        let (tls, known) = (tls.clone(), Arc::clone(&known));
        tokio::spawn(async move {
            match tls {
                Some(config) => {
                    if let Ok(stream) = TlsAcceptor::from(config).accept(stream).await {
                        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(&b"h2"[..]);
                        serve(stream, is_http2, known).await;
                    }
                }
                None => {
                    let is_http2 = begins_http2(&stream).await;
                    serve(stream, is_http2, known).await;
                }
            }
        });
    }
}

/// Whether a client begins with the preface of HTTP/2.
async fn begins_http2(stream: &TcpStream) -> bool {
    let mut first = [0; 3];
    while let Ok(n) = stream.peek(&mut first).await {
        match n {
            0 => return false,
            3 => return first == *b"PRI",
            _ => sleep(Duration::from_millis(1)).await,
        }
    }
    false
}

async fn serve<S>(stream: S, is_http2: bool, known: Arc<Known>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| answer(request, Arc::clone(&known)));
    let io = TokioIo::new(stream);
    _ = match is_http2 {
        true => http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await,
        false => http1::Builder::new().serve_connection(io, service).await,
    };
}

#[derive(Debug, thiserror::Error)]
#[error("broken on purpose")]
struct Broken;

async fn answer(request: Request<Incoming>, known: Arc<Known>) -> Result<Response<Full<Bytes>>, Broken> {
    known.requests.fetch_add(1, Ordering::Relaxed);
    let header = request.headers().get("host").map(|host| host.to_str().unwrap());
    *known.authority.lock().unwrap() =
        format!("{:?} {header:?}", request.uri().authority().map(|a| a.as_str()));
    let until = {
        let mut stall = known.stall.lock().unwrap();
        let now = Instant::now();
        let begin = *stall.first.get_or_insert(now) + stall.after;
        let end = begin + stall.length;
        (begin <= now && now < end).then_some(end)
    };
    if let Some(until) = until {
        sleep_until(until).await;
    }
    let path = request.uri().path().to_owned();
    let (mut status, mut text) = (200, "ok".to_owned());
    let mut is_last = false;
    match path.as_str() {
        "/slow" => sleep(Duration::from_millis(50)).await,
        "/never" => std::future::pending().await,
        "/broken" => return Err(Broken),
        "/last" => is_last = true,
        "/one-at-a-time" => {
            let _only = known.one.lock().await;
            sleep(Duration::from_millis(10)).await;
        }
        "/length" => {
            let (mut body, mut bytes) = (request.into_body(), 0);
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return Err(Broken) };
                bytes += frame.data_ref().map_or(0, Bytes::len);
            }
            text = bytes.to_string();
        }
        _ => {
            if let Some(wanted) = path.strip_prefix("/status/") {
                status = wanted.parse().unwrap();
                text.clear();
            }
        }
    }
    let answer = Response::builder().status(status);
    let answer = if is_last { answer.header("connection", "close") } else { answer };
    Ok(answer.body(Full::from(text)).unwrap())
}

/// Two authorities and a certificate of the first one for loopback.
pub struct Keys(tempfile::TempDir);

impl Keys {
    /// `None` where openssl is missing.
    pub fn make() -> Option<Keys> {
        if Command::new("openssl").arg("version").output().is_err() {
            println!("skipped: openssl is not installed");
            return None;
        }
        let keys = Keys(tempfile::tempdir().unwrap());
        let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
        for ca in ["ca", "other"] {
            keys.openssl(&format!("{new} -subj /CN={ca} -keyout {ca}.key -out {ca}.pem"));
        }
        keys.openssl(&format!(
            "{new} -subj /CN=server -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE \
             -CA ca.pem -CAkey ca.key -keyout server.key -out server.pem"
        ));
        Some(keys)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn openssl(&self, line: &str) {
        let output =
            Command::new("openssl").args(line.split(' ')).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A server that reads the head of each request and sends these bytes, whatever they are.
pub fn raw_server(answer: Vec<u8>) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let head =
                BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            if head.count() > 0 {
                // The client may not want all of it.
                _ = stream.write_all(&answer);
            }
        }
    });
    address
}
