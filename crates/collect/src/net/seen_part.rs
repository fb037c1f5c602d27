//! What was counted in a part of the time, for all of it.

/// What is new weighs as much as all that was before.
const KEPT: f64 = 0.5;

/// Less of the time tells nothing: a frame is not as long as it says, by the time that it takes.
const SHARE_MIN: f64 = 0.002;

/// How far what is written may be from what the time says, in powers of two: half of what a second server of the same name makes, which
/// doubles it.
const WRITES_OFF_MAX: f64 = 0.5;

/// Of one service: how many requests a segment of TCP stands for, or a message of a Unix socket, and how long they take. TCP counts its
/// segments all the time. Where nobody counts messages, calls of write() tell how many there were, if it is those that send. Otherwise there
/// are as many requests as when it was looked at last, or as many fewer as those who answer have run less since.
#[derive(Debug, Default, Clone, Copy)]
pub struct SeenPart {
    answered: f64,
    sends: f64,
    response_ns: f64,
    sent: f64,
    in_interval: f64,
    /// What those who answer had run when it was looked at last.
    ran: Option<f64>,
    /// How many messages a call of write() stands for. `None`: they are not sent so.
    sent_by_write: Option<f64>,
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
    /// Segments or messages that were sent, and those of them that belong to the requests that were seen.
    pub sends: [u64; 2],
    /// Whether somebody counts them all.
    pub is_counted: bool,
    /// Connections there are now.
    pub connections: u64,
    /// The part of the time.
    pub share: f64,
    /// What those who answer have done, where nobody counts.
    pub work: Work,
}

/// What the threads that answer have done since the service was asked last.
#[derive(Debug, Default, Clone, Copy)]
pub struct Work {
    /// CPU time.
    pub ran: Option<f64>,
    /// Calls of write().
    pub writes: Option<f64>,
    /// Of those a part in which it was looked at what was sent, and how many messages that were.
    pub looked_at: [u64; 2],
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
            mean(&mut self.sends, seen.sends[1]);
            mean(&mut self.response_ns, seen.response_ns);
            mean(&mut self.sent, seen.sent);
        }
        if seen.share > SHARE_MIN {
            self.in_interval = answered / seen.share;
            self.ran = seen.work.ran;
            self.sent_by_write = self.sent_by_write(seen.work);
        }
        if seen.share >= 1.0 {
            return [seen.answered, seen.response_ns, seen.sent];
        }
        let sends = match seen.is_counted {
            true => Some(seen.sends[0] as f64),
            false => self.sent_by_write.and_then(|each| Some(each * seen.work.writes?)),
        };
        let wanted = match sends {
            Some(sends) if self.sends > 0.0 => sends * self.answered / self.sends,
            None if seen.connections > 0 => self.in_interval * self.still_runs(seen.work.ran),
            // Nobody saw when the last one ended: in the middle.
            None => std::mem::take(&mut self.in_interval) / 2.0,
            _ => 0.0,
        };
        let wanted = wanted.max(answered) + self.rest;
        let requests = wanted.floor();
        self.rest = wanted - requests;
        let each = |of: f64| if self.answered > 0.0 { (requests * of / self.answered) as u64 } else { 0 };
        let sent = if seen.is_counted { seen.sent } else { each(self.sent) };
        // Below 2^53 by far.
        [requests as u64, each(self.response_ns), sent]
    }

    /// How many messages a call of write() stands for, as it was looked at now. They are sent so only if that says the same as the time
    /// that it was looked at, as far as that can be known: other processes of the name write too, and one may answer by another call.
    fn sent_by_write(&self, work: Work) -> Option<f64> {
        let [writes, sent] = work.looked_at.map(|n| n as f64);
        let each = if writes > 0.0 { sent / writes } else { return None };
        let requests = work.writes? * each * self.answered / self.sends;
        (requests / self.in_interval).log2().abs().lt(&WRITES_OFF_MAX).then_some(each)
    }

    /// How much those who answer run now, of what they ran when it was looked at last. Whoever runs more may do anything else.
    fn still_runs(&self, now: Option<f64>) -> f64 {
        match (self.ran, now) {
            (Some(before), Some(now)) if before > 0.0 => (now / before).min(1.0),
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(answered: u64, sent: u64, sent_seen: u64, share: f64) -> Seen {
        Seen {
            answered,
            response_ns: answered * 1000,
            sends: [sent, sent_seen],
            is_counted: true,
            connections: 1,
            sent: 5,
            share,
            work: Work::default(),
        }
    }

    /// Nobody counts, but of each answer it is known that it is one message.
    fn of_unix(answered: u64, connections: u64, share: f64) -> Seen {
        let sent = answered * 3;
        Seen { is_counted: false, connections, sent, ..seen(answered, answered, answered, share) }
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

    #[test]
    fn who_does_not_run_any_more_answers_no_more() {
        let ran = |seen: Seen, ran: f64| Seen { work: Work { ran: Some(ran), ..Work::default() }, ..seen };
        let mut part = SeenPart::default();
        assert_eq!(part.whole(ran(of_unix(50, 1, 0.25), 0.8))[0], 200);
        assert_eq!(part.whole(ran(of_unix(0, 1, 0.0), 0.4))[0], 100);
        assert_eq!(part.whole(ran(of_unix(0, 1, 0.0), 1.6))[0], 200, "more is not known");
        assert_eq!(part.whole(ran(of_unix(0, 1, 0.0), 0.0))[0], 0);
        assert_eq!(part.whole(of_unix(0, 1, 0.0))[0], 200, "unknown is not none");
    }

    #[test]
    fn calls_of_write_tell_how_many_were_sent() {
        let wrote = |seen: Seen, writes: u64, looked_at: [u64; 2]| Seen {
            work: Work { ran: None, writes: Some(writes as f64), looked_at },
            ..seen
        };
        let mut part = SeenPart::default();
        // Of eleven writes ten send, the eleventh goes to a file; being watched has made it slower.
        assert_eq!(part.whole(wrote(of_unix(50, 1, 0.25), 242, [55, 50]))[0], 220);
        assert_eq!(part.whole(wrote(of_unix(0, 1, 0.0), 484, [0, 0]))[0], 440);
        assert_eq!(part.whole(wrote(of_unix(0, 1, 0.0), 0, [0, 0]))[0], 0, "the load has ended");
        // Another server of the name writes as much: the time says that it is half.
        assert_eq!(part.whole(wrote(of_unix(50, 1, 0.25), 484, [55, 50]))[0], 200);
        // It sends by another call.
        assert_eq!(part.whole(wrote(of_unix(50, 1, 0.25), 3, [0, 50]))[0], 200);
    }
}
