//! Whether anything is recorded: told once when that ends, and once when it goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mitra_archive::Recording;
use mitra_model::SeriesSet;
use mitra_model::report::Report;
use mitra_model::time::SECOND;
use mitra_notify::{Event, Message, SCHEMA, Told};

use super::said;
use crate::render::style::rfc3339;
use crate::render::units;

/// Is in each frame.
pub const EACH_FRAME: &str = "mitra.shed_level";
/// A recorder is missing that long before it is said to have stopped. systemd starts one anew after two seconds (`RestartSec` of its unit),
/// and it needs a few to open its sources; an update of the package takes no longer.
const GONE: Duration = Duration::from_secs(10);
/// The recorder is there and nothing comes into the archive. It keeps its samples in memory while a disk takes nothing: a snapshot freezes a
/// file system for seconds, and what waits for a disk for two minutes the kernel itself reports as hung (`hung_task_timeout_secs`).
const SILENT: Duration = Duration::from_secs(120);
/// Fewer samples than this are missed by a machine that is only busy.
const INTERVALS: u32 = 3;

/// What was seen of the recorder.
#[derive(Default)]
pub struct Watch {
    report: Option<Arc<Report>>,
    /// The last frame, and when it was seen first. Time does not count while the machine sleeps.
    frame: Option<(i64, Instant)>,
    looked: Option<Instant>,
    gone: Option<Instant>,
    was_there: bool,
    interval: Duration,
}

impl Watch {
    /// What is new. `recording` is the recorder that has the archive, `seen` what was explained last.
    pub fn step(
        &mut self,
        told: &mut Told,
        now: Instant,
        recording: Option<&Recording>,
        seen: Option<&(Arc<Report>, Arc<SeriesSet>)>,
    ) -> Option<Message> {
        let (report, recorded) = seen?;
        if self.report.as_ref().is_none_or(|before| !Arc::ptr_eq(before, report)) {
            self.report = Some(Arc::clone(report));
            self.looked = Some(now);
            let step_s = recorded.get(EACH_FRAME, "").map_or(f64::NAN, |series| series.axis.step_s());
            self.interval = Duration::try_from_secs_f64(step_s).unwrap_or(self.interval);
        }
        let last = report.window.until.0;
        if self.frame.is_none_or(|(known, _)| known != last) {
            self.frame = Some((last, now));
        }
        self.was_there |= recording.is_some();
        self.gone = if recording.is_some() { None } else { self.gone.or(Some(now)) };
        if let Some(stopped) = told.stopped_at() {
            // The clock may have been set back meanwhile.
            let is_back = recording.is_some() && last != stopped;
            return is_back.then(|| told.recorded_again(back(report, stopped)));
        }
        let is_over = match self.gone {
            // The archive was read since, so that the last frame is known.
            Some(gone) => now - gone >= self.least(GONE) && self.looked.is_some_and(|looked| looked > gone),
            None => self.silent().is_some_and(|silent| silent >= self.least(SILENT)),
        };
        let is_news = is_over && self.was_there;
        is_news.then(|| told.stopped(last, stopped(report, recording)))
    }

    /// How long each look at the archive has found the same last frame.
    fn silent(&self) -> Option<Duration> {
        let (_, since) = self.frame?;
        Some(self.looked?.saturating_duration_since(since))
    }

    fn least(&self, least: Duration) -> Duration {
        least.max(self.interval.saturating_mul(INTERVALS))
    }
}

fn stopped(report: &Report, recording: Option<&Recording>) -> Message {
    let since = rfc3339(report.window.until.0);
    let (headline, action) = match recording {
        None => (
            format!("the recorder has stopped: nothing is recorded since {since}"),
            "see why, and start it: systemctl status mitra; journalctl -u mitra -n 20; systemctl start mitra",
        ),
        Some(recording) => {
            let trouble =
                recording.trouble.as_ref().map(|trouble| format!(": {trouble}")).unwrap_or_default();
            (
                format!("the recorder runs, and nothing came into the archive since {since}{trouble}"),
                "see what keeps it from writing: mitra status; df -h; journalctl -u mitra -n 20",
            )
        }
    };
    let id = format!("{}-recorder-{since}", report.host);
    Message {
        id,
        since,
        actions: vec![action.to_owned()],
        ..message(report, "nothing is recorded", headline)
    }
}

fn back(report: &Report, stopped: i64) -> Message {
    // The frame after the gap is the first one after the last that was known.
    let gap = report.recorder.gaps.iter().find(|gap| gap.until.0 > stopped);
    let headline = match gap {
        Some(gap) => format!(
            "the recorder records again; nothing was recorded for {}",
            units::length((gap.until.0 - gap.since.0) as f64 / SECOND as f64)
        ),
        None => "the archive is written again, and nothing is missing in it".to_owned(),
    };
    let until = gap.map_or(report.window.until.0, |gap| gap.until.0);
    Message { until: Some(rfc3339(until)), ..message(report, "it is recorded again", headline) }
}

fn message(report: &Report, title: &str, headline: String) -> Message {
    let headline = said(&headline);
    Message {
        schema: SCHEMA.to_owned(),
        event: Event::RecorderStopped,
        id: format!("{}-recorder", report.host),
        host: report.host.clone(),
        since: rfc3339(report.window.until.0),
        until: None,
        condition: "recorder".to_owned(),
        title: title.to_owned(),
        unexplained: false,
        confidence: 1.0,
        culprit: None,
        cost: None,
        actions: Vec::new(),
        meanings: Vec::new(),
        text: headline.clone(),
        headline,
        facts: None,
        withheld: 0,
    }
}

#[cfg(test)]
mod tests {
    use mitra_model::report::{GapEntry, Moment};
    use mitra_model::{Axis, Series, lookup};

    use super::*;

    struct Archive {
        watch: Watch,
        told: Told,
        begin: Instant,
        seen: Option<(Arc<Report>, Arc<SeriesSet>)>,
    }

    impl Archive {
        fn new() -> Self {
            Archive { watch: Watch::default(), told: Told::default(), begin: Instant::now(), seen: None }
        }

        /// The archive is explained, with this last frame.
        fn explain(&mut self, last: i64, gaps: &[(i64, i64)]) {
            let mut report = Report { host: "web1".to_owned(), ..Report::default() };
            report.window.until = Moment(last * SECOND);
            let gap = |(since, until): &(i64, i64)| GapEntry {
                since: Moment(since * SECOND),
                until: Moment(until * SECOND),
                why: String::new(),
            };
            report.recorder.gaps = gaps.iter().map(gap).collect();
            let axis = Arc::new(Axis { t: vec![0, SECOND], dt: vec![f64::NAN, 1.0], ..Axis::default() });
            let mut set = SeriesSet::default();
            let series = Series { axis, start: 0, values: vec![0.0; 2].into() };
            set.insert(lookup(EACH_FRAME).unwrap(), "".into(), series);
            self.seen = Some((Arc::new(report), Arc::new(set)));
        }

        fn look(&mut self, second: u64, is_there: bool) -> Option<Message> {
            let recording = Recording { pid: Some(7), trouble: Some("the disk takes nothing".to_owned()) };
            let now = self.begin + Duration::from_secs(second);
            let message =
                self.watch.step(&mut self.told, now, is_there.then_some(&recording), self.seen.as_ref());
            // As a process that was started anew.
            self.told = serde_json::from_str(&serde_json::to_string(&self.told).unwrap()).unwrap();
            message
        }
    }

    #[test]
    fn a_recorder_that_stops_and_comes_back_is_told_once_each() {
        let mut archive = Archive::new();
        assert_eq!(archive.look(0, true), None);
        archive.explain(1000, &[]);
        assert_eq!(archive.look(1, true), None);
        assert_eq!(archive.look(2, false), None);
        assert_eq!(archive.look(5, true), None, "it was started anew");
        assert_eq!(archive.look(6, false), None);
        assert_eq!(archive.look(17, false), None, "which frame is the last one is not known yet");
        archive.explain(1004, &[]);
        let stopped = archive.look(18, false).unwrap();
        assert_eq!(
            stopped.headline,
            "the recorder has stopped: nothing is recorded since 1970-01-01T00:16:44.000Z"
        );
        assert_eq!(
            (stopped.event, stopped.id.as_str()),
            (Event::RecorderStopped, "web1-recorder-1970-01-01T00:16:44.000Z")
        );
        assert_eq!(archive.told.going_on(), std::slice::from_ref(&stopped));
        for second in 19..100 {
            archive.explain(1004, &[]);
            assert_eq!(archive.look(second, second % 2 == 0), None, "told, and no frame came");
        }
        archive.explain(1100, &[(1004, 1098)]);
        let back = archive.look(101, true).unwrap();
        assert_eq!(back.headline, "the recorder records again; nothing was recorded for 1 min 34 s");
        assert_eq!((back.event, &back.id, &back.since), (Event::RecorderBack, &stopped.id, &stopped.since));
        assert_eq!((archive.look(102, true), archive.told.going_on()), (None, Vec::new()));
    }

    #[test]
    fn where_no_recorder_was_seen_none_has_stopped() {
        let mut archive = Archive::new();
        for second in 0..300 {
            archive.explain(1000, &[]);
            assert_eq!(archive.look(second, false), None);
        }
    }

    #[test]
    fn a_recorder_that_writes_nothing_is_told_after_longer_than_a_disk_is_suspended() {
        let mut archive = Archive::new();
        for second in 0..120 {
            archive.explain(1000, &[]);
            assert_eq!(archive.look(second, true), None);
        }
        archive.explain(1000, &[]);
        let stopped = archive.look(120, true).unwrap();
        assert!(
            stopped.headline.ends_with("since 1970-01-01T00:16:40.000Z: the disk takes nothing"),
            "{}",
            stopped.headline
        );
        archive.explain(1130, &[]);
        assert_eq!(
            archive.look(131, true).unwrap().headline,
            "the archive is written again, and nothing is missing in it"
        );
    }
}
