//! What sessions of a PostgreSQL server say of themselves in their titles, while their service keeps clients waiting.
//!
//! A title is `postgres: 15/main: USER DATABASE HOST ACTIVITY`: only the activity is kept, and only where it is one that
//! PostgreSQL writes (`src/backend/utils/misc/ps_status.c`, `set_ps_display`).
//!
//! The kernel takes the title out of the memory of the process, and waits for the lock of its address space: a thread of its
//! own does that, so that the recorder never waits.

use mitra_model::{Entity, Frame, Key, NA, Strings};

use crate::aside::Aside;
use crate::cells::{col, set};
use crate::file::{Buffer, Root};
use crate::io::Io;

/// What a process of the server is called.
const SERVER: &str = "postgres";
/// Programs that keep its sessions for others: while one waits there for a session the server has no request.
const POOLERS: [&str; 2] = ["pgbouncer", "pgpool"];
/// As many sessions are looked at in a frame.
const SESSIONS_MAX: usize = 128;
/// A title is not read beyond.
const TITLE_BYTES_MAX: usize = 512;
/// What sessions do that run no command, the longest first.
const IDLE: [&str; 4] = ["idle in transaction (aborted)", "idle in transaction", "idle", "authentication"];

/// What a session does whose commit a synchronous standby has to confirm (`src/backend/replication/syncrep.c`: `waiting for
/// 0/3000148`).
pub const FOR_STANDBY: &str = " waiting for a standby";

/// Process ids, and what their titles said.
type Activities = Vec<(u64, String)>;

/// The thread that reads titles.
fn reader() -> std::io::Result<Aside<Vec<u64>, Activities>> {
    let root = Root::open("/".as_ref());
    let mut buffer = Buffer::default();
    Aside::start("mitra-titles", move |pids: Vec<u64>| {
        let Ok(root) = &root else { return Vec::new() };
        let mut title_of = |pid: u64| {
            let title = root.read(&format!("proc/{pid}/cmdline"), &mut buffer).ok()?;
            Some((pid, activity(title.get(..TITLE_BYTES_MAX).unwrap_or(title))?))
        };
        pids.into_iter().filter_map(&mut title_of).collect()
    })
}

/// The columns, and the thread once it was needed.
#[derive(Debug)]
pub struct Sessions {
    reader: Option<Aside<Vec<u64>, Activities>>,
    activity: usize,
    pid: usize,
    comm: usize,
    tgid: usize,
    open: usize,
    service_comm: usize,
}

impl Sessions {
    pub fn new() -> Self {
        Sessions {
            reader: None,
            activity: col("session.activity"),
            pid: col("session.pid"),
            comm: col("task.comm"),
            tgid: col("task.tgid"),
            open: col("service.open"),
            service_comm: col("service.comm"),
        }
    }

    /// Fills the rows with what the titles said when they were asked for, at the frame before. Tasks and services have to be
    /// in the frame already.
    pub fn fill(&mut self, io: &mut Io, frame: &mut Frame) {
        let server = i64::from(io.strings.intern(SERVER));
        if !io.root.is_host() || !self.is_anybody_kept_waiting(&io.strings, frame) {
            return;
        }
        if self.reader.is_none() {
            match reader() {
                Ok(reader) => self.reader = Some(reader),
                Err(error) => io.missing.add("sessions", &crate::missing::reason(&error)),
            }
        }
        let Some(reader) = &self.reader else { return };
        for (pid, activity) in reader.answers().last().unwrap_or_default() {
            let activity = io.strings.intern(&activity);
            let key = Key::named(io.strings.intern(&pid.to_string()));
            let row = frame.table_mut(Entity::Session).push(key);
            set(row, self.activity, i64::from(activity));
            set(row, self.pid, i64::try_from(pid).unwrap_or(NA));
        }
        let is_leader =
            |pid: u64, row: &[i64]| row.get(self.tgid).is_some_and(|tgid| pid == tgid.cast_unsigned());
        let tasks = frame.table(Entity::Task).rows();
        let sessions =
            tasks.filter(|(key, row)| row.get(self.comm) == Some(&server) && is_leader(key.id, row));
        reader.ask(sessions.map(|(key, _)| key.id).take(SESSIONS_MAX).collect());
    }

    fn is_anybody_kept_waiting(&self, strings: &Strings, frame: &Frame) -> bool {
        let is_meant = |comm: &str| comm == SERVER || POOLERS.contains(&comm);
        frame.table(Entity::Service).rows().any(|(_, row)| {
            row.get(self.open).is_some_and(|open| *open > 0)
                && row.get(self.service_comm).and_then(|comm| strings.cell(*comm)).is_some_and(is_meant)
        })
    }
}

/// A position of the write-ahead log: `0/3000148`.
fn is_position(text: &str) -> bool {
    let is_half = |half: &str| (1..=8).contains(&half.len()) && half.bytes().all(|b| b.is_ascii_hexdigit());
    text.split_once('/').is_some_and(|(high, low)| is_half(high) && is_half(low))
}

/// The end of a title that says what a session does: `UPDATE waiting`.
fn activity(title: &[u8]) -> Option<String> {
    let title = std::str::from_utf8(title).ok()?.trim_end_matches(['\0', ' ']);
    // User, database and host come first: three words at least, behind `postgres:`.
    title.strip_prefix("postgres: ")?;
    if let Some(idle) = IDLE.iter().find(|idle| title.ends_with(&format!(" {idle}"))) {
        return Some((*idle).to_owned());
    }
    let (command, waits) = match title.strip_suffix(" waiting") {
        Some(command) => (command, " waiting"),
        None => match title.rsplit_once(" waiting for ") {
            Some((command, position)) if is_position(position) => (command, FOR_STANDBY),
            _ => (title, ""),
        },
    };
    // A command tag is in capitals: `INSERT`, `CREATE INDEX`.
    let is_tag = |word: &&str| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    let words: Vec<&str> = command.split(' ').rev().take_while(is_tag).take(4).collect();
    if words.is_empty() {
        return None;
    }
    let tag: Vec<&str> = words.into_iter().rev().collect();
    Some(format!("{}{waits}", tag.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::activity;

    #[test]
    fn only_what_a_session_does_is_kept() {
        let of = |title: &str| activity(title.as_bytes());
        assert_eq!(
            of("postgres: 15/main: shop orders [local] idle in transaction").as_deref(),
            Some("idle in transaction")
        );
        assert_eq!(
            of("postgres: shop orders 10.0.0.7(48220) UPDATE waiting\0\0").as_deref(),
            Some("UPDATE waiting")
        );
        let commit = of("postgres: 15/main: shop orders 127.0.0.1(5000) COMMIT waiting for 0/3000148");
        assert_eq!(commit.as_deref(), Some("COMMIT waiting for a standby"));
        assert_eq!(of("postgres: shop orders [local] SELECT waiting for hunter2/1").as_deref(), None);
        assert_eq!(of("postgres: shop orders [local] CREATE INDEX").as_deref(), Some("CREATE INDEX"));
        assert_eq!(of("postgres: shop orders [local] idle").as_deref(), Some("idle"));
        assert_eq!(of("postgres: 15/main: checkpointer ").as_deref(), None);
        assert_eq!(of("/usr/lib/postgresql/15/bin/postgres -D /var/lib/x SECRET").as_deref(), None);
    }
}
