//! Files of `/proc` and `/proc/sys` that were saved: alone, one after the other, or again and again with times.
//!
//! ```text
//! ==> /proc/loadavg <==
//! 0.60 0.20 0.07 2/108 8148
//!
//! ==> /proc/sys/net/ipv4/tcp_max_orphans <==
//! 65536
//! ```
//! ```text
//! 2016-09-10 10:53:32.92709 MemTotal: 65837824 kB
//! 2016-09-10 10:53:32.92709 MemFree: 270568 kB
//! ```
//!
//! Each line says by itself what it is, so that a `grep` of a file, two files without a title between them and lines
//! of several files in turn are all the same. A line that says nothing by itself, a bare number, is known by the name
//! of its file, or not at all.

use mitra_model::{EventKind, Kind as MetricKind, lookup};

use super::assignment::assignment;
use super::bare::{is_memory_stat, is_numbers, is_tcp_mem};
use super::by_name;
use super::keys::{self, Keyed};
use super::names;
use super::sink::Sink;
use super::stamp;
use super::tables::{self, Shape, Tables};
use super::zones::{self, Zone, ZoneLine};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "/proc files",
    "files of `/proc` and `/proc/sys` and `sysctl -a`: alone, one after the other, as `grep` leaves them, or as histories with times",
    starts,
    read,
);

/// No setting has more words.
const WORDS_MAX: usize = 32;

/// What the line before was.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Last {
    #[default]
    Nothing,
    MemInfo,
    VmStat,
    Node,
    Zone,
    Setting,
    MemoryStat,
    Bare,
    Table(tables::File),
}

impl Last {
    fn name(self) -> Option<&'static str> {
        Some(match self {
            Last::Nothing | Last::Bare | Last::MemoryStat => return None,
            Last::MemInfo => "/proc/meminfo",
            Last::VmStat => "/proc/vmstat",
            Last::Node => "numastat of a node",
            Last::Zone => "/proc/zoneinfo",
            Last::Setting => "sysctl",
            Last::Table(file) => tables::FILES.get(file).copied()?,
        })
    }
}

/// Where a line stands and when it was written.
#[derive(Clone, Copy)]
struct At<'a> {
    when: When,
    line: u32,
    /// The path that stands before it.
    path: Option<&'a str>,
}

#[derive(Default)]
struct Reader {
    sink: Sink,
    tables: Tables,
    zone: Option<Zone>,
    last: Last,
    /// The last line had a time before it.
    stamped: bool,
    /// Lines of `/proc/net/softnet_stat` in a row.
    cpus: u32,
    next: Vec<u8>,
}

/// Whether the line at the cursor is of such a file.
fn starts(lines: &mut Lines<'_>, context: &Context) -> bool {
    if by_name::what(lines, context).is_some() {
        return false;
    }
    let Some(line) = lines.peek() else { return false };
    if names::banner(line).is_some() || grep_path(line).is_some() || begins(line) {
        return true;
    }
    if stamp::prefix(line).is_some_and(|(_, rest)| begins(rest)) {
        return true;
    }
    if is_numbers(line) {
        let hint = names::hint(context);
        return is_alone(lines, context) || names::setting(hint).is_some() || names::state(hint).is_some();
    }
    let bare = stamp::prefix(line).map_or(line, |(_, rest)| rest);
    let may_be_stat = [&b"anon"[..], b"cache"].iter().any(|k| bare.trim_ascii_start().starts_with(k));
    if may_be_stat || memchr::memchr(b':', line).is_some() {
        let line = line.to_vec();
        let after = lines.ahead(1).unwrap_or_default();
        let after = stamp::prefix(after).map_or(after, |(_, rest)| rest);
        let bare = stamp::prefix(&line).map_or(&line[..], |(_, rest)| rest);
        if is_memory_stat(bare, after) || is_pair_with_stamps(&line, after) {
            return true;
        }
    }
    let hint = names::hint(context);
    let is_whole = is_alone(lines, context) || (is_setting_path(hint) && ends_section(lines.ahead(1)));
    is_whole && names::setting(hint).is_some_and(|m| m.kind == MetricKind::Text)
}

/// Whether a name is the full path of a setting, as banners and prompts give it.
fn is_setting_path(name: &str) -> bool {
    name.starts_with("/proc/sys/") || name.starts_with("/sys/")
}

/// Whether the line after a line shows that it was the only one of its kind: nothing, or a prompt.
fn ends_section(line: Option<&[u8]>) -> bool {
    line.is_none_or(|l| {
        let l = l.trim_ascii();
        l.is_empty() || names::banner(l).is_some() || [&b"# "[..], b"$ "].iter().any(|p| l.starts_with(p))
    })
}

/// Whether the line says by itself which file it is of.
fn begins(line: &[u8]) -> bool {
    keys::classify(line, false).is_some_and(|k| k.is_certain())
        || tables::is_zone(line)
        || assignment(line).is_some()
        || tables::shape(line).is_some()
}

fn is_pair_with_stamps(names: &[u8], numbers: &[u8]) -> bool {
    let bare = |line| stamp::prefix(line).map_or(line, |(_, rest)| rest);
    names.contains(&b':') && (tables::is_pair(names, numbers) || tables::is_pair(bare(names), bare(numbers)))
}

/// As [`names::grep_path`], for the files of the whole machine.
fn grep_path(line: &[u8]) -> Option<(&str, &[u8])> {
    let of_process = line.strip_prefix(b"/proc/").is_some_and(|r| r.first().is_some_and(u8::is_ascii_digit));
    if of_process { None } else { names::grep_path(line) }
}

/// Reads all lines that are of such files.
fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut reader = Reader::default();
    let mut line = Vec::new();
    let mut only_titles = true;
    while by_name::what(lines, &import.context).is_none() {
        let Some(peeked) = lines.peek() else { break };
        line.clear();
        line.extend_from_slice(peeked);
        let is_title = names::banner(&line).is_some();
        if line.trim_ascii().is_empty() {
            reader.pause();
        } else if !reader.take(&line, lines, import) {
            if !context::take(&line, import) {
                break;
            }
            reader.pause();
        }
        only_titles &= is_title || line.trim_ascii().is_empty();
        lines.advance();
    }
    if only_titles {
        import.is_context();
    }
}

impl Reader {
    /// Forgets what only the lines right before tell.
    fn pause(&mut self) {
        self.zone = None;
        self.last = Last::Nothing;
    }

    /// Takes the line if it is of such a file.
    fn take(&mut self, raw: &[u8], lines: &mut Lines<'_>, import: &mut Import) -> bool {
        if let Some(path) = names::banner(raw) {
            path.clone_into(&mut import.context.file_name);
            import.context.command.clear();
            self.pause();
            return true;
        }
        let (path, text) = grep_path(raw).map_or((None, raw), |(path, rest)| (Some(path), rest));
        let at = At { when: import.now(), line: lines.number(), path };
        let stamp = stamp::prefix(text);
        let stamped = |(when, rest)| (rest, At { when, ..at });
        let ways = if self.stamped {
            [stamp.map(stamped), Some((text, at))]
        } else {
            [Some((text, at)), stamp.map(stamped)]
        };
        for (i, (text, at)) in ways.into_iter().enumerate().filter_map(|(i, way)| Some((i, way?))) {
            if self.line(text, at, lines, import) {
                self.stamped = (i == 0) == self.stamped;
                return true;
            }
        }
        path.is_some()
    }

    fn line(&mut self, line: &[u8], at: At<'_>, lines: &mut Lines<'_>, import: &mut Import) -> bool {
        self.zone_line(line, at, import)
            || self.assignment(line, at, import)
            || self.keyed(line, at, lines, import)
            || self.table(line, at, import)
            || self.pair(line, at, lines, import)
            || (self.last == Last::Setting && matches!(line.trim_ascii_start().first(), Some(b'#' | b';')))
            || self.bare(line, at, lines, import)
    }

    fn is(&mut self, last: Last, import: &mut Import) {
        if self.last != last {
            self.last = last;
            self.cpus = 0;
            if let Some(name) = last.name() {
                let with_slash = matches!(last, Last::Table(_));
                import.format(&if with_slash { format!("/{name}") } else { name.to_owned() });
            }
        }
    }

    fn zone_line(&mut self, line: &[u8], at: At<'_>, import: &mut Import) -> bool {
        if let Some(zone) = zones::begin(line) {
            self.zone = Some(zone);
            self.is(Last::Zone, import);
            return true;
        }
        let Some(zone) = &mut self.zone else { return false };
        match zone.line(line) {
            Some(ZoneLine::Value(metric, value)) => {
                let is_node = metric.entity == mitra_model::Entity::Node;
                let row = if is_node { &zone.node } else { &zone.name };
                self.sink.put(import, metric, row.as_bytes(), at.when, at.line, value);
            }
            Some(ZoneLine::Nothing) => {}
            Some(ZoneLine::Damaged) => import.unread(at.line, line),
            None => {
                self.zone = None;
                return false;
            }
        }
        true
    }

    /// `vm.swappiness = 1`.
    fn assignment(&mut self, line: &[u8], at: At<'_>, import: &mut Import) -> bool {
        let Some((key, value)) = assignment(line) else { return false };
        self.is(Last::Setting, import);
        match key {
            // What sysctl could not read.
            "" => {}
            key => self.setting(key, value, line, at, import),
        }
        true
    }

    fn setting(&mut self, key: &str, value: &[u8], line: &[u8], at: At<'_>, import: &mut Import) {
        if let Some(metric) = keys::setting(key) {
            self.set(metric, value, line, at, import);
        } else if let Some(path) = names::state(&key.replace('.', "/")).filter(|_| key.starts_with("fs")) {
            self.state(path, value, line, at, import);
        }
    }

    /// The value of a setting that the table has.
    fn set(
        &mut self,
        metric: &'static mitra_model::Metric,
        value: &[u8],
        line: &[u8],
        at: At<'_>,
        import: &mut Import,
    ) {
        if metric.kind == MetricKind::Text {
            let chosen = crate::sysctl::selected(value).unwrap_or(value);
            let list: Vec<String> = words(chosen).take(WORDS_MAX).map(text).collect();
            if list.is_empty() {
                import.unread(at.line, line);
            } else {
                import.text_at(metric.name, "", at.when, at.line, &list.join(" "));
            }
            return;
        }
        match number(value.trim_ascii()) {
            Some(value) => self.sink.put(import, metric, b"", at.when, at.line, value),
            None => import.unread(at.line, line),
        }
    }

    /// One of the files of several numbers below `/proc/sys/fs`.
    fn state(&mut self, path: &str, value: &[u8], line: &[u8], at: At<'_>, import: &mut Import) {
        let Some(file) = tables::file(path) else { return };
        if self.tables.parse(file, &[value]) {
            self.sink.frame(import, &self.tables.frame, &self.tables.strings, at.when, at.line);
        } else {
            import.unread(at.line, line);
        }
    }

    fn keyed(&mut self, line: &[u8], at: At<'_>, lines: &mut Lines<'_>, import: &mut Import) -> bool {
        let after = lines.ahead(1).unwrap_or_default();
        let after = stamp::prefix(after).map_or(after, |(_, rest)| rest);
        if self.last == Last::MemoryStat || is_memory_stat(line, after) {
            return self.memory_stat(line, at, import);
        }
        let node = at.path.or(Some(names::hint(&import.context))).and_then(names::node).map(str::to_owned);
        let Some(keyed) = keys::classify(line, node.is_some()) else { return false };
        let last = match keyed {
            Keyed::MemInfo(..) | Keyed::LikeMemInfo => Last::MemInfo,
            Keyed::VmStat(..) | Keyed::LikeVmStat => Last::VmStat,
            Keyed::NodeMemInfo(..) | Keyed::NumaStat(..) => Last::Node,
        };
        if !keyed.is_certain() && self.last != last {
            return false;
        }
        self.is(last, import);
        let node = node.unwrap_or_default();
        let (metric, row, value) = match &keyed {
            Keyed::MemInfo(metric, value) | Keyed::VmStat(metric, value) => (*metric, &b""[..], *value),
            Keyed::NumaStat(metric, value) => (*metric, node.as_bytes(), *value),
            Keyed::NodeMemInfo(node, Some(metric), value) => (*metric, *node, *value),
            Keyed::NodeMemInfo(_, None, _) | Keyed::LikeMemInfo | Keyed::LikeVmStat => return true,
        };
        match value {
            Some(value) => self.sink.put(import, metric, row, at.when, at.line, value),
            None => import.unread(at.line, line),
        }
        true
    }

    /// `memory.stat` of a control group has keys of `/proc/vmstat` with numbers of the group.
    fn memory_stat(&mut self, line: &[u8], at: At<'_>, import: &mut Import) -> bool {
        let mut list = words(line);
        let is_one = list.next().is_some_and(|k| !k.ends_with(b":"))
            && list.next().and_then(keys::count).is_some()
            && list.next().is_none();
        if is_one {
            self.is(Last::MemoryStat, import);
            import.note("memory.stat of a cgroup was left out: it does not say which one");
            import.unread(at.line, line);
        } else {
            self.last = Last::Nothing;
        }
        is_one
    }

    fn table(&mut self, line: &[u8], at: At<'_>, import: &mut Import) -> bool {
        let file = match tables::shape(line) {
            Some(Shape::Row(file)) => file,
            Some(Shape::Heading(file)) => {
                self.is(Last::Table(file), import);
                return true;
            }
            Some(Shape::Pressure) => return self.pressure(line, at, import),
            None => return false,
        };
        self.is(Last::Table(file), import);
        let is_whole = if tables::FILES.get(file) == Some(&"proc/net/softnet_stat") {
            self.cpus += 1;
            self.tables.parse_nth_cpu(file, line, self.cpus - 1)
        } else {
            self.tables.parse(file, &[line])
        };
        if !is_whole {
            import.unread(at.line, line);
        }
        self.sink.frame(import, &self.tables.frame, &self.tables.strings, at.when, at.line);
        true
    }

    /// `some avg10=18.61 avg60=13.96 avg300=3.89 total=19001035`: which resource, only a name tells.
    fn pressure(&mut self, line: &[u8], at: At<'_>, import: &mut Import) -> bool {
        let hint = at.path.unwrap_or(names::hint(&import.context));
        let Some(resource) = names::pressure(hint) else {
            import.note("lines of /proc/pressure were left out: nothing says of which resource they are");
            import.unread(at.line, line);
            return true;
        };
        let Some(file) = tables::file(&format!("proc/pressure/{resource}")) else { return false };
        self.is(Last::Table(file), import);
        if !self.tables.parse(file, &[line]) {
            import.unread(at.line, line);
            return true;
        }
        self.sink.frame(import, &self.tables.frame, &self.tables.strings, at.when, at.line);
        // A single reading of the total says nothing; the average over ten seconds does.
        let half = if line.starts_with(b"some") { "some" } else { "full" };
        let average = words(line).nth(1).and_then(|w| number(w.strip_prefix(b"avg10=")?));
        if let (Some(metric), Some(average)) = (lookup(&format!("psi.{resource}_{half}")), average) {
            self.sink.put_as(import, metric, Form::Rate, 0.01, b"", at.when, at.line, average);
        }
        true
    }

    /// A line of names and a line of numbers.
    fn pair(&mut self, line: &[u8], at: At<'_>, lines: &mut Lines<'_>, import: &mut Import) -> bool {
        if !line.contains(&b':') {
            return false;
        }
        let Some(after) = lines.ahead(1) else { return false };
        let after = grep_path(after).map_or(after, |(_, rest)| rest);
        let after = if tables::is_pair(line, after) {
            after
        } else {
            stamp::prefix(after).map_or(after, |(_, rest)| rest)
        };
        let Some(file) = tables::file("proc/net/snmp").filter(|_| tables::is_pair(line, after)) else {
            return false;
        };
        self.next.clear();
        self.next.extend_from_slice(after);
        lines.advance();
        self.is(Last::Table(file), import);
        if !self.tables.parse(file, &[line, &self.next]) {
            import.unread(at.line, line);
        }
        self.sink.frame(import, &self.tables.frame, &self.tables.strings, at.when, at.line + 1);
        true
    }

    /// A line without a word that tells what it is.
    fn bare(&mut self, line: &[u8], at: At<'_>, lines: &mut Lines<'_>, import: &mut Import) -> bool {
        let is_numbers = is_numbers(line);
        let hint = at.path.unwrap_or(names::hint(&import.context)).to_owned();
        let setting = names::setting(&hint);
        let is_text = setting.is_some_and(|m| m.kind == MetricKind::Text);
        let is_first = at.path.is_some() || self.last == Last::Nothing;
        let is_mine = is_numbers || (is_text && is_first && names::banner(line).is_none());
        let is_whole = at.path.is_some() || is_setting_path(&hint) || is_alone(lines, &import.context);
        if !is_mine || !(is_whole || (is_numbers && setting.is_some())) {
            return false;
        }
        self.is(Last::Bare, import);
        if let Some(metric) = setting {
            import.format("sysctl");
            self.set(metric, line, line, at, import);
        } else if let Some(path) = names::state(&hint) {
            import.format("sysctl");
            self.state(path, line, line, at, import);
        } else if !hint.starts_with("/proc/") && !hint.starts_with("/sys/") {
            bare_numbers(line, at, import);
        }
        true
    }
}

/// Numbers that no name explains.
fn bare_numbers(line: &[u8], at: At<'_>, import: &mut Import) {
    let values: Vec<f64> = words(line).filter_map(number).collect();
    if is_tcp_mem(&values)
        && let Some(metric) = keys::setting("net.ipv4.tcp_mem")
    {
        import.format("sysctl");
        import.note(
            "three numbers in the proportions of net.ipv4.tcp_mem were taken for it; udp_mem has the same",
        );
        let list: Vec<String> = words(line).map(text).collect();
        import.text_at(metric.name, "", at.when, at.line, &list.join(" "));
        return;
    }
    import.event(at.when, at.line, EventKind::Numbers { values });
}

/// Whether the line at the cursor is the only one of its file.
fn is_alone(lines: &mut Lines<'_>, context: &Context) -> bool {
    // A prompt or a time may stand before it.
    let is_first = lines.number() == 1
        || (lines.number() <= 3 && (!context.command.is_empty() || context.stamp.is_some()));
    is_first && (1..=3).all(|n| lines.ahead(n).is_none_or(|l| l.trim_ascii().is_empty()))
}
