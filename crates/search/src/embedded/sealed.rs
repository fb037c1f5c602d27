//! The table of an index in a file: what is written when the log is sealed.
//!
//! ```text
//! N.table:  header "MITRAITB" | head | hosts … | rows … | hosts … | head
//! head:     count and numbers of the packs | number of the first log that is not in it | ordinal of the next content
//!           | signed day before which nothing is kept
//! hosts:    count | for each: name, count of days and their distances, first time, last time, maybe the one before
//! rows:     names of hosts, files, owners | count | for each column its length and the values of all rows
//! ```
//!
//! All are frames; hosts and rows are compressed, and have all the names that they need, so that damage costs the rows that it
//! hits. Heads and hosts stand there twice, as nothing can be shown without. The table with the highest number counts; it gets its
//! name when it is whole and on disk, which makes what it names valid.

use std::io;

use super::batch::{read_traits, traits_of};
use super::codec::{Corrupt, Got, Input, put, put_maybe_near, put_signed, put_text};
use super::table::{CONTENTS_MAX, Cover, Names, Row, State, Table};
use crate::day::Day;
use crate::document::Stat;

pub(super) const HEAD: u8 = 1;
pub(super) const HOSTS: u8 = 2;
pub(super) const ROWS: u8 = 3;

/// Hosts and rows of one frame.
pub(super) const HOSTS_MAX: usize = 1024;
pub(super) const ROWS_MAX: usize = 16_384;
/// Bytes of a frame before compression.
const RAW_BYTES_MAX: usize = 256 << 20;
const LEVEL: i32 = 12;

const KNOWN_BEFORE: u8 = 16;
const UNTIL: u8 = 32;

/// What the rest cannot be read without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) packs: Vec<u64>,
    pub(super) log_from: u64,
    pub(super) contents: u32,
    pub(super) kept_from: Day,
}

impl Head {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.packs.len() as u64);
        for pack in &self.packs {
            put(&mut out, *pack);
        }
        put(&mut out, self.log_from);
        put(&mut out, u64::from(self.contents));
        put_signed(&mut out, i64::from(self.kept_from.0));
        out
    }

    pub(super) fn decode(payload: &[u8]) -> Got<Self> {
        let mut input = Input::new(payload);
        let count = input.count(1)?;
        let mut packs = Vec::with_capacity(count);
        for _ in 0..count {
            packs.push(input.varint()?);
        }
        let (log_from, contents) = (input.varint()?, input.u32()?);
        if contents > CONTENTS_MAX {
            return Err(Corrupt("the ordinal of a content"));
        }
        Ok(Self { packs, log_from, contents, kept_from: day(input.signed()?)? })
    }
}

fn day(number: i64) -> Got<Day> {
    i32::try_from(number).map(Day).map_err(|_| Corrupt("a day"))
}

fn pack(raw: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    put(&mut out, raw.len() as u64);
    out.extend_from_slice(&zstd::bulk::compress(raw, LEVEL)?);
    Ok(out)
}

fn unpack(payload: &[u8]) -> Got<Vec<u8>> {
    let mut input = Input::new(payload);
    let bytes = usize::try_from(input.varint()?).unwrap_or(usize::MAX);
    if bytes > RAW_BYTES_MAX {
        return Err(Corrupt("a table of a size that can be unpacked"));
    }
    let packed = input.take(input.len())?;
    zstd::bulk::decompress(packed, bytes).map_err(|_| Corrupt("a table that unpacks"))
}

/// A frame of hosts, with their days.
pub(super) fn encode_hosts<'a>(
    hosts: impl ExactSizeIterator<Item = (&'a str, &'a Cover)>,
) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    put(&mut out, hosts.len() as u64);
    for (name, cover) in hosts {
        put_text(&mut out, name);
        put(&mut out, cover.days.len() as u64);
        let mut last = 0;
        for day in &cover.days {
            put_signed(&mut out, i64::from(day.0) - last);
            last = i64::from(day.0);
        }
        put_signed(&mut out, cover.first_ns);
        put_signed(&mut out, cover.last_ns.wrapping_sub(cover.first_ns));
        put_maybe_near(&mut out, cover.before_ns, cover.last_ns);
    }
    pack(&out)
}

/// Reads a frame of hosts into a table.
pub(super) fn decode_hosts(payload: &[u8], table: &mut Table) -> Got<()> {
    read_hosts(&unpack(payload)?, table)
}

/// The same, unpacked.
pub(super) fn read_hosts(raw: &[u8], table: &mut Table) -> Got<()> {
    let mut input = Input::new(raw);
    for _ in 0..input.count(5)? {
        let name = input.text()?;
        let count = input.count(1)?;
        let mut cover = Cover { days: Vec::with_capacity(count), ..Cover::default() };
        let mut last = 0i64;
        for _ in 0..count {
            last = last.wrapping_add(input.signed()?);
            cover.days.push(day(last)?);
        }
        if !cover.days.is_sorted_by(|a, b| a < b) {
            return Err(Corrupt("days in their order"));
        }
        cover.first_ns = input.signed()?;
        cover.last_ns = cover.first_ns.wrapping_add(input.signed()?);
        cover.before_ns = input.maybe_near(cover.last_ns)?;
        let host = table.hosts.add(name);
        table.set_cover(host, cover);
    }
    input.end()
}

/// A row that is written, and when it ended where that does not follow from the row after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept<'t> {
    pub(super) row: &'t Row,
    pub(super) until_ns: Option<i64>,
}

/// The columns of a frame of rows, each as bytes.
#[derive(Default)]
struct Columns<T> {
    host: T,
    file: T,
    content: T,
    traits: T,
    since: T,
    before: T,
    until: T,
    size: T,
    mode: T,
    uid: T,
    gid: T,
    user: T,
    group: T,
    inode: T,
    mtime: T,
    ctime: T,
}

impl<T> Columns<T> {
    fn each(&mut self) -> [&mut T; 16] {
        [
            &mut self.host,
            &mut self.file,
            &mut self.content,
            &mut self.traits,
            &mut self.since,
            &mut self.before,
            &mut self.until,
            &mut self.size,
            &mut self.mode,
            &mut self.uid,
            &mut self.gid,
            &mut self.user,
            &mut self.group,
            &mut self.inode,
            &mut self.mtime,
            &mut self.ctime,
        ]
    }
}

/// A frame of rows of a table.
pub(super) fn encode_rows(table: &Table, rows: &[Kept<'_>]) -> io::Result<Vec<u8>> {
    let (mut hosts, mut files, mut owners) = (Names::default(), Names::default(), Names::default());
    let mut columns = Columns::<Vec<u8>>::default();
    let (mut content, mut since_ns) = (0, 0);
    for kept in rows {
        let row = kept.row;
        put(&mut columns.host, u64::from(hosts.add(table.hosts.name(row.host))));
        put(&mut columns.file, u64::from(files.add(table.files.name(row.file))));
        put_signed(&mut columns.content, i64::from(row.content) - content);
        content = i64::from(row.content);
        put_signed(&mut columns.since, row.since_ns.wrapping_sub(since_ns));
        since_ns = row.since_ns;
        let stat = row.stat.and_then(|stat| table.stats.get(stat as usize));
        let mut traits = traits_of(row.gone, row.volatile, row.event, stat.is_some());
        if let Some(before) = row.known_before_ns {
            traits |= KNOWN_BEFORE;
            put_signed(&mut columns.before, row.since_ns.wrapping_sub(before));
        }
        if let Some(until) = kept.until_ns {
            traits |= UNTIL;
            put_signed(&mut columns.until, until.wrapping_sub(row.since_ns));
        }
        columns.traits.push(traits);
        if let Some(stat) = stat {
            put_stat(&mut columns, &mut owners, stat, row.since_ns);
        }
    }
    let mut out = Vec::new();
    for names in [&hosts, &files, &owners] {
        put(&mut out, names.len() as u64);
        for name in names.iter() {
            put_text(&mut out, name);
        }
    }
    put(&mut out, rows.len() as u64);
    for column in columns.each() {
        put(&mut out, column.len() as u64);
        out.extend_from_slice(column);
    }
    pack(&out)
}

fn put_stat(columns: &mut Columns<Vec<u8>>, owners: &mut Names, stat: &Stat, since_ns: i64) {
    put(&mut columns.size, stat.size);
    put(&mut columns.mode, u64::from(stat.mode));
    put(&mut columns.uid, u64::from(stat.uid));
    put(&mut columns.gid, u64::from(stat.gid));
    let mut owner = |name: Option<&str>| name.map_or(0, |name| u64::from(owners.add(name)) + 1);
    put(&mut columns.user, owner(stat.user.as_deref()));
    put(&mut columns.group, owner(stat.group.as_deref()));
    put(&mut columns.inode, stat.inode);
    put_signed(&mut columns.mtime, stat.mtime_ns.wrapping_sub(since_ns));
    put_signed(&mut columns.ctime, stat.ctime_ns.wrapping_sub(stat.mtime_ns));
}

/// Reads a frame of rows into a table.
pub(super) fn decode_rows(payload: &[u8], table: &mut Table) -> Got<()> {
    read_rows(&unpack(payload)?, table)
}

/// The same, unpacked.
pub(super) fn read_rows(raw: &[u8], table: &mut Table) -> Got<()> {
    let mut input = Input::new(raw);
    let (hosts, files, owners) = (names(&mut input)?, names(&mut input)?, names(&mut input)?);
    let count = input.count(4)?;
    let mut columns = Columns::<Option<Input<'_>>>::default();
    for column in columns.each() {
        let len = input.count(1)?;
        *column = Some(Input::new(input.take(len)?));
    }
    input.end()?;
    let mut read = Reader { columns, content: 0, since_ns: 0 };
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        rows.push(read.row(&hosts, &files, &owners)?);
    }
    for (host, file, state) in rows {
        let (host, file) = (table.hosts.add(host), table.files.add(file));
        table.push(host, file, state);
    }
    Ok(())
}

fn names<'a>(input: &mut Input<'a>) -> Got<Vec<&'a str>> {
    let count = input.count(1)?;
    let mut names = Vec::with_capacity(count);
    for _ in 0..count {
        names.push(input.text()?);
    }
    Ok(names)
}

struct Reader<'a> {
    columns: Columns<Option<Input<'a>>>,
    content: i64,
    since_ns: i64,
}

fn of<'c, 'a>(column: &'c mut Option<Input<'a>>) -> Got<&'c mut Input<'a>> {
    column.as_mut().ok_or(Corrupt("a column"))
}

fn name<'a>(names: &[&'a str], ordinal: u64) -> Got<&'a str> {
    let found = usize::try_from(ordinal).ok().and_then(|at| names.get(at));
    found.copied().ok_or(Corrupt("the ordinal of a name"))
}

impl<'a> Reader<'a> {
    fn row<'n>(
        &mut self,
        hosts: &[&'n str],
        files: &[&'n str],
        owners: &[&'n str],
    ) -> Got<(&'n str, &'n str, State)> {
        let c = &mut self.columns;
        let host = name(hosts, of(&mut c.host)?.varint()?)?;
        let file = name(files, of(&mut c.file)?.varint()?)?;
        self.content = self.content.wrapping_add(of(&mut c.content)?.signed()?);
        let content = u32::try_from(self.content).ok().filter(|o| *o < CONTENTS_MAX);
        self.since_ns = self.since_ns.wrapping_add(of(&mut c.since)?.signed()?);
        let since_ns = self.since_ns;
        let traits = of(&mut c.traits)?.byte()?;
        let (gone, volatile, event, has_stat) = read_traits(traits & !(KNOWN_BEFORE | UNTIL))?;
        let mut known_before_ns = None;
        if traits & KNOWN_BEFORE != 0 {
            known_before_ns = Some(since_ns.wrapping_sub(of(&mut c.before)?.signed()?));
        }
        let mut until_ns = None;
        if traits & UNTIL != 0 {
            until_ns = Some(since_ns.wrapping_add(of(&mut c.until)?.signed()?));
        }
        let stat = if has_stat { Some(self.stat(owners)?) } else { None };
        let content = content.ok_or(Corrupt("the ordinal of a content"))?;
        Ok((host, file, State { content, stat, since_ns, until_ns, known_before_ns, gone, volatile, event }))
    }

    fn stat(&mut self, owners: &[&str]) -> Got<Stat> {
        let c = &mut self.columns;
        let owner = |ordinal: u64| match ordinal.checked_sub(1) {
            None => Ok(None),
            Some(ordinal) => name(owners, ordinal).map(|name| Some(name.to_owned())),
        };
        let mut stat = Stat {
            size: of(&mut c.size)?.varint()?,
            mode: of(&mut c.mode)?.u32()?,
            uid: of(&mut c.uid)?.u32()?,
            gid: of(&mut c.gid)?.u32()?,
            user: owner(of(&mut c.user)?.varint()?)?,
            group: owner(of(&mut c.group)?.varint()?)?,
            inode: of(&mut c.inode)?.varint()?,
            mtime_ns: self.since_ns.wrapping_add(of(&mut c.mtime)?.signed()?),
            ctime_ns: 0,
        };
        stat.ctime_ns = stat.mtime_ns.wrapping_add(of(&mut c.ctime)?.signed()?);
        Ok(stat)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::embedded::batch::tests::stat;

    fn cover() -> impl Strategy<Value = Cover> {
        let days = proptest::collection::btree_set(any::<i32>(), 0..6);
        (days, any::<i64>(), any::<i64>(), any::<Option<i64>>()).prop_map(
            |(days, first_ns, last_ns, before_ns)| Cover {
                days: days.into_iter().map(Day).collect(),
                first_ns,
                last_ns,
                before_ns,
            },
        )
    }

    fn state() -> impl Strategy<Value = State> {
        let times = (any::<i64>(), any::<Option<i64>>(), any::<Option<i64>>());
        (0..10_000u32, proptest::option::of(stat()), times, any::<[bool; 3]>()).prop_map(
            |(content, stat, (since_ns, until_ns, known_before_ns), [gone, volatile, event])| State {
                content,
                stat,
                since_ns,
                until_ns,
                known_before_ns,
                gone,
                volatile,
                event,
            },
        )
    }

    proptest! {
        #[test]
        fn whatever_was_written_is_read(
            covers in proptest::collection::vec(cover(), 1..4),
            rows in proptest::collection::vec((any::<proptest::sample::Index>(), "[a-c]", state()), 0..20),
        ) {
            let mut table = Table::default();
            for (i, cover) in covers.iter().enumerate() {
                let host = table.hosts.add(&format!("host{i}"));
                table.set_cover(host, cover.clone());
            }
            for (host, file, state) in rows {
                let host = host.index(covers.len()) as u32;
                let file = table.files.add(&file);
                table.push(host, file, state);
            }
            let kept: Vec<_> = table.rows.iter().map(|row| Kept { row, until_ns: Some(row.until_ns) }).collect();
            let hosts: Vec<_> = table.hosts.iter().zip(&covers).collect();
            let mut read = Table::default();
            decode_hosts(&encode_hosts(hosts.into_iter()).unwrap(), &mut read).unwrap();
            decode_rows(&encode_rows(&table, &kept).unwrap(), &mut read).unwrap();
            prop_assert_eq!(&read.rows, &table.rows);
            prop_assert_eq!(&read.stats, &table.stats);
            prop_assert_eq!(read.hosts.iter().collect::<Vec<_>>(), table.hosts.iter().collect::<Vec<_>>());
            for host in 0..covers.len() as u32 {
                prop_assert_eq!(read.cover(host), table.cover(host));
            }
        }

        #[test]
        fn rows_that_were_changed_do_not_make_it_panic(
            states in proptest::collection::vec(state(), 1..10),
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut table = Table::default();
            let (host, file) = (table.hosts.add("web1"), table.files.add("/etc/hosts"));
            states.into_iter().for_each(|state| table.push(host, file, state));
            let kept: Vec<_> = table.rows.iter().map(|row| Kept { row, until_ns: None }).collect();
            let mut raw = unpack(&encode_rows(&table, &kept).unwrap()).unwrap();
            for (at, byte) in changes {
                let at = at.index(raw.len());
                raw[at] = byte;
            }
            let _ = read_rows(&raw, &mut Table::default());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = unpack(&bytes);
            let _ = Head::decode(&bytes);
            let _ = read_hosts(&bytes, &mut Table::default());
            let _ = read_rows(&bytes, &mut Table::default());
        }

        #[test]
        fn a_head_is_read_back(packs: Vec<u64>, log_from: u64, contents in 0..CONTENTS_MAX, day: i32) {
            let head = Head { packs, log_from, contents, kept_from: Day(day) };
            prop_assert_eq!(Head::decode(&head.encode()), Ok(head));
        }
    }
}
