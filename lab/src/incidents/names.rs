//! DNS incidents: a name server answers some or all questions late, or not at all.

use std::fs;

use super::network::cable;
use crate::incident::{Incident, Need, Stop, Truth};
use crate::stage::Stage;

/// The incidents of this file.
pub const INCIDENTS: &[Incident] = &[
    Incident::new("late-names", "resolver-slow", "network", |stage| slow_names(stage, "late"))
        .what("a name server answers late: all questions, those for IPv6 or those with a search domain")
        .needs(&[Need::Tool("ip")]),
    Incident::new("silent-names", "resolver-slow", "network", |stage| slow_names(stage, "drop"))
        .what("a name server leaves a part of the questions without an answer")
        .needs(&[Need::Tool("ip")]),
];

/// A program repeats a lookup, with a name server and a search domain of its own.
fn slow_names(stage: &mut Stage, what: &str) -> Result<Truth, Stop> {
    let cable = cable(stage)?;
    let (manners, resolv_conf) = (stage.file("manners"), stage.file("resolv.conf"));
    fs::write(&manners, "")?;
    // If two of three queries are lost, three attempts of three seconds each take longer than ten
    // seconds.
    let most = if what == "drop" { stage.loud(2, 3) } else { 3 };
    let timeout = stage.draw().between(1, most);
    fs::write(
        &resolv_conf,
        format!("nameserver {}\nsearch corp.test\noptions timeout:{timeout} attempts:3\n", cable.server),
    )?;
    let server = format!("{}:53", cable.server);
    cable.serve(stage, "dns-serve", &format!("{server} {manners}"))?;
    let name = stage.draw().pick(&["db", "cache", "queue", "auth", "mail"]);
    let victim = cable.client(stage, "lookup", &format!("{resolv_conf} {name} 100"))?;
    let kind = stage.draw().pick(&["all", "aaaa", "nx"]);
    let (least, most) = match what {
        "late" => stage.loud((500, 1_500), (120, 250)),
        // Percent of queries. Faint: every fifth to tenth.
        _ => stage.loud((60, 100), (10, 20)),
    };
    let amount = stage.draw().between(least, most);
    stage.healthy()?;

    stage.trouble_starts();
    fs::write(&manners, format!("{kind} {what} {amount}\n"))?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(20.0, 3.0))?;
    Ok(Truth { address: Some(cable.server.to_string()), ..Truth::default() })
}
