//! What is told.

use serde::{Deserialize, Serialize};

/// The contract of a message as JSON.
pub const SCHEMA: &str = "mitra.notify/1";

/// What has happened to an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It began.
    Begun,
    /// Another cause or culprit was found.
    Revised,
    /// It is over.
    Ended,
    /// Something that is no incident yet.
    Finding,
    /// Nothing is recorded any more.
    RecorderStopped,
    /// It is recorded again.
    RecorderBack,
    /// A disk or a network interface appeared, went away, or its link changed.
    Device,
    /// Nothing: whether the message arrives.
    Test,
}

impl Event {
    /// Whether it is the end of something that was told.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Event::Ended | Event::RecorderBack)
    }

    /// As in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Event::Begun => "begun",
            Event::Revised => "revised",
            Event::Ended => "ended",
            Event::Finding => "finding",
            Event::RecorderStopped => "recorder_stopped",
            Event::RecorderBack => "recorder_back",
            Event::Device => "device",
            Event::Test => "test",
        }
    }
}

/// One message. The JSON of it is what a webhook and a command get.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// [`SCHEMA`].
    pub schema: String,
    /// What has happened.
    pub event: Event,
    /// The same for all messages of one incident.
    pub id: String,
    /// The machine's name.
    pub host: String,
    /// When it began, as RFC 3339.
    pub since: String,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The verdict in one line.
    pub headline: String,
    /// The id of the root cause's condition.
    pub condition: String,
    /// The cause in plain words.
    pub title: String,
    /// The cause was not found: this is what is seen of it.
    pub unexplained: bool,
    /// From 0 to 1.
    pub confidence: f64,
    /// Who caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub culprit: Option<String>,
    /// What it cost so far, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    /// What to do, the safest first.
    pub actions: Vec<String>,
    /// What quoted lines of logs mean, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meanings: Vec<String>,
    /// The first screen of the report.
    pub text: String,
    /// The same as numbers and names, for programs that count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Facts>,
    /// How many messages this receiver did not get, because it gets only so many in an hour or could not be reached.
    #[serde(default, skip_serializing_if = "is_none")]
    pub withheld: u64,
}

/// What the words of a message are made of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// `process`, `device`, `path`, …: what the culprit is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub culprit_kind: Option<String>,
    /// Its name, without a process id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub culprit_name: Option<String>,
    /// Its unit, slice, container or pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub culprit_group: Option<String>,
    /// From 0 to 1: how much of the evidence was there and agreed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strength: Option<f64>,
    /// What it cost so far: task-seconds, or what clients waited if that is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_seconds: Option<f64>,
}

/// The id of an incident: the machine, and when it began as it was first seen.
#[must_use]
pub fn incident_id(host: &str, since: &str) -> String {
    format!("{host}-{since}")
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

impl Message {
    /// One line for a chat or a phone.
    #[must_use]
    pub fn line(&self) -> String {
        let what = match self.event {
            Event::Begun => "",
            Event::Revised => "on a second look: ",
            Event::Ended => "over: ",
            Event::Finding => "finding: ",
            Event::Device | Event::RecorderStopped | Event::RecorderBack => "",
            Event::Test => "test: ",
        };
        format!("{}: {what}{}", self.host, self.headline)
    }

    /// What stands below the line.
    #[must_use]
    pub fn details(&self) -> String {
        let mut text = match (self.event.is_end(), &self.until) {
            (true, Some(until)) => format!("from {} to {until}", self.since),
            _ => format!("since {}", self.since),
        };
        if let Some(cost) = &self.cost {
            text.push_str(&format!("\n{cost}"));
        }
        for meaning in self.meanings.iter().filter(|_| !self.event.is_end()) {
            text.push_str(&format!("\n{meaning}"));
        }
        if let Some(action) = self.actions.first().filter(|_| !self.event.is_end()) {
            text.push_str(&format!("\n{action}"));
        }
        if self.withheld > 0 {
            text.push_str(&format!("\n{} messages before this one were withheld", self.withheld));
        }
        text
    }

    /// Whether somebody should look now.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        matches!(self.event, Event::Begun | Event::Revised | Event::RecorderStopped)
    }
}
