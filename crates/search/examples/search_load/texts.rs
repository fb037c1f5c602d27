//! Texts of 2 KB as configuration looks, by a seed.

use mitra_search::{Document, Kind, Stat};

use crate::{FIRST_DAY, NS_PER_S};

/// Bytes of a text, at least.
const BYTES: usize = 2_048;

/// Numbers by a seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds give numbers that have nothing in common.
        let mut random = Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for _ in 0..4 {
            random.next();
        }
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// Few words often, many seldom: of three parts there are thousands.
    fn word(&mut self) -> String {
        const PARTS: [&str; 20] = [
            "con", "ser", "ver", "max", "time", "out", "log", "dir", "net", "pro", "xy", "ssl", "cache",
            "size", "mem", "file", "user", "path", "key", "val",
        ];
        let part = |n: u64| PARTS.get((n % 20) as usize).copied().unwrap_or_default();
        let rank = self.next() & 0xffff;
        match rank % 8 {
            0..4 => part(rank / 8 % 7 * 3).to_owned(),
            4..7 => format!("{}{}", part(rank / 8), part(rank / 160)),
            _ => format!("{}{}{}", part(rank / 8), part(rank / 160), part(rank / 3_200)),
        }
    }

    /// One line, with its end.
    pub fn line(&mut self) -> String {
        let mut w = || self.word();
        let (a, b, c, d) = (w(), w(), w(), w());
        match self.below(6) {
            0 => format!("# {a} {b} {c} {d} {}\n", self.word()),
            1 => format!("{a}.{b} = {}\n", self.below(100_000)),
            2 => format!("{a} /etc/{b}/{c}.conf\n"),
            3 => format!("{a}: 10.{}.{}.{}\n", self.below(256), self.below(256), self.below(256)),
            4 => format!("{a}_{b} on; # {c} {d}\n"),
            _ => format!("{a} {b} {c}\n"),
        }
    }

    pub fn text(&mut self) -> String {
        let mut text = String::with_capacity(BYTES + 128);
        while text.len() < BYTES {
            text.push_str(&self.line());
        }
        text
    }
}

/// A file with this text. Its times and its inode are nobody else's.
pub fn document(host: &str, filename: &str, content: String, seed: u64) -> Document {
    let changed_ns = FIRST_DAY.start_ns() - (Random::new(seed).below(100_000_000) as i64) * NS_PER_S;
    let stat = Stat {
        size: content.len() as u64,
        mode: 0o644,
        user: Some("root".to_owned()),
        group: Some("root".to_owned()),
        inode: 10_000 + Random::new(!seed).below(4_000_000),
        mtime_ns: changed_ns,
        ctime_ns: changed_ns + 2 * NS_PER_S,
        ..Stat::default()
    };
    Document {
        content: Some(content),
        stat: Some(stat),
        since_ns: FIRST_DAY.start_ns() + NS_PER_S,
        ..Document::new(host, filename, Kind::File)
    }
}
