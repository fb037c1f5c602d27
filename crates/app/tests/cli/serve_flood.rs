//! `mitra serve` under more than anybody asks: connections without end, and a body without end.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::harness::wait_until;
use crate::serve::Server;

/// Of one address at a time.
const CONNECTIONS_MAX: usize = 32;
const WAVES: usize = 20;
const OF_A_WAVE: usize = 500;
const CHUNK_BYTES: usize = 64 << 10;
const GIGABYTE: usize = 1 << 30;
/// What the kernel of both sides holds on the way is far less.
const TAKEN_MAX: usize = 64 << 20;

fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match (&mut &*stream).read(&mut [0; 64]) {
        Ok(0) => true,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
        Ok(_) => false,
    }
}

fn descriptors(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count()
}

#[test]
fn ten_thousand_connections_take_no_more_than_a_few() {
    let server = Server::of_recording();
    let mut open: Vec<TcpStream> = Vec::new();
    let mut made = 0;
    for _ in 0..WAVES {
        let wave: Vec<TcpStream> =
            (0..OF_A_WAVE).filter_map(|_| TcpStream::connect(&server.address).ok()).collect();
        made += wave.len();
        open.extend(wave);
        wait_until("those that are too many are closed", || {
            open.retain(|stream| !is_closed(stream));
            open.len() <= CONNECTIONS_MAX
        });
        let files = descriptors(&server);
        assert!(files < 80, "{files} descriptors after {made} connections");
    }
    assert!(made > WAVES * OF_A_WAVE / 2, "{made} connections were made");
    drop(open);
    wait_until("others are answered again", || server.get("/api/v1/recording").status == 200);
}

#[test]
fn a_body_of_a_gigabyte_is_not_taken() {
    let server = Server::of_recording();
    let mut stream = server.connect();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        server.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("{CHUNK_BYTES:x}\r\n{}\r\n", " ".repeat(CHUNK_BYTES));
    let mut sent = 0;
    while sent < GIGABYTE && stream.write_all(chunk.as_bytes()).is_ok() {
        sent += CHUNK_BYTES;
    }
    assert!(sent < TAKEN_MAX, "{sent} bytes were taken");
    // The answer may be lost with the connection, which is closed with bytes on their way.
    let mut answer = Vec::new();
    _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_eq!(server.get("/api/v1/recording").status, 200);
}
