//! Opens, checks and limits the file of an index.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::{At, Error};
use crate::lock;

/// The name of the file in the index directory.
pub(super) const FILE: &str = "index.sqlite";
/// SQLite's `application_id` of an index: "Mitr".
const APPLICATION: i32 = 0x4d69_7472;
/// The version of the tables. Any other version is refused.
const VERSION: i32 = 1;
/// Page cache of a connection in KiB. It limits the memory, regardless of the file's size.
const CACHE_KB: i32 = 16 << 10;
/// How long a reader waits for a writer that recovers or checkpoints the WAL.
const WAIT: Duration = Duration::from_secs(10);
/// The WAL is checkpointed after this many pages, and truncated to this many bytes.
const LOG_PAGES: i32 = 128;
const LOG_BYTES: i32 = 1 << 20;
const TABLES: &str = include_str!("schema.sql");

/// All printable ASCII characters except letters and digits, escaped for the nested quotes of
/// `tokenize` in the schema.
fn token_characters() -> String {
    let all: String = ('!'..='~').filter(|c| !c.is_ascii_alphanumeric()).collect();
    all.replace('\'', "''").replace('"', "\"\"")
}

/// Opens an index for queries. A missing index is an error.
pub(super) fn open_to_read(dir: &Path) -> Result<Connection, Error> {
    let path = dir.join(FILE);
    if !path.exists() {
        return Err(Error::Cannot(format!("{}: no index was written here", dir.display())));
    }
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let opened =
        Connection::open_with_flags(&path, flags).and_then(|db| read_version(&db).map(|found| (db, found)));
    let (db, found) = match opened {
        // A reader without write permission cannot create the missing `-shm` file. If it is
        // missing, there is no writer, so the file can be opened as immutable.
        Err(e) if matches!(e.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly)) => {
            let uri = format!("file:{}?immutable=1", escaped(&path));
            let db = Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI).of(&path)?;
            let found = read_version(&db).of(&path)?;
            (db, found)
        }
        other => other.of(&path)?,
    };
    check_version(&path, found)?;
    prepare(&db).of(&path)?;
    Ok(db)
}

/// Opens an index for writing, and creates a missing one. Renames a damaged one and adds a note.
pub(super) fn open_to_write(dir: &Path, notes: &mut Vec<String>) -> Result<Connection, Error> {
    let path = dir.join(FILE);
    match try_to_write(&path) {
        Err(Error::Broken { what, .. }) => {
            let aside = put_aside(&path)?;
            notes.push(format!(
                "{}: {what}; it is kept as {}, and a new index begins (sqlite3 FILE .recover reads what is whole)",
                path.display(),
                aside.display()
            ));
            try_to_write(&path)
        }
        other => other,
    }
}

fn try_to_write(path: &Path) -> Result<Connection, Error> {
    // Creates the file with the right mode. SQLite gives its WAL the same mode.
    drop(lock::open(path).at(path)?);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let db = Connection::open_with_flags(path, flags).of(path)?;
    let found = read_version(&db).of(path)?;
    if found == (0, 0) {
        create(&db).of(path)?;
    } else {
        check_version(path, found)?;
        let whole: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).of(path)?;
        if whole != "ok" {
            return Err(Error::Broken { path: path.to_owned(), what: whole });
        }
    }
    prepare(&db).of(path)?;
    Ok(db)
}

fn create(db: &Connection) -> rusqlite::Result<()> {
    // These pragmas have no effect after the first table is created.
    db.execute_batch("PRAGMA page_size = 8192; PRAGMA auto_vacuum = INCREMENTAL")?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    let tables = TABLES.replace("$TOKENCHARS", &token_characters());
    db.execute_batch(&format!(
        "BEGIN IMMEDIATE; {tables} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT"
    ))
}

/// Sets limits, and distrusts the schema, because the file may come from elsewhere.
fn prepare(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(WAIT)?;
    db.execute_batch(&format!(
        "PRAGMA cache_size = -{CACHE_KB}; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA synchronous = FULL; \
         PRAGMA wal_autocheckpoint = {LOG_PAGES}; PRAGMA journal_size_limit = {LOG_BYTES}"
    ))
}

fn read_version(db: &Connection) -> rusqlite::Result<(i32, i32)> {
    db.busy_timeout(WAIT)?;
    let one = |name: &str| db.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0));
    Ok((one("application_id")?, one("user_version")?))
}

fn check_version(path: &Path, found: (i32, i32)) -> Result<(), Error> {
    let what = match found {
        (APPLICATION, VERSION) => return Ok(()),
        (APPLICATION, version) => {
            format!("has format version {version}; this version of Mitra reads {VERSION}")
        }
        _ => "is no index of Mitra".to_owned(),
    };
    Err(Error::Cannot(format!("{} {what}", path.display())))
}

/// Renames a damaged index together with its WAL.
fn put_aside(path: &Path) -> Result<PathBuf, Error> {
    let free = |n: &u32| !path.with_extension(format!("damaged-{n}")).exists();
    let number = (1..1_000).find(free).unwrap_or(1_000);
    let aside = path.with_extension(format!("damaged-{number}"));
    std::fs::rename(path, &aside).at(path)?;
    for ending in ["-wal", "-shm"] {
        let with = |path: &Path| PathBuf::from(format!("{}{ending}", path.display()));
        match std::fs::rename(with(path), with(&aside)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e).at(path),
            _ => {}
        }
    }
    Ok(aside)
}

/// Escapes a path for a URI.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace('%', "%25").replace('?', "%3f").replace('#', "%23")
}

/// Calls `take` with every token, fact and dictionary of an index, as bytes.
pub fn each_term(dir: &Path, mut take: impl FnMut(&[u8])) -> Result<(), Error> {
    let db = open_to_read(dir)?;
    let path = dir.join(FILE);
    for sql in ["SELECT term FROM words", "SELECT value FROM fact", "SELECT bytes FROM dictionary"] {
        let mut statement = db.prepare(sql).of(&path)?;
        let mut rows = statement.query([]).of(&path)?;
        while let Some(row) = rows.next().of(&path)? {
            take(row.get_ref(0).of(&path)?.as_bytes().unwrap_or_default());
        }
    }
    Ok(())
}

/// Converts a SQLite error to an [`Error`] with the path.
pub(super) trait Of<T> {
    fn of(self, path: &Path) -> Result<T, Error>;
}

impl<T> Of<T> for rusqlite::Result<T> {
    fn of(self, path: &Path) -> Result<T, Error> {
        self.map_err(|e| {
            let io =
                |kind| Error::Io { path: path.to_owned(), source: std::io::Error::new(kind, e.to_string()) };
            match e.sqlite_error_code() {
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                    Error::Broken { path: path.to_owned(), what: e.to_string() }
                }
                Some(ErrorCode::DiskFull) => io(std::io::ErrorKind::StorageFull),
                Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::CannotOpen) => {
                    io(std::io::ErrorKind::PermissionDenied)
                }
                Some(ErrorCode::OutOfMemory) => io(std::io::ErrorKind::OutOfMemory),
                _ => io(std::io::ErrorKind::Other),
            }
        })
    }
}
