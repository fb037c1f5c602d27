//! Services of which each thread that works reads from a client of its own, and gets no whole request: clients keep all places, and the
//! others queue.

use std::collections::BTreeMap;

use mitra_model::Span;

use super::{
    ACCEPT, ELSEWHERE, FUTEX, Other, ROUNDED, THREADS_MIN, WAITS, Wait, blame, looked_at, sum, text_of,
    waits_of,
};
use crate::condition::Finding;
use crate::services::Servers;
use crate::view::View;
use crate::words;

const CLIENT: &str = "client";
/// Threads of a process that do not take requests, and those that end what takes too long.
const BESIDE: &[&str] = &[FUTEX, "timer"];
/// What is said of them.
const READS: &str = ", which has not sent a whole request";
const READ: &str = ", which have not sent a whole request";

/// The clients that a service reads from.
#[derive(Debug)]
pub struct Clients<'a> {
    /// How many threads read.
    pub threads: f64,
    /// `reads from a connection of asset-sync (4242), which has not sent a whole request`
    pub words: String,
    /// The process that all connections are of, where it does not pass on what others ask.
    only: Option<(u32, Option<&'a str>)>,
    row: &'a str,
}

/// Those of a service while something queues for it. `None` where a thread of it does anything else.
#[must_use]
pub fn clients<'a>(view: &View<'a>, servers: &Servers<'_, '_>, span: Span) -> Option<Clients<'a>> {
    let pids = looked_at(view, servers);
    let is_master = |pid: u32| servers.processes.iter().any(|p| p.ppid == Some(pid) && pids.contains(&p.pid));
    let mut readers: Vec<Wait<'a>> = Vec::new();
    for pid in &pids {
        let waits = waits_of(view.set, &[*pid], span);
        let (mut own, others): (Vec<_>, Vec<_>) =
            waits.into_iter().partition(|wait| wait.kind == CLIENT && wait.other != Other::Unknown);
        own.retain(|wait| wait.threads > 0.0);
        if own.is_empty() && is_master(*pid) {
            continue;
        }
        let accepts = others.iter().any(|wait| wait.kind == ACCEPT);
        let works = sum(others.iter().filter(|wait| !BESIDE.contains(&wait.kind)));
        if accepts || works > ELSEWHERE * sum(own.iter()) {
            return None;
        }
        readers.extend(own);
    }
    let threads = sum(readers.iter());
    let first = readers.iter().max_by(|a, b| a.threads.total_cmp(&b.threads))?;
    if threads < THREADS_MIN {
        return None;
    }
    let mut by_client: BTreeMap<String, f64> = BTreeMap::new();
    for wait in &readers {
        *by_client.entry(client(view, wait, span)?).or_default() += wait.threads;
    }
    let most = by_client.iter().max_by(|a, b| a.1.total_cmp(b.1))?.0;
    let read = match threads.round() {
        many if many > 1.0 => format!("each of its {} threads that work reads", words::count(many)),
        _ => "its only thread that works reads".to_owned(),
    };
    let words = match by_client.len() {
        1 => format!("{read} from a connection of {most}{READS}"),
        many => format!("{read} from one of {many} clients, {most} most of all{READ}"),
    };
    let process = first.other.process().filter(|_| by_client.len() == 1);
    let passes_on =
        |pid: u32| view.process(pid).is_some_and(|process| view.serving().of(view, process).is_some());
    let only = process.filter(|pid| !passes_on(*pid));
    let only = only.map(|pid| (pid, text_of(view.set, "wait.comm", first.row, span)));
    Some(Clients { threads, words, only, row: first.row })
}

/// A client by its process, or by the host that it is on.
fn client(view: &View<'_>, wait: &Wait<'_>, span: Span) -> Option<String> {
    match wait.other {
        Other::Process(pid) => Some(match text_of(view.set, "wait.comm", wait.row, span) {
            Some(comm) => format!("{comm} ({pid})"),
            None => format!("process {pid}"),
        }),
        Other::Address(address) => {
            Some(address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned())
        }
        _ => None,
    }
}

impl Clients<'_> {
    /// Says so in a finding about the service, and names the client where it is one: true.
    pub fn tell(self, view: &View<'_>, finding: &mut Finding, span: Span) -> bool {
        finding.remarks.push(self.words.clone());
        self.blame(view, finding, span)
    }

    /// The same where the statement has the words already.
    pub fn blame(self, view: &View<'_>, finding: &mut Finding, span: Span) -> bool {
        finding.prove(view, &[WAITS], self.row, span);
        finding.waits_for = Some(self.words);
        if let Some((pid, comm)) = self.only {
            blame(view, finding, pid, comm);
        }
        self.only.is_some()
    }
}

/// How many threads of a service wait for others of its own, where all do but those that wait to be asked: nothing outside can be what they
/// wait for. `None` where one does anything else, or it is not known what.
#[must_use]
pub fn of_own<'a>(view: &View<'a>, servers: &Servers<'_, '_>, span: Span) -> Option<f64> {
    let waits = waits_of(view.set, &looked_at(view, servers), span);
    let of = |kinds: &[&str]| sum(waits.iter().filter(|wait| kinds.contains(&wait.kind)));
    let (own, total) = (of(&[FUTEX]), sum(waits.iter()));
    let is_all = own + of(&[ACCEPT]) >= total - ROUNDED * waits.len() as f64;
    (own >= THREADS_MIN && is_all).then_some(own)
}

/// Whether a finding is about clients that keep a service waiting.
#[must_use]
pub fn are_slow(finding: &Finding) -> bool {
    finding.waits_for.as_deref().is_some_and(|words| words.ends_with(READS) || words.ends_with(READ))
}
