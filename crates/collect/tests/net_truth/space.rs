//! A network namespace with a pair of devices into it, gone when it is dropped.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

/// `mtNAME`, reached by 10.199.N.2 from 10.199.N.1.
pub struct Space {
    pub name: String,
    pub device: String,
    pub inside: String,
    pub address: String,
}

pub fn run(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let Some(program) = words.next() else { return false };
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            println!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
            false
        }
        Err(error) => {
            println!("{line}: {error}");
            false
        }
    }
}

impl Space {
    /// `None`, with the reason printed, where the machine has no such thing.
    pub fn make(name: &str, number: u8) -> Option<Self> {
        let space = Space {
            name: format!("mt{name}"),
            device: format!("mt{name}0"),
            inside: format!("mt{name}1"),
            address: format!("10.199.{number}.2"),
        };
        drop(Command::new("ip").args(["netns", "del", &space.name]).output());
        let lines = [
            format!("ip netns add {}", space.name),
            format!("ip link add {} type veth peer name {} netns {}", space.device, space.inside, space.name),
            format!("ip addr add 10.199.{number}.1/24 dev {}", space.device),
            format!("ip link set {} up", space.device),
            format!("ip -n {} addr add {}/24 dev {}", space.name, space.address, space.inside),
            format!("ip -n {} link set {} up", space.name, space.inside),
            format!("ip -n {} link set lo up", space.name),
        ];
        let made = lines.iter().all(|line| run(line));
        if !made {
            println!("skipped: cannot make a network namespace");
            return None;
        }
        Some(space)
    }

    /// Starts a program inside.
    pub fn start(&self, program: &str, args: &[&str]) -> Running {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]).args(args);
        Running(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect(program))
    }

    /// The same with one that says a line when it is ready, however long that takes it.
    pub fn start_ready(&self, program: &str, args: &[&str]) -> Running {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]).args(args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect(program);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let running = Running(child);
        assert!(line.starts_with("ready"), "{program} did not start: {line:?}");
        running
    }

    pub fn run(&self, line: &str) -> bool {
        run(&format!("ip netns exec {} {line}", self.name))
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        drop(Command::new("ip").args(["link", "del", &self.device]).output());
        drop(Command::new("ip").args(["netns", "del", &self.name]).output());
    }
}

/// A program that ends when it is dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
