//! The blocks that a runtime asks for are larger than its allocator packs together, so each is mapped and unmapped by
//! itself.
//!
//! Erlang's allocators put blocks into carriers: small blocks share a multi-block carrier, a block above the single-block
//! carrier threshold (`sbct`, 512 KiB by default) gets one of its own. A freed carrier goes to a small cache or back to
//! the kernel. When most heaps are above the threshold, each collection maps and unmaps megabytes: page faults by the
//! hundred thousand. The ratio of single-block to multi-block carriers (`recon_alloc:sbcs_to_mbcs`) of a fitting
//! allocator is far below one.

use crate::faults::{self, MISFIT, Misfit};
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "allocator-carrier-misfit",
    title: "an allocator maps each block separately",
    area: "faults and locks",
    needs: &[
        "allocator.sbcs_to_mbcs",
        "allocator.hit_rate",
        "allocator.sbcs_blocks",
        "allocator.sbcs_blocks_bytes",
        "allocator.mbcs_blocks",
        "allocator.sbct_bytes",
        "task.minflt",
        "task.rss_anon",
        "vm.pgfault",
    ],
    observe,
    causes: &[
        explains("minor-fault-storm", "each separately mapped block is touched page by page"),
        explains("mmap-lock-contention", "each map and unmap takes the lock for writing"),
        explains("cpu-hog", "the CPU goes into faults and into the maps of the blocks"),
    ],
    remedies_of: remedies,
    next_of: next,
    source: include_str!("allocator_carrier_misfit.rs"),
    ..Condition::ROOT
};

/// `sbct` where it is not set (erts_alloc).
const SBCT_DEFAULT: f64 = 524_288.0;

fn observe(view: &View<'_>) -> Observation {
    let known = view.each("allocator.sbcs_to_mbcs").filter_map(|(_, s)| s.last(Span::ALL)).reduce(f64::max);
    match (faults::worst_allocator(view), oversized(view)) {
        (Some(misfit), blocks) => finding(view, &misfit, blocks.as_ref()).active(),
        (None, Some(blocks)) if known.is_none() && blocks.mean > blocks.threshold => {
            let misfit = Misfit { name: blocks.name.clone(), ratio: f64::NAN, others: None };
            finding(view, &misfit, Some(&blocks)).active()
        }
        (None, _) => match known {
            Some(ratio) => Observation::Inactive(format!(
                "single-block carriers for each multi-block one: {ratio:.3} at most"
            )),
            None if !view.is_case => live(view),
            None => Observation::cannot_tell(
                "carriers of the runtime's allocators: recon_alloc:sbcs_to_mbcs(current)",
            ),
        },
    }
}

/// The runtime whose allocators map large blocks one by one, by the names of its process.
const RUN_TIMES: &[&str] = &["beam.smp", "beam"];
/// Two hundred megabytes are mapped, cleared and given back each second, a tenth of a CPU. Less than of any other program's
/// faults is enough, since the allocators of a runtime are made to keep what it needs again.
const FAULTS_S: f64 = 50_000.0;

/// In a recording: the runtime's process faults by the hundred thousand and does not grow, so what it touches is unmapped
/// again; of its allocators only the single-block carriers do that.
fn live(view: &View<'_>) -> Observation {
    let needs = "carriers of the runtime's allocators: recon_alloc:sbcs_to_mbcs(current)";
    let Some(high) = faults::storm_above(view, FAULTS_S) else {
        return Observation::cannot_tell(needs);
    };
    let span = high.run.span();
    let tops = process::ranking(view.processes(), span, |p| p.total(view.set, "task.minflt", span));
    let Some(top) = tops.first().filter(|t| t.share >= MISFIT && RUN_TIMES.contains(&t.comm)) else {
        return Observation::cannot_tell(needs);
    };
    let Some(held) = Signal::sum(top.lead.series(view.set, "task.rss_anon"), span) else {
        return Observation::cannot_tell(needs);
    };
    let grown = held.v.last().copied().unwrap_or(0.0) - held.v.first().copied().unwrap_or(0.0);
    if grown > faults::KEPT_SHARE * top.total {
        return Observation::Inactive(format!("{} keeps what it touches: it grows", top.words()));
    }
    let mut finding = view.finding(&high.run);
    finding.blame_pid(top.comm, top.pid());
    finding.statement = format!(
        "{} touches {} new pages a second and gives them back, {} in all while it grew by {}: of its allocators, which keep \
         what they need again, only the carriers of single large blocks do that",
        top.words(),
        words::count(top.rate),
        words::bytes(top.total * view.page_bytes()),
        words::bytes((grown * view.page_bytes()).max(0.0))
    );
    finding.evidence.push(view.task_evidence("task.minflt", &top.lead, None, top.rate, span));
    finding.evidence.extend(view.evidence("vm.pgfault", "", span));
    finding.remarks.push(format!("which allocator it is was not measured; it would take {needs}"));
    finding.confidence = 0.65;
    finding.active()
}

/// Blocks that have carriers of their own.
struct Blocks {
    name: String,
    mean: f64,
    threshold: f64,
}

/// The allocator with most bytes in single-block carriers.
fn oversized(view: &View<'_>) -> Option<Blocks> {
    let (name, bytes) = view
        .each("allocator.sbcs_blocks_bytes")
        .filter_map(|(name, s)| Some((name, s.last(Span::ALL)?)))
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let blocks = view.reading("allocator.sbcs_blocks", name).filter(|b| *b > 0.0)?;
    let shared = view.reading("allocator.mbcs_blocks", name).unwrap_or(0.0);
    let threshold = view.reading("allocator.sbct_bytes", name).unwrap_or(SBCT_DEFAULT);
    // Half of the blocks or more are mapped by themselves.
    (blocks >= MISFIT * shared).then(|| Blocks {
        name: name.to_owned(),
        mean: (bytes / blocks).floor(),
        threshold,
    })
}

fn finding(view: &View<'_>, misfit: &Misfit, blocks: Option<&Blocks>) -> Finding {
    let series = view.set.get("allocator.sbcs_to_mbcs", &misfit.name);
    let at = series.and_then(|s| s.axis.t.last().copied()).unwrap_or(mitra_model::Era::Fact.zero());
    let mut finding = view.finding_at(at);
    finding.culprit.allocator = Some(misfit.name.clone());
    let mut parts: Vec<String> = Vec::new();
    if misfit.ratio.is_finite() {
        let others =
            misfit.others.map(|o| format!(" where the other instances have {o:.3}")).unwrap_or_default();
        parts.push(format!("{:.3} single-block carriers for each multi-block one{others}", misfit.ratio));
    }
    finding.evidence.extend(view.reading_evidence("allocator.sbcs_to_mbcs", &misfit.name));
    if let Some(next) = runner_up(view, "allocator.sbcs_to_mbcs", &misfit.name, true) {
        finding.evidence.push(next);
    }
    finding.confidence = 0.7;
    if let Some(text) = hit_rate(view, &mut finding) {
        parts.push(text);
        finding.confidence += 0.1;
    }
    match blocks {
        Some(b) if b.mean > b.threshold => {
            parts.push(format!(
                "its single-block carriers hold blocks of {:.0} bytes on average, over the threshold of {:.0}",
                b.mean, b.threshold
            ));
            let mut quotes = Vec::new();
            for metric in ["allocator.sbcs_blocks_bytes", "allocator.sbcs_blocks"] {
                if let Some(evidence) = view.reading_evidence(metric, &b.name) {
                    quotes.extend(evidence.quotes.iter().cloned());
                    finding.evidence.push(evidence);
                }
            }
            finding.evidence.push(Evidence {
                metric: "allocator.sbcs_blocks_bytes / allocator.sbcs_blocks".to_owned(),
                entity: b.name.clone(),
                during: b.mean,
                unit: "bytes".to_owned(),
                quotes,
                ..Evidence::default()
            });
            finding.remarks.push(advice(b.mean));
            finding.confidence += 0.1;
        }
        _ => {}
    }
    finding.statement = format!("{} does not fit its load: {}", misfit.name, parts.join("; "));
    finding
}

/// The next in line of a metric, to show what is usual.
fn runner_up(view: &View<'_>, metric: &str, worst: &str, highest: bool) -> Option<Evidence> {
    let others =
        view.each(metric).filter(|(n, _)| *n != worst).filter_map(|(n, s)| Some((n, s.last(Span::ALL)?)));
    let sign = if highest { 1.0 } else { -1.0 };
    let (name, _) = others.max_by(|a, b| (sign * a.1).total_cmp(&(sign * b.1)))?;
    view.reading_evidence(metric, name)
}

/// The instance whose freed carriers are found again least often.
fn hit_rate(view: &View<'_>, finding: &mut Finding) -> Option<String> {
    let mut all: Vec<(&str, f64)> =
        view.each("allocator.hit_rate").filter_map(|(n, s)| Some((n, s.last(Span::ALL)?))).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (name, least) = *all.first()?;
    let next = all.get(1).map(|(_, r)| *r);
    // Misses count: the worst misses twice as often as the next.
    if next.is_some_and(|next| 1.0 - least < 2.0 * (1.0 - next)) {
        return None;
    }
    finding.evidence.extend(view.reading_evidence("allocator.hit_rate", name));
    finding.evidence.extend(runner_up(view, "allocator.hit_rate", name, false));
    let others = next.map(|n| format!(" where others find {n:.3}")).unwrap_or_default();
    Some(format!("{name} finds {least:.3} of its carriers in the cache of freed ones{others}"))
}

/// Next power of two, in KiB, of blocks of some bytes.
fn threshold_kib(mean: f64) -> u64 {
    let mut kib = 512;
    while (kib as f64) * 1024.0 < mean && kib < 1 << 24 {
        kib *= 2;
    }
    kib
}

/// The three settings belong together: the multi-block carriers have to be large enough for several of the blocks that
/// they are now to hold (erts_alloc: the largest ten times, the smallest half of the threshold).
fn advice(mean: f64) -> String {
    let sbct = threshold_kib(mean);
    format!(
        "raise sbct above the mean block ({sbct} KB), and in the same step smbcs to {} KB and lmbcs to {} KB; then measure \
         again",
        sbct / 2,
        sbct * 10
    )
}

/// The letter by which the emulator's flags name an allocator.
fn letter(allocator: &str) -> char {
    match allocator.split('_').next().unwrap_or_default() {
        "binary" => 'B',
        "std" => 'D',
        "ets" => 'E',
        "fix" => 'F',
        "literal" => 'I',
        "ll" => 'L',
        "driver" => 'R',
        "sl" => 'S',
        "temp" => 'T',
        _ => 'H',
    }
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let name = finding.culprit.allocator.as_deref().unwrap_or("eheap_alloc");
    let mean = finding.evidence.iter().find(|e| e.metric.contains(" / ")).map(|e| e.during);
    let sbct = threshold_kib(mean.unwrap_or(SBCT_DEFAULT * 2.0));
    let m = letter(name);
    vec![Remedy {
        action: match mean {
            Some(mean) => advice(mean),
            None => {
                format!("raise the single-block carrier threshold of {name} above the size of its blocks")
            }
        },
        command: format!("erl +M{m}sbct {sbct} +M{m}smbcs {} +M{m}lmbcs {}", sbct / 2, sbct * 10),
        verify: "recon_alloc:sbcs_to_mbcs(current): below 0.1; sar -B 1: fault/s falls".to_owned(),
        risk: format!(
            "more memory is held: carriers of up to {} are kept",
            words::bytes(sbct as f64 * 10_240.0)
        ),
    }]
}

fn next(finding: &Finding) -> Vec<Next> {
    if finding.evidence.iter().any(|e| e.metric.contains(" / ")) {
        return Vec::new();
    }
    vec![to_measure(
        "how large the blocks in single-block carriers are".to_owned(),
        "recon_alloc:average_block_sizes(current)".to_owned(),
    )]
}
