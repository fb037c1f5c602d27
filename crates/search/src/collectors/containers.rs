//! Names of containers and pods, for their cgroups: from the state of the runtimes.

use mitra_model::cgroup_name::{Names, name, read};
use mitra_parse::container_state::{Files, Pass, State};

use super::{Source, word};
use crate::document::Facts;

/// Maximum size of a file of a runtime, in bytes.
const FILE_MAX: usize = 16 * 1024 * 1024;

impl Files for Source<'_> {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.text(&format!("/{path}"), FILE_MAX).ok().map(String::into_bytes)
    }

    fn names(&self, folder: &str) -> Vec<String> {
        Source::names(self, &format!("/{folder}"))
    }
}

/// The names of a cgroup that is a container or a pod.
pub fn of_group(runtimes: &Pass<'_, Source<'_>>, group: &str) -> Option<State> {
    let found = read(group);
    let container = found.containers.last().filter(|container| container.path == group);
    let pod = found.pod.as_ref().filter(|pod| container.is_some() || pod.path == group);
    let mut state = container.and_then(|container| runtimes.usual(&container.id)).unwrap_or_default();
    // Of a container of which the runtime says nothing the pod alone is not told: its own cgroup has that name.
    if container.is_none() || state.container.is_some() {
        state.pod = state.pod.or_else(|| runtimes.of_pod(&pod?.uid));
    }
    (state != State::default()).then_some(state)
}

/// Adds the names to the facts, and returns the line of the content.
pub fn add(facts: &mut Facts, group: &str, state: &State) -> String {
    let State { container, image, pod } = state;
    for (field, text) in [("cgroup.container", container), ("cgroup.image", image), ("cgroup.pod", pod)] {
        if let Some(text) = text {
            word(facts, field, text);
        }
    }
    let names = Names { container: container.as_deref(), image: image.as_deref(), pod: pod.as_deref() };
    // A name with a line break would be two lines.
    let said: String =
        name(group, |_| names).unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
    format!("{group} is {said}\n")
}
