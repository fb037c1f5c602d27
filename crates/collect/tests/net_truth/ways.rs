//! Ways to answer other than write(2), and what is not seen of them.

use std::io::{Read as _, Seek as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};
use mitra_model::Entity;

use super::Bench;
use super::services::{ask, settled};

const ASKED: usize = 20;
/// As the server takes for each answer.
const TAKES: Duration = Duration::from_millis(5);

/// Asks a server a few times that answers with `send`, and looks at what is recorded of it.
fn is_seen(bench: &mut Bench, send: impl FnMut(&TcpStream) + Send + 'static) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        let mut send = send;
        let (mut stream, _) = listener.accept().expect("a connection");
        while stream.read_exact(&mut [0]).is_ok() {
            std::thread::sleep(TAKES);
            send(&stream);
        }
    });
    let mut stream = TcpStream::connect(address).expect("a connection");
    let mut took: Vec<Duration> = (0..ASKED).map(|_| ask(&mut stream)).collect();
    bench.sample();
    took.sort();
    let (row, median) = (address.to_string(), took[ASKED / 2].as_nanos() as f64);
    assert_eq!(bench.service(&row, "requests"), ASKED as i64);
    let seen = bench.service(&row, "latency_p50") as f64;
    assert!((seen - median).abs() < 0.1 * median, "{seen} of {median}");
    drop(stream);
    server.join().expect("the server");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn answers_from_a_file_or_a_pipe_that_are_never_copied_are_seen() {
    let Some(mut bench) = settled() else { return };
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(b"x").expect("a byte");
    is_seen(&mut bench, move |stream| {
        file.rewind().expect("a file");
        // SAFETY: both descriptors are open, and no offset is given.
        let sent = unsafe { libc::sendfile(stream.as_raw_fd(), file.as_raw_fd(), std::ptr::null_mut(), 1) };
        assert_eq!(sent, 1);
    });
    let (reads, mut writes) = std::io::pipe().expect("a pipe");
    is_seen(&mut bench, move |stream| {
        writes.write_all(b"x").expect("a byte");
        let (from, to) = (reads.as_raw_fd(), stream.as_raw_fd());
        // SAFETY: both descriptors are open, and no offsets are given.
        let sent = unsafe { libc::splice(from, std::ptr::null_mut(), to, std::ptr::null_mut(), 1, 0) };
        assert_eq!(sent, 1);
    });
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn answers_by_io_uring_are_seen() {
    let Some(mut bench) = settled() else { return };
    let Ok(mut ring) = IoUring::new(4) else {
        println!("skipped: no io_uring");
        return;
    };
    is_seen(&mut bench, move |stream| {
        let byte = *b"x";
        let send = opcode::Send::new(types::Fd(stream.as_raw_fd()), byte.as_ptr(), 1).build();
        // SAFETY: the byte lives until the answer is sent, which is waited for.
        unsafe { ring.submission().push(&send).expect("room") };
        ring.submit_and_wait(1).expect("an answer");
        assert_eq!(ring.completion().next().map(|sent| sent.result()), Some(1));
    });
}

/// Of QUIC, and of whatever else asks by datagrams, nobody can tell from outside which one answers which.
#[test]
#[ignore = "needs root: make test-kernel"]
fn datagrams_are_no_requests() {
    let Some(mut bench) = settled() else { return };
    let (server, client) = (bound(), bound());
    let (to, from) = (server.local_addr().expect("an address"), client.local_addr().expect("an address"));
    for _ in 0..ASKED {
        client.send_to(b"?", to).expect("a question");
        server.recv(&mut [0]).expect("a question");
        server.send_to(b"!", from).expect("an answer");
        client.recv(&mut [0]).expect("an answer");
    }
    bench.sample();
    let is_named = |name: &String| name.contains(&to.to_string());
    assert!(!bench.names(Entity::Service).iter().any(is_named));
    assert!(!bench.names(Entity::Dependency).iter().any(is_named));
}

fn bound() -> UdpSocket {
    UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a socket")
}
