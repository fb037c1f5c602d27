//! The contract of `mitra explain --json`, and the comparison of a report with the truth.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// The only keys that `culprit` may have.
const CULPRIT_KEYS: &[&str] = &[
    "how",
    "process",
    "pid",
    "cgroup",
    "device",
    "nic",
    "path",
    "slab",
    "sysctl",
    "allocator",
    "library",
    "address",
    "object",
];

/// Parses the JSON text.
pub fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|e| format!("explain --json is not JSON: {e}"))
}

/// The incidents of a report.
pub fn incidents(report: &Value) -> &[Value] {
    report["incidents"].as_array().map_or(&[], Vec::as_slice)
}

/// The incidents that overlap a time span, in seconds since the epoch.
pub fn during(report: &Value, since_s: f64, until_s: f64) -> impl Iterator<Item = &Value> {
    incidents(report).iter().filter(move |incident| {
        let onset_s = time_of(incident, "onset").unwrap_or(f64::MAX);
        let end_s = time_of(incident, "end").unwrap_or(f64::MAX);
        // Times in a report are whole seconds, rounded down.
        onset_s <= until_s && end_s + 1.0 > since_s
    })
}

/// The first incident that overlaps a time span.
pub fn top(report: &Value, since_s: f64, until_s: f64) -> Option<&Value> {
    during(report, since_s, until_s).next()
}

/// The root condition of an incident.
pub fn root(incident: &Value) -> Option<String> {
    incident["root_cause"]["condition"].as_str().map(str::to_owned)
}

/// The root conditions of the incidents that overlap a time span, those in first place before the
/// others.
pub fn roots_during(report: &Value, since_s: f64, until_s: f64) -> Vec<String> {
    let all = || during(report, since_s, until_s);
    let mut found: Vec<String> = all().map(|i| root(i).unwrap_or_else(|| "?".to_owned())).collect();
    for incident in all() {
        let others = incident["other_roots"].as_array().into_iter().flatten();
        found.extend(others.filter_map(|o| o["condition"].as_str().map(str::to_owned)));
    }
    found
}

/// All incidents in one line.
pub fn summary(report: &Value) -> String {
    match incidents(report) {
        [] => "no incident".to_owned(),
        found => found.iter().map(describe).collect::<Vec<_>>().join("; "),
    }
}

/// Root, culprit and onset in one line.
pub fn describe(incident: &Value) -> String {
    format!(
        "{} {} at {}",
        incident["root_cause"]["condition"].as_str().unwrap_or("?"),
        incident["root_cause"]["culprit"],
        incident["onset"].as_str().unwrap_or("?")
    )
}

/// Lists every violation of the schema `mitra.report/1`.
pub fn check_contract(report: &Value) -> Result<(), String> {
    let mut wrong = Vec::new();
    let mut need = |ok: bool, what: &str| {
        if !ok {
            wrong.push(what.to_owned());
        }
    };
    need(report["schema"] == "mitra.report/1", "schema is not mitra.report/1");
    need(is_text(&report["host"]), "host");
    need(is_text(&report["source"]), "source");
    for range in ["window", "baseline"] {
        let bounds = ["since", "until"].iter().all(|k| time_of(&report[range], k).is_some());
        need(bounds || (range == "baseline" && report[range].is_null()), range);
    }
    let ledger = &report["ledger"];
    need(is_amount_if_any(ledger, "lost_task_seconds"), "ledger.lost_task_seconds");
    need(each(&ledger["by_cause"], |c| is_text(&c["cause"]) && is_amount(&c["seconds"])), "ledger.by_cause");
    need(
        each(&ledger["by_process"], |p| is_text(&p["name"]) && is_amount(&p["seconds"])),
        "ledger.by_process",
    );
    need(report["incidents"].is_array(), "incidents");
    need(report["contradictions"].is_null(), &format!("contradictions: {}", report["contradictions"]));
    need(each(&report["healthy"], is_text), "healthy");
    need(report["recorder"]["gaps"].is_array(), "recorder.gaps");
    need(
        each(&report["recorder"]["unavailable"], |u| is_text(&u["source"]) && is_text(&u["why"])),
        "recorder.unavailable",
    );
    for incident in incidents(report) {
        check_incident_contract(incident, &mut need);
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("the report breaks its contract: {}", wrong.join(", ")))
    }
}

fn check_incident_contract(incident: &Value, need: &mut impl FnMut(bool, &str)) {
    need(time_of(incident, "onset").is_some(), "incident.onset");
    need(incident["end"].is_null() || time_of(incident, "end").is_some(), "incident.end");
    need(is_amount_if_any(incident, "lost_task_seconds"), "incident.lost_task_seconds");
    need(each(&incident["symptoms"], is_id), "incident.symptoms");
    check_root(&incident["root_cause"], need);
    need(incident["other_roots"].is_array(), "incident.other_roots");
    let chain = incident["chain"].as_array();
    need(chain.is_some_and(|c| !c.is_empty()), "incident.chain is empty");
    for link in chain.into_iter().flatten() {
        need(is_id(&link["condition"]), "chain.condition");
        need(time_of(link, "onset").is_some(), "chain.onset");
        need(link["lag_s"].is_number(), "chain.lag_s");
        need(each(&link["evidence"], |e| is_text(&e["metric"])), "chain.evidence");
    }
    need(
        each(&incident["ruled_out"], |r| is_id(&r["condition"]) && is_text(&r["because"])),
        "incident.ruled_out",
    );
    need(each(&incident["unknown"], |u| is_id(&u["condition"]) && is_text(&u["needs"])), "incident.unknown");
    need(each(&incident["remedies"], |r| is_text(&r["do"]) && is_text(&r["verify"])), "incident.remedies");
    need(each(&incident["next"], |n| is_text(&n["measure"])), "incident.next");
}

fn check_root(root: &Value, need: &mut impl FnMut(bool, &str)) {
    need(is_id(&root["condition"]), "root_cause.condition");
    need(is_share(&root["confidence"]), "root_cause.confidence");
    need(root["share"].is_null() || is_share(&root["share"]), "root_cause.share");
    need(is_text(&root["statement"]), "root_cause.statement");
    let culprit = root["culprit"].as_object();
    need(culprit.is_some(), "root_cause.culprit");
    for key in culprit.into_iter().flat_map(|c| c.keys()) {
        need(CULPRIT_KEYS.contains(&key.as_str()), &format!("culprit.{key}"));
    }
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|s| !s.is_empty())
}

/// Condition ids are lower-case words with dashes.
fn is_id(value: &Value) -> bool {
    value.as_str().is_some_and(|s| {
        !s.is_empty() && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    })
}

fn is_amount(value: &Value) -> bool {
    value.as_f64().is_some_and(|v| v.is_finite() && v >= 0.0)
}

/// What was not measured is left out; null is no amount.
fn is_amount_if_any(of: &Value, key: &str) -> bool {
    of.is_object() && of.get(key).is_none_or(is_amount)
}

fn is_share(value: &Value) -> bool {
    value.as_f64().is_some_and(|v| (0.0..=1.0).contains(&v))
}

fn each(value: &Value, ok: impl Fn(&Value) -> bool) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(ok))
}

/// Seconds since the epoch.
pub fn epoch_s(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// Seconds since the epoch of a time in a report.
pub fn time_of(value: &Value, key: &str) -> Option<f64> {
    parse_rfc3339(value[key].as_str()?)
}

/// `2026-11-21T03:42:07Z`, rounded down to the second.
pub fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (days, day_s) = (seconds / 86_400, seconds % 86_400);
    // Years begin at 0000-03-01: leap days then come last, and every month has a fixed offset.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", day_s / 3_600, day_s / 60 % 60, day_s % 60)
}

/// The same, rounded up: the end of a window that must not lose its last second.
pub fn rfc3339_rounded_up(time: SystemTime) -> String {
    rfc3339(time + Duration::from_millis(999))
}

/// Seconds since the epoch of an RFC 3339 time in UTC or with an offset.
fn parse_rfc3339(text: &str) -> Option<f64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let rest = text.get(19..)?;
    let zone_at = rest.find(['Z', 'z', '+', '-'])?;
    let (fraction, zone) = rest.split_at(zone_at);
    let fraction_s = if fraction.is_empty() { 0.0 } else { format!("0{fraction}").parse::<f64>().ok()? };
    let offset_s = match zone.as_bytes().first()? {
        b'Z' | b'z' => 0,
        sign => {
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            let seconds = hours.parse::<i64>().ok()? * 3_600 + minutes.parse::<i64>().ok()? * 60;
            if *sign == b'-' { -seconds } else { seconds }
        }
    };
    let march_year = if month <= 2 { year - 1 } else { year };
    let march_month = (month + 9) % 12;
    let days = march_year * 365 + march_year / 4 - march_year / 100
        + march_year / 400
        + (march_month * 153 + 2) / 5
        + day
        - 719_469;
    Some((days * 86_400 + hour * 3_600 + minute * 60 + second - offset_s) as f64 + fraction_s)
}
