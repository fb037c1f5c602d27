//! Which incidents concern a service: as the culprit, as a victim, or in what proves it.

use mitra_model::report::{Culprit, Evidence, Incident, Link, Root};

use super::{Service, call};

/// Whether a service, one of its processes or its group is named by an incident.
pub fn concerns(incident: &Incident, service: &Service) -> bool {
    let roots = || std::iter::once(&incident.root_cause).chain(&incident.other_roots);
    roots().any(|root| is_root(root, service)) || incident.chain.iter().any(|link| is_link(link, service))
}

fn is_root(root: &Root, service: &Service) -> bool {
    is_culprit(&root.culprit, service) || is_said(&root.statement, &root.remarks, service)
}

fn is_link(link: &Link, service: &Service) -> bool {
    is_said(&link.statement, &link.remarks, service) || link.evidence.iter().any(|e| is_evidence(e, service))
}

fn is_culprit(culprit: &Culprit, service: &Service) -> bool {
    culprit.pid.is_some_and(|pid| service.pids.contains(&pid))
        || culprit.process.as_ref().is_some_and(|name| service.names.contains(name))
        || culprit.cgroup.as_deref().is_some_and(|cgroup| is_in(service, cgroup))
        || culprit.address.as_deref() == Some(&service.key)
}

/// Evidence names the row: an address, `4242@81230000000`, `812>10.0.0.7:5432`, `curl>10.0.0.7:80`, a group or a process.
fn is_evidence(evidence: &Evidence, service: &Service) -> bool {
    let entity = evidence.entity.as_str();
    let called = call(entity);
    let process =
        called.map_or_else(|| entity.split_once('@').map(|(tid, _)| tid), |(caller, _)| Some(caller));
    let pid = process.and_then(|process| process.parse().ok());
    entity == service.key
        || service.names.contains(entity)
        || is_in(service, entity)
        || pid.is_some_and(|pid| service.pids.contains(&pid))
        || called.is_some_and(|(caller, address)| service.names.contains(caller) || address == service.key)
}

/// Whether a group is the service's own or one above it. All are below the root, which says nothing.
fn is_in(service: &Service, cgroup: &str) -> bool {
    let Some(own) = service.cgroup.as_deref() else { return false };
    let below = own.strip_prefix(cgroup);
    cgroup.len() > 1 && below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

fn is_said(statement: &str, remarks: &[String], service: &Service) -> bool {
    std::iter::once(statement)
        .chain(remarks.iter().map(String::as_str))
        .any(|text| is_word(text, &service.key) || service.names.iter().any(|name| is_word(text, name)))
}

/// Whether a text has a word that is not a part of a longer one.
fn is_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '/' | '@');
    !word.is_empty()
        && text.match_indices(word).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + word.len()..]);
            !before.ends_with(is_part) && !after.starts_with(is_part)
        })
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;
    use crate::render::examples;

    fn orders() -> Service {
        let services = example::services();
        let found = services.services.into_iter().find(|service| service.key == "127.0.0.1:8080");
        found.unwrap()
    }

    #[test]
    fn an_incident_of_others_does_not_concern_it() {
        let incident = examples::flood().incidents.remove(0);
        assert!(!concerns(&incident, &orders()));
    }

    #[test]
    fn it_is_concerned_wherever_it_is_named() {
        let service = orders();
        let named = |change: &dyn Fn(&mut Incident)| {
            let mut incident = examples::flood().incidents.remove(0);
            change(&mut incident);
            concerns(&incident, &service)
        };
        let evidence = |entity: &str| {
            let entity = entity.to_owned();
            named(&move |i| i.chain[1].evidence[0].entity.clone_from(&entity))
        };
        assert!(named(&|i| i.root_cause.culprit.pid = Some(801)));
        assert!(named(&|i| i.root_cause.culprit.process = Some("gunicorn".into())));
        assert!(named(&|i| i.root_cause.culprit.cgroup = Some("/system.slice".into())));
        assert!(named(&|i| i.root_cause.culprit.address = Some("127.0.0.1:8080".into())));
        assert!(named(&|i| i.chain[2].statement = "gunicorn (801) waited".into()));
        assert!(named(&|i| i.root_cause.remarks = vec!["a victim: 127.0.0.1:8080".into()]));
        for entity in
            ["127.0.0.1:8080", "801@5", "801>10.0.0.7:5432", "9>127.0.0.1:8080", "gunicorn", "gunicorn>1"]
        {
            assert!(evidence(entity), "{entity}");
        }
        for entity in ["", "/", "127.0.0.1:80801", "8@5", "/system.slice/orders", "9>10.0.0.7:1"] {
            assert!(!evidence(entity), "{entity}");
        }
        assert!(!named(&|i| i.root_cause.statement = "gunicorn-2 read".into()));
    }
}
