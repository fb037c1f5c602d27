//! Incidents and findings as documents of the cluster, for `mitra notify`.

use std::path::Path;

use anyhow::{Result, bail};
use jiff::Timestamp;
use mitra_notify::{Deliver, Event, Failure, Message};
use mitra_search::Error;
use mitra_search::opensearch::{Cluster, FleetCulprit, Record, RecordKind};

use crate::commands::state::location;

/// A day as it stands at the beginning of a time.
const DAY_CHARS: usize = 10;

/// What documents say of this machine.
#[derive(Debug, Clone, Default)]
struct Machine {
    /// Its name by the kernel, which is that of messages.
    nodename: String,
    /// Its name in the index.
    host: String,
    kernel: String,
    tags: Vec<String>,
}

/// The way to the cluster that a configuration names. Sends nothing yet.
pub fn deliver(config: Option<&Path>, tags: &[String]) -> Result<Deliver> {
    let Some((settings, host)) = location::cluster(config)? else {
        bail!("there is no table [index.opensearch], which says where the cluster is");
    };
    let cluster = Cluster::connect(settings)?;
    let uname = rustix::system::uname();
    let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
    let nodename = text(uname.nodename());
    let machine = Machine {
        host: host.unwrap_or_else(|| nodename.clone()),
        nodename,
        kernel: text(uname.release()),
        tags: tags.to_vec(),
    };
    let mut is_ready = false;
    Ok(Box::new(move |message: &Message| {
        // Without the template the cluster would make up a mapping.
        if !is_ready {
            cluster.install_incidents().map_err(|error| Failure::Later(error.to_string()))?;
            is_ready = true;
        }
        let Some(record) = record(message, &machine) else { return Ok(()) };
        cluster.put_record(&record).map_err(|error| match error {
            Error::Refused(why) => Failure::Never(why),
            other => Failure::Later(other.to_string()),
        })
    }))
}

/// The document of a message; `None` if there is none of such a message.
fn record(message: &Message, machine: &Machine) -> Option<Record> {
    let (kind, key) = match message.event {
        Event::Begun | Event::Revised | Event::Ended => (RecordKind::Incident, message.id.clone()),
        Event::Finding => {
            let day = message.since.get(..DAY_CHARS).unwrap_or_default();
            (RecordKind::Finding, format!("{}-{day}", message.id))
        }
        Event::RecorderStopped | Event::RecorderBack | Event::Device | Event::Test => return None,
    };
    // Times of a recording without dates are none.
    let begin_ns = ns(&message.since)?;
    let facts = message.facts.clone().unwrap_or_default();
    let is_here = message.host == machine.nodename;
    Some(Record {
        kind,
        key,
        host: if is_here { machine.host.clone() } else { message.host.clone() },
        begin_ns,
        end_ns: message.until.as_deref().filter(|_| message.event.is_end()).and_then(ns),
        root: message.condition.clone(),
        unexplained: message.unexplained,
        culprit: FleetCulprit {
            kind: facts.culprit_kind,
            name: facts.culprit_name,
            group: facts.culprit_group,
        },
        confidence: message.confidence,
        strength: facts.strength,
        cost: facts.cost_seconds,
        line: message.headline.clone(),
        kernel: is_here.then(|| machine.kernel.clone()),
        mitra: env!("CARGO_PKG_VERSION").to_owned(),
        tags: machine.tags.clone(),
    })
}

fn ns(time: &str) -> Option<i64> {
    let time: Timestamp = time.parse().ok()?;
    i64::try_from(time.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use mitra_archive::Reader;
    use mitra_model::SeriesSet;
    use mitra_notify::Told;

    use super::*;
    use crate::diagnosis::explain_foreign;
    use crate::messages::step;

    /// The messages of a recording, as from a host with this name.
    fn messages(folder: &Path, host: &str) -> Vec<Message> {
        let reader = Reader::open(&folder.join("archive")).unwrap();
        let mut report = explain_foreign(&reader, reader.span().unwrap()).unwrap();
        report.host = host.to_owned();
        step(&mut Told::since(i64::MIN), &report, &SeriesSet::default(), true)
    }

    #[test]
    fn documents_of_all_recordings_are_small_and_of_one_form() {
        let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/recordings");
        let machine = Machine { kernel: "6.1.0-18-amd64".to_owned(), ..Machine::default() };
        let (mut sizes, mut incidents) = (Vec::new(), 0);
        for folder in std::fs::read_dir(recordings).unwrap().map(|entry| entry.unwrap().path()) {
            let (a, b) = (messages(&folder, "web1"), messages(&folder, "web2"));
            assert_eq!(a.len(), b.len());
            for (message, other) in a.iter().zip(&b) {
                let (one, other) = (record(message, &machine).unwrap(), record(other, &machine).unwrap());
                assert_eq!(one.id(), record(message, &machine).unwrap().id(), "told twice");
                assert_ne!(one.id(), other.id(), "of two hosts");
                assert_eq!(
                    (one.begin_ns, &one.root, &one.culprit),
                    (other.begin_ns, &other.root, &other.culprit)
                );
                assert!(one.kind == RecordKind::Finding || one.strength.is_some());
                incidents += usize::from(one.kind == RecordKind::Incident);
                sizes.push(one.to_json().to_string().len());
            }
        }
        sizes.sort_unstable();
        let [median, most] = [sizes[sizes.len() / 2], sizes[sizes.len() - 1]];
        println!(
            "{} documents, {incidents} of incidents: median {median} bytes, at most {most}",
            sizes.len()
        );
        assert!(incidents > 50 && most < 2_048, "{incidents} incidents, at most {most} bytes");
    }

    #[test]
    fn a_host_has_its_name_of_the_index_and_a_finding_its_day() {
        let text = r#"{"schema":"","event":"finding","id":"here-fd-growth-java","host":"here","since":"2026-11-21T14:03:07.250Z",
            "headline":"h","condition":"fd-growth","title":"","unexplained":false,"confidence":1.0,"actions":[],"text":""}"#;
        let message: Message = serde_json::from_str(text).unwrap();
        let machine = Machine {
            nodename: "here".to_owned(),
            host: "here.example.org".to_owned(),
            kernel: "6.1".to_owned(),
            tags: vec!["db".to_owned()],
        };
        let one = record(&message, &machine).unwrap();
        assert_eq!((one.host.as_str(), one.kernel.as_deref()), ("here.example.org", Some("6.1")));
        assert_eq!(one.key, "here-fd-growth-java-2026-11-21");
        assert_eq!(one.begin_ns % 1_000_000_000, 250_000_000);
        let later = Message { since: "2026-11-21T18:00:00.000Z".to_owned(), ..message.clone() };
        assert_eq!(record(&later, &machine).unwrap().id(), one.id());
        let next = Message { since: "2026-11-22T00:00:00.000Z".to_owned(), ..message.clone() };
        assert_ne!(record(&next, &machine).unwrap().id(), one.id());
        let elsewhere = Message { host: "other".to_owned(), ..message.clone() };
        assert_eq!(record(&elsewhere, &machine).unwrap().kernel, None);
        assert_eq!(record(&Message { event: Event::Device, ..message }, &machine), None);
    }
}
