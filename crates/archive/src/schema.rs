//! What the columns of a file are called.
//!
//! A file names its columns, so one that was written by another version is read by name: a metric that this
//! version does not know is passed over, one that the file does not have is unavailable.

use std::sync::OnceLock;

use mitra_model::{Entity, Kind, Metric, Unit, columns, lookup};

use crate::varint::{Corrupt, Got, Input, put, put_bytes};

/// No metric has a longer name. Each column of a schema says how much it shares with the name before, so a long one would
/// cost many times what it takes in the file.
const NAME_BYTES_MAX: usize = 256;

/// A column as a file describes it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredColumn {
    pub(crate) name: String,
    pub(crate) is_text: bool,
    /// The metric of this version, if it has one of that name on that entity which is a text where the column is.
    pub(crate) metric: Option<&'static Metric>,
    /// What one stored unit is worth in base units, in the version that wrote the file.
    pub(crate) scale: f64,
}

impl StoredColumn {
    /// What the stored cells have to be multiplied by to be in the unit of this version.
    pub(crate) fn factor(&self) -> f64 {
        self.metric.map_or(1.0, |metric| self.scale / metric.unit.scale())
    }
}

/// A stored cell in another unit, see [`StoredColumn::factor`].
pub(crate) fn convert(cell: i64, factor: f64) -> i64 {
    if cell == mitra_model::NA || factor == 1.0 { cell } else { (cell as f64 * factor).round() as i64 }
}

/// The columns of one entity.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredEntity {
    /// `None`: this version has no such entity.
    pub(crate) entity: Option<Entity>,
    pub(crate) columns: Vec<StoredColumn>,
}

/// All columns of a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Schema {
    pub(crate) entities: Vec<StoredEntity>,
}

/// Units as files write them; a unit is never renumbered.
const UNITS: [Unit; 13] = [
    Unit::None,
    Unit::Count,
    Unit::Bytes,
    Unit::Pages,
    Unit::KiB,
    Unit::Nanos,
    Unit::Micros,
    Unit::Millis,
    Unit::Ticks,
    Unit::Centi,
    Unit::Sectors,
    Unit::Text,
    Unit::Ppm,
];

/// The columns of this version, as they are written: the number of entities; for each its name and the number of
/// its columns; for each column how many bytes its name shares with the one before, the rest of the name, and the
/// unit.
pub(crate) fn current() -> &'static [u8] {
    static CURRENT: OnceLock<Vec<u8>> = OnceLock::new();
    CURRENT.get_or_init(|| {
        let entities = Entity::ALL.map(|entity| {
            let columns = columns(entity).iter().map(|metric| (metric.name, metric.unit)).collect();
            (entity.name(), columns)
        });
        write(&entities)
    })
}

/// Writes a schema; apart from tests it is [`current`] that is wanted.
pub(crate) fn write(entities: &[(&str, Vec<(&str, Unit)>)]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, entities.len() as u64);
    for (entity, columns) in entities {
        put_bytes(&mut out, entity.as_bytes());
        put(&mut out, columns.len() as u64);
        let mut before = "";
        for (name, unit) in columns {
            let shared = before.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
            put(&mut out, shared as u64);
            put_bytes(&mut out, &name.as_bytes()[shared..]);
            out.push(UNITS.iter().position(|u| u == unit).unwrap_or(0) as u8);
            before = name;
        }
    }
    out
}

impl Schema {
    pub(crate) fn parse(bytes: &[u8]) -> Got<Schema> {
        let mut input = Input::new(bytes);
        let mut entities = Vec::new();
        for _ in 0..input.count(2)? {
            let entity = Entity::from_name(input.text()?);
            let mut columns: Vec<StoredColumn> = Vec::new();
            let mut name: Vec<u8> = Vec::new();
            for _ in 0..input.count(3)? {
                let shared = input.varint()? as usize;
                if shared > name.len() {
                    return Err(Corrupt("a name that shares no more than the one before has"));
                }
                name.truncate(shared);
                name.extend_from_slice(input.bytes()?);
                if name.len() > NAME_BYTES_MAX {
                    return Err(Corrupt("a name as short as metrics have"));
                }
                let unit = UNITS.get(usize::from(input.byte()?)).copied().unwrap_or(Unit::None);
                let name = std::str::from_utf8(&name).map_err(|_| Corrupt("a name in UTF-8"))?.to_owned();
                let is_text = unit == Unit::Text;
                let metric = lookup(&name)
                    .filter(|metric| Some(metric.entity) == entity && (metric.kind == Kind::Text) == is_text);
                columns.push(StoredColumn { name, is_text, metric, scale: unit.scale() });
            }
            entities.push(StoredEntity { entity, columns });
        }
        Ok(Schema { entities })
    }
}

/// Which columns are read together, and so share a block. The reader does not depend on it.
pub(crate) fn group(entity: Entity, metric: &str) -> &'static str {
    let (area, rest) = metric.split_once('.').unwrap_or((metric, ""));
    match entity {
        Entity::System => match area {
            "vm" => "vm",
            "mem" => "mem",
            "tcp" => "tcp",
            "tcpext" | "mptcpext" => "tcpext",
            "ip" | "ipext" | "icmp" | "udp" | "udplite" | "sock" => "net",
            "tasks" | "probe" => "tasks",
            "psi" | "sys" | "softirq" | "softnet" => "sys",
            "sysctl" => "sysctl",
            _ => "other",
        },
        Entity::Task => match rest {
            "cpu_time" | "user_time" | "system_time" | "run_delay" | "nvcsw" | "nivcsw" => "time",
            "state" | "cpu" | "kstack" => "state",
            "minflt" | "majflt" | "rss_anon" | "rss_file" | "rss_shmem" | "swap" | "threads" => "memory",
            "rchar"
            | "wchar"
            | "syscr"
            | "syscw"
            | "read_bytes"
            | "write_bytes"
            | "cancelled_write_bytes" => "io",
            _ if rest.ends_with("_delay") => "delays",
            _ => "identity",
        },
        Entity::Disk if rest.contains("_le_") => "histograms",
        Entity::Cgroup if rest.starts_with("psi_") || rest.starts_with("io_") => "pressure",
        _ => "all",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_entity(schema: &Schema, entity: Entity) -> &StoredEntity {
        schema.entities.iter().find(|stored| stored.entity == Some(entity)).unwrap()
    }

    #[test]
    fn the_current_table_comes_back_whole() {
        let schema = Schema::parse(current()).unwrap();
        assert_eq!(schema.entities.len(), Entity::COUNT);
        for entity in Entity::ALL {
            let stored = of_entity(&schema, entity);
            let wanted: Vec<_> = columns(entity).iter().map(|m| (Some(*m), m.unit.scale())).collect();
            let got: Vec<_> = stored.columns.iter().map(|c| (c.metric, c.scale)).collect();
            assert_eq!(got, wanted);
        }
    }

    #[test]
    fn unknown_names_are_kept_apart_and_a_text_is_no_number() {
        let bytes = write(&[
            ("tachyon", vec![("tachyon.spin", Unit::Count)]),
            (
                "task",
                vec![("task.comm", Unit::Count), ("task.cpu_time", Unit::Nanos), ("task.x", Unit::Text)],
            ),
        ]);
        let schema = Schema::parse(&bytes).unwrap();
        assert_eq!(schema.entities[0].entity, None);
        let task = of_entity(&schema, Entity::Task);
        assert_eq!(task.columns[0].metric, None, "a number may not be read as a text");
        assert_eq!(task.columns[1].metric.map(|m| m.name), Some("task.cpu_time"));
        assert_eq!(task.columns[1].scale, 1e-9, "the unit is the one of the file");
        assert!(task.columns[2].is_text && task.columns[2].metric.is_none());
    }

    #[test]
    fn broken_bytes_are_refused() {
        let whole = current();
        for len in 0..whole.len().min(3000) {
            assert!(Schema::parse(&whole[..len]).is_err(), "{len} bytes");
        }
    }
}
