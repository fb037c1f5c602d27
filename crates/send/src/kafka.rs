//! A topic of Kafka: one connection to each broker that is asked, kept as long as it works.
//!
//! Messages have the name of the machine as their key, and those of a machine are in one partition, in their order. It is the
//! one that Kafka's own clients choose for the key. A message is taken when all replicas in sync have it (`acks=all`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mitra_http::rustls::ClientConfig;
use rskafka::BackoffConfig;
use rskafka::chrono::{DateTime, Utc};
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder, Credentials, SaslConfig};
use rskafka::record::Record;
use tokio::runtime::{Builder, Runtime};

use crate::channel::Failure;
use crate::config::{Sasl, Topic};
use crate::endpoint::ANSWER_WITHIN;

/// Of an answer of a broker: what all its topics are may be long.
const ANSWER_MAX: usize = 32 << 20;
/// A broker that is elected anew takes some seconds; after that the caller waits, and asks again.
const PATIENCE: Duration = Duration::from_secs(10);

/// A way to a topic.
pub struct Kafka {
    broker: String,
    topic: Topic,
    tls: Option<Arc<ClientConfig>>,
    /// A user and a password.
    login: Option<(String, String)>,
    runtime: Runtime,
    connected: Mutex<Option<Connected>>,
}

struct Connected {
    client: Client,
    partitions: Vec<i32>,
    open: BTreeMap<i32, PartitionClient>,
}

impl Kafka {
    /// # Errors
    /// If there can be no thread for it.
    pub fn new(
        broker: String,
        topic: Topic,
        tls: Option<ClientConfig>,
        login: Option<(String, String)>,
    ) -> Result<Kafka, String> {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        Ok(Kafka { broker, topic, tls: tls.map(Arc::new), login, runtime, connected: Mutex::default() })
    }

    /// Sends messages of one machine, one after the other.
    ///
    /// # Errors
    /// If one of them is not taken; those before it may have been.
    pub fn send(&self, host: &str, time_ns: i64, messages: Vec<Vec<u8>>) -> Result<String, Failure> {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = self.runtime.block_on(async {
            let sending = self.produce(&mut connected, host, time_ns, messages);
            tokio::time::timeout(ANSWER_WITHIN, sending).await
        });
        let failure = match sent {
            Ok(Ok(where_to)) => return Ok(where_to),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Later(format!("{} does not answer in time", self.broker), None),
        };
        // The cluster may be another one, with other partitions.
        *connected = None;
        Err(failure)
    }

    async fn produce(
        &self,
        connected: &mut Option<Connected>,
        host: &str,
        time_ns: i64,
        messages: Vec<Vec<u8>>,
    ) -> Result<String, Failure> {
        let to = match connected {
            Some(to) => to,
            None => connected.insert(self.connect().await?),
        };
        let hash = murmur2(host.as_bytes()) & i32::MAX.cast_unsigned();
        let at = hash as usize % to.partitions.len();
        let number = to.partitions.get(at).copied().unwrap_or_default();
        let partition = match to.open.entry(number) {
            std::collections::btree_map::Entry::Occupied(open) => open.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                let handling = UnknownTopicHandling::Error;
                let open = to.client.partition_client(&self.topic.name, number, handling).await;
                place.insert(open.map_err(|error| self.failure(&error))?)
            }
        };
        let mut said = String::new();
        for message in messages {
            let record = Record {
                key: Some(host.as_bytes().to_vec()),
                value: Some(message),
                headers: BTreeMap::new(),
                timestamp: DateTime::<Utc>::from_timestamp_nanos(time_ns),
            };
            let offsets = partition.produce(vec![record], Compression::Snappy).await;
            let offsets = offsets.map_err(|error| self.failure(&error))?;
            said = format!("offset {} of partition {number}", offsets.first().copied().unwrap_or_default());
        }
        Ok(said)
    }

    async fn connect(&self) -> Result<Connected, Failure> {
        let mut builder = ClientBuilder::new(vec![self.broker.clone()])
            .client_id("mitra")
            .max_message_size(ANSWER_MAX)
            .backoff_config(BackoffConfig { deadline: Some(PATIENCE), ..BackoffConfig::default() });
        if let Some(tls) = &self.tls {
            builder = builder.tls_config(Arc::clone(tls));
        }
        if let Some((user, password)) = &self.login {
            let credentials = Credentials::new(user.clone(), password.clone());
            builder = builder.sasl_config(match self.topic.sasl {
                Sasl::Plain => SaslConfig::Plain(credentials),
                Sasl::Scram256 => SaslConfig::ScramSha256(credentials),
                Sasl::Scram512 => SaslConfig::ScramSha512(credentials),
            });
        }
        let client = builder.build().await.map_err(|error| self.failure(&error))?;
        let topics = client.list_topics().await.map_err(|error| self.failure(&error))?;
        let topic = topics.into_iter().find(|topic| topic.name == self.topic.name);
        let partitions: Vec<i32> = topic.into_iter().flat_map(|topic| topic.partitions).collect();
        if partitions.is_empty() {
            let name = &self.topic.name;
            return Err(Failure::Later(
                format!("there is no topic {name}: kafka-topics.sh --create --topic {name}"),
                None,
            ));
        }
        Ok(Connected { client, partitions, open: BTreeMap::new() })
    }

    fn failure(&self, error: &Error) -> Failure {
        let is_too_large = |error: &ProtocolError| {
            matches!(error, ProtocolError::MessageTooLarge | ProtocolError::RecordListTooLarge)
        };
        match error {
            Error::ServerError { protocol_error, .. } if is_too_large(protocol_error) => {
                Failure::Never(protocol_error.to_string())
            }
            _ => Failure::Later(format!("{}: {error}", self.broker), None),
        }
    }
}

/// The hash by which Kafka's clients choose the partition of a key: MurmurHash2 of 32 bits, with their seed
/// (`org.apache.kafka.common.utils.Utils`).
fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let mut hash = SEED ^ bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let k = u32::from_le_bytes(*word).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (k ^ (k >> 24)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, byte| (tail << 8) | u32::from(*byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_partition_that_kafkas_clients_choose() {
        // The values of Kafka's own test (UtilsTest.testMurmur2).
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
    }
}
