//! Sessions of network protocols that came and went: BIRD, FRR and Quagga, keepalived, haproxy.
//!
//! ```text
//! BGP1: State changed to stop
//! bfd1: Session to 10.99.0.2 changed state from Up to Down
//! %ADJCHANGE: neighbor 10.0.0.1(lb-2) in vrf default Down BGP Notification received
//! (VI_1) Entering MASTER STATE
//! Server web/web-3 is DOWN, reason: Layer4 timeout, check duration: 2001ms. 5 active and 0 backup servers left.
//! ```

use mitra_model::EventKind;

use crate::kernel_message::kept;

/// Longer names are none.
const NAME_BYTES_MAX: usize = 128;

/// What a line of a program says of a session. `program` is empty where only the file is known.
pub fn session(program: &str, text: &str) -> Option<EventKind> {
    let (session, state) = if program.starts_with("bird") {
        bird(text)
    } else if program.starts_with("Keepalived") || program == "keepalived" {
        keepalived(text)
    } else if program.starts_with("haproxy") {
        haproxy(text)
    } else {
        adjacency(text)
    }?;
    let is_name = !session.is_empty() && session.len() <= NAME_BYTES_MAX;
    is_name.then(|| EventKind::Session {
        program: program.to_owned(),
        session: session.to_owned(),
        state,
        text: kept(text),
    })
}

fn lower(word: &str) -> String {
    word.trim_matches(|c: char| !c.is_alphanumeric()).to_ascii_lowercase()
}

/// Messages of BIRD 1.6 and 2. `Down` and `Started` alone say what `State changed to` says too.
fn bird(text: &str) -> Option<(&str, String)> {
    let (protocol, words) = text.split_once(": ")?;
    if protocol.contains(char::is_whitespace) {
        return None;
    }
    if let Some(state) = words.strip_prefix("State changed to ") {
        return Some((protocol, lower(state)));
    }
    if let Some(rest) = words.strip_prefix("Session to ") {
        let (peer, what) = rest.split_once(' ')?;
        let state = what.strip_prefix("changed state from ").and_then(|s| s.split_once(" to ")).map(|s| s.1);
        let is_plain = matches!(what, "added" | "removed" | "expired");
        return Some((peer, lower(state.or(is_plain.then_some(what))?)));
    }
    let state = if words.starts_with("BGP session ") || words.starts_with("BFD session ") {
        words.get("BGP session ".len()..)?.split_whitespace().next()?
    } else if words.starts_with("Received: ") {
        "received"
    } else if words.starts_with("Error: ") {
        "error"
    } else {
        return None;
    };
    Some((protocol, lower(state)))
}

/// `(VI_1) Entering BACKUP STATE`, before 2.0 `VRRP_Instance(VI_1) Transition to MASTER STATE`; `Removing service
/// [10.0.0.7]:tcp:80 from VS [192.0.2.1]:tcp:80`.
fn keepalived(text: &str) -> Option<(&str, String)> {
    for (mark, state) in [("Removing service ", "removed"), ("Adding service ", "added")] {
        if let Some(rest) = text.strip_prefix(mark) {
            return Some((rest.split_whitespace().next()?, state.to_owned()));
        }
    }
    let (_, rest) = text.split_once('(')?;
    let (instance, rest) = rest.split_once(')')?;
    let marks = [" Entering ", " Transition to ", " Now in "];
    let state = marks.iter().find_map(|mark| rest.strip_prefix(mark))?;
    let (state, end) = state.split_once(' ')?;
    end.starts_with("STATE").then(|| (instance, lower(state)))
}

/// `Server web/web-3 is DOWN, reason: …`, `Backup Server …`, `backend web has no server available!`, `Proxy web
/// stopped`.
fn haproxy(text: &str) -> Option<(&str, String)> {
    if let Some((before, rest)) = text.split_once("erver ")
        && let Some((server, rest)) = rest.split_once(" is ")
        && before.len() <= "[WARNING] (123456) : Backup S".len()
        && server.contains('/')
    {
        let state = rest.strip_prefix("going ").unwrap_or(rest).split([' ', ',', '.']).next()?;
        return state.chars().all(|c| c.is_ascii_uppercase()).then(|| (server, lower(state)));
    }
    let (_, rest) = text.split_once("ackend ")?;
    let (name, rest) = rest.split_once(' ')?;
    rest.starts_with("has no server available").then(|| (name, "down".to_owned()))
}

/// FRR, Quagga and others: `%ADJCHANGE: neighbor 10.0.0.1(lb-2) in vrf default Down …`, `%BGP-5-ADJCHANGE: neighbor
/// 10.0.0.1 Up`; of OSPF `AdjChg: Nbr 10.0.0.2(default) on eth0:10.0.0.1: Full -> Deleted (InactivityTimer)`; of BFD
/// `state-change: [… peer:10.0.0.2 …] up -> down (…)`.
fn adjacency(text: &str) -> Option<(&str, String)> {
    if let Some((_, rest)) = text.split_once("ADJCHANGE: neighbor ") {
        let mut words = rest.split_whitespace();
        let peer = words.next()?.split('(').next()?;
        let state = words.find(|w| matches!(*w, "Up" | "Down"))?;
        return Some((peer, lower(state)));
    }
    let (session, change) = if let Some((_, rest)) = text.split_once("AdjChg: Nbr ") {
        (rest.split([' ', '(']).next()?, rest)
    } else {
        let (_, rest) = text.split_once("state-change: [")?;
        let (facts, change) = rest.split_once(']')?;
        (facts.split_whitespace().find_map(|w| w.strip_prefix("peer:"))?, change)
    };
    let (_, state) = change.split_once(" -> ")?;
    Some((session, lower(state.split_whitespace().next()?)))
}
