//! `mitra dbus`: the questions of `api.rs` on the system bus, a signal for each incident, and probes of the recorder that started it.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mitra_model::SeriesSet;
use mitra_model::report::Report;
use mitra_notify::Told;
use serde_json::{Map, Value};
use zbus::Variant;
use zbus::message::Header;
use zbus::object_server::SignalEmitter;
use zbus::{Connection, connection, fdo, interface, proxy};

use super::api::{self, Server};
use super::asks::{Asks, NO_RECORDER};
use super::listen::Signals;
use super::query::Query;
use super::response::Failure;
use super::stream::{EXPLAIN_EVERY, PAUSE_FACTOR};
use super::{Options, guard, incidents, runtime};
use crate::confined;
use crate::log::log;
use crate::messages;

const NAME: &str = "org.mitra.Mitra1";
const PATH: &str = "/org/mitra/Mitra1";
/// What polkit is asked.
const READ: &str = "org.mitra.Mitra1.read";
const ARM: &str = "org.mitra.Mitra1.arm";
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Answers until SIGTERM or SIGINT. `tell` gets the name as soon as it is taken.
pub fn run(options: Options, tell: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let dir = options.dir.clone();
        let meta = std::fs::metadata(&dir).with_context(|| format!("cannot look at {}", dir.display()))?;
        // While nothing of the archive is read yet: afterwards it can connect to nothing.
        let connection =
            connection::Builder::system().build().await.context("cannot reach the system bus")?;
        let asks = Asks::open(&options.may_ask)?;
        confined::to_serve(&dir, true);
        let server = Server::open(options, None, asks)?;
        let mitra =
            Mitra { server: Arc::clone(&server), is_public: guard::is_public(&dir), owner: meta.uid() };
        connection.object_server().at(PATH, mitra).await.context("cannot answer on the system bus")?;
        connection
            // Nobody waits until another one ends.
            .request_name_with_flags(NAME, fdo::RequestNameFlags::DO_NOT_QUEUE)
            .await
            .with_context(|| format!("cannot be called {NAME} on the system bus"))?;
        tell(NAME)?;
        let emitter = SignalEmitter::new(&connection, PATH).context("cannot send signals")?;
        tokio::select! {
            () = signals.come() => Ok(()),
            () = watch(&server, &emitter) => Ok(()),
        }
    });
    runtime.shutdown_background();
    done
}

/// Signals what is new.
async fn watch(server: &Server, emitter: &SignalEmitter<'_>) {
    let mut told = Told::default();
    let mut generation = None;
    let mut explain_at = Instant::now();
    loop {
        let view = server.archive.fresh().await;
        if Instant::now() >= explain_at && generation != Some(view.generation) {
            generation = Some(view.generation);
            let start = Instant::now();
            if let Ok(report) = server.recent(None, Duration::ZERO).await {
                if let Some((boot, offset)) = view.reader.clock_at(view.span.until) {
                    told.on_clock(boot, offset);
                }
                for message in messages::step(&mut told, &report, &SeriesSet::default(), false) {
                    let (event, id) = (message.event.name(), &message.id);
                    let (condition, title) = (&message.condition, &message.title);
                    if let Err(error) = Mitra::incident(emitter, event, id, condition, title).await {
                        log(&format!("a signal was not sent: {error}"));
                    }
                }
            }
            explain_at = start + EXPLAIN_EVERY.max(start.elapsed() * PAUSE_FACTOR);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

struct Mitra {
    server: Arc<Server>,
    /// Everybody may read the archive.
    is_public: bool,
    /// Of the archive.
    owner: u32,
}

#[interface(name = "org.mitra.Mitra1")]
impl Mitra {
    /// What is recorded: `/api/v1/recording`.
    async fn status(
        &self,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> fdo::Result<String> {
        self.allow(&header, connection).await?;
        Ok(api::recording(&*self.server.archive.fresh().await).to_string())
    }

    /// Incidents and findings of a range of time, by default of the last hour: `/api/v1/incidents`.
    async fn incidents(
        &self,
        since: &str,
        until: &str,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> fdo::Result<String> {
        Ok(incidents::list(&*self.report(since, until, &header, connection).await?).to_string())
    }

    /// The whole report: `/api/v1/report`.
    async fn explain(
        &self,
        since: &str,
        until: &str,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> fdo::Result<String> {
        let report = self.report(since, until, &header, connection).await?;
        serde_json::to_string(&*report).map_err(|error| fdo::Error::Failed(error.to_string()))
    }

    /// Has the recorder that started this arm a probe: `/api/v1/captures` by POST. A pid of 0 is the whole machine.
    async fn arm(
        &self,
        kind: &str,
        pid: u32,
        seconds: f64,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &Connection,
    ) -> fdo::Result<()> {
        let uid = self.authorized(ARM, "have probes armed", &header, connection).await?;
        let asks =
            self.server.asks.as_ref().ok_or_else(|| fdo::Error::NotSupported(NO_RECORDER.to_owned()))?;
        let pid = (pid != 0).then_some(pid);
        let interval_ns = self.server.archive.fresh().await.reader.interval_ns();
        asks.arm(kind, pid, seconds, format!("user {uid}"), interval_ns).await.map_err(failed)
    }

    /// The version of Mitra.
    #[zbus(property(emits_changed_signal = "const"))]
    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    /// An incident has begun, is explained in another way, or is over. Everybody hears it, so it names no process.
    #[zbus(signal)]
    async fn incident(
        emitter: &SignalEmitter<'_>,
        event: &str,
        id: &str,
        condition: &str,
        title: &str,
    ) -> zbus::Result<()>;
}

#[proxy(
    interface = "org.freedesktop.PolicyKit1.Authority",
    default_service = "org.freedesktop.PolicyKit1",
    default_path = "/org/freedesktop/PolicyKit1/Authority"
)]
trait Authority {
    async fn check_authorization(
        &self,
        subject: &(&str, HashMap<&str, Variant<'_>>),
        action_id: &str,
        details: &HashMap<&str, &str>,
        flags: u32,
        cancellation_id: &str,
    ) -> zbus::Result<(bool, bool, HashMap<String, String>)>;
}

impl Mitra {
    async fn report(
        &self,
        since: &str,
        until: &str,
        header: &Header<'_>,
        connection: &Connection,
    ) -> fdo::Result<Arc<Report>> {
        self.allow(header, connection).await?;
        self.server.report(&query(since, until), None).await.map_err(failed)
    }

    /// Whether who asks may read the archive.
    async fn allow(&self, header: &Header<'_>, connection: &Connection) -> fdo::Result<()> {
        if self.is_public {
            return Ok(());
        }
        self.authorized(READ, "read the recording", header, connection).await.map(drop)
    }

    /// The user who asks, if it is root, the owner of the archive, or one whom polkit lets do that.
    async fn authorized(
        &self,
        action: &str,
        what: &str,
        header: &Header<'_>,
        connection: &Connection,
    ) -> fdo::Result<u32> {
        const MAY_ASK_THE_USER: u32 = 1;
        let sender = header.sender().ok_or_else(|| fdo::Error::AccessDenied("nobody asks".to_owned()))?;
        let bus = fdo::DBusProxy::new(connection).await?;
        let uid = bus.get_connection_unix_user(sender.clone().into()).await?;
        if uid == 0 || uid == self.owner {
            return Ok(uid);
        }
        let denied = |why: &str| fdo::Error::AccessDenied(format!("user {uid} may not {what}: {why}"));
        let authority = AuthorityProxy::new(connection).await?;
        let subject = ("system-bus-name", HashMap::from([("name", Variant::from(sender.as_str()))]));
        match authority.check_authorization(&subject, action, &HashMap::new(), MAY_ASK_THE_USER, "").await {
            Ok((true, ..)) => Ok(uid),
            Ok(_) => Err(denied("polkit does not let it")),
            Err(error) => Err(denied(&format!("polkit does not answer: {error}"))),
        }
    }
}

fn query(since: &str, until: &str) -> Query {
    let given = [("since", since), ("until", until)].into_iter().filter(|(_, text)| !text.is_empty());
    let map: Map<String, Value> = given.map(|(name, text)| (name.to_owned(), text.into())).collect();
    Query::of(&map)
}

fn failed(failure: Failure) -> fdo::Error {
    if failure.status.is_server_error() {
        fdo::Error::Failed(failure.message)
    } else {
        fdo::Error::InvalidArgs(failure.message)
    }
}
