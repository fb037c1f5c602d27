//! The keys that only an output to Kafka has.

use serde::Deserialize;

use super::{Kind, Mistake, Table, wrong};

/// Of a name that is not given.
const TOPIC: &str = "mitra";
/// `org.apache.kafka.common.internals.Topic`.
const TOPIC_MAX: usize = 249;

/// A topic, what its messages are, and how the client says who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// What messages are.
    pub format: Format,
    /// How a user is authenticated.
    pub sasl: Sasl,
}

/// What a message is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// A request of OTLP in protocol buffers.
    #[default]
    Otlp,
    /// Lines of InfluxDB.
    Influx,
}

/// The mechanism by which a user is authenticated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sasl {
    /// The password itself.
    Plain,
    /// SCRAM-SHA-256.
    #[serde(rename = "scram-sha-256")]
    Scram256,
    /// SCRAM-SHA-512.
    #[default]
    #[serde(rename = "scram-sha-512")]
    Scram512,
}

impl Topic {
    /// `None` where it is no output to Kafka.
    pub(super) fn of(kind: Kind, table: &Table) -> Result<Option<Topic>, Mistake> {
        if !kind.is_kafka() {
            let at = [
                table.topic.as_ref().map(|given| (given.span(), "topic")),
                table.format.as_ref().map(|given| (given.span(), "format")),
                table.sasl.as_ref().map(|given| (given.span(), "sasl")),
            ];
            return match at.into_iter().flatten().next() {
                Some((at, key)) => wrong(at, format!("{key} is only for kafka and kafka-logs")),
                None => Ok(None),
            };
        }
        if let Some(given) = &table.topic {
            let name = given.get_ref();
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            let is_name = (1..=TOPIC_MAX).contains(&name.len()) && name.bytes().all(is_allowed);
            if !is_name || name == "." || name == ".." {
                return wrong(
                    given.span(),
                    format!(
                        "wanted a topic of up to {TOPIC_MAX} letters, digits, dots, dashes and underscores"
                    ),
                );
            }
        }
        if let Some(given) = table.format.as_ref().filter(|given| *given.get_ref() == Format::Influx)
            && kind.is_of_incidents()
        {
            return wrong(given.span(), "incidents are otlp");
        }
        if table.token_file.is_some() || table.sasl.is_some() && table.user.is_none() {
            let at = table.sasl.as_ref().map_or_else(|| table.to.span(), toml::Spanned::span);
            return wrong(at, "wanted user and password-file");
        }
        Ok(Some(Topic {
            name: table.topic.as_ref().map_or_else(|| TOPIC.to_owned(), |given| given.get_ref().clone()),
            format: table.format.as_ref().map(|given| *given.get_ref()).unwrap_or_default(),
            sasl: table.sasl.as_ref().map(|given| *given.get_ref()).unwrap_or_default(),
        }))
    }
}
