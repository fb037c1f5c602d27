//! Redis, by its protocol of version 2: which commands take its time, and who asks for them.
//!
//! Where a password is asked for, it stops. Arguments of commands are in the slow log, and are dropped as they are read.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::CommandSaid;
use super::wire::{Failure, Wire, name, number};

/// Parts of an answer, and how deep they are in one another: the slow log has entries with arguments.
const VALUES_MAX: usize = 4096;
const DEPTH_MAX: usize = 4;
/// A list of more clients takes the server more than a millisecond.
const CLIENTS_MAX: u64 = 1_000;
/// As many commands have rows: those that took most time since the question before, then those that ever did.
const COMMANDS_MAX: usize = 32;

/// A connection of ours.
#[derive(Debug)]
pub struct Redis {
    wire: Wire,
    /// The time of each command at the question before, in microseconds.
    before: HashMap<String, u64>,
    /// The number of the last entry of the slow log.
    last_slow: Option<i64>,
}

/// A part of an answer.
#[derive(Debug, PartialEq, Eq)]
enum Value {
    Nothing,
    Number(i64),
    Text(Vec<u8>),
    List(Vec<Value>),
}

/// A slow command: what and for how long, and for whom.
#[derive(Debug, PartialEq, Eq)]
struct Slow {
    number: i64,
    command: String,
    took_us: u64,
    client: Option<SocketAddr>,
}

impl Redis {
    /// Takes a socket that is connected.
    pub fn begin(socket: OwnedFd, limit: Duration) -> Result<Redis, Failure> {
        let mut redis = Redis { wire: Wire::new(socket, limit), before: HashMap::new(), last_slow: None };
        redis.send(&[&["CLIENT", "SETNAME", "mitra"]], limit)?;
        redis.answer()?;
        Ok(redis)
    }

    /// Commands and what they took since the server began.
    pub fn commands(&mut self, limit: Duration) -> Result<Vec<CommandSaid>, Failure> {
        let questions: [&[&str]; 3] =
            [&["INFO", "clients"], &["INFO", "commandstats"], &["SLOWLOG", "GET", "16"]];
        self.send(&questions, limit)?;
        let clients = info(&self.answer()?, "connected_clients");
        let stats = self.answer()?;
        let slow = self.answer()?;
        let Value::Text(stats) = stats else { return Err(Failure::junk("commandstats")) };
        let mut commands: Vec<CommandSaid> = stats.split(|byte| *byte == b'\n').filter_map(command).collect();
        let since =
            |one: &CommandSaid| one.time_us.saturating_sub(self.before.get(&one.name).copied().unwrap_or(0));
        commands.sort_by_cached_key(|one| std::cmp::Reverse((since(one), one.time_us)));
        commands.truncate(COMMANDS_MAX);
        let is_slow = self.note_slow(&slow, &mut commands);
        if !is_slow && clients.is_some_and(|clients| clients <= CLIENTS_MAX) {
            self.send(&[&["CLIENT", "LIST"]], limit)?;
            note_clients(&self.answer()?, &mut commands);
        }
        self.before = commands.iter().map(|one| (one.name.clone(), one.time_us)).collect();
        Ok(commands)
    }

    /// Of each command the longest one that was slow since the question before, and whose it was. Whether there was any.
    fn note_slow(&mut self, log: &Value, commands: &mut [CommandSaid]) -> bool {
        let Value::List(entries) = log else { return false };
        let slow: Vec<Slow> = entries.iter().filter_map(slow).collect();
        // What was slow before the first question was so at another time.
        let last = slow.iter().map(|one| one.number).max().unwrap_or(-1);
        let before = self.last_slow.replace(last).unwrap_or(last);
        let mut is_slow = false;
        for one in slow.iter().filter(|one| one.number > before) {
            let is_it = |known: &&mut CommandSaid| known.name.split('|').next() == Some(one.command.as_str());
            let Some(known) = commands.iter_mut().find(is_it) else { continue };
            if known.longest_us.is_none_or(|longest| longest < one.took_us) {
                (known.longest_us, known.client) = (Some(one.took_us), one.client);
            }
            is_slow = true;
        }
        is_slow
    }

    /// Asks all at once: while one command keeps the server, the questions wait for it once.
    fn send(&mut self, questions: &[&[&str]], limit: Duration) -> Result<(), Failure> {
        self.wire.begin(limit)?;
        let mut bytes = String::new();
        for words in questions {
            bytes.push_str(&format!("*{}\r\n", words.len()));
            words.iter().for_each(|word| bytes.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        }
        self.wire.send(bytes.as_bytes())
    }

    fn answer(&mut self) -> Result<Value, Failure> {
        self.value(0, &mut 0)
    }

    fn value(&mut self, depth: usize, values: &mut usize) -> Result<Value, Failure> {
        *values += 1;
        if depth > DEPTH_MAX || *values > VALUES_MAX {
            return Err(Failure::junk("an answer of too many parts"));
        }
        let line = self.wire.line()?;
        let (kind, rest) = line.split_first().ok_or_else(|| Failure::junk("an empty line"))?;
        let counted = || std::str::from_utf8(rest).ok().and_then(|text| text.parse::<i64>().ok());
        match kind {
            b'+' => Ok(Value::Text(rest.to_vec())),
            b'-' => Err(error(rest)),
            b':' => counted().map(Value::Number).ok_or_else(|| Failure::junk("a number")),
            b'$' | b'*' if counted() == Some(-1) => Ok(Value::Nothing),
            b'$' => {
                let bytes = counted().and_then(|n| usize::try_from(n).ok());
                let text = self.wire.take(bytes.ok_or_else(|| Failure::junk("a length"))?)?;
                if self.wire.array()? != *b"\r\n" {
                    return Err(Failure::junk("the end of a text"));
                }
                Ok(Value::Text(text))
            }
            b'*' => {
                let count = counted().and_then(|n| u32::try_from(n).ok());
                let mut list = Vec::new();
                for _ in 0..count.ok_or_else(|| Failure::junk("a length"))? {
                    list.push(self.value(depth + 1, values)?);
                }
                Ok(Value::List(list))
            }
            _ => Err(Failure::junk("a part of another kind")),
        }
    }
}

/// An error by its first word: the text may quote.
fn error(line: &[u8]) -> Failure {
    let word = line.split(|byte| *byte == b' ').next().and_then(name).unwrap_or("unknown");
    match word {
        "NOAUTH" => Failure::Lasting("it asks for a password (NOAUTH)".to_owned()),
        "NOPERM" => Failure::Lasting("it does not let this user see (NOPERM)".to_owned()),
        // A command that was renamed or taken away.
        "ERR" => Failure::Lasting("it does not know the question (ERR)".to_owned()),
        word => Failure::Passing(format!("its error {word}")),
    }
}

/// A number of `INFO`.
fn info(value: &Value, of: &str) -> Option<u64> {
    let Value::Text(text) = value else { return None };
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    lines.filter_map(|line| line.strip_prefix(of.as_bytes())?.strip_prefix(b":")).find_map(number)
}

/// `cmdstat_config|get:calls=1,usec=38,usec_per_call=38.00,rejected_calls=0,failed_calls=0`.
fn command(line: &[u8]) -> Option<CommandSaid> {
    let rest = line.trim_ascii_end().strip_prefix(b"cmdstat_")?;
    let (command, rest) = rest.split_at_checked(rest.iter().position(|byte| *byte == b':')?)?;
    let of = |word: &str| {
        let words = rest.get(1..)?.split(|byte| *byte == b',');
        words.filter_map(|field| field.strip_prefix(word.as_bytes())?.strip_prefix(b"=")).find_map(number)
    };
    Some(CommandSaid {
        name: name(command)?.to_owned(),
        calls: of("calls")?,
        time_us: of("usec")?,
        longest_us: None,
        client: None,
    })
}

/// An entry of the slow log: number, time, microseconds, arguments, and since 4.0 address and name of the client.
fn slow(entry: &Value) -> Option<Slow> {
    let Value::List(entry) = entry else { return None };
    let [Value::Number(number), _, Value::Number(took_us), Value::List(words), rest @ ..] = &entry[..] else {
        return None;
    };
    let Some(Value::Text(command)) = words.first() else { return None };
    let client = match rest.first() {
        Some(Value::Text(client)) => std::str::from_utf8(client).ok().and_then(|text| text.parse().ok()),
        _ => None,
    };
    let took_us = u64::try_from(*took_us).ok()?;
    Some(Slow { number: *number, command: name(command)?.to_ascii_lowercase(), took_us, client })
}

/// Of a command that was not slow: the client whose last command it is, where there is but one.
fn note_clients(list: &Value, commands: &mut [CommandSaid]) {
    let Value::Text(list) = list else { return };
    let field = |line: &[u8], of: &str| {
        let words = line.split(|byte| *byte == b' ');
        let value = words.filter_map(|word| word.strip_prefix(of.as_bytes())).next()?;
        std::str::from_utf8(value).ok().map(str::to_owned)
    };
    let mut asked: HashMap<String, Vec<Option<SocketAddr>>> = HashMap::new();
    for line in list.split(|byte| *byte == b'\n') {
        let Some(command) = field(line, "cmd=") else { continue };
        asked.entry(command).or_default().push(field(line, "addr=").and_then(|addr| addr.parse().ok()));
    }
    for one in commands.iter_mut().filter(|one| one.client.is_none() && one.longest_us.is_none()) {
        if let Some([only]) = asked.get(&one.name).map(Vec::as_slice) {
            one.client = *only;
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::tests::{LIMIT, server};
    use super::*;

    /// All that a server says, a secret in it, and what is made of such bytes.
    pub fn conversation() -> Vec<u8> {
        let stats = "# Commandstats\r\ncmdstat_keys:calls=1,usec=38,usec_per_call=38.00\r\n";
        let slow = "*1\r\n*6\r\n:14\r\n:1732470000\r\n:912345\r\n*2\r\n$4\r\nKEYS\r\n$7\r\nhunter2\r\n";
        let client = "$15\r\n127.0.0.1:53122\r\n$7\r\nhunter2\r\n";
        format!("${}\r\n{stats}\r\n{slow}{client}", stats.len()).into_bytes()
    }

    pub fn read_all(says: &[u8]) -> String {
        let wire = Wire::new(server(says), LIMIT);
        let mut redis = Redis { wire, before: HashMap::new(), last_slow: Some(0) };
        let Ok(Value::Text(stats)) = redis.answer() else { return String::new() };
        let mut commands: Vec<CommandSaid> = stats.split(|byte| *byte == b'\n').filter_map(command).collect();
        let failure = redis.answer().map(|log| redis.note_slow(&log, &mut commands));
        format!("{failure:?} {commands:?}")
    }

    fn read(says: &[u8]) -> Result<Value, Failure> {
        Redis { wire: Wire::new(server(says), LIMIT), before: HashMap::new(), last_slow: None }
            .value(0, &mut 0)
    }

    #[test]
    fn a_slow_command_is_named_without_its_arguments() {
        let entry = b"*1\r\n*6\r\n:14\r\n:1732470000\r\n:912345\r\n*2\r\n$4\r\nKEYS\r\n$9\r\nhunter2:*\r\n\
                      $15\r\n127.0.0.1:53122\r\n$7\r\nhunter2\r\n";
        let Value::List(entries) = read(entry).unwrap() else { panic!("a list") };
        let slow = slow(&entries[0]).unwrap();
        assert_eq!((slow.number, slow.command.as_str(), slow.took_us), (14, "keys", 912_345));
        assert_eq!(slow.client.unwrap().to_string(), "127.0.0.1:53122");
        assert!(!format!("{slow:?}").contains("hunter2"));
    }

    #[test]
    fn what_commands_took_and_who_asks() {
        let line =
            b"cmdstat_config|get:calls=2,usec=38,usec_per_call=19.00,rejected_calls=0,failed_calls=0\r";
        let one = command(line).unwrap();
        assert_eq!((one.name.as_str(), one.calls, one.time_us), ("config|get", 2, 38));
        for line in
            ["cmdstat_a\x1b[31m:calls=1,usec=2", "cmdstat_a:calls=x,usec=2", "cmdstat_", "# Commandstats", ""]
        {
            assert_eq!(command(line.as_bytes()), None, "{line:?}");
        }
        let mut commands = [one, command(b"cmdstat_get:calls=9,usec=9").unwrap()];
        let list = "id=3 addr=10.0.0.7:40 name=hunter2 user=hunter2 cmd=config|get\nid=4 addr=10.0.0.8:40 cmd=get\n\
                    id=5 addr=10.0.0.9:40 cmd=get\n";
        note_clients(&Value::Text(list.into()), &mut commands);
        assert_eq!(commands[0].client.unwrap().to_string(), "10.0.0.7:40");
        assert_eq!(commands[1].client, None, "several ask for it");
        assert!(!format!("{commands:?}").contains("hunter2"));
        assert_eq!(
            info(&Value::Text(b"# Clients\r\nconnected_clients:12\r\n".into()), "connected_clients"),
            Some(12)
        );
    }

    #[test]
    fn who_is_not_let_in_stops() {
        let failure = Redis::begin(server(b"-NOAUTH Authentication required.\r\n"), LIMIT).unwrap_err();
        assert_eq!(failure, Failure::Lasting("it asks for a password (NOAUTH)".to_owned()));
    }

    #[test]
    fn a_claimed_length_is_not_believed() {
        let deep = b"*1\r\n".repeat(DEPTH_MAX + 2);
        let many = [b"*99999\r\n".to_vec(), b":1\r\n".repeat(VALUES_MAX + 1)].concat();
        let long = b"+".repeat(5000);
        for says in [
            &b"$9223372036854775807\r\nabc"[..],
            b"*4294967295\r\n:1\r\n",
            b"$-2\r\n",
            b"*-7\r\n",
            b"$3\r\nabcde",
            b":\r\n",
            b":99999999999999999999\r\n",
            b"!x\r\n",
            b"\r\n",
            b"",
            &deep,
            &many,
            &long,
        ] {
            assert!(matches!(read(says), Err(Failure::Passing(_))), "{says:?}");
        }
        assert_eq!(read(b"*-1\r\n"), Ok(Value::Nothing));
    }
}
