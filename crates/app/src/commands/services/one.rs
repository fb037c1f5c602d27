//! `mitra explain --service`: a report of what concerns one service.

use anyhow::Result;
use mitra_archive::Reader;
use mitra_model::Span;
use mitra_model::report::Report;
use serde::Serialize;

use super::{Filter, find, json, read, text};
use crate::commands::{json_text, show};
use crate::diagnosis::title;
use crate::render::html;
use crate::render::page::Page;
use crate::render::sources::range;
use crate::render::style::{Ink, Style};
use crate::render::text::Shown;
use crate::services::{self, Services, Traffic, concerns};

/// A service of which more fails is not well: no one promises its users less than 99 %.
const FAILED_MAX: f64 = 0.01;

/// The services that are meant.
pub struct Chosen {
    services: Services,
    chosen: Vec<usize>,
    /// Incidents of others in that time.
    others: usize,
}

impl Chosen {
    pub fn read(name: &str, reader: &Reader, span: Span) -> Result<Chosen> {
        let mut services = read(reader, span)?;
        let chosen = find(&Filter::new(name), &services)?;
        services::add_past(&mut services, &chosen, reader, span)?;
        Ok(Chosen { services, chosen, others: 0 })
    }

    /// Leaves only the incidents that concern them.
    pub fn restrict(&mut self, report: &mut Report) {
        let before = report.incidents.len();
        let is_meant =
            |incident: &_| self.chosen.iter().any(|i| concerns(incident, &self.services.services[*i]));
        report.incidents.retain(is_meant);
        self.others = before - report.incidents.len();
        report.repeats = mitra_diagnose::repeats(&report.incidents);
    }

    /// Prints the report with the figures of the services.
    pub fn show(
        &self,
        report: &Report,
        output: &show::Output,
        drawn: html::Drawn<'_>,
        style: &Style,
        shown: &Shown,
    ) -> Result<()> {
        let json = || {
            let one = |i: &usize| json::service(&self.services.services[*i], &self.services);
            let services = self.chosen.iter().map(one).collect();
            json_text(&Document { report, services, other_incidents: self.others })
        };
        output.write(|| html::report(report, drawn, style, &title), json, || self.text(report, style, shown))
    }

    fn text(&self, report: &Report, style: &Style, shown: &Shown) -> String {
        let mut page = Page::new(style);
        if report.incidents.is_empty() {
            self.verdicts(&mut page, report);
        } else {
            page.lines(0, &crate::render::text::report(report, style, &title, shown));
            page.heading("The service in that time");
            for i in &self.chosen {
                let service = &self.services.services[*i];
                page.paragraph(2, 4, None, &format!("{}: {}", service.title(), text::sentence(service)));
            }
        }
        if self.others > 0 {
            let incidents = if self.others == 1 { "incident does" } else { "incidents do" };
            page.gap();
            page.paragraph(
                0,
                2,
                Some(Ink::Faint),
                &format!("{} {incidents} not concern it: mitra explain", self.others),
            );
        }
        page.finish()
    }

    /// Without an incident: how each was.
    fn verdicts(&self, page: &mut Page<'_>, report: &Report) {
        let style = page.style;
        for i in &self.chosen {
            let service = &self.services.services[*i];
            let (name, when) = (service.title(), range(report.window, style));
            let figures = text::sentence(service);
            let (ink, said) = match &service.slower {
                Some(slower) => (
                    Ink::Warn,
                    format!(
                        "{name}: no incident concerns it in {when}, but it is slower since {}, {}; {figures}.",
                        style.clock(slower.since),
                        text::slow(slower)
                    ),
                ),
                None if failed(&service.traffic) > FAILED_MAX => (
                    Ink::Warn,
                    format!("{name}: no incident concerns it in {when}, but requests failed: {figures}."),
                ),
                None if service.traffic.requests.is_none_or(|requests| requests <= 0.0) => {
                    (Ink::Faint, format!("{name}: no incident concerns it in {when}, and {figures}."))
                }
                None => (Ink::Good, format!("{name} was well in {when}: {figures}.")),
            };
            page.paragraph(0, 2, Some(ink), &said);
        }
    }
}

/// Leaves only the incidents of a report that concern a service.
pub fn restrict(reader: &Reader, span: Span, name: &str, report: &mut Report) -> Result<()> {
    Chosen::read(name, reader, span)?.restrict(report);
    Ok(())
}

/// The share of what was asked that failed.
fn failed(traffic: &Traffic) -> f64 {
    let failed = traffic.errors().unwrap_or(0.0);
    let asked = traffic.without_answer().unwrap_or(0.0) + traffic.requests.unwrap_or(0.0);
    if asked > 0.0 { failed / asked } else { 0.0 }
}

/// A report with what is known of the services.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    report: &'a Report,
    services: Vec<json::ServiceJson<'a>>,
    other_incidents: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::examples;
    use crate::services::example;

    fn chosen(name: &str) -> Chosen {
        let services = example::services();
        let chosen = find(&Filter::new(name), &services).unwrap();
        Chosen { services, chosen, others: 0 }
    }

    fn said(name: &str, mut report: Report) -> String {
        let mut chosen = chosen(name);
        chosen.restrict(&mut report);
        chosen.text(&report, &Style::plain(100), &Shown::default())
    }

    #[test]
    fn an_incident_of_others_leaves_a_service_well() {
        insta::assert_snapshot!(said("cached", examples::flood()));
    }

    #[test]
    fn a_service_that_is_slower_is_not_well() {
        insta::assert_snapshot!(said("orders-api", examples::quiet()));
    }

    #[test]
    fn a_service_that_fails_or_is_not_asked_is_not_well() {
        let mut chosen = chosen("cached");
        let mut says = |change: &dyn Fn(&mut Traffic)| {
            let i = chosen.chosen[0];
            change(&mut chosen.services.services[i].traffic);
            chosen.text(&examples::quiet(), &Style::plain(200), &Shown::default())
        };
        assert!(
            says(&|traffic| (traffic.requests, traffic.resets) = (Some(990.0), Some(5.0)))
                .contains(" was well in ")
        );
        let failing = says(&|traffic| traffic.resets = Some(20.0));
        assert!(failing.contains("but requests failed: it answered 990 requests/s"), "{failing}");
        let idle = says(&|traffic| (traffic.requests, traffic.resets) = (Some(0.0), None));
        assert!(
            idle.contains("no incident concerns it") && idle.contains("and it answered nothing"),
            "{idle}"
        );
    }

    #[test]
    fn its_own_incident_is_shown_with_its_figures() {
        let mut report = examples::two();
        report.incidents[0].root_cause.culprit.cgroup = Some("/system.slice/orders-api.service".into());
        let text = said("orders-api", report);
        assert!(text.starts_with("ROOT CAUSE  ") && text.contains("\nSEEN        since 03:42:07"), "{text}");
        assert!(
            text.contains("\nThe service in that time\n  gunicorn 127.0.0.1:8080: it answered 6 requests/s"),
            "{text}"
        );
        assert!(text.ends_with("\n1 incident does not concern it: mitra explain\n"), "{text}");
    }

    #[test]
    fn the_document_is_a_report_with_services() {
        let chosen = chosen("8080");
        let report = examples::quiet();
        let services = vec![json::service(&chosen.services.services[chosen.chosen[0]], &chosen.services)];
        let json = serde_json::to_value(Document { report: &report, services, other_incidents: 2 }).unwrap();
        assert_eq!((json["schema"].as_str(), &json["other_incidents"]), (Some("mitra.report/1"), &2.into()));
        assert_eq!(json["services"][0]["address"], "127.0.0.1:8080");
        assert!(json["window"]["since"].is_string() && json["incidents"].is_array());
    }
}
