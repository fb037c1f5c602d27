use mitra_model::compare::Range;

use super::*;

/// A cell with one metric. With `half` the difference has an interval of that half width.
fn cell(variant: &str, step: Option<&str>, difference: Option<(f64, Option<f64>, bool)>) -> Cell {
    let against = difference.map(|(percent, half, sure)| Against {
        percent,
        range: half.map(|half| Range { low: percent - half, high: percent + half, confidence: 0.95 }),
        detectable_percent: half.map(|_| 4.2),
        p: Some(0.008),
        sure,
    });
    let mean = 100.0 + difference.map_or(0.0, |(percent, ..)| percent);
    Cell {
        variant: variant.to_owned(),
        step: step.map(str::to_owned),
        runs: 5,
        measured: vec![Measured {
            values: vec![mean; 5],
            mean: Some(mean),
            against_first: against,
            ..Measured::default()
        }],
        ..Cell::default()
    }
}

fn outcome(higher_is_better: bool, cells: Vec<Cell>) -> Outcome {
    let mut variants: Vec<String> = cells.iter().map(|cell| cell.variant.clone()).collect();
    variants.dedup();
    Outcome {
        metrics: vec![MetricInfo { name: "m".to_owned(), higher_is_better, ..MetricInfo::default() }],
        variants,
        cells,
        ..Outcome::default()
    }
}

#[test]
fn the_better_one_is_named_whichever_way_is_better() {
    for (higher_is_better, percent, half, says) in [
        (true, 20.0, 3.0, "b is better than a: m is higher by 20 % (17 to 23 %, 95 % sure), "),
        (true, -20.0, 3.0, "b is worse than a: m is lower by 20 % (17 to 23 %, 95 % sure), "),
        (false, 20.0, 3.0, "b is worse than a: m is higher by 20 % (17 to 23 %, 95 % sure), "),
        (false, -20.0, 3.0, "b is better than a: m is lower by 20 % (17 to 23 %, 95 % sure), "),
        (true, 20.0, 0.0, "b is better than a: m is higher by 20 % (the values did not vary), "),
    ] {
        let cells = vec![cell("a", None, None), cell("b", None, Some((percent, Some(half), true)))];
        let said = verdicts(&outcome(higher_is_better, cells));
        assert!(said.len() == 1 && said[0].starts_with(says), "{said:?}");
    }
}

#[test]
fn what_is_not_sure_says_why() {
    for (difference, says) in [
        (
            Some((1.0, Some(3.0), false)),
            "b and a: no difference of m larger than 4.0 % (-2.0 % to +4.0 %, 95 % sure)",
        ),
        (
            Some((5.0, Some(3.0), false)),
            "b and a: m differs by +2.0 % to +8.0 %, but among so many comparisons",
        ),
        (Some((0.0, Some(0.0), false)), "b and a: m did not vary and is the same ("),
        (Some((5.0, None, false)), "b and a: 5 runs are too few to tell"),
        (None, "b and a cannot be compared, as the mean of a is 0: m "),
    ] {
        let said = verdicts(&outcome(true, vec![cell("a", None, None), cell("b", None, difference)]));
        assert!(said[0].starts_with(says), "{said:?}");
    }
}

#[test]
fn each_step_has_its_own_answer() {
    let steps = ["1", "2", "4", "8", "16"];
    let differences = [
        Some((20.0, Some(3.0), true)),
        Some((-9.0, Some(3.0), true)),
        Some((0.0, Some(3.0), false)),
        Some((7.0, None, false)),
        None,
    ];
    let first = steps.iter().map(|step| cell("a", Some(*step), None));
    let second = steps.iter().zip(differences).map(|(step, difference)| cell("b", Some(*step), difference));
    let said = verdicts(&outcome(true, first.chain(second).collect()));
    assert_eq!(
        said,
        [
            "b against a, by m: better at 1 (+20 %); worse at 2 (-9.0 %); no sure difference larger than 3.0 % at 4; \
          too few runs at 8; 1 steps cannot be compared: no run succeeded, or the mean of a is 0"
        ]
    );
}

#[test]
fn failed_runs_stand_in_the_verdict() {
    let mut second = cell("b", None, Some((20.0, Some(3.0), true)));
    second.failed_runs = 2;
    let mut said = verdicts(&outcome(true, vec![cell("a", None, None), second.clone()]));
    assert!(said.remove(0).ends_with(" (2 of 7 runs of b failed)"));
    second.measured = vec![Measured::default()];
    second.runs = 0;
    let said = verdicts(&outcome(true, vec![cell("a", None, None), second]));
    assert!(said[0].starts_with("b and a cannot be compared: no run of b succeeded (2 of 2"), "{said:?}");
}

#[test]
fn an_order_of_means_says_what_is_tested() {
    let cells = vec![
        cell("a", None, None),
        cell("b", None, Some((-20.0, Some(3.0), true))),
        cell("c", None, Some((1.0, Some(3.0), false))),
    ];
    let said = verdicts(&outcome(true, cells));
    let says = "Means of m in order, the best first (only differences to a are tested): c 101, a 100, b 80";
    assert_eq!(said.last().map(String::as_str), Some(says));
}

#[test]
fn too_few_runs_for_so_many_comparisons_are_remarked() {
    let mut cells = vec![cell("a", None, None)];
    cells.extend((0..7).map(|n| cell(&n.to_string(), None, Some((20.0, Some(3.0), false)))));
    let is_remarked = |cells: &[Cell]| {
        let remarks = remarks(&outcome(true, cells.to_vec()), 0);
        remarks.iter().any(|remark| remark.contains("single difference sure among 7 comparisons"))
    };
    assert!(!is_remarked(&cells));
    cells[7].measured[0].against_first.as_mut().unwrap().detectable_percent = None;
    assert!(is_remarked(&cells));
}
