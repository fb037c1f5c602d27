//! Saying what is fine: areas whose numbers were there and unremarkable.

use mitra_model::report::Incident;
use mitra_model::{Series, SeriesSet, Span};

use crate::services::SERVED;
use crate::trigger::{Signals, Trigger};
use crate::{conditions, network};

/// One area: it is healthy when all of its metrics that exist stayed below their limits.
struct Area {
    name: &'static str,
    /// Metric and the mean rate per second (per CPU where that is said) from which on it is worth a word.
    limits: &'static [(&'static str, f64)],
    per_cpu: bool,
    /// Conditions about it that belong to another area.
    conditions: &'static [&'static str],
}

const AREAS: &[Area] = &[
    // Not even four pages a second.
    Area {
        name: "swap",
        limits: &[("vm.pswpin", 4.0), ("vm.pswpout", 4.0)],
        per_cpu: false,
        conditions: &[],
    },
    // Any drop or overflow is worth a word; a few retransmits a second are the internet.
    Area {
        name: "network",
        limits: &[
            ("tcp.RetransSegs", 10.0),
            ("tcpext.ListenOverflows", 0.01),
            ("tcpext.TCPAbortOnMemory", 0.01),
            ("udp.RcvbufErrors", 0.01),
        ],
        per_cpu: false,
        conditions: &[],
    },
    // One hundredth of a CPU.
    Area { name: "cpu-steal", limits: &[("sys.cpu_steal", 0.01)], per_cpu: true, conditions: &["cpu-steal"] },
    Area {
        name: "cpu",
        limits: &[("psi.cpu_some", 0.2), ("tasks.run_delay", 0.3)],
        per_cpu: false,
        conditions: &[],
    },
    Area {
        name: "disk",
        limits: &[("psi.io_some", 0.1), ("tasks.d_io", 0.5)],
        per_cpu: false,
        conditions: &[],
    },
    Area {
        name: "memory",
        limits: &[
            ("psi.memory_some", 0.01),
            ("vm.pgscan_direct", 10.0),
            ("vm.pgscan_kswapd", 1000.0),
            ("vm.oom_kill", 1e-9),
        ],
        per_cpu: false,
        conditions: &[],
    },
    Area {
        name: "interrupts",
        limits: &[("sys.cpu_softirq", 0.1), ("sys.cpu_irq", 0.1)],
        per_cpu: true,
        conditions: &["interrupt-imbalance"],
    },
];

/// The metrics that the areas need.
pub fn metrics() -> impl Iterator<Item = &'static str> {
    let own = || AREAS.iter().flat_map(|a| a.limits.iter().map(|(metric, _)| *metric));
    own().chain(own().filter_map(network::elsewhere))
}

/// A metric of the machine, and of the network namespaces where it has one in each.
fn series<'a>(set: &'a SeriesSet, metric: &str) -> impl Iterator<Item = &'a Series> {
    let elsewhere = network::elsewhere(metric).into_iter().flat_map(|m| set.each(m)).map(|(_, s)| s);
    set.system(metric).into_iter().chain(elsewhere)
}

/// The areas that were checked and are fine. One whose numbers are all missing was not checked, and one that has a part in
/// an incident is not fine, however short that was.
pub fn healthy(set: &SeriesSet, span: Span, incidents: &[Incident]) -> Vec<String> {
    let cpus = f64::from(set.host.cpus.max(1));
    let fine = |area: &&Area| {
        let scale = if area.per_cpu { cpus } else { 1.0 };
        let means: Vec<(f64, f64)> = area
            .limits
            .iter()
            .flat_map(|(metric, limit)| series(set, metric).map(move |s| (s.mean(span), limit * scale)))
            .filter_map(|(mean, limit)| Some((mean?, limit)))
            .collect();
        !means.is_empty() && means.iter().all(|(mean, limit)| mean < limit)
    };
    let is_touched = |area: &Area| incidents.iter().any(|incident| is_touched(area.name, incident));
    AREAS.iter().filter(fine).filter(|a| !is_touched(a)).map(|a| a.name.to_owned()).collect()
}

/// Whether an area has a part in an incident: a condition of the chain, or another root, is about it.
pub fn is_touched(area: &str, incident: &Incident) -> bool {
    let also = AREAS.iter().find(|a| a.name == area).map_or(&[][..], |a| a.conditions);
    let is_about = |id: &str| also.contains(&id) || conditions().iter().any(|c| c.id == id && c.area == area);
    let roots = std::iter::once(&incident.root_cause).chain(&incident.other_roots);
    roots
        .map(|root| &root.condition)
        .chain(incident.chain.iter().map(|link| &link.condition))
        .any(|id| is_about(id))
}

/// What of services is fine, if they were asked often enough to tell, none of their conditions has a part in an incident, and
/// nothing of them was worth a look.
pub fn healthy_services(set: &SeriesSet, span: Span, incidents: &[Incident]) -> Option<String> {
    let is_touched = |incident: &Incident| is_touched(SERVICE, incident);
    let answered: f64 =
        set.each("service.requests").filter_map(|(_, requests)| requests.total(span)).fold(0.0, |a, b| a + b);
    let is_seen = |signals: &Signals| {
        (signals.find)(set, span).iter().any(|signal| signal.run(1.0, signals.need_s).is_some())
    };
    let of_services = || conditions().iter().filter(|c| c.area == SERVICE).flat_map(|c| c.triggers);
    let is_noticed =
        || of_services().any(|trigger| matches!(trigger, Trigger::Signals(signals) if is_seen(signals)));
    let is_fine = answered >= SERVED && !incidents.iter().any(is_touched) && !is_noticed();
    is_fine.then(|| "services".to_owned())
}

/// The area of their conditions.
const SERVICE: &str = "service";
