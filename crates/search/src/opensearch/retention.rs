//! Checks today's date against other sources before a cluster's old days are deleted.

use serde_json::{Value, json};

use crate::day::Day;
use crate::error::Error;

use super::http::{Body, Request};
use super::nodes::Outcome;
use super::request::{self, SearchReply};
use super::{Cluster, nodes};

/// Returns the cluster's clock, in seconds since 1970. Needs the privilege `monitor`.
const CLOCK: &str = "/_cat/health?h=epoch&format=json";

/// The reason to doubt this host's date. The cluster's clock decides. If it is not accessible,
/// another host must have had a pass within a day of today.
pub(super) fn doubt<'a>(
    cluster: &Cluster,
    own: impl Iterator<Item = &'a String>,
    today: Day,
) -> Result<Option<String>, Error> {
    let is_near = |day: Day| day.0.abs_diff(today.0) <= 1;
    if let Some(theirs) = day_of(cluster)? {
        return Ok((!is_near(theirs)).then(|| format!("here it is {today}, in the cluster {theirs}")));
    }
    let own: Vec<&String> = own.collect();
    let near: Vec<String> = today.before().through(today.after()).map(|day| day.to_string()).collect();
    let body = json!({"size": 0, "track_total_hits": true, "query": {"bool": {
        "filter": [{"terms": {"day": near}}],
        "must_not": [{"terms": {"host": own}}],
    }}});
    let others = match request::search(cluster, &[cluster.names.hosts()], &body)? {
        SearchReply::Answer(answer) => {
            answer.pointer("/hits/total/value").and_then(Value::as_u64).unwrap_or(0)
        }
        SearchReply::TooLarge => 0,
    };
    Ok((others == 0).then(|| {
        format!("the cluster's clock may not be asked for, and no other host was looked at about {today}")
    }))
}

/// The day by the cluster's clock; `None` if it is not accessible.
fn day_of(cluster: &Cluster) -> Result<Option<Day>, Error> {
    let reply = match cluster.nodes.ask(Request { method: "GET", path: CLOCK, body: Body::None })? {
        Outcome::Reply(reply) => reply,
        Outcome::TooLarge => return Ok(None),
    };
    if !reply.is_ok() {
        return match nodes::error(&reply) {
            Error::Refused(_) => Ok(None),
            error => Err(error),
        };
    }
    let epoch = reply.body.pointer("/0/epoch");
    let epoch = epoch.and_then(|epoch| epoch.as_i64().or_else(|| epoch.as_str()?.parse().ok()));
    Ok(epoch.map(|seconds: i64| Day::of(seconds.saturating_mul(1_000_000_000))))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::{Settings, Writer, fake};
    use super::*;
    use crate::backend::{Deleted, Sink};

    const TODAY: Day = Day(20_700);

    /// A fake cluster with one node. It has `days` days up to `last`, and answers with the given
    /// clock and number of other hosts.
    struct Node {
        settings: Settings,
        deleted: Arc<Mutex<Vec<String>>>,
        dir: tempfile::TempDir,
    }

    fn node(last: Day, days: i32, clock: Option<Day>, others: u64) -> Node {
        let deleted = Arc::new(Mutex::new(Vec::<String>::new()));
        let gone = Arc::clone(&deleted);
        let settings = fake::node(move |first, body| {
            Some(if first.contains("_alias") {
                let gone = gone.lock().unwrap();
                let names = Day(last.0 - days)
                    .after()
                    .through(last)
                    .flat_map(|day| [format!("mitra_{day}"), format!("mitra_history_{day}")]);
                let left = names.filter(|name| !gone.contains(name)).map(|name| (name, json!({})));
                (200, Value::Object(left.collect()))
            } else if first.starts_with("DELETE") {
                let name = first.split(['/', '?']).nth(1).unwrap();
                gone.lock().unwrap().push(name.to_owned());
                (200, json!({}))
            } else if first.contains("_cat/health") {
                match clock {
                    Some(day) => (200, json!([{"epoch": (day.start_ns() / 1_000_000_000 + 7).to_string()}])),
                    None => (403, json!({"error": {"type": "security_exception"}})),
                }
            } else {
                assert!(first.contains("_msearch") && body.contains("mitra_hosts"));
                let found =
                    json!({"status": 200, "hits": {"total": {"value": others}}, "_shards": {"failed": 0}});
                (200, json!({"responses": [found]}))
            })
        });
        Node { settings, deleted, dir: tempfile::tempdir().unwrap() }
    }

    impl Node {
        /// Runs the retention of a host whose clock says `today` and that keeps thirty days.
        fn retain(&self, today: Day) -> (Deleted, Vec<String>) {
            let cluster = Cluster::connect(self.settings.clone()).unwrap();
            let mut writer = Writer::open(cluster, self.dir.path()).unwrap();
            let done = writer.delete_before(Day(today.0 - 30), today, 2).unwrap();
            (done, std::mem::take(&mut *self.deleted.lock().unwrap()))
        }
    }

    #[test]
    fn a_clock_that_is_months_ahead_deletes_nothing_of_a_fleet() {
        let ahead = Day(TODAY.0 + 200);
        // The host with the wrong clock may already have written an index for its wrong day.
        for (last, clock, others) in
            [(TODAY, Some(TODAY), 9), (ahead, Some(TODAY), 0), (ahead, None, 0), (TODAY, None, 0)]
        {
            let node = node(last, 90, clock, others);
            let (done, deleted) = node.retain(ahead);
            assert!(matches!(done, Deleted::Doubted(_)), "{done:?}");
            assert_eq!(deleted, Vec::<String>::new());
        }
    }

    #[test]
    fn where_the_cluster_agrees_some_days_go_at_a_time() {
        for (clock, others) in [(Some(TODAY), 0), (Some(TODAY.before()), 0), (None, 1)] {
            let node = node(TODAY, 34, clock, others);
            let (done, deleted) = node.retain(TODAY);
            let oldest = Day(TODAY.0 - 33);
            assert_eq!(done, Deleted::Some);
            assert_eq!(deleted.len(), 4, "two days, each with its history: {deleted:?}");
            assert!(
                deleted.contains(&format!("mitra_{oldest}"))
                    && deleted.contains(&format!("mitra_history_{}", oldest.after()))
            );
        }
        let node = node(TODAY, 32, Some(TODAY), 0);
        assert_eq!(node.retain(TODAY).0, Deleted::All);
    }
}
