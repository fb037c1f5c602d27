//! Tables of `sar`, JSON of `sadf -j` and lines of `atop -P`, in steps of at least a second, as these tools have them.

use std::io::Write;

use anyhow::Result;
use mitra_archive::Query;
use mitra_model::time::SECOND;
use mitra_model::{Metric, SeriesSet, Span};
use mitra_parse::text::export::{Sample, date_and_time, samples};
use mitra_parse::text::procps::atop_write;
use mitra_parse::text::sysstat::write::{self as sysstat, SECTIONS};

use super::Source;
use crate::recording::chunks;

/// Read at a time: the length of a segment, or less where there are tasks.
const CHUNK_NS: i64 = 600 * SECOND;
const CHUNK_TASKS_NS: i64 = 60 * SECOND;
/// Sar has a file for each day.
const DAY_NS: i64 = 86_400 * SECOND;

impl Source<'_> {
    /// A span in pieces of about so long. A step lies in one of them.
    pub(super) fn parts(&self, span: Span, chunk_ns: i64) -> impl Iterator<Item = Span> {
        let since = span.since.div_euclid(self.step).saturating_mul(self.step);
        let steps = (chunk_ns / self.step).max(1);
        let parts = chunks(Span { since, until: span.until }, self.step.saturating_mul(steps));
        parts.filter_map(move |part| part.intersect(span))
    }

    /// The first samples of boots.
    fn boots(&self) -> Result<Vec<i64>> {
        let gaps = self.reader.gaps_in(self.span)?;
        Ok(gaps.into_iter().filter(|gap| gap.why == "reboot").map(|gap| gap.span.until).collect())
    }

    /// Gives each moment of a span to `take`.
    pub(super) fn each(
        &self,
        span: Span,
        chunk_ns: i64,
        metrics: &[&'static Metric],
        take: &mut dyn FnMut(&Sample<'_>) -> Result<()>,
    ) -> Result<()> {
        for part in self.parts(span, chunk_ns) {
            let set: SeriesSet = self.reader.read(&Query::new(part, metrics.to_vec()))?;
            for sample in samples(&set, part, self.step) {
                take(&sample)?;
            }
        }
        Ok(())
    }
}

/// Tables of sar: day by day, one after the other.
pub fn sar(source: &Source<'_>, out: &mut dyn Write) -> Result<u64> {
    let host = source.reader.host();
    let midnight = source.span.since.div_euclid(DAY_NS).saturating_mul(DAY_NS);
    let boots = source.boots()?;
    let (mut moments, mut text) = (0, String::new());
    for day in chunks(Span { since: midnight, until: source.span.until }, DAY_NS) {
        let Some(day) = day.intersect(source.span) else { continue };
        let (mut titled, mut moments_of_day) = (false, 0_u64);
        for section in SECTIONS {
            let (mut headed, mut moments_of_section) = (false, 0_u64);
            let mut boots = boots.iter().filter(|boot| day.contains(**boot)).peekable();
            source.each(day, CHUNK_NS, &section.metrics(), &mut |sample| {
                text.clear();
                section.rows(sample, &mut text);
                if text.is_empty() {
                    return Ok(());
                }
                if !titled {
                    out.write_all(sysstat::title(host, sample.t).as_bytes())?;
                    titled = true;
                }
                while let Some(boot) = boots.next_if(|boot| **boot < sample.t) {
                    out.write_all(sysstat::restart(host, *boot).as_bytes())?;
                    headed = false;
                }
                if !headed {
                    // The time of a header is the beginning of the first interval.
                    let since = sample.t.saturating_sub((sample.interval_s * SECOND as f64) as i64);
                    let time = date_and_time(since.max(day.since)).1;
                    writeln!(out, "\n{time}   {}", section.header())?;
                    headed = true;
                }
                moments_of_section += 1;
                Ok(out.write_all(text.as_bytes())?)
            })?;
            moments_of_day = moments_of_day.max(moments_of_section);
        }
        moments += moments_of_day;
        if titled {
            writeln!(out)?;
        }
    }
    Ok(moments)
}

/// JSON of `sadf -j`.
pub fn sadf_json(source: &Source<'_>, out: &mut dyn Write) -> Result<u64> {
    let mut metrics: Vec<&'static Metric> = Vec::new();
    for metric in SECTIONS.iter().flat_map(sysstat::Section::metrics) {
        if !metrics.iter().any(|known| known.name == metric.name) {
            metrics.push(metric);
        }
    }
    let mut moments = 0;
    out.write_all(sysstat::json_begin(source.reader.host(), source.span.since).as_bytes())?;
    source.each(source.span, CHUNK_NS, &metrics, &mut |sample| {
        let between = if moments == 0 { "" } else { sysstat::JSON_BETWEEN };
        moments += 1;
        Ok(write!(out, "{between}{}", sysstat::json_moment(sample))?)
    })?;
    out.write_all(sysstat::json_end(source.reader.host(), &source.boots()?).as_bytes())?;
    Ok(moments)
}

/// Lines of `atop -P`.
pub fn atop(source: &Source<'_>, out: &mut dyn Write) -> Result<u64> {
    let host = source.reader.host();
    let (mut moments, mut text) = (0, String::new());
    source.each(source.span, CHUNK_TASKS_NS, &atop_write::needs(), &mut |sample| {
        text.clear();
        atop_write::moment(sample, host, &mut text);
        moments += 1;
        Ok(out.write_all(text.as_bytes())?)
    })?;
    Ok(moments)
}
