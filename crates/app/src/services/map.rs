//! Who calls whom: processes that do the same work are one caller. What a process calls that serves two ports stands under both.

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::Latency;

use super::Services;

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// By index.
    Service(usize),
    /// Processes that are no service of this machine: their name and group.
    Processes(String, Option<String>),
    /// Clients that are not on this machine, or were not seen.
    Elsewhere,
}

/// One line of the map.
#[derive(Debug, Clone)]
pub struct Edge {
    pub from: Caller,
    /// The index of the service that is called.
    pub to: Option<usize>,
    /// The address that is called, or of the service if nobody here calls it.
    pub called: String,
    /// The processes that call.
    pub pids: BTreeSet<u32>,
    /// Per second.
    pub requests: Option<f64>,
    pub latency: Latency,
    pub waiting: Option<f64>,
    /// Attempts to connect that failed, per second.
    pub connect_failed: Option<f64>,
    /// Attempts to connect that nobody has answered yet.
    pub connecting: Option<f64>,
}

/// All of them, the longest waits first.
#[derive(Debug, Clone, Default)]
pub struct Map {
    pub edges: Vec<Edge>,
}

/// Requests that callers on this machine do not explain, as a share: below it they are differences of measuring.
const ELSEWHERE_SHARE: f64 = 0.1;

impl Map {
    pub fn of(services: &Services) -> Map {
        let mut edges: BTreeMap<(Caller, Option<usize>, String), Edge> = BTreeMap::new();
        for dependency in services.dependencies.iter().filter(|dependency| !dependency.is_idle()) {
            let mut callers: Vec<Caller> = dependency.of.iter().map(|i| Caller::Service(*i)).collect();
            if callers.is_empty() {
                callers.push(Caller::Processes(dependency.name.clone(), dependency.cgroup.clone()));
            }
            for from in callers {
                // A service on this machine is one target, by whatever address it is called.
                let target = if dependency.to.is_some() { String::new() } else { dependency.called.clone() };
                let edge = edges.entry((from.clone(), dependency.to, target)).or_insert_with(|| Edge {
                    from,
                    to: dependency.to,
                    called: dependency.called.clone(),
                    pids: BTreeSet::new(),
                    requests: None,
                    latency: Latency::default(),
                    waiting: None,
                    connect_failed: None,
                    connecting: None,
                });
                edge.pids.extend(dependency.pid);
                edge.latency.merge(&dependency.traffic.latency);
                add(&mut edge.requests, dependency.traffic.requests);
                add(&mut edge.waiting, dependency.traffic.waiting);
                add(&mut edge.connect_failed, dependency.connect_failed);
                add(&mut edge.connecting, dependency.connecting);
            }
        }
        let mut edges: Vec<Edge> = edges.into_values().collect();
        edges.extend(elsewhere(services));
        edges.sort_by(|a, b| b.waiting.unwrap_or(0.0).total_cmp(&a.waiting.unwrap_or(0.0)));
        Map { edges }
    }

    /// What somebody calls.
    pub fn from(&self, caller: &Caller) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(move |edge| edge.from == *caller)
    }

    /// Callers that nobody calls themselves, in the order of their edges. Where services call each other in a circle, the
    /// first one of it too.
    pub fn roots(&self) -> Vec<Caller> {
        let mut roots: Vec<Caller> = Vec::new();
        for edge in self.edges.iter().filter(|edge| !matches!(edge.from, Caller::Service(_))) {
            if !roots.contains(&edge.from) {
                roots.push(edge.from.clone());
            }
        }
        let mut reached: BTreeSet<usize> = BTreeSet::new();
        roots.iter().for_each(|root| self.reach(root, &mut reached));
        for edge in &self.edges {
            if let Caller::Service(of) = edge.from
                && !reached.contains(&of)
            {
                reached.insert(of);
                self.reach(&edge.from, &mut reached);
                roots.push(edge.from.clone());
            }
        }
        roots
    }

    fn reach(&self, from: &Caller, reached: &mut BTreeSet<usize>) {
        let mut next = vec![from.clone()];
        while let Some(caller) = next.pop() {
            let new = self.from(&caller).filter_map(|edge| edge.to).filter(|to| reached.insert(*to));
            next.extend(new.map(Caller::Service));
        }
    }

    /// Only what leads to these services, and what these lead to.
    pub fn around(mut self, chosen: &[usize]) -> Map {
        let mut below: BTreeSet<usize> = chosen.iter().copied().collect();
        chosen.iter().for_each(|i| self.reach(&Caller::Service(*i), &mut below));
        let mut above: BTreeSet<usize> = chosen.iter().copied().collect();
        loop {
            let new: Vec<usize> = self
                .edges
                .iter()
                .filter(|edge| edge.to.is_some_and(|to| above.contains(&to)))
                .filter_map(|edge| if let Caller::Service(of) = edge.from { Some(of) } else { None })
                .filter(|of| !above.contains(of))
                .collect();
            if new.is_empty() {
                break;
            }
            above.extend(new);
        }
        self.edges.retain(|edge| {
            let is_below = matches!(edge.from, Caller::Service(of) if below.contains(&of));
            is_below || edge.to.is_some_and(|to| above.contains(&to))
        });
        self
    }
}

fn add(sum: &mut Option<f64>, more: Option<f64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0.0) + more);
    }
}

/// Requests that nobody on this machine made.
fn elsewhere(services: &Services) -> Vec<Edge> {
    let mut here = vec![0.0; services.services.len()];
    for dependency in &services.dependencies {
        if let Some(to) = dependency.to {
            here[to] += dependency.traffic.requests.unwrap_or(0.0);
        }
    }
    let mut edges = Vec::new();
    for (to, (service, here)) in services.services.iter().zip(here).enumerate() {
        let all = service.traffic.requests.unwrap_or(0.0);
        let rest = (all - here).max(0.0);
        if service.is_idle() || here > 0.0 && rest <= all * ELSEWHERE_SHARE {
            continue;
        }
        let share = if all > 0.0 { rest / all } else { 1.0 };
        edges.push(Edge {
            from: Caller::Elsewhere,
            to: Some(to),
            called: service.key.clone(),
            pids: BTreeSet::new(),
            requests: service.traffic.requests.map(|_| rest),
            latency: service.traffic.latency.clone(),
            waiting: service.traffic.waiting.map(|waiting| waiting * share),
            connect_failed: None,
            connecting: None,
        });
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    fn said(services: &Services, map: &Map) -> Vec<String> {
        let name = |i: usize| services.services[i].key.clone();
        let line = |edge: &Edge| {
            let from = match &edge.from {
                Caller::Service(i) => name(*i),
                Caller::Processes(process, _) => format!("{process} x{}", edge.pids.len()),
                Caller::Elsewhere => "elsewhere".to_owned(),
            };
            format!("{from} > {}", edge.to.map_or_else(|| edge.called.clone(), name))
        };
        let mut lines: Vec<String> = map.edges.iter().map(line).collect();
        lines.sort();
        lines
    }

    #[test]
    fn callers_are_joined_and_followed_through_this_machine() {
        let services = example::services();
        let map = Map::of(&services);
        assert_eq!(
            said(&services, &map),
            [
                "0.0.0.0:80 > 127.0.0.1:8080",
                "127.0.0.1:8080 > 10.0.0.7:5432",
                "127.0.0.1:8080 > 10.0.0.9:9200",
                "127.0.0.1:8080 > unix:/run/cache.sock",
                "ab x2 > 0.0.0.0:80",
                "curl x0 > 0.0.0.0:80",
                "elsewhere > 0.0.0.0:80",
                "unix:/run/cache.sock > 0.0.0.0:80",
            ]
        );
        let processes = Caller::Processes("ab".into(), Some("/user.slice".into()));
        let roots = map.roots();
        assert!(
            roots.len() == 3 && roots.contains(&processes) && roots.contains(&Caller::Elsewhere),
            "{roots:?}"
        );
    }

    #[test]
    fn a_circle_has_a_beginning() {
        let services = example::services();
        let mut map = Map::of(&services);
        map.edges.retain(|edge| matches!(edge.from, Caller::Service(_)));
        assert_eq!(map.roots().len(), 1);
    }

    #[test]
    fn the_surroundings_of_a_service() {
        let services = example::services();
        let cache = services.services.iter().position(|s| s.name == "cached").unwrap();
        let mut map = Map::of(&services);
        // Without the circle.
        map.edges.retain(|edge| edge.from != Caller::Service(cache));
        let lines = said(&services, &map.around(&[cache]));
        assert_eq!(
            lines,
            [
                "0.0.0.0:80 > 127.0.0.1:8080",
                "127.0.0.1:8080 > unix:/run/cache.sock",
                "ab x2 > 0.0.0.0:80",
                "curl x0 > 0.0.0.0:80",
                "elsewhere > 0.0.0.0:80",
            ]
        );
    }
}
