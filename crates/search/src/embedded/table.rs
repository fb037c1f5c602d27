//! Every state of every document, in memory: who, which file, since when, and which content.
//!
//! ```text
//! row  host  file              content  since                until                days           previous
//!   0  web1  /etc/sysctl.conf        7  2026-11-01 08:00:00  2026-11-21 03:37:12  11-01…11-20    -
//!   1  web1  /etc/sysctl.conf       12  2026-11-21 03:37:12  (lasts)              11-21…         0
//! ```
//!
//! A document is shown on the days of its row on which its host was looked at ([`Table::covered`]). A state that was followed
//! by another one on the same day belongs to no day; it is history for questions about a moment.

use std::collections::HashMap;
use std::sync::Arc;

use crate::day::Day;
use crate::document::Stat;

/// Contents of an index over all its life; ordinals lie below.
pub const CONTENTS_MAX: u32 = 1 << 31;

/// Names and their ordinals, in order of first sight. Ordinals hold for one [`Table`] until it is refreshed.
#[derive(Debug, Clone, Default)]
pub struct Names {
    list: Vec<Arc<str>>,
    ordinals: HashMap<Arc<str>, u32>,
}

impl Names {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The name of an ordinal; empty where there is none.
    #[must_use]
    pub fn name(&self, ordinal: u32) -> &str {
        self.list.get(ordinal as usize).map_or("", |name| name)
    }

    /// The ordinal of a name.
    #[must_use]
    pub fn ordinal(&self, name: &str) -> Option<u32> {
        self.ordinals.get(name).copied()
    }

    /// All names by ordinal.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.list.iter().map(|name| &**name)
    }

    /// The ordinal of a name, a new one where it was not seen before.
    pub(crate) fn add(&mut self, name: &str) -> u32 {
        if let Some(ordinal) = self.ordinals.get(name) {
            return *ordinal;
        }
        // Names are in memory: there are less than 4 thousand million.
        let ordinal = self.list.len() as u32;
        let name: Arc<str> = name.into();
        self.list.push(Arc::clone(&name));
        self.ordinals.insert(name, ordinal);
        ordinal
    }
}

/// One state of one document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The host, in [`Table::hosts`].
    pub host: u32,
    /// The file name, in [`Table::files`].
    pub file: u32,
    /// The ordinal of its content. It never changes, and is that of the index of words too.
    pub content: u32,
    /// What the file system said, in [`Table::stats`].
    pub stat: Option<u32>,
    /// Since when it is known.
    pub since_ns: i64,
    /// When the next state was seen; `i64::MAX` while it lasts.
    pub until_ns: i64,
    /// The first day on which it is the document of the day.
    pub first_day: Day,
    /// The last such day; before the first where the state did not outlive its day; far in the future while it lasts.
    pub last_day: Day,
    /// The file was not there any more: the content is that of the state before. It is shown on its day with the flag `gone`,
    /// which is not among the flags of the content.
    pub gone: bool,
    /// It changes by itself: of one day only the last state is kept for good.
    pub volatile: bool,
    /// It happened once (an incident): it belongs to its day only.
    pub event: bool,
    /// When its host was last looked at before, so that the change lies between the two. Nothing where the host was new.
    pub known_before_ns: Option<i64>,
    /// The row of the state before. A file that came back has the one with `gone`.
    pub previous: Option<u32>,
}

/// A state that is added.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct State {
    pub(crate) content: u32,
    pub(crate) stat: Option<Stat>,
    pub(crate) since_ns: i64,
    /// When it ended, where that is not when the state after it in the table began: one between them was not kept.
    pub(crate) until_ns: Option<i64>,
    pub(crate) known_before_ns: Option<i64>,
    pub(crate) gone: bool,
    pub(crate) volatile: bool,
    pub(crate) event: bool,
}

/// When a state ends that no other followed.
pub(crate) fn open_until(event: bool, first_day: Day) -> i64 {
    if event { first_day.end_ns() } else { i64::MAX }
}

/// When a host was looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cover {
    /// The days, in order.
    pub days: Vec<Day>,
    /// The first time.
    pub first_ns: i64,
    /// The last time.
    pub last_ns: i64,
    /// The time before that.
    pub before_ns: Option<i64>,
}

/// Every state of every document. Rows of one document are in order of time.
#[derive(Debug, Clone)]
pub struct Table {
    /// The hosts.
    pub hosts: Names,
    /// The file names.
    pub files: Names,
    /// The states.
    pub rows: Vec<Row>,
    /// What the file system said of files.
    pub stats: Vec<Stat>,
    /// Days before this one are not kept.
    pub kept_from: Day,
    cover: Vec<Cover>,
    latest: HashMap<(u32, u32), u32>,
    /// Bits by ordinal, in pieces: most ordinals of an index that is old are of contents that went.
    live: Vec<Option<Box<Piece>>>,
}

/// The bits of 65,536 ordinals.
type Piece = [u64; 1024];

/// Piece, word and bit of an ordinal.
fn bit_of(content: u32) -> (usize, usize, u64) {
    (content as usize >> 16, (content as usize >> 6) % 1024, 1 << (content % 64))
}

impl Default for Table {
    fn default() -> Self {
        Self {
            hosts: Names::default(),
            files: Names::default(),
            rows: Vec::new(),
            stats: Vec::new(),
            kept_from: Day(i32::MIN),
            cover: Vec::new(),
            latest: HashMap::new(),
            live: Vec::new(),
        }
    }
}

impl Table {
    /// The first and the last day on which any host was looked at.
    #[must_use]
    pub fn days(&self) -> Option<(Day, Day)> {
        let first = self.cover.iter().filter_map(|cover| cover.days.first()).min()?;
        let last = self.cover.iter().filter_map(|cover| cover.days.last()).max()?;
        Some((*first, *last))
    }

    /// Whether a host was looked at on a day.
    #[must_use]
    pub fn covered(&self, host: u32, day: Day) -> bool {
        self.cover(host).is_some_and(|cover| cover.days.binary_search(&day).is_ok())
    }

    /// When a host was looked at.
    #[must_use]
    pub fn cover(&self, host: u32) -> Option<&Cover> {
        self.cover.get(host as usize).filter(|cover| !cover.days.is_empty())
    }

    /// The newest row of a document; the older ones follow by [`Row::previous`].
    #[must_use]
    pub fn latest(&self, host: u32, file: u32) -> Option<u32> {
        self.latest.get(&(host, file)).copied()
    }

    /// Whether a row has this content.
    #[must_use]
    pub fn live(&self, content: u32) -> bool {
        let (piece, word, bit) = bit_of(content);
        let piece = self.live.get(piece).and_then(Option::as_ref);
        piece.is_some_and(|piece| piece[word] & bit != 0)
    }

    /// Notes that a host was looked at.
    pub(crate) fn seen(&mut self, host: u32, at_ns: i64) {
        let cover = self.cover_mut(host);
        if cover.days.is_empty() {
            cover.first_ns = at_ns;
        } else if at_ns > cover.last_ns {
            cover.before_ns = Some(cover.last_ns);
        }
        cover.last_ns = at_ns;
        let day = Day::of(at_ns);
        if let Err(at) = cover.days.binary_search(&day) {
            cover.days.insert(at, day);
        }
    }

    /// When a host that is looked at now was looked at before; nothing where it is new.
    pub(crate) fn known_before(&self, host: u32, at_ns: i64) -> Option<i64> {
        let cover = self.cover(host)?;
        if at_ns == cover.last_ns { cover.before_ns } else { Some(cover.last_ns.min(at_ns)) }
    }

    /// Sets when a host was looked at.
    pub(crate) fn set_cover(&mut self, host: u32, cover: Cover) {
        *self.cover_mut(host) = cover;
    }

    fn cover_mut(&mut self, host: u32) -> &mut Cover {
        let at = host as usize;
        if self.cover.len() <= at {
            self.cover.resize(at + 1, Cover::default());
        }
        &mut self.cover[at]
    }

    /// When a new state of a document may begin: time never goes backwards, whatever clocks say.
    pub(crate) fn since(&self, host: u32, file: u32, at_ns: i64) -> i64 {
        let before = self.latest(host, file).and_then(|row| self.rows.get(row as usize));
        before.map_or(at_ns, |row| at_ns.max(row.since_ns.saturating_add(1)))
    }

    /// Adds a state; the one before ends with it.
    pub(crate) fn push(&mut self, host: u32, file: u32, state: State) {
        let since_ns = self.since(host, file, state.since_ns);
        let first_day = Day::of(since_ns);
        // Rows are in memory, as names are.
        let row = self.rows.len() as u32;
        let previous = self.latest.insert((host, file), row);
        if let Some(before) = previous.and_then(|row| self.rows.get_mut(row as usize)) {
            before.until_ns = before.until_ns.min(since_ns);
            before.last_day = before.last_day.min(first_day.before());
        }
        let stat = state.stat.map(|stat| {
            self.stats.push(stat);
            self.stats.len() as u32 - 1
        });
        self.mark_live(state.content);
        self.rows.push(Row {
            host,
            file,
            content: state.content,
            stat,
            since_ns,
            until_ns: state.until_ns.unwrap_or(open_until(state.event, first_day)),
            first_day,
            last_day: if state.event || state.gone { first_day } else { Day(i32::MAX) },
            gone: state.gone,
            volatile: state.volatile,
            event: state.event,
            known_before_ns: state.known_before_ns,
            previous,
        });
    }

    fn mark_live(&mut self, content: u32) {
        let (at, word, bit) = bit_of(content);
        if self.live.len() <= at {
            self.live.resize_with(at + 1, || None);
        }
        self.live[at].get_or_insert_with(|| Box::new([0; 1024]))[word] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    fn state(content: u32, since_ns: i64) -> State {
        State {
            content,
            stat: None,
            since_ns,
            until_ns: None,
            known_before_ns: None,
            gone: false,
            volatile: false,
            event: false,
        }
    }

    #[test]
    fn a_state_ends_with_the_next_one() {
        let mut table = Table::default();
        let (host, file) = (table.hosts.add("web1"), table.files.add("/etc/hosts"));
        table.push(host, file, state(0, 8 * HOUR));
        table.push(host, file, state(1, 50 * HOUR));
        table.push(host, file, state(2, 51 * HOUR));
        let days: Vec<_> = table.rows.iter().map(|r| (r.first_day, r.last_day)).collect();
        assert_eq!(days, [(Day(0), Day(1)), (Day(2), Day(1)), (Day(2), Day(i32::MAX))]);
        let until: Vec<_> = table.rows.iter().map(|r| r.until_ns).collect();
        assert_eq!(until, [50 * HOUR, 51 * HOUR, i64::MAX]);
        assert_eq!(table.rows.iter().map(|r| r.previous).collect::<Vec<_>>(), [None, Some(0), Some(1)]);
        assert_eq!(table.latest(host, file), Some(2));
        table.push(host, file, state(200_000, 52 * HOUR));
        let live = [0, 1, 2, 3, 66, 65_538, 199_999, 200_000, 200_001, CONTENTS_MAX];
        assert_eq!(
            live.map(|content| table.live(content)),
            [true, true, true, false, false, false, false, true, false, false]
        );
    }

    #[test]
    fn time_never_goes_backwards() {
        let mut table = Table::default();
        let (host, file) = (table.hosts.add("web1"), table.files.add("/etc/hosts"));
        table.push(host, file, state(0, 8 * HOUR));
        table.push(host, file, state(1, 7 * HOUR));
        table.push(host, file, state(2, i64::MIN));
        assert_eq!(table.rows.iter().map(|r| r.since_ns - 8 * HOUR).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn what_is_gone_or_happened_once_belongs_to_its_day() {
        let mut table = Table::default();
        let (host, file) = (table.hosts.add("web1"), table.files.add("/etc/hosts"));
        table.push(host, file, state(0, HOUR));
        table.push(host, file, State { gone: true, ..state(0, 30 * HOUR) });
        table.push(host, file, state(1, 100 * HOUR));
        let days: Vec<_> = table.rows.iter().map(|r| (r.first_day.0, r.last_day.0)).collect();
        assert_eq!(days, [(0, 0), (1, 1), (4, i32::MAX)]);
        let file = table.files.add("@incident/1");
        table.push(host, file, State { event: true, ..state(3, 30 * HOUR) });
        let row = table.rows.last().unwrap();
        assert_eq!((row.first_day, row.last_day, row.until_ns), (Day(1), Day(1), 48 * HOUR));
    }

    #[test]
    fn a_host_is_known_since_it_was_looked_at() {
        let mut table = Table::default();
        let host = table.hosts.add("web1");
        assert_eq!((table.covered(host, Day(0)), table.known_before(host, HOUR)), (false, None));
        table.seen(host, HOUR);
        assert_eq!(table.known_before(host, HOUR), None, "a second batch of the first look");
        assert_eq!(table.known_before(host, 2 * HOUR), Some(HOUR));
        table.seen(host, 50 * HOUR);
        assert_eq!(table.known_before(host, 50 * HOUR), Some(HOUR));
        assert_eq!(
            Day(-1).through(Day(3)).filter(|d| table.covered(host, *d)).collect::<Vec<_>>(),
            [Day(0), Day(2)]
        );
        assert!(!table.covered(7, Day(0)));
    }
}
