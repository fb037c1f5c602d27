//! How connections are made and how they end, as both sides of them know it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::services::{Act, SETTLE, ask, settled, start};

#[test]
#[ignore = "needs root: make test-kernel"]
fn who_hangs_up_on_whom() {
    let Some(mut bench) = settled() else { return };
    let (address, server) = start(Act::HangUp, 1);
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(&[1]).expect("a question");
    let _closed = stream.read(&mut [0]);
    server.join().expect("the server");
    // Its port is closed by now: it is called by the address of the connection after a while.
    (0..SETTLE).for_each(|_| bench.sample());
    let row = address.to_string();
    bench.print(&row);
    assert_eq!((bench.service(&row, "unanswered"), bench.called(&row, "unanswered")), (1, 1));
    assert_eq!((bench.service(&row, "open"), bench.called(&row, "open")), (-1, 0), "it never answered");

    // A client that gives up, and one that only says goodbye.
    let (address, server) = start(Act::Ignore, 2);
    let row = address.to_string();
    for patience_ms in [200, 0] {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.write_all(&[1]).expect("a question");
        std::thread::sleep(Duration::from_millis(patience_ms));
    }
    server.join().expect("the server");
    (0..SETTLE).for_each(|_| bench.sample());
    bench.print(&row);
    assert_eq!((bench.service(&row, "abandoned"), bench.called(&row, "abandoned")), (1, 1));
    assert_eq!(
        (bench.service(&row, "open"), bench.service(&row, "unanswered")),
        (-1, 0),
        "it never answered"
    );
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn both_may_close_after_an_answer() {
    const CONNECTIONS: i64 = 300;
    let Some(mut bench) = settled() else { return };
    let (address, server) = start(Act::AnswerAndHangUp, usize::try_from(CONNECTIONS).expect("few"));
    for _ in 0..CONNECTIONS {
        ask(&mut TcpStream::connect(address).expect("a connection"));
    }
    server.join().expect("the server");
    (0..SETTLE).for_each(|_| bench.sample());
    let row = address.to_string();
    bench.print(&row);
    assert_eq!((bench.service(&row, "requests"), bench.called(&row, "requests")), (CONNECTIONS, CONNECTIONS));
    assert_eq!((bench.service(&row, "unanswered"), bench.called(&row, "unanswered")), (0, 0));
    assert_eq!((bench.service(&row, "abandoned"), bench.service(&row, "open")), (0, 0));
    assert_eq!(bench.service(&row, "received_bytes"), CONNECTIONS);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn an_answer_may_come_with_the_end_of_the_connection() {
    let Some(mut bench) = settled() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        // Held back until the end goes with it, in one segment.
        rustix::net::sockopt::set_tcp_cork(&stream, true).expect("a cork");
        stream.read_exact(&mut [0]).expect("a question");
        stream.write_all(&[1]).expect("an answer");
        stream.shutdown(std::net::Shutdown::Write).expect("the end");
        // Until the client has closed too.
        let _end = stream.read(&mut [0]);
    });
    let mut stream = TcpStream::connect(address).expect("a connection");
    ask(&mut stream);
    drop(stream);
    server.join().expect("the server");
    (0..SETTLE).for_each(|_| bench.sample());
    let row = address.to_string();
    bench.print(&row);
    assert_eq!((bench.service(&row, "requests"), bench.called(&row, "requests")), (1, 1));
    assert_eq!((bench.service(&row, "unanswered"), bench.called(&row, "unanswered")), (0, 0));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn messages_that_expect_no_answer_are_no_open_requests() {
    let Some(mut bench) = settled() else { return };
    let (address, server) = start(Act::Ignore, 1);
    let row = address.to_string();
    let mut stream = TcpStream::connect(address).expect("a connection");
    for _ in 0..5 {
        stream.write_all(&[1]).expect("a message");
        std::thread::sleep(Duration::from_millis(20));
    }
    bench.sample();
    assert_eq!((bench.service(&row, "open"), bench.called(&row, "open")), (-1, 0), "it never answered");
    assert_eq!(bench.service(&row, "wait_time"), 0);
    drop(stream);
    server.join().expect("the server");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn attempts_that_nobody_answers() {
    let Some(mut bench) = settled() else { return };
    // With no room for more than one connection, what nobody accepts fills it.
    let listener =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None)
            .expect("a socket");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    rustix::net::bind(&listener, &any).expect("a port");
    rustix::net::listen(&listener, 0).expect("a listener");
    let listener = TcpListener::from(listener);
    let address = listener.local_addr().expect("an address");
    let row = address.to_string();
    let first = TcpStream::connect(address).expect("a connection");
    let limit = Duration::from_millis(700);
    let waiting: Vec<_> = (0..3)
        .map(|_| std::thread::spawn(move || TcpStream::connect_timeout(&address, limit).is_err()))
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    bench.sample();
    let connecting = bench.called(&row, "connecting");
    let first_ns = bench.called(&row, "connect_time");
    assert!(connecting >= 2, "{connecting}");
    std::thread::sleep(Duration::from_millis(200));
    bench.sample();
    let grown_ns = bench.called(&row, "connect_time") - first_ns;
    assert!(grown_ns > connecting * 150_000_000, "{grown_ns} of {connecting}");
    let failed = waiting.into_iter().filter(|_| true).map(|one| one.join().expect("a client"));
    let failed = failed.filter(|failed| *failed).count();
    bench.sample();
    assert_eq!(bench.called(&row, "connect_failed"), i64::try_from(failed).expect("few"));
    assert_eq!(bench.called(&row, "connecting"), 0);
    drop((first, listener));

    let refused = TcpStream::connect(address);
    assert!(refused.is_err());
    bench.sample();
    assert_eq!(bench.called(&row, "connect_failed"), i64::try_from(failed + 1).expect("few"));
}
