//! Networks that are busy, and work.

use std::fs;
use std::process::Command;

use crate::incident::{Control, Need, Stop};
use crate::incidents::cable;
use crate::stage::Stage;

use super::BUSY_FACTOR;

/// The controls of this file.
pub const CONTROLS: &[Control] = &[
    Control {
        name: "full-link",
        what: "a long transfer fills a link with a rate, while another link serves its clients",
        needs: &[Need::Tool("tc")],
        make: full_link,
    },
    Control {
        name: "many-visits",
        what: "many short connections and tens of lookups a second, all of them served",
        needs: &[Need::Tool("ip")],
        make: many_visits,
    },
];

/// TCP finds the rate of a link by itself. The few drops in the queue on the way are normal.
fn full_link(stage: &mut Stage) -> Result<(), Stop> {
    let (full, other) = (cable(stage)?, cable(stage)?);
    let mbit = stage.draw().between(50, 300);
    // A queue of 50 ms, as home routers and shapers in clouds have.
    stage.run(
        Command::new("tc").args(["-n", full.left.name(), "qdisc", "add", "dev", &full.left_device]).args([
            "root",
            "tbf",
            "rate",
            &format!("{mbit}mbit"),
            "burst",
            "256000",
            "latency",
            "50ms",
        ]),
    )?;
    let (sink, served) = (full.address(stage), other.address(stage));
    full.serve(stage, "tcp-drain", &sink)?;
    other.serve(stage, "tcp-answer", &format!("{served} 2000"))?;
    let bystander = other.client(stage, "tcp-ask", &format!("{served} 2000 10"))?;
    stage.healthy()?;

    stage.trouble_starts();
    full.client(stage, "tcp-stream", &sink)?;
    stage.trouble()?;
    stage.unharmed(&bystander, BUSY_FACTOR)
}

/// The front of a web site: connections of a millisecond each, and name lookups for some of them.
fn many_visits(stage: &mut Stage) -> Result<(), Stop> {
    let cable = cable(stage)?;
    let served = cable.address(stage);
    let (manners, resolv_conf) = (stage.file("manners"), stage.file("resolv.conf"));
    fs::write(&manners, "")?;
    fs::write(&resolv_conf, format!("nameserver {}\n", cable.server))?;
    cable.serve(stage, "dns-serve", &format!("{}:53 {manners}", cable.server))?;
    cable.serve(stage, "tcp-serve", &format!("{served} 256 {}", stage.file("pace")))?;
    let bystander = cable.client(stage, "tcp-visit", &format!("{served} 20 5000"))?;
    stage.healthy()?;

    stage.trouble_starts();
    let per_s = stage.draw().between(40, 100);
    cable.client(stage, "tcp-crowd", &format!("{served} {per_s} 4000"))?;
    cable.client(stage, "lookup", &format!("{resolv_conf} db 20"))?;
    stage.trouble()?;
    stage.unharmed(&bystander, BUSY_FACTOR)
}
