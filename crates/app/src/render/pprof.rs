//! The stacks of a capture as `profile.proto`, packed by gzip: what `go tool pprof`, Speedscope and Pyroscope read.
//!
//! The messages are declared by hand, as far as they are used. The format's text is
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use mitra_model::Captured;
use mitra_model::capture::Profile;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct Pprof {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
}

/// Indices into the table of strings.
#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    name: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// From the leaf to the root.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
    #[prost(int64, tag = "3")]
    number: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

/// The texts, each once. The first one is empty.
#[derive(Default)]
struct Texts<'a> {
    places: HashMap<&'a str, i64>,
    table: Vec<String>,
}

impl<'a> Texts<'a> {
    fn place(&mut self, text: &'a str) -> i64 {
        let next = i64::try_from(self.table.len()).unwrap_or(0);
        *self.places.entry(text).or_insert_with(|| {
            self.table.push(text.to_owned());
            next
        })
    }
}

/// The unit by its name in pprof, and how many of it one of ours is.
fn unit(unit: &str) -> (&'static str, f64) {
    match unit {
        "s" => ("nanoseconds", 1e9),
        "B" => ("bytes", 1.0),
        _ => ("count", 1.0),
    }
}

/// The stacks of a capture.
pub fn packed(captured: &Captured, profile: &Profile) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&message(captured, profile).encode_to_vec())?;
    Ok(encoder.finish()?)
}

fn message(captured: &Captured, profile: &Profile) -> Pprof {
    let mut texts = Texts::default();
    texts.place("");
    let (unit, scale) = unit(&profile.unit);
    let weights = [&profile.weight, &profile.beside].into_iter().filter(|name| !name.is_empty());
    let sample_type: Vec<ValueType> =
        weights.map(|name| ValueType { name: texts.place(name), unit: texts.place(unit) }).collect();
    let ids = || 1_u64..;
    let names: Vec<i64> = profile.names.iter().map(|name| texts.place(name)).collect();
    let functions = ids().zip(names).map(|(id, name)| Function { id, name }).collect();
    let locations =
        ids().take(profile.names.len()).map(|id| Location { id, line: vec![Line { function_id: id }] });
    let known = profile.names.len() as u64;
    let (thread, pid, tag) = (texts.place("thread"), texts.place("pid"), texts.place("tag"));
    let samples = profile.stacks.iter().map(|stack| {
        let mut label = vec![Label { key: thread, text: texts.place(&stack.comm), number: 0 }];
        if stack.pid > 0 {
            label.push(Label { key: pid, text: 0, number: i64::from(stack.pid) });
        }
        if !stack.tag.is_empty() {
            label.push(Label { key: tag, text: texts.place(&stack.tag), number: 0 });
        }
        let ids = stack.frames.iter().rev().map(|frame| u64::from(*frame) + 1);
        let weights = [stack.weight, stack.beside];
        Sample {
            location_id: ids.filter(|id| *id <= known).collect(),
            value: weights.iter().take(sample_type.len()).map(|w| (w * scale).round() as i64).collect(),
            label,
        }
    });
    let sample = samples.collect();
    Pprof {
        sample,
        location: locations.collect(),
        function: functions,
        time_nanos: captured.since_real,
        duration_nanos: (captured.seconds * 1e9) as i64,
        string_table: texts.table,
        sample_type,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use mitra_model::capture::Stack;

    use super::*;

    fn captured() -> (Captured, Profile) {
        let stack = |comm: &str, frames: &[u32], weight: f64| Stack {
            pid: 7,
            comm: comm.to_owned(),
            frames: frames.to_vec(),
            weight,
            ..Stack::default()
        };
        let profile = Profile {
            weight: "time off CPU".to_owned(),
            unit: "s".to_owned(),
            names: ["main", "read", "io_schedule_[k]"].map(str::to_owned).to_vec(),
            stacks: vec![stack("a", &[0, 1, 2], 1.5), stack("b", &[0, 99], 0.25)],
            ..Profile::default()
        };
        (Captured { seconds: 2.0, since_real: 5, ..Captured::default() }, profile)
    }

    #[test]
    fn what_is_written_is_read() {
        let (captured, profile) = captured();
        let bytes = packed(&captured, &profile).unwrap();
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
        let read = Pprof::decode(&plain[..]).unwrap();
        let text = |place: i64| read.string_table[usize::try_from(place).unwrap()].as_str();
        assert_eq!(read.string_table[0], "");
        assert_eq!(
            (text(read.sample_type[0].name), text(read.sample_type[0].unit)),
            ("time off CPU", "nanoseconds")
        );
        let name = |id: &u64| {
            let location = read.location.iter().find(|l| l.id == *id).unwrap();
            text(read.function.iter().find(|f| f.id == location.line[0].function_id).unwrap().name)
        };
        let names: Vec<&str> = read.sample[0].location_id.iter().map(name).collect();
        assert_eq!(names, ["io_schedule_[k]", "read", "main"]);
        assert_eq!(read.sample[0].value, [1_500_000_000]);
        assert_eq!(text(read.sample[0].label[0].text), "a");
        assert_eq!(read.sample[0].label[1].number, 7);
        // A frame without a name is left out.
        assert_eq!(read.sample[1].location_id.len(), 1);
        assert_eq!((read.time_nanos, read.duration_nanos), (5, 2_000_000_000));
    }

    #[test]
    fn the_tool_of_go_reads_it() {
        let (captured, profile) = captured();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("offcpu.pb.gz");
        std::fs::write(&file, packed(&captured, &profile).unwrap()).unwrap();
        let go = |args: &[&str]| std::process::Command::new("go").args(args).arg(&file).output();
        if !go(&["tool", "-n", "pprof"]).is_ok_and(|output| output.status.success()) {
            println!("skipped: no go tool pprof");
            return;
        }
        let output = go(&["tool", "pprof", "-top", "-unit=ms"]).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("Type: time off CPU") && text.contains("1500ms"), "{text}");
        assert!(text.contains("io_schedule_[k]"), "{text}");
    }
}
