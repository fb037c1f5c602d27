use proptest::prelude::*;

use super::*;

fn table(ill_with: u64, ill: u64, well_with: u64, well: u64) -> Table {
    Table { ill_with, ill, well_with, well }
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} and not {b}");
}

#[test]
fn fishers_test_has_the_values_of_known_tables() {
    let p = |t: Table| Fisher::up_to(t.ill + t.well).p(&t);
    // Fisher's lady tasting tea: three of four cups right, 17 of 70; all four, 1 of 70.
    near(p(table(3, 4, 1, 4)), 17.0 / 70.0);
    near(p(table(4, 4, 0, 4)), 1.0 / 70.0);
    // Fisher's twins of convicts (The Design of Experiments): 10 of 13 against 2 of 17.
    near(p(table(10, 13, 2, 17)), 4.651_809_433_629_05e-4);
    // One table of a kind: 1 / C(n, k).
    near(p(table(5, 5, 0, 15)), 1.0 / 15_504.0);
    near(p(table(0, 4, 1, 4)), 1.0);
    // Everybody has it, or nobody.
    near(p(table(30, 30, 170, 170)), 1.0);
    near(p(table(0, 30, 0, 170)), 1.0);
    // A large fleet: no infinity and no NaN.
    let large = p(table(20_000, 20_000, 0, 20_000));
    assert!((0.0..1e-300).contains(&large));
    assert!(p(table(5, 4, 0, 4)).is_nan());
}

/// The same by counting in whole numbers.
fn exact(t: Table) -> f64 {
    let choose = |n: u64, k: u64| -> u128 {
        if k > n { 0 } else { (0..k).fold(1, |c: u128, i| c * u128::from(n - i) / u128::from(i + 1)) }
    };
    let (with, all) = (t.ill_with + t.well_with, t.ill + t.well);
    let ways = (t.ill_with..=with.min(t.ill)).map(|x| choose(with, x) * choose(all - with, t.ill - x));
    ways.sum::<u128>() as f64 / choose(all, t.ill) as f64
}

proptest! {
    #[test]
    fn fishers_test_is_what_is_counted(ill in 1_u64..30, well in 1_u64..30, a in 0_u64..30, b in 0_u64..30) {
        let t = table(a.min(ill), ill, b.min(well), well);
        let (found, right) = (Fisher::up_to(60).p(&t), exact(t));
        prop_assert!((found - right).abs() <= 1e-9 * right, "{t:?}: {found} and not {right}");
    }

    #[test]
    fn more_ill_hosts_with_it_are_less_probable(ill in 1_u64..2_000, well in 1_u64..40_000, with in 0_u64..3_000) {
        let fisher = Fisher::up_to(ill + well);
        let with = with.min(ill + well);
        let least = with.saturating_sub(well);
        let all: Vec<f64> = (least..=with.min(ill)).map(|a| fisher.p(&table(a, ill, with - a, well))).collect();
        prop_assert!(all.iter().all(|p| (0.0..=1.0).contains(p)), "{all:?}");
        prop_assert!(all.windows(2).all(|w| w[1] <= w[0] * (1.0 + 1e-9)), "{all:?}");
        prop_assert!((all[0] - 1.0).abs() < 1e-6, "{}", all[0]);
    }
}

#[test]
fn the_odds_ratio_is_finite() {
    near(table(30, 30, 0, 170).odds_ratio(), 30.5 * 170.5 / 0.25);
    near(table(1, 2, 1, 2).odds_ratio(), 1.0);
    near(table(0, 5, 5, 5).odds_ratio(), 0.25 / 30.25);
}

#[test]
fn what_can_never_be_significant_costs_nothing() {
    // Nine hundred values of one host each, and one that all three ill hosts share.
    let mut p_min = vec![0.3; 900];
    p_min.push(1e-6);
    assert_eq!(testable(p_min), 1);
    assert_eq!(testable(vec![1e-9; 50]), 50);
    assert_eq!(testable(Vec::new()), 1);
    // At the level divided by 5 all of these can be significant, divided by 6 none.
    assert_eq!(testable(vec![LEVEL / 5.5; 100]), 6);
}

fn candidate(item: &str, ill_with: u64, well_with: u64) -> Candidate {
    let table = table(ill_with, 30, well_with, 170);
    Candidate { item: item.to_owned(), value: "1".to_owned(), table }
}

#[test]
fn the_shared_version_is_named_and_nothing_else() {
    let mut all: Vec<Candidate> =
        (0..2_000).map(|i| candidate(&format!("package.p{i}"), 15 + i % 3, 85)).collect();
    all.push(candidate("package.bad", 30, 0));
    let judged = judge(&all);
    assert_eq!(judged.named.iter().map(|n| n.item.as_str()).collect::<Vec<_>>(), ["package.bad"]);
    assert!(judged.compared == 2_001 && judged.tests <= 2_001);
    near(judged.named[0].odds_ratio, 30.5 * 170.5 / 0.25);
    all.pop();
    assert_eq!(judge(&all).named, []);
    // Two hosts are no group.
    let few = Candidate { table: table(2, 2, 0, 40_000), ..candidate("package.x", 0, 0) };
    assert_eq!(judge(&[few]).named, []);
}

/// Random numbers from a seed (SplitMix64).
struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

/// A fleet of 200 hosts with 400 packages in up to four versions. Which hosts are ill is chance.
fn random_fleet(seed: u64) -> Vec<Candidate> {
    let mut noise = Noise(seed);
    let ill_count = 3 + noise.below(60);
    let mut hosts: Vec<bool> = (0..200).map(|i| i < ill_count).collect();
    for i in (1..hosts.len()).rev() {
        hosts.swap(i, noise.below(i as u64 + 1) as usize);
    }
    let mut all = Vec::new();
    for package in 0..400 {
        let (versions, rare) = (1 + noise.below(4), 1 + noise.below(40));
        let mut counts = [(0, 0); 4];
        for is_ill in &hosts {
            let version = if noise.below(rare) == 0 { noise.below(versions) } else { 0 };
            let count = &mut counts[version as usize];
            if *is_ill { count.0 += 1 } else { count.1 += 1 }
        }
        for (version, (ill_with, well_with)) in counts.into_iter().enumerate() {
            let table = table(ill_with, ill_count, well_with, 200 - ill_count);
            let value = version.to_string();
            all.push(Candidate { item: format!("package.p{package}"), value, table });
        }
    }
    all
}

#[test]
fn nothing_is_named_where_incidents_are_anywhere() {
    let wrong: Vec<u64> = (0..300).filter(|seed| !judge(&random_fleet(*seed)).named.is_empty()).collect();
    // The level is one in a hundred; the test is conservative.
    assert!(wrong.len() <= 3, "{wrong:?}");
    let first: Vec<u64> = (0..20).filter(|seed| wrong.contains(seed)).collect();
    assert_eq!(first, [0; 0], "of twenty fleets without a fault");
}

fn named(item: &str, ill_with: u64) -> Named {
    let c = candidate(item, ill_with, 0);
    judge(&[c]).named.remove(0)
}

fn began(at: &[(i64, bool)]) -> BTreeMap<String, Began> {
    const MINUTE: i64 = 60_000_000_000;
    let one = |(i, (at, is_change)): (usize, &(i64, bool))| {
        (format!("h{i}"), Began { at_ns: at * MINUTE, is_change: *is_change, onset_ns: 100 * MINUTE })
    };
    at.iter().enumerate().map(one).collect()
}

#[test]
fn what_came_together_is_one_group_and_what_came_before_is_first() {
    let deployed = [(60, true), (70, true), (80, true)];
    let list = vec![
        (named("sysctl.always", 30), began(&[(0, false), (5, false), (0, false)])),
        (named("package.after", 30), began(&[(160, true), (170, true), (180, true)])),
        (named("package.b", 30), began(&deployed)),
        (named("package.a", 30), began(&[(61, true), (75, true), (80, true)])),
        (named("package.elsewhere", 29), began(&deployed)),
        (named("package.later", 30), began(&[(60, true), (70, true), (95, true)])),
    ];
    let groups = groups(list);
    let names: Vec<Vec<&str>> =
        groups.iter().map(|g| g.members.iter().map(|m| m.item.as_str()).collect()).collect();
    assert_eq!(
        names,
        [
            vec!["package.a", "package.b"],
            vec!["package.elsewhere"],
            vec!["package.later"],
            vec!["sysctl.always"],
            vec!["package.after"]
        ]
    );
    let first = &groups[0];
    assert_eq!((first.known, first.changed_before, first.changed_after), (3, 3, 0));
    assert_eq!(first.lead_seconds, Some(1_800.0));
    assert!(groups[4].is_after() && !groups[3].is_change_before() && groups[3].lead_seconds.is_none());
}
