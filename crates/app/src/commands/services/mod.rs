//! `mitra services`: what each service did in a part of the recording, and who calls whom.

mod json;
mod map;
pub mod one;
mod text;

use anyhow::{Context, Result, anyhow};
use mitra_archive::Reader;
use mitra_model::Span;
use mitra_model::time::SECOND;

use crate::cli::ServicesArgs;
use crate::commands::{print, print_json};
use crate::errors::usage;
use crate::import;
use crate::progress::Progress;
use crate::recording::{Recording, Wanted};
use crate::render::style::Style;
use crate::services::{self, Filter, Map, Services};

/// Without --since.
const USUAL_NS: i64 = 60 * SECOND;
/// Without --limit.
const ROWS: usize = 20;

pub fn run(args: &ServicesArgs, style: &Style) -> Result<()> {
    let recording = Recording::open_for(
        &args.archive,
        &Wanted { before_ns: services::BACK_NS, ..Wanted::new(&args.range, USUAL_NS) },
    )?;
    let span = recording.recorded(&args.range, USUAL_NS)?;
    let progress = Progress::new("reading");
    let mut services = read(&recording.reader, span)?;
    let filter = args.service.as_deref().map(Filter::new);
    let mut chosen = match &filter {
        Some(filter) => find(filter, &services)?,
        None => (0..services.services.len()).collect(),
    };
    let limit = args.limit.unwrap_or(if args.json { usize::MAX } else { ROWS });
    let all = chosen.len();
    chosen.truncate(limit);
    services::add_past(&mut services, &chosen, &recording.reader, span)
        .with_context(|| format!("cannot read {}", recording.dir.display()))?;
    drop(progress);
    let map = Map::of(&services);
    let map = if filter.is_some() { map.around(&chosen) } else { map };
    let shown =
        Shown { services: &services, map: &map, all, chosen, is_filtered: filter.is_some(), span, limit };
    if args.json {
        return print_json(&json::document(&shown, &recording.reader.host().hostname));
    }
    if args.map { print(&map::text(&shown, style)) } else { print(&text::tables(&shown, style)) }
}

/// The document of `--json`, of all services.
pub fn document(reader: &Reader, span: Span) -> Result<serde_json::Value> {
    let mut services = read(reader, span)?;
    let chosen: Vec<usize> = (0..services.services.len()).collect();
    services::add_past(&mut services, &chosen, reader, span)?;
    let (map, all, limit) = (Map::of(&services), chosen.len(), usize::MAX);
    let shown = Shown { services: &services, map: &map, all, chosen, is_filtered: false, span, limit };
    Ok(serde_json::to_value(json::document(&shown, &reader.host().hostname))?)
}

/// What is printed.
struct Shown<'a> {
    services: &'a Services,
    map: &'a Map,
    /// Indices of the services that are shown, and how many there are.
    chosen: Vec<usize>,
    all: usize,
    is_filtered: bool,
    span: Span,
    limit: usize,
}

impl Shown<'_> {
    /// Indices of the dependencies of the chosen services: what they call, and who calls them.
    fn dependencies(&self) -> Vec<usize> {
        let is_shown = |i: &usize| {
            let dependency = &self.services.dependencies[*i];
            let concerned = dependency.of.iter().chain(&dependency.to);
            !self.is_filtered || concerned.into_iter().any(|service| self.chosen.contains(service))
        };
        (0..self.services.dependencies.len()).filter(is_shown).collect()
    }
}

/// The services of a recording. An error says why there are none.
fn read(reader: &Reader, span: Span) -> Result<Services> {
    let dir = reader.dir().display();
    let services = services::read(reader, span).with_context(|| format!("cannot read {dir}"))?;
    let host = reader.host();
    let why = if host.more.contains_key(import::MARK) {
        Some("the output of other tools has none".to_owned()).filter(|_| services.services.is_empty())
    } else {
        services.unwatched(&host.kernel)
    };
    match why {
        Some(why) => Err(anyhow!("{dir}: no services were recorded in that time: {why}")),
        None => Ok(services),
    }
}

/// The indices of the services that are meant. A name that none has is a mistake.
fn find(filter: &Filter, services: &Services) -> Result<Vec<usize>> {
    const NAMED_MAX: usize = 10;
    let found = filter.find(services);
    if found.is_empty() {
        let mut known: Vec<String> = services.services.iter().take(NAMED_MAX).map(|s| s.title()).collect();
        if services.services.len() > NAMED_MAX {
            known.push(format!("{} more", services.services.len() - NAMED_MAX));
        }
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(usage(format!("no service is called {filter} in that time; there are: {known}")));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::example;

    /// Calls a test with the example, and with the services that a filter finds.
    pub fn with_example<T>(filter: Option<&str>, look: impl FnOnce(&Shown<'_>) -> T) -> T {
        let services = example::services();
        with(&services, filter, look)
    }

    pub fn with<T>(services: &Services, filter: Option<&str>, look: impl FnOnce(&Shown<'_>) -> T) -> T {
        let chosen = match filter {
            Some(filter) => find(&Filter::new(filter), services).unwrap(),
            None => (0..services.services.len()).collect(),
        };
        let map = Map::of(services);
        let map = if filter.is_some() { map.around(&chosen) } else { map };
        look(&Shown {
            services,
            map: &map,
            all: chosen.len(),
            chosen,
            is_filtered: filter.is_some(),
            span: example::last_minute(),
            limit: ROWS,
        })
    }

    #[test]
    fn a_name_that_none_has_is_a_mistake_that_says_which_there_are() {
        let services = example::services();
        let error = find(&Filter::new("mysql"), &services).unwrap_err();
        assert_eq!(crate::errors::exit_code(&error), crate::errors::FAILED);
        let text = error.to_string();
        assert!(text.contains("mysql") && text.contains("gunicorn 127.0.0.1:8080"), "{text}");
    }
}
