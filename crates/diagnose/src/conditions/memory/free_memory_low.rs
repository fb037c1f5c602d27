//! Free memory is near the watermark at which kswapd wakes.
//!
//! A low free count is how a healthy machine looks after a while, because free memory is wasted memory. It is listed
//! as a link between what fills the memory and reclaim, and only when it fell against the baseline.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "free-memory-low",
    title: "free memory is used up",
    area: "memory",
    needs: &["mem.free", "zone.high", "mem.total"],
    observe,
    causes: &[effect("kswapd-scanning", "below the low watermark kswapd wakes")],
    settings: Settings::new("more memory has to stay free, or is set aside", settings::KEPT_FREE),
    source: include_str!("free_memory_low.rs"),
    ..Condition::MECHANISM
};

/// kswapd stops at the sum of the high watermarks; within twice that it will soon start.
const OF_HIGH: f64 = 2.0;

fn observe(view: &View<'_>) -> Observation {
    let Some(free) = view.system("mem.free") else { return Observation::needs(&["mem.free"]) };
    let high_pages: f64 = view.each("zone.high").filter_map(|(_, s)| s.last(Span::ALL)).sum();
    if high_pages <= 0.0 {
        return Observation::needs(&["zone.high"]);
    }
    let limit = high_pages * view.page_bytes() * OF_HIGH;
    let low = free.clone().map(|f| if f < limit { 1.0 } else { 0.0 });
    let least = free.v.iter().copied().fold(f64::INFINITY, f64::min);
    if view.before("mem.free", "").is_some_and(|before| before < limit) {
        return Observation::Inactive(format!("free memory was as low before: {}", words::bytes(least)));
    }
    match low.run(1.0, 1.0) {
        Some(run) => {
            let mut finding = view.finding(&run);
            finding.statement = format!(
                "free memory fell to {}, near the watermarks ({})",
                words::bytes(least),
                words::bytes(limit / OF_HIGH)
            );
            finding.evidence.push(view.evidence_of("mem.free", "", view.before("mem.free", ""), least));
            finding.active()
        }
        None => Observation::Inactive(format!(
            "free memory stayed above {}, far from the watermarks ({})",
            words::bytes(least),
            words::bytes(limit / OF_HIGH)
        )),
    }
}
