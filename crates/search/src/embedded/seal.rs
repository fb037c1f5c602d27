//! Sealing: the log becomes a dense pack and a new table, and what nobody needs any more goes.
//!
//! A pack is written with the contents of the log and of the packs that are not much larger, so that there are few packs and
//! like contents come to lie side by side, whenever they were seen. Then a table with everything is written that names the packs
//! and a log to come; with its name it becomes valid. Should the writer end before that, nothing has happened.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::block::{Builder, INDEX, RAW_BYTES_MAX};
use super::content::key;
use super::contents::Held;
use super::files::{self, Role};
use super::frame;
use super::sealed::{self, HEAD, HOSTS, HOSTS_MAX, Head, Kept, ROWS, ROWS_MAX};
use super::store::Store;
use super::table::{Cover, Row, Table, open_until};
use crate::day::Day;
use crate::error::{At, Error};

/// Bytes of contents of a block before compression: like contents lie in one, as long as reading one of them stays cheap.
const BLOCK_BYTES_MIN: usize = 512 << 10;
const BLOCK_BYTES_MAX: usize = 4 << 20;
/// So many contents of a kind are worth a larger block.
const BLOCK_CONTENTS: usize = 16;
const LEVEL: i32 = 9;
/// A pack is merged into the new one unless it has more than so many times the bytes of what is merged already.
const MERGE_RATIO: u64 = 2;
/// A larger pack is only written again when it is mostly garbage.
const MERGE_BYTES_MAX: u64 = 64 << 20;
/// A pack of which a larger part (in hundredths) is not wanted is written again.
const GARBAGE_PERCENT_MAX: u64 = 30;
/// Bytes of unpacked blocks that are remembered while contents are put in another order.
const CACHE_BYTES: usize = 64 << 20;

/// Writes a pack and a table under a number that was not used, with what is kept from a day on. Returns the contents that
/// nobody needs any more.
pub(super) fn seal(store: &Store, number: u64, kept_from: Day) -> Result<Vec<u32>, Error> {
    let pack = files::path(&store.dir, Role::Pack, number);
    let table = files::path(&store.dir, Role::Unfinished, number);
    let sealed = try_seal(store, number, kept_from, &pack, &table);
    if sealed.is_err() {
        // What cannot be removed now is removed when the index is opened.
        let _ = std::fs::remove_file(&pack);
        let _ = std::fs::remove_file(&table);
    }
    sealed
}

fn try_seal(
    store: &Store,
    number: u64,
    kept_from: Day,
    pack: &Path,
    table: &Path,
) -> Result<Vec<u32>, Error> {
    let kept = kept_rows(&store.table, kept_from);
    let wanted: HashSet<u32> = kept.iter().map(|kept| kept.row.content).collect();
    let inputs = inputs(store, number, &store.contents.held(|ordinal| wanted.contains(&ordinal)));
    let is_input = |ordinal| store.contents.source(ordinal).is_some_and(|source| inputs.contains(&source));

    let mut packs: Vec<u64> = Vec::new();
    for (at, source) in store.contents.sources().iter().enumerate() {
        if source.role == Role::Pack && !inputs.contains(&at) {
            packs.push(source.number);
        }
    }
    let mut ordered = by_name(&store.table, &kept);
    ordered.retain(|ordinal| is_input(*ordinal));
    if !ordered.is_empty() {
        store.contents.remember(CACHE_BYTES);
        write_pack(store, pack, &ordered)?;
        packs.push(number);
    }
    let head = Head { packs, log_from: number + 1, contents: store.next, kept_from };
    write_table(&store.table, &kept, &head, table)?;
    files::sync_dir(&store.dir)?;
    let path = files::path(&store.dir, Role::Table, number);
    std::fs::rename(table, &path).at(&path)?;
    files::sync_dir(&store.dir)?;
    Ok(store.contents.ordinals().filter(|ordinal| is_input(*ordinal) && !wanted.contains(ordinal)).collect())
}

/// The rows that are kept, by host, file and time.
fn kept_rows(table: &Table, kept_from: Day) -> Vec<Kept<'_>> {
    let mut rows: Vec<&Row> = table.rows.iter().filter(|row| is_kept(table, row, kept_from)).collect();
    rows.sort_by(|a, b| {
        let names = |row: &Row| (table.hosts.name(row.host), table.files.name(row.file));
        if (a.host, a.file) == (b.host, b.file) {
            return a.since_ns.cmp(&b.since_ns);
        }
        names(a).cmp(&names(b))
    });
    let mut kept = Vec::with_capacity(rows.len());
    for (at, row) in rows.iter().enumerate() {
        let next = rows.get(at + 1).filter(|next| (next.host, next.file) == (row.host, row.file));
        let until = open_until(row.event, row.first_day).min(next.map_or(i64::MAX, |next| next.since_ns));
        kept.push(Kept { row, until_ns: (until != row.until_ns).then_some(row.until_ns) });
    }
    kept
}

fn is_kept(table: &Table, row: &Row, kept_from: Day) -> bool {
    // Of a day only the last state of what changes all the time; the others have no day.
    if row.volatile && row.last_day < row.first_day {
        return false;
    }
    let of_its_day = row.gone || row.event;
    if row.until_ns <= kept_from.start_ns() || (of_its_day && row.first_day < kept_from) {
        return false;
    }
    // A host that did not report since then has nothing that could be shown.
    table.cover(row.host).is_none_or(|cover| cover.days.last().is_none_or(|day| *day >= kept_from))
}

/// The files whose contents go into the new pack, by their place among the sources.
fn inputs(store: &Store, number: u64, held: &[Held]) -> HashSet<usize> {
    let sources = store.contents.sources();
    let mut inputs = HashSet::new();
    let mut bytes = 0;
    let mut packs = Vec::new();
    for (at, (source, held)) in sources.iter().zip(held).enumerate() {
        if source.role == Role::Log {
            inputs.insert(at);
            bytes += held.packed;
        } else {
            packs.push((at, source.number, *held));
        }
    }
    // The newest first; those that are merged make the next one worth merging.
    packs.sort_by_key(|(_, number, _)| std::cmp::Reverse(*number));
    let mut merging = true;
    for (at, _, held) in packs {
        let garbage = (held.all - held.wanted) * 100 > held.all * GARBAGE_PERCENT_MAX;
        merging =
            merging && held.packed <= MERGE_BYTES_MAX && held.packed <= bytes.saturating_mul(MERGE_RATIO);
        if merging || garbage || held.wanted == 0 {
            inputs.insert(at);
            bytes += held.packed;
        }
    }
    // Each time another one of the rest is looked through: what is damaged is left out and stored anew when it is seen again.
    let rest: Vec<usize> = (0..sources.len()).filter(|at| !inputs.contains(at)).collect();
    if let Some(at) = rest.get((number % rest.len().max(1) as u64) as usize)
        && !store.contents.is_whole(*at)
    {
        inputs.insert(*at);
    }
    inputs
}

/// The contents of rows, each once, ordered by the first file name that has it.
fn by_name(table: &Table, kept: &[Kept<'_>]) -> Vec<u32> {
    let mut names: HashMap<u32, &str> = HashMap::new();
    for kept in kept {
        let name = table.files.name(kept.row.file);
        let first = names.entry(kept.row.content).or_insert(name);
        *first = name.min(*first);
    }
    let mut ordered: Vec<(&str, u32)> = names.into_iter().map(|(ordinal, name)| (name, ordinal)).collect();
    ordered.sort_unstable();
    ordered.into_iter().map(|(_, ordinal)| ordinal).collect()
}

fn write_pack(store: &Store, path: &Path, ordinals: &[u32]) -> Result<(), Error> {
    let mut file = files::create(path).at(path)?;
    file.write_all(&frame::file_header(Role::Pack.magic())).at(path)?;
    let mut builder = Builder::new(LEVEL).at(path)?;
    let mut meant = BLOCK_BYTES_MIN;
    for ordinal in ordinals {
        // What cannot be read is lost already; its states stay, and are written anew when the document is seen again.
        let Ok(bytes) = store.contents.bytes(*ordinal) else { continue };
        let bytes = bytes.get();
        if builder.bytes() >= meant || builder.bytes() + bytes.len() > RAW_BYTES_MAX {
            write_block(&mut file, &mut builder).at(path)?;
        }
        if builder.bytes() == 0 {
            meant = (bytes.len() * BLOCK_CONTENTS).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        }
        builder.add(*ordinal, key(bytes), bytes);
    }
    write_block(&mut file, &mut builder).at(path)?;
    file.sync_all().at(path)
}

fn write_block(file: &mut File, builder: &mut Builder) -> std::io::Result<()> {
    let Some((index, block)) = builder.finish()? else { return Ok(()) };
    let (mut payload, mut out) = (Vec::new(), Vec::new());
    index.put(&mut payload);
    frame::put(&mut out, INDEX, &payload);
    out.extend_from_slice(&block);
    file.write_all(&out)
}

fn write_table(table: &Table, kept: &[Kept<'_>], head: &Head, path: &Path) -> Result<(), Error> {
    // What is left of an attempt before.
    let _ = std::fs::remove_file(path);
    let mut file = files::create(path).at(path)?;
    let mut out = frame::file_header(Role::Table.magic()).to_vec();
    let hosts = host_frames(table, head.kept_from).at(path)?;
    frame::put(&mut out, HEAD, &head.encode());
    out.extend_from_slice(&hosts);
    for rows in kept.chunks(ROWS_MAX) {
        frame::put(&mut out, ROWS, &sealed::encode_rows(table, rows).at(path)?);
        file.write_all(&out).at(path)?;
        out.clear();
    }
    out.extend_from_slice(&hosts);
    frame::put(&mut out, HEAD, &head.encode());
    file.write_all(&out).at(path)?;
    file.sync_all().at(path)
}

fn host_frames(table: &Table, kept_from: Day) -> std::io::Result<Vec<u8>> {
    let mut covers = Vec::new();
    for (ordinal, name) in (0..).zip(table.hosts.iter()) {
        let Some(cover) = table.cover(ordinal) else { continue };
        let days: Vec<Day> = cover.days.iter().copied().filter(|day| *day >= kept_from).collect();
        if !days.is_empty() {
            covers.push((name, Cover { days, ..cover.clone() }));
        }
    }
    let mut out = Vec::new();
    for hosts in covers.chunks(HOSTS_MAX) {
        let hosts = hosts.iter().map(|(name, cover)| (*name, cover));
        frame::put(&mut out, HOSTS, &sealed::encode_hosts(hosts)?);
    }
    Ok(out)
}
