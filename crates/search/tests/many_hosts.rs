//! The day of a fleet against two nodes, which are restarted one after the other and then both at once: every document
//! and every change is there once, and hosts act at moments of their own.

mod agents;
mod engine;

use std::time::{Duration, Instant};

use agents::{Fleet, Shape};
use engine::Engine;

const HOSTS: usize = 200;
const SECONDS: u64 = 80;
const SPREAD_S: u64 = 6 * 3_600;
const FREQUENCY_S: u64 = 3_600;
const BINS: usize = 12;

/// The largest number of hosts in one of the bins of the spread.
fn busiest(times_ns: &[i64]) -> usize {
    let mut bins = [0; BINS + 1];
    for ns in times_ns {
        let at = ns.max(&0).unsigned_abs() as usize * BINS / (SPREAD_S as usize * 1_000_000_000);
        bins[at.min(BINS)] += 1;
    }
    bins.into_iter().max().unwrap_or(0)
}

#[test]
#[ignore = "starts an OpenSearch: make test-search"]
fn an_opensearch_has_the_day_of_a_fleet_once() {
    let Some(engine) = Engine::start(2) else { return };
    let both = engine.ports.clone();
    let [leader, other] = both[..] else { panic!("two nodes") };
    let mut settings = engine.settings("agents_");
    // A day passes in little more than a minute.
    settings.rest_max = Duration::from_secs(5);
    let shape = Shape {
        group: "agent".to_owned(),
        hosts: HOSTS,
        files: 28,
        seconds: SECONDS,
        frequency_s: FREQUENCY_S,
        spread_s: SPREAD_S,
    };
    let fleet = Fleet::new(shape, settings, engine.dir()).expect("hosts");
    let began = Instant::now();
    let until = |share: u64| {
        let at = Duration::from_secs(SECONDS * share / 100);
        std::thread::sleep(at.saturating_sub(began.elapsed()));
    };
    let (outcome, waited) = std::thread::scope(|scope| {
        let lived = scope.spawn(|| fleet.live());
        until(15);
        for port in [other, leader] {
            engine.stop(port);
            engine.start_again(&[port]);
            engine.raw("GET", "/_cluster/health?wait_for_status=green&timeout=30s", "");
        }
        until(80);
        engine.stop(other);
        engine.stop(leader);
        let patient = Instant::now() + Duration::from_secs(20);
        while fleet.waiting() == 0 && Instant::now() < patient {
            std::thread::sleep(Duration::from_millis(50));
        }
        let waited = fleet.waiting();
        engine.start_again(&[leader, other]);
        (lived.join().expect("a day"), waited)
    });
    let checked = fleet.check().expect("an answer");
    eprintln!(
        "{checked:?}; a step was {:?} late, {} bytes waited, {:?} until all was delivered; {:?} documents in each second",
        outcome.late, outcome.waited_bytes, outcome.flushed, outcome.per_second
    );
    // Two days of at least 28 files and two lists.
    assert_eq!(checked.documents, (2 * HOSTS * 30) as u64);
    assert_eq!((checked.lost, checked.doubled, checked.stale), (0, 0, 0), "{:?}", checked.examples);
    // Three in a hundred files change.
    assert!((50..400).contains(&checked.changes), "{} changes", checked.changes);
    assert_eq!((checked.changes_lost, checked.changes_doubled), (0, 0), "{:?}", checked.examples);
    assert!(waited > 0, "nothing waited while the cluster was away");
    // Starts are within seconds here, in which the cluster makes its indices: only that every host began is looked at.
    assert_eq!((outcome.starts_ns.len(), outcome.fills_ns.len()), (HOSTS, HOSTS));
    // Poisson's distribution with a mean of 16.7: one time in a million, of 12, has more.
    let fills = busiest(&outcome.fills_ns);
    assert!(fills <= 42, "{fills} hosts filled the day in a twelfth of the time");
}
