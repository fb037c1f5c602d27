//! What was counted in a part of the time, for all of it.

/// What is new weighs as much as all that was before.
const KEPT: f64 = 0.5;

/// Less of the time tells nothing: a frame is not as long as it says, by the time that it takes.
const SHARE_MIN: f64 = 0.002;

/// Of one service: how many requests a segment of TCP stands for, or a message of a Unix socket, and how long they take. TCP counts its
/// segments all the time. Where nobody counts messages, there are as many requests as when it was looked at last.
#[derive(Debug, Default, Clone, Copy)]
pub struct SeenPart {
    answered: f64,
    sends: f64,
    response_ns: f64,
    sent: f64,
    in_interval: f64,
    /// What has been left over by rounding.
    rest: f64,
}

/// What was seen of a service since it was asked last.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Requests.
    pub answered: u64,
    /// The time that they took.
    pub response_ns: u64,
    /// Bytes that were sent.
    pub sent: u64,
    /// Segments or messages that were sent, and those of them that belong to the requests that were seen; `None`: nobody counts them.
    pub sends: Option<[u64; 2]>,
    /// Connections there are now.
    pub connections: u64,
    /// The part of the time.
    pub share: f64,
}

impl SeenPart {
    /// Whether there were requests when it was looked at last.
    pub fn goes_on(&self) -> bool {
        self.in_interval > 0.0
    }

    /// Requests, the time that they took, and bytes sent, of all the time.
    pub fn whole(&mut self, seen: Seen) -> [u64; 3] {
        let answered = seen.answered as f64;
        if answered > 0.0 {
            let mean = |before: &mut f64, now: u64| *before = *before * KEPT + now as f64;
            mean(&mut self.answered, seen.answered);
            mean(&mut self.sends, seen.sends.map_or(0, |sends| sends[1]));
            mean(&mut self.response_ns, seen.response_ns);
            mean(&mut self.sent, seen.sent);
        }
        if seen.share > SHARE_MIN {
            self.in_interval = answered / seen.share;
        }
        if seen.share >= 1.0 {
            return [seen.answered, seen.response_ns, seen.sent];
        }
        let wanted = match seen.sends {
            Some([sends, _]) if self.sends > 0.0 => sends as f64 * self.answered / self.sends,
            None if seen.connections > 0 => self.in_interval,
            // Nobody saw when the last one ended: in the middle.
            None => std::mem::take(&mut self.in_interval) / 2.0,
            _ => 0.0,
        };
        let wanted = wanted.max(answered) + self.rest;
        let requests = wanted.floor();
        self.rest = wanted - requests;
        let each = |of: f64| if self.answered > 0.0 { (requests * of / self.answered) as u64 } else { 0 };
        let sent = if seen.sends.is_some() { seen.sent } else { each(self.sent) };
        // Below 2^53 by far.
        [requests as u64, each(self.response_ns), sent]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(answered: u64, sent: u64, sent_seen: u64, share: f64) -> Seen {
        let sends = Some([sent, sent_seen]);
        Seen { answered, response_ns: answered * 1000, sends, connections: 1, sent: 5, share }
    }

    fn of_unix(answered: u64, connections: u64, share: f64) -> Seen {
        Seen { answered, response_ns: answered * 1000, sends: None, connections, sent: answered * 3, share }
    }

    #[test]
    fn segments_tell_how_many_requests_there_were() {
        let mut part = SeenPart::default();
        assert_eq!(part.whole(seen(100, 900, 300, 1.0)), [100, 100_000, 5], "all was seen");
        assert_eq!(part.whole(seen(0, 600, 0, 0.1)), [200, 200_000, 5], "and nothing: as before");
        assert_eq!(part.whole(seen(100, 3000, 300, 0.1)), [1000, 1_000_000, 5]);
        // Nothing was answered in what was seen: they are what they were.
        assert_eq!(part.whole(seen(0, 30, 0, 0.1)), [10, 10_000, 5]);
        assert_eq!(part.whole(seen(0, 1, 0, 0.1)), [0, 0, 5]);
        assert_eq!(part.whole(seen(0, 2, 0, 0.1)), [1, 1000, 5], "nothing is lost by rounding");
        assert_eq!(part.whole(seen(0, 0, 0, 0.1)), [0, 0, 5], "and nothing is sent");
    }

    #[test]
    fn of_a_unix_socket_the_time_tells() {
        let mut part = SeenPart::default();
        assert_eq!(part.whole(of_unix(50, 1, 0.25)), [200, 200_000, 600]);
        assert_eq!(part.whole(of_unix(0, 1, 0.0)), [200, 200_000, 600], "nothing was seen: as before");
        assert_eq!(
            part.whole(of_unix(0, 0, 0.0)),
            [100, 100_000, 300],
            "the last connection has ended meanwhile"
        );
        assert_eq!(part.whole(of_unix(0, 0, 0.0)), [0, 0, 0]);
        assert_eq!(part.whole(of_unix(0, 1, 0.25)), [0, 0, 0]);
        assert_eq!(part.whole(of_unix(0, 1, 0.0)), [0, 0, 0]);
    }
}
