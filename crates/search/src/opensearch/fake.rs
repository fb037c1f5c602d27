//! A cluster that answers what a test wants.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::{Cluster, Settings};

pub type Asked = Arc<Mutex<Vec<String>>>;

/// Settings for a node that gives answers to first lines (`GET /x`) and bodies, as long as there are some.
pub fn node(mut answer: impl FnMut(&str, &str) -> Option<(u16, Value)> + Send + 'static) -> Settings {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nodes = vec![format!("http://{}", listener.local_addr().unwrap())];
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut first, mut length) = (String::new(), 0);
            stream.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
                    length = n.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let line = first.trim_end_matches(" HTTP/1.1\r\n");
            let Some((status, answer)) = answer(line, &String::from_utf8_lossy(&body)) else { return };
            let answer = answer.to_string();
            write!(
                stream.get_mut(),
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{answer}",
                answer.len()
            )
            .unwrap();
        }
    });
    Settings { nodes, ..Settings::default() }
}

/// A cluster that gives these answers one after the other, and what it was asked: the first line
/// and the body.
pub fn cluster(answers: Vec<(u16, Value)>) -> (Cluster, Asked) {
    let asked = Asked::default();
    let (written, mut answers) = (Arc::clone(&asked), answers.into_iter());
    let settings = node(move |line, body| {
        let answer = answers.next()?;
        written.lock().unwrap().push(format!("{line} {body}"));
        Some(answer)
    });
    (Cluster::connect(settings).unwrap(), asked)
}
