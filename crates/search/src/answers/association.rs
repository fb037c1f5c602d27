//! Whether a property goes with an illness: the 2×2 table of hosts, its odds ratio, Fisher's exact
//! test, and what is left after a correction for the number of candidates.
//!
//! ```text
//!               has it   lacks it
//! ill hosts       30          0      odds ratio (30.5 × 170.5) / (0.5 × 0.5)
//! well hosts       0        170      P(30 or more by chance)  2.6e-36
//! ```
//!
//! The test is one-sided, because a cause is more frequent among ill hosts. The correction is
//! Bonferroni's and not Benjamini and Hochberg's: what one deployment changed is one event under
//! many names, so the tests depend on each other in an unknown way, and one wrong name costs an
//! operator a night. It divides by the candidates that could be significant at all (Tarone 1990),
//! because a value that one host has can never be.

use std::collections::BTreeMap;

use serde::Serialize;

/// The chance that an analysis names anything if nothing is shared. Whoever asks about the twenty roots of a week gets a false name in one
/// week of fifty; of a hundredth it would be one week of six.
pub const LEVEL: f64 = 0.001;
/// With fewer ill or well hosts nothing can be said to be shared.
pub const HOSTS_MIN: u64 = 3;
/// Changes of one host within this time are one deployment.
const TOGETHER_NS: i64 = 600_000_000_000;

/// How many hosts have a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Table {
    /// Ill hosts that have it.
    pub ill_with: u64,
    /// All ill hosts of which it is known whether they have it.
    pub ill: u64,
    /// Well hosts that have it.
    pub well_with: u64,
    /// All well hosts of which it is known whether they have it.
    pub well: u64,
}

impl Table {
    /// The odds ratio with half a host added to each cell (Haldane and Anscombe), so that it is
    /// finite if a cell is empty.
    #[must_use]
    pub fn odds_ratio(&self) -> f64 {
        let half = |hosts: u64| hosts as f64 + 0.5;
        let (ill_lack, well_lack) =
            (self.ill.saturating_sub(self.ill_with), self.well.saturating_sub(self.well_with));
        half(self.ill_with) * half(well_lack) / (half(ill_lack) * half(self.well_with))
    }

    /// All hosts that have it.
    fn with(&self) -> u64 {
        self.ill_with.saturating_add(self.well_with)
    }
}

/// Fisher's exact test for fleets up to a size. It holds the logarithms of the factorials.
pub struct Fisher {
    ln_factorial: Vec<f64>,
}

impl Fisher {
    /// For at most this many hosts.
    #[must_use]
    pub fn up_to(hosts: u64) -> Self {
        let mut ln_factorial = Vec::with_capacity(usize::try_from(hosts).unwrap_or(0).saturating_add(1));
        // Compensated (Neumaier), so that the last of 60,000 sums is as exact as the first.
        let (mut sum, mut lost) = (0.0_f64, 0.0_f64);
        ln_factorial.push(0.0);
        for n in 1..=hosts {
            let term = (n as f64).ln();
            let next = sum + term;
            lost += if sum.abs() >= term.abs() { (sum - next) + term } else { (term - next) + sum };
            sum = next;
            ln_factorial.push(sum + lost);
        }
        Self { ln_factorial }
    }

    fn ln_choose(&self, n: u64, k: u64) -> f64 {
        let of = |n: u64| {
            usize::try_from(n).ok().and_then(|n| self.ln_factorial.get(n)).copied().unwrap_or(f64::NAN)
        };
        of(n) - of(k) - of(n.saturating_sub(k))
    }

    /// The chance that at least so many ill hosts have the property, if it had nothing to do with
    /// the illness: the upper tail of the hypergeometric distribution. NaN if the table is larger
    /// than this was made for, or contradicts itself.
    #[must_use]
    pub fn p(&self, table: &Table) -> f64 {
        if table.ill_with > table.ill || table.well_with > table.well {
            return f64::NAN;
        }
        let (with, all) = (table.with(), table.ill.saturating_add(table.well));
        // Both tails are added up away from the mean, so that the terms fall.
        if u128::from(table.ill_with) * u128::from(all) > u128::from(table.ill) * u128::from(with) {
            self.upper_tail(table)
        } else {
            1.0 - self.lower_tail(table)
        }
    }

    /// The chance of exactly this table.
    fn chance(&self, table: &Table) -> f64 {
        let (with, all) = (table.with(), table.ill.saturating_add(table.well));
        (self.ln_choose(table.ill, table.ill_with) + self.ln_choose(table.well, table.well_with)
            - self.ln_choose(all, with))
        .exp()
    }

    /// The chance of this table or one with more ill hosts that have it.
    fn upper_tail(&self, table: &Table) -> f64 {
        let mut term = self.chance(table);
        let (mut sum, mut t) = (term, *table);
        while t.ill_with < t.ill && t.well_with > 0 && term > sum * f64::EPSILON {
            let up = (t.ill - t.ill_with) as f64 * t.well_with as f64;
            t.ill_with += 1;
            t.well_with -= 1;
            term *= up / (t.ill_with as f64 * (t.well - t.well_with) as f64);
            sum += term;
        }
        sum.min(1.0)
    }

    /// The chance of a table with fewer ill hosts that have it.
    fn lower_tail(&self, table: &Table) -> f64 {
        let (mut term, mut sum, mut t) = (self.chance(table), 0.0, *table);
        while t.ill_with > 0 && t.well_with < t.well && term > sum * f64::EPSILON {
            let up = t.ill_with as f64 * (t.well - t.well_with) as f64;
            t.ill_with -= 1;
            t.well_with += 1;
            term *= up / ((t.ill - t.ill_with) as f64 * t.well_with as f64);
            sum += term;
        }
        sum.min(1.0)
    }

    /// The smallest value that [`Fisher::p`] can have for so many hosts with the property.
    fn p_min(&self, table: &Table) -> f64 {
        let ill_with = table.with().min(table.ill);
        self.p(&Table { ill_with, well_with: table.with() - ill_with, ..*table })
    }
}

/// The number of tests that the level is divided by: the smallest `k` for which at most `k`
/// candidates can be significant at the level divided by `k`. `p_min` is what each can have at best.
#[must_use]
pub fn testable(mut p_min: Vec<f64>) -> usize {
    p_min.retain(|p| !p.is_nan());
    p_min.sort_by(f64::total_cmp);
    (1..=p_min.len()).find(|k| p_min.partition_point(|p| *p <= LEVEL / *k as f64) <= *k).unwrap_or(1)
}

/// A property, and how many hosts have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The field or the file: `package.zsh`, `/etc/fstab`.
    pub item: String,
    /// Its value.
    pub value: String,
    /// The counts.
    pub table: Table,
}

/// A property that goes with the illness.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Named {
    /// The field or the file.
    pub item: String,
    /// Its value.
    pub value: String,
    /// The counts.
    #[serde(flatten)]
    pub table: Table,
    /// See [`Table::odds_ratio`].
    pub odds_ratio: f64,
    /// The chance of this or more, see [`Fisher::p`].
    pub p: f64,
    /// The same times the number of tests, at most 1.
    pub p_corrected: f64,
}

/// The candidates that are significant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Judged {
    /// How many properties were looked at.
    pub compared: usize,
    /// How many of them could have been significant. The level was divided by it.
    pub tests: usize,
    /// The significant ones, the least probable first.
    pub named: Vec<Named>,
}

/// Judges all candidates of one question.
#[must_use]
pub fn judge(candidates: &[Candidate]) -> Judged {
    let hosts = candidates.iter().map(|c| c.table.ill.saturating_add(c.table.well)).max().unwrap_or(0);
    let fisher = Fisher::up_to(hosts);
    let is_enough = |c: &&Candidate| c.table.ill >= HOSTS_MIN && c.table.well >= HOSTS_MIN;
    let compared = candidates.iter().filter(is_enough).count();
    let tests = testable(candidates.iter().filter(is_enough).map(|c| fisher.p_min(&c.table)).collect());
    let named = candidates.iter().filter(is_enough).filter_map(|c| {
        let p = fisher.p(&c.table);
        // NaN is not significant.
        (p <= LEVEL / tests as f64).then(|| Named {
            item: c.item.clone(),
            value: c.value.clone(),
            table: c.table,
            odds_ratio: c.table.odds_ratio(),
            p,
            p_corrected: (p * tests as f64).min(1.0),
        })
    });
    let mut named: Vec<Named> = named.collect();
    named.sort_by(order);
    Judged { compared, tests, named }
}

fn order(a: &Named, b: &Named) -> std::cmp::Ordering {
    a.p.total_cmp(&b.p)
        .then_with(|| b.odds_ratio.total_cmp(&a.odds_ratio))
        .then_with(|| (&a.item, &a.value).cmp(&(&b.item, &b.value)))
}

/// Since when an ill host has a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Began {
    /// The first state that has it, in nanoseconds since 1970.
    pub at_ns: i64,
    /// Whether an earlier state of the host lacked it. Otherwise it has been there for as long as
    /// is known.
    pub is_change: bool,
    /// When the host fell ill.
    pub onset_ns: i64,
}

impl Began {
    fn is_before(&self) -> bool {
        self.is_change && self.at_ns <= self.onset_ns
    }
}

/// Properties that came together on the same hosts, and cannot be told apart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// All of them, by name.
    pub members: Vec<Named>,
    /// Ill hosts of which it is known when they got it. At most a sample of them is looked at.
    pub known: usize,
    /// On so many of these it changed to this value before the onset.
    pub changed_before: usize,
    /// On so many it did so after the onset: no cause.
    pub changed_after: usize,
    /// How long before the onset it changed: the median, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lead_seconds: Option<f64>,
}

impl Group {
    /// Whether it changed before the onset on more than half of the hosts.
    #[must_use]
    pub fn is_change_before(&self) -> bool {
        2 * self.changed_before > self.known
    }

    /// Whether most hosts got it after they had fallen ill.
    #[must_use]
    pub fn is_after(&self) -> bool {
        2 * self.changed_after > self.known
    }
}

/// Puts what came together into one group. What changed before the onset comes first, what changed
/// after it last. `began` has the ill hosts that have each property.
#[must_use]
pub fn groups(named: Vec<(Named, BTreeMap<String, Began>)>) -> Vec<Group> {
    let mut groups: Vec<(Vec<Named>, BTreeMap<String, Began>)> = Vec::new();
    for (one, began) in named {
        let same = groups.iter_mut().find(|(members, of)| {
            members.first().is_some_and(|m| m.table == one.table) && came_together(of, &began)
        });
        match same {
            Some((members, _)) => members.push(one),
            None => groups.push((vec![one], began)),
        }
    }
    let mut groups: Vec<Group> = groups.into_iter().map(|(members, began)| group(members, &began)).collect();
    let rank = |g: &Group| (!g.is_change_before(), g.is_after());
    // Stable: within a rank the least probable stays first.
    groups.sort_by_key(rank);
    groups
}

fn came_together(a: &BTreeMap<String, Began>, b: &BTreeMap<String, Began>) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|((host, x), (other, y))| {
            let is_near = x.at_ns.abs_diff(y.at_ns) <= TOGETHER_NS.unsigned_abs();
            host == other && x.is_change == y.is_change && (is_near || !x.is_change)
        })
}

fn group(mut members: Vec<Named>, began: &BTreeMap<String, Began>) -> Group {
    members.sort_by(|a, b| (&a.item, &a.value).cmp(&(&b.item, &b.value)));
    let before = began.values().filter(|b| b.is_before());
    let mut leads: Vec<i64> = before.map(|b| b.onset_ns.saturating_sub(b.at_ns)).collect();
    leads.sort_unstable();
    Group {
        members,
        known: began.len(),
        changed_before: leads.len(),
        changed_after: began.values().filter(|b| b.is_change && !b.is_before()).count(),
        lead_seconds: leads.get(leads.len() / 2).map(|ns| *ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests;
