//! Which condition can cause which, put together from what each of them says. It has no cycles.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use mitra_model::Suspicion;

use crate::condition::{Effect, effect};
use crate::conditions;
use crate::settings::Feed;

/// One condition can bring about another.
#[derive(Debug, Clone, Copy)]
pub struct Edge {
    /// The id of the cause.
    pub cause: &'static str,
    /// The id of the effect.
    pub effect: &'static str,
    /// Why.
    pub because: &'static str,
    /// Whether the effect can be seen before the cause.
    pub any_order: bool,
    /// Whether it holds only within one process.
    pub same_process: bool,
    /// Or between one process and another that waits for it.
    pub or_who_asks: bool,
    /// Whether it holds only in one place.
    pub same_place: bool,
}

impl Edge {
    fn new(cause: &'static str, effect: Effect) -> Edge {
        let Effect { id, because, any_order, same_process, or_who_asks, same_place } = effect;
        Edge { cause, effect: id, because, any_order, same_process, or_who_asks, same_place }
    }
}

/// The condition that a change of a setting is.
pub const CHANGE: &str = "config-drift";

/// Every edge, by its cause.
#[must_use]
pub fn edges() -> &'static [Edge] {
    static EDGES: LazyLock<Vec<Edge>> = LazyLock::new(|| {
        let own = conditions().iter().flat_map(|c| c.causes.iter().map(|effect| Edge::new(c.id, *effect)));
        let fed = conditions().iter().filter(|c| !c.settings.list.is_empty()).map(|c| {
            let any_order = c.settings.any_order;
            Edge::new(CHANGE, Effect { any_order, ..effect(c.id, c.settings.because) })
        });
        own.chain(fed).collect()
    });
    &EDGES
}

/// Whether a state can bring about another one, in however many steps.
#[must_use]
pub fn leads_to(cause: &str, effect: &str) -> bool {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut stack: Vec<&str> = vec![cause];
    while let Some(id) = stack.pop() {
        let next = edges().iter().filter(|edge| edge.cause == id).map(|edge| edge.effect);
        stack.extend(next.filter(|id| seen.insert(id)));
    }
    seen.contains(effect)
}

/// Every setting with the states that its change can bring about.
#[must_use]
pub fn feeds() -> &'static [Feed] {
    static FEEDS: LazyLock<Vec<Feed>> = LazyLock::new(|| {
        let mut feeds: Vec<Feed> = Vec::new();
        for condition in conditions() {
            for setting in condition.settings.list {
                match feeds.iter_mut().find(|feed| feed.setting == *setting) {
                    Some(feed) => feed.effects.push(condition.id),
                    None => feeds.push(Feed { setting: *setting, effects: vec![condition.id] }),
                }
            }
        }
        feeds
    });
    &FEEDS
}

/// What the recorder suspects conditions by, in the order in which it does: at most one probe is armed at a time.
#[must_use]
pub fn suspicions() -> &'static [Suspicion] {
    static SUSPICIONS: LazyLock<Vec<Suspicion>> = LazyLock::new(|| {
        let of = |c: &'static crate::Condition| {
            c.suspicions.iter().map(|suspicion| Suspicion { suspects: c.id, ..*suspicion })
        };
        let mut all: Vec<Suspicion> = conditions().iter().flat_map(of).collect();
        all.sort_by_key(|suspicion| suspicion.rank);
        all
    });
    &SUSPICIONS
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Role;

    #[test]
    fn every_end_is_a_condition() {
        let known: BTreeSet<&str> = conditions().iter().map(|c| c.id).collect();
        for edge in edges() {
            assert!(known.contains(edge.cause), "{} is no condition", edge.cause);
            assert!(known.contains(edge.effect), "{} is no condition", edge.effect);
        }
    }

    #[test]
    fn there_are_no_cycles_and_no_doubles() {
        let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for edge in edges() {
            assert!(next.entry(edge.cause).or_default().insert(edge.effect), "{edge:?} stands twice");
        }
        for start in next.keys() {
            let mut seen = BTreeSet::new();
            let mut stack: Vec<&str> = next[start].iter().copied().collect();
            while let Some(id) = stack.pop() {
                assert_ne!(id, *start, "a cycle through {id}");
                if seen.insert(id) {
                    stack.extend(next.get(id).into_iter().flatten().copied());
                }
            }
        }
    }

    #[test]
    fn every_root_is_looked_at() {
        let is_triggered = |id: &str| conditions().iter().any(|c| c.id == id && !c.triggers.is_empty());
        for root in conditions().iter().filter(|c| c.role == Role::Root) {
            let mut seen = BTreeSet::from([root.id]);
            let mut stack = vec![root.id];
            while let Some(id) = stack.pop() {
                let next = edges().iter().filter(|e| e.cause == id).map(|e| e.effect);
                stack.extend(next.filter(|effect| seen.insert(effect)));
            }
            assert!(seen.iter().any(|id| is_triggered(id)), "{}", root.id);
        }
    }

    #[test]
    fn every_setting_has_a_metric_and_a_reason() {
        for condition in conditions() {
            let is_fed = !condition.settings.list.is_empty();
            assert_eq!(is_fed, !condition.settings.because.is_empty(), "{}", condition.id);
            for setting in condition.settings.list {
                assert!(mitra_model::lookup(setting.metric).is_some(), "{}", setting.metric);
            }
        }
    }

    #[test]
    fn each_suspicion_has_a_name_and_a_place_in_the_order_of_its_own() {
        let all = suspicions();
        let names: BTreeSet<&str> = all.iter().map(|s| s.name).collect();
        let ranks: BTreeSet<u32> = all.iter().map(|s| s.rank).collect();
        assert_eq!((names.len(), ranks.len()), (all.len(), all.len()));
    }
}
