//! The tables `[[notify]]` of `/etc/mitra/mitra.toml`.

use std::ops::Range;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use crate::message::{Event, Message};

/// Receivers of one file.
const RECEIVERS_MAX: usize = 50;
const NAME_MAX: usize = 48;
/// Messages in an hour to one receiver, where nothing else stands: more than anybody reads.
const PER_HOUR: u32 = 30;
const PER_HOUR_MAX: u32 = 3600;
/// A cluster takes more than people do.
const PER_HOUR_CLUSTER: u32 = 600;
/// Tags of this host.
const TAGS_MAX: usize = 20;
const TAG_MAX: usize = 64;

/// In which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The JSON of a message, by POST.
    Webhook,
    /// An incoming webhook of Slack, or of Mattermost.
    Slack,
    /// A webhook of a workflow in Microsoft Teams.
    Teams,
    /// Alertmanager's API, version 2.
    Alertmanager,
    /// PagerDuty's Events API, version 2.
    Pagerduty,
    /// Structured entries of journald.
    Journal,
    /// The notification daemon of this session's desktop.
    Desktop,
    /// A program that reads the JSON from its standard input.
    Command,
    /// The cluster of the table `[index.opensearch]`: a document for each incident and finding.
    Opensearch,
}

impl Kind {
    fn wants_url(self) -> bool {
        matches!(self, Kind::Webhook | Kind::Slack | Kind::Teams | Kind::Alertmanager)
    }

    /// Whether it asks over HTTP.
    #[must_use]
    pub fn is_http(self) -> bool {
        self.wants_url() || self == Kind::Pagerduty
    }
}

/// Who is told, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Receiver {
    /// Its name in messages of errors, and of the file with what waits for it.
    pub name: String,
    /// The form.
    pub kind: Kind,
    /// Where to: the address itself, which is no secret.
    pub url: Option<String>,
    /// A file with the address, where that is a secret.
    pub url_file: Option<PathBuf>,
    /// A file with a token (webhook, Alertmanager) or routing key (PagerDuty).
    pub key_file: Option<PathBuf>,
    /// Whose certificates are trusted, in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether incidents are told.
    pub incidents: bool,
    /// Whether findings are told too.
    pub findings: bool,
    /// Which disks and network interfaces are told of when they appear or go.
    pub devices: Devices,
    /// Whether it is told when nothing is recorded any more.
    pub recorder: bool,
    /// Messages in an hour.
    pub per_hour: u32,
    /// Messages may go to another machine unencrypted.
    pub insecure: bool,
    /// What this host is called in documents of a cluster: its role, its place.
    pub tags: Vec<String>,
}

impl Receiver {
    /// Whether it is to hear of this.
    #[must_use]
    pub fn wants(&self, message: &Message) -> bool {
        match message.event {
            Event::Begun | Event::Revised | Event::Ended => self.incidents,
            Event::Finding => self.findings,
            Event::Device => self.devices.has(message.culprit.as_deref().unwrap_or_default()),
            Event::RecorderStopped | Event::RecorderBack => self.recorder,
            Event::Test => true,
        }
    }
}

/// All or none of some devices, or those of these names, of which one may end in `*`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "wanted true, false or a list of names: [\"sd*\", \"eth0\"]")]
pub enum Devices {
    /// All or none.
    All(bool),
    /// By name.
    Named(Vec<String>),
}

impl Devices {
    /// Whether this device is among them.
    #[must_use]
    pub fn has(&self, device: &str) -> bool {
        match self {
            Devices::All(all) => *all,
            Devices::Named(names) => names.iter().any(|name| match name.strip_suffix('*') {
                Some(begin) => device.starts_with(begin),
                None => device == name,
            }),
        }
    }

    fn is_none(&self) -> bool {
        matches!(self, Devices::All(false))
    }

    /// What is wrong with the names.
    fn check(&self) -> Result<(), String> {
        let Devices::Named(names) = self else { return Ok(()) };
        match names.iter().find(|name| name.trim_end_matches('*').contains('*') || name.ends_with("**")) {
            _ if names.is_empty() => Err("wanted names, or false".to_owned()),
            Some(name) => Err(format!("{name}: a * can only stand at the end")),
            None => Ok(()),
        }
    }
}

/// Who is told.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// All of them.
    pub receivers: Vec<Receiver>,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    notify: Vec<Spanned<Table>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    name: Option<Spanned<String>>,
    to: Spanned<Kind>,
    url: Option<Spanned<String>>,
    url_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    #[serde(default)]
    command: Vec<String>,
    incidents: Option<bool>,
    findings: Option<bool>,
    devices: Option<Spanned<Devices>>,
    recorder: Option<bool>,
    per_hour: Option<Spanned<u32>>,
    #[serde(default)]
    insecure: bool,
    tags: Option<Spanned<Vec<String>>>,
}

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The bytes of the text that it is about.
    pub at: Range<usize>,
    /// What is wrong and what was wanted.
    pub message: String,
}

impl Config {
    /// Reads the text of a file, the other tables of which are for others.
    ///
    /// # Errors
    /// The first mistake.
    pub fn read(text: &str) -> Result<Config, Mistake> {
        let parsed: File = toml::from_str(text).map_err(|error| {
            let message = error.message().lines().collect::<Vec<_>>().join(" ");
            Mistake { at: error.span().unwrap_or_default(), message }
        })?;
        if let Some(one) = parsed.notify.get(RECEIVERS_MAX) {
            let message = format!("more than {RECEIVERS_MAX} tables [[notify]]");
            return Err(Mistake { at: one.span(), message });
        }
        let mut receivers: Vec<Receiver> = Vec::new();
        for table in parsed.notify {
            let at = table.span();
            let receiver = receiver(table.into_inner(), at.clone())?;
            if receivers.iter().any(|other| other.name == receiver.name) {
                let message = format!("there is another receiver called {}: give it a name", receiver.name);
                return Err(Mistake { at, message });
            }
            receivers.push(receiver);
        }
        Ok(Config { receivers })
    }
}

/// A receiver, of a table that stands there.
fn receiver(table: Table, at: Range<usize>) -> Result<Receiver, Mistake> {
    let (kind, kind_at) = (*table.to.get_ref(), table.to.span());
    let wrong = |message: &str| Err(Mistake { at: kind_at.clone(), message: message.to_owned() });
    let usual = format!("{kind:?}").to_lowercase();
    let (name, name_at) = table.name.map_or((usual, at), |name| (name.get_ref().clone(), name.span()));
    let is_name = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_name) {
        let message = format!("wanted a name of up to {NAME_MAX} letters a to z, digits and dashes");
        return Err(Mistake { at: name_at, message });
    }
    if kind.wants_url() && table.url.is_some() == table.url_file.is_some() {
        return wrong(
            "wanted either url or url-file (of mode 0600: whoever knows the address can write there)",
        );
    }
    if kind == Kind::Pagerduty && table.key_file.is_none() {
        return wrong("wanted key-file, with the routing key");
    }
    if !kind.is_http() && (table.url.is_some() || table.url_file.is_some() || table.key_file.is_some()) {
        return wrong("this has no address and no key");
    }
    if (kind == Kind::Command) != table.command.first().is_some_and(|program| program.starts_with('/')) {
        return wrong(
            "wanted command, with the whole path of a program, where it is told to a command and nowhere else",
        );
    }
    if let Some(url) = &table.url {
        check_url(url.get_ref(), table.insecure).map_err(|message| Mistake { at: url.span(), message })?;
    }
    let devices = table.devices.unwrap_or_else(|| Spanned::new(0..0, Devices::All(false)));
    devices.get_ref().check().map_err(|message| Mistake { at: devices.span(), message })?;
    let is_cluster = kind == Kind::Opensearch;
    let (incidents, recorder) = (table.incidents.unwrap_or(true), table.recorder.unwrap_or(!is_cluster));
    let (findings, devices) = (table.findings.unwrap_or(is_cluster), devices.into_inner());
    if is_cluster && (recorder || !devices.is_none()) {
        return wrong("a cluster takes incidents and findings, and neither devices nor recorder");
    }
    if is_cluster && (table.insecure || table.ca_file.is_some()) {
        return wrong("how the cluster is reached stands in [index.opensearch]");
    }
    let tags = tags(table.tags, is_cluster)?;
    if !incidents && !findings && devices.is_none() && !recorder {
        return wrong("this is told of nothing: wanted incidents, findings, devices or recorder");
    }
    let per_hour = match table.per_hour {
        Some(given) if (1..=PER_HOUR_MAX).contains(given.get_ref()) => *given.get_ref(),
        Some(given) => {
            return Err(Mistake { at: given.span(), message: format!("wanted 1 to {PER_HOUR_MAX}") });
        }
        None if is_cluster => PER_HOUR_CLUSTER,
        None => PER_HOUR,
    };
    Ok(Receiver {
        name,
        kind,
        url: table.url.map(Spanned::into_inner),
        url_file: table.url_file,
        key_file: table.key_file,
        ca_file: table.ca_file,
        command: table.command,
        incidents,
        findings,
        devices,
        recorder,
        per_hour,
        insecure: table.insecure,
        tags,
    })
}

fn tags(given: Option<Spanned<Vec<String>>>, is_cluster: bool) -> Result<Vec<String>, Mistake> {
    let Some(given) = given else { return Ok(Vec::new()) };
    let (at, tags) = (given.span(), given.into_inner());
    let is_tag = |tag: &String| {
        !tag.is_empty() && tag.chars().count() <= TAG_MAX && !tag.chars().any(char::is_control)
    };
    if !is_cluster {
        return Err(Mistake { at, message: "tags are for documents of a cluster".to_owned() });
    }
    if tags.len() > TAGS_MAX || !tags.iter().all(is_tag) {
        let message = format!("wanted up to {TAGS_MAX} tags of up to {TAG_MAX} characters");
        return Err(Mistake { at, message });
    }
    Ok(tags)
}

/// What a report says is not for everybody on the way.
pub(crate) fn check_url(url: &str, insecure: bool) -> Result<(), String> {
    if url.strip_prefix("https://").is_some_and(|rest| !rest.is_empty()) {
        return Ok(());
    }
    let Some(rest) = url.strip_prefix("http://").filter(|rest| !rest.is_empty()) else {
        return Err("wanted an address that begins with https:// or http://".to_owned());
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if is_here || insecure {
        Ok(())
    } else {
        Err("others could read along: wanted https://, or insecure = true".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_told_with_its_place() {
        for (text, at, says) in [
            ("to = \"pigeon\"", "\"pigeon\"", "unknown variant `pigeon`"),
            ("to = \"slack\"", "\"slack\"", "wanted either url or url-file"),
            (
                "to = \"slack\"\nurl = \"https://a\"\nurl-file = \"/x\"",
                "\"slack\"",
                "wanted either url or url-file",
            ),
            ("to = \"webhook\"\nurl = \"http://10.0.0.1/x\"", "\"http", "others could read along"),
            ("to = \"webhook\"\nurl = \"ftp://a\"", "\"ftp", "wanted an address"),
            (
                "to = \"webhook\"\nurl = \"http://127.0.0.1.evil.example/\"",
                "\"http",
                "others could read along",
            ),
            ("to = \"pagerduty\"", "\"pagerduty\"", "wanted key-file"),
            ("to = \"journal\"\nurl = \"https://a\"", "\"journal\"", "no address"),
            ("to = \"command\"\ncommand = [\"mail\"]", "\"command\"", "the whole path"),
            ("to = \"journal\"\nper-hour = 0", "0", "wanted 1 to"),
            ("to = \"journal\"\nname = \"../x\"", "\"../x\"", "wanted a name"),
            ("to = \"journal\"\nperhour = 3", "perhour", "unknown field `perhour`"),
            (
                "to = \"journal\"\nincidents = false\nrecorder = false",
                "\"journal\"",
                "this is told of nothing",
            ),
            ("to = \"journal\"\ndevices = 1", "1", "wanted true, false or a list of names"),
            ("to = \"journal\"\ndevices = []", "[]", "wanted names, or false"),
            ("to = \"opensearch\"\nrecorder = true", "\"opensearch\"", "neither devices nor recorder"),
            ("to = \"opensearch\"\nurl = \"https://a\"", "\"opensearch\"", "no address"),
            ("to = \"opensearch\"\ninsecure = true", "\"opensearch\"", "stands in [index.opensearch]"),
            ("to = \"opensearch\"\ntags = [\"\"]", "[\"\"]", "wanted up to 20 tags"),
            ("to = \"journal\"\ntags = [\"a\"]", "[\"a\"]", "tags are for documents"),
            ("to = \"journal\"\ndevices = [\"s*a\"]", "[\"s*a", "s*a: a * can only stand at the end"),
            (
                "to = \"journal\"\n[[notify]]\nto = \"journal\"",
                "[[notify]]",
                "there is another receiver called journal",
            ),
        ] {
            let text = format!("[[notify]]\n{text}\n");
            let mistake = Config::read(&text).unwrap_err();
            assert!(mistake.message.contains(says), "{text}: {mistake:?}");
            assert!(text[mistake.at.clone()].starts_with(at), "{text}: {mistake:?}");
        }
    }

    #[test]
    fn the_examples_of_the_package_are_right() {
        let shipped = include_str!("../../../packaging/mitra.toml");
        let (_, examples) = shipped.split_once("\n# [[notify]]\n").unwrap();
        let examples = examples.split("\n\n").next().unwrap();
        let lines = examples.lines().map(|line| line.trim_start_matches("# "));
        let tables: Vec<&str> = lines.filter(|line| line.starts_with('[') || line.contains(" = ")).collect();
        let config = Config::read(&format!("[[notify]]\n{}", tables.join("\n"))).unwrap();
        let kinds: Vec<Kind> = config.receivers.iter().map(|receiver| receiver.kind).collect();
        let web = [Kind::Slack, Kind::Teams, Kind::Pagerduty, Kind::Alertmanager, Kind::Webhook];
        assert_eq!(
            kinds,
            [&web[..], &[Kind::Opensearch, Kind::Journal, Kind::Command, Kind::Desktop]].concat()
        );
        let parts: Vec<&str> = include_str!("../../../docs/notify.md").split("```toml\n").skip(1).collect();
        assert!(!parts.is_empty());
        for part in parts {
            assert!(!Config::read(part.split("```").next().unwrap()).unwrap().receivers.is_empty());
        }
    }

    #[test]
    fn a_receiver_hears_of_what_it_wants() {
        let message = |event: Event, culprit: &str| {
            let text = format!(
                r#"{{"schema":"","event":"{}","id":"","host":"","since":"","headline":"","condition":"","title":"","unexplained":false,
                "confidence":1.0,"culprit":"{culprit}","actions":[],"text":""}}"#,
                event.name()
            );
            serde_json::from_str::<Message>(&text).unwrap()
        };
        let wants = |keys: &str, event: Event, culprit: &str| {
            let config = Config::read(&format!("[[notify]]\nto = \"journal\"\n{keys}\n")).unwrap();
            config.receivers[0].wants(&message(event, culprit))
        };
        assert!(wants("", Event::Begun, "java") && wants("", Event::Test, ""));
        assert!(!wants("", Event::Finding, "java") && !wants("", Event::Device, "sda"));
        let cluster =
            Config::read("[[notify]]\nto = \"opensearch\"\ntags = [\"db\"]\n").unwrap().receivers.remove(0);
        assert!(cluster.findings && cluster.incidents && !cluster.recorder && cluster.tags == ["db"]);
        assert!(wants("devices = true", Event::Device, "sda"));
        assert!(wants("incidents = false", Event::RecorderStopped, ""));
        assert!(!wants("recorder = false", Event::RecorderBack, ""));
        let disks = "incidents = false\ndevices = [\"sd*\", \"eth0\"]";
        let has = ["sda", "eth0", "eth01", "dm-0"].map(|device| wants(disks, Event::Device, device));
        assert_eq!((has, wants(disks, Event::Ended, "sda")), ([true, true, false, false], false));
    }

    #[test]
    fn the_other_tables_are_for_others() {
        let text = "[index]\nfiles = []\n[[notify]]\nto = \"alertmanager\"\nurl = \"http://[::1]:9093\"\n[[rule]]\nname = 1\n";
        let config = Config::read(text).unwrap();
        assert_eq!(
            (config.receivers[0].name.as_str(), config.receivers[0].per_hour),
            ("alertmanager", PER_HOUR)
        );
        assert_eq!(Config::read("").unwrap(), Config::default());
    }
}
