//! What a cgroup is called: unit, slice, container or pod, from its path and from what the recorder found of it.
//!
//! ```text
//! /system.slice/nginx.service                                       unit nginx.service
//! /system.slice/docker-4f0c….scope                                  docker container 4f0c…
//! /kubepods.slice/…/kubepods-burstable-pod1a2b_….slice/crio-….scope CRI-O container of a pod
//! /kubepods/besteffort/pod1a2b-…/77aa…                              the same with the cgroupfs driver
//! /docker/4f0c…/docker/9be1…                                        Docker in Docker: the last one is meant
//! ```

use std::borrow::Cow;

use crate::series::SeriesSet;

/// The metrics that have the recorded names, in the order of [`Names`].
pub const METRICS: [&str; 3] = ["cgroup.container", "cgroup.image", "cgroup.pod"];
/// Deeper paths are not cut into parts; the recorder does not walk deeper either.
const DEPTH_MAX: usize = 32;
/// The length of the ids that Docker, containerd, CRI-O and Podman draw: 32 bytes in hex.
const ID_CHARS: usize = 64;
/// As many characters of an id are shown, as `docker ps` does.
const SHORT_ID_CHARS: usize = 12;

/// What runs a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// Docker, or what speaks for it.
    Docker,
    /// containerd, for the kubelet or for nerdctl.
    Containerd,
    /// CRI-O, for the kubelet.
    CriO,
    /// Podman, and what else uses libpod.
    Podman,
    /// LXC, LXD and Incus.
    Lxc,
    /// systemd-nspawn, and virtual machines that are registered with systemd-machined.
    Machine,
    /// The path has an id, and nothing says whose: several runtimes name their cgroups so below a pod.
    Unknown,
}

impl Runtime {
    fn words(self) -> &'static str {
        match self {
            Runtime::Docker => "docker container",
            Runtime::Containerd => "containerd container",
            Runtime::CriO => "CRI-O container",
            Runtime::Podman => "podman container",
            Runtime::Lxc => "lxc container",
            Runtime::Machine => "machine",
            Runtime::Unknown => "container",
        }
    }
}

/// The cgroup of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container<'a> {
    /// What runs it.
    pub runtime: Runtime,
    /// Its id; of LXC and nspawn its name.
    pub id: Cow<'a, str>,
    /// The path of its cgroup: the beginning of the path that was looked at.
    pub path: &'a str,
}

/// The cgroup of a pod of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod<'a> {
    /// Its UID as Kubernetes writes it. Of a static pod it is a hash without dashes.
    pub uid: String,
    /// The path of its cgroup.
    pub path: &'a str,
}

/// What a path says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CgroupPath<'a> {
    /// The containers, the outermost first.
    pub containers: Vec<Container<'a>>,
    /// The innermost pod.
    pub pod: Option<Pod<'a>>,
}

/// Reads a path. One that makes no sense has neither containers nor a pod.
#[must_use]
pub fn read(path: &str) -> CgroupPath<'_> {
    let mut found = CgroupPath::default();
    let mut parent = "";
    let mut end = 0;
    for (depth, part) in path.split('/').enumerate() {
        end += part.len() + usize::from(depth > 0);
        if depth > DEPTH_MAX {
            return CgroupPath::default();
        }
        let upto = path.get(..end).unwrap_or(path);
        // containerd with the name of a systemd cgroup, and without systemd: SLICE:cri-containerd:ID.
        let (group, named) = match part.split_once(':') {
            Some((slice, rest)) => (slice, rest.split_once(':')),
            None => (part, None),
        };
        if let Some(uid) = pod_uid(group) {
            found.pod = Some(Pod { uid, path: upto });
        }
        let container = match named {
            Some((prefix, id)) => prefixed(prefix, id),
            None => container(part, parent),
        };
        if let Some((runtime, id)) = container {
            found.containers.push(Container { runtime, id, path: upto });
        }
        parent = part;
    }
    found
}

/// The UID in `pod1a2b…` or `kubepods-burstable-pod1a2b_….slice`.
fn pod_uid(part: &str) -> Option<String> {
    let uid = match part.strip_suffix(".slice") {
        Some(slice) => slice.rsplit_once("-pod")?.1,
        None => part.strip_prefix("pod")?,
    };
    let is_hash = uid.len() == 32 && uid.bytes().all(is_hex);
    // systemd takes a dash for a level of slices, so the kubelet writes another character.
    let lengths = uid.split(['-', '_']).map(str::len);
    let is_uuid = uid.len() == 36
        && lengths.eq([8, 4, 4, 4, 12])
        && uid.bytes().all(|byte| is_hex(byte) || b"-_".contains(&byte));
    (is_hash || is_uuid).then(|| uid.replace('_', "-"))
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

fn is_id(text: &str) -> bool {
    text.len() == ID_CHARS && text.bytes().all(is_hex)
}

fn prefixed<'a>(prefix: &str, id: &'a str) -> Option<(Runtime, Cow<'a, str>)> {
    let runtime = match prefix {
        "docker" => Runtime::Docker,
        "cri-containerd" | "nerdctl" => Runtime::Containerd,
        "crio" => Runtime::CriO,
        "libpod" | "libpod-payload" => Runtime::Podman,
        _ => return None,
    };
    is_id(id).then_some((runtime, id.into()))
}

/// The container whose cgroup has this name below a cgroup of that name.
fn container<'a>(part: &'a str, parent: &str) -> Option<(Runtime, Cow<'a, str>)> {
    let base = part.strip_suffix(".scope").unwrap_or(part);
    if is_id(base) {
        return match parent {
            // That of a pod of Podman.
            "libpod_parent" => None,
            "docker" => Some((Runtime::Docker, base.into())),
            _ => Some((Runtime::Unknown, base.into())),
        };
    }
    // The id is the last word: conmon has a cgroup `crio-conmon-ID` of its own.
    if let Some((prefix, id)) = base.rsplit_once('-')
        && let Some(found) = prefixed(prefix, id)
    {
        return Some(found);
    }
    let is_name = |name: &&str| !name.is_empty();
    if let Some(name) = part.strip_prefix("lxc.payload.").filter(is_name) {
        return Some((Runtime::Lxc, name.into()));
    }
    match parent {
        "lxc" | "lxc.payload" => Some((Runtime::Lxc, part.into())).filter(|_| !part.is_empty()),
        "machine.slice" => {
            let nspawn = part.strip_prefix("systemd-nspawn@").and_then(|rest| rest.strip_suffix(".service"));
            let scope = || base.strip_prefix("machine-").filter(|_| base.len() < part.len());
            let name = nspawn.or_else(scope).filter(is_name)?;
            Some((Runtime::Machine, unescaped(name)))
        }
        _ => None,
    }
}

/// A name of a unit as it was before systemd escaped it: `\x2d` is a dash.
fn unescaped(name: &str) -> Cow<'_, str> {
    let Some((before, rest)) = name.split_once("\\x") else { return name.into() };
    let mut out = before.to_owned();
    for part in rest.split("\\x") {
        let code = part.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code.filter(u8::is_ascii_graphic) {
            Some(byte) => {
                out.push(char::from(byte));
                out.push_str(part.get(2..).unwrap_or_default());
            }
            None => {
                out.push_str("\\x");
                out.push_str(part);
            }
        }
    }
    out.into()
}

/// The recorded names of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Names<'a> {
    /// The name of the container.
    pub container: Option<&'a str>,
    /// Its image.
    pub image: Option<&'a str>,
    /// The pod, as `namespace/name`.
    pub pod: Option<&'a str>,
}

/// What a cgroup is called, if it is called anything: `container web (nginx:1.25)`, `pod shop/orders-7d9f container app`,
/// `unit nginx.service`. `names` has what was recorded of a path.
#[must_use]
pub fn name<'a>(path: &str, names: impl Fn(&str) -> Names<'a>) -> Option<String> {
    let read = read(path);
    // What runs inside of a container has the container's name. One that is no known kind of cgroup may be one still.
    let container = read.containers.last().map(|container| container.path);
    let pod = read.pod.as_ref().map(|pod| pod.path);
    for group in [Some(path), container, pod].into_iter().flatten() {
        let names = names(group);
        let Some(mut said) = said(&names) else { continue };
        if names.container.is_none() && container.is_some() && container != pod {
            // The kubelet names the pod before the runtime says which of its containers this is.
            said.push_str(&match read.containers.last() {
                Some(inner) if Some(group) != container => format!(" container {}", short_id(&inner.id)),
                _ => " infrastructure container".to_owned(),
            });
        }
        return Some(with_unit(said, path.get(group.len()..).unwrap_or_default()));
    }
    if let Some(container) = read.containers.last() {
        let inside = path.get(container.path.len()..).unwrap_or_default();
        let said = format!("{} {}", container.runtime.words(), short_id(&container.id));
        return Some(with_unit(said, inside));
    }
    if let Some(pod) = read.pod {
        return Some(format!("pod {}", pod.uid));
    }
    unit(path)
}

/// What a cgroup of a recording is called. The last names count: a container gets its name shortly after its cgroup.
#[must_use]
pub fn recorded(set: &SeriesSet, path: &str) -> Option<String> {
    name(path, |group| {
        let [container, image, pod] =
            METRICS.map(|metric| set.text(metric, group).and_then(|text| text.last()));
        Names { container, image, pod }
    })
}

fn short_id(id: &str) -> &str {
    id.get(..SHORT_ID_CHARS).filter(|_| is_id(id)).unwrap_or(id)
}

fn said(names: &Names<'_>) -> Option<String> {
    match (names.pod, names.container) {
        (Some(pod), Some(container)) => Some(format!("pod {pod} container {container}")),
        (Some(pod), None) => Some(format!("pod {pod}")),
        (None, Some(container)) => {
            let image = names.image.map(|image| format!(" ({})", short_image(image))).unwrap_or_default();
            Some(format!("container {container}{image}"))
        }
        (None, None) => None,
    }
}

/// Adds the unit inside of a container that runs systemd.
fn with_unit(said: String, inside: &str) -> String {
    match inside.rsplit('/').find(|part| part.ends_with(".service")) {
        Some(unit) => format!("{said}, unit {unit}"),
        None => said,
    }
}

/// `unit nginx.service`, `slice system.slice`, `unit app.service of user 1000`.
fn unit(path: &str) -> Option<String> {
    let parts = || path.rsplit('/');
    let is_unit = |part: &&str| {
        [".service", ".scope", ".socket", ".mount", ".swap"].iter().any(|end| part.ends_with(end))
    };
    if let Some(last) = parts().next().filter(|part| part.ends_with(".slice")) {
        return Some(format!("slice {last}"));
    }
    let unit = parts().find(is_unit)?;
    let user = parts().find_map(|part| part.strip_prefix("user-")?.strip_suffix(".slice"));
    let of_user = user.map(|user| format!(" of user {user}")).unwrap_or_default();
    // A unit may have cgroups of its own below.
    let below = path.split_once(unit).map(|(_, below)| below).unwrap_or_default();
    Some(format!("unit {unit}{below}{of_user}"))
}

/// `nginx:1.25` of `docker.io/library/nginx:1.25`.
fn short_image(image: &str) -> &str {
    for registry in ["docker.io/library/", "docker.io/", "localhost/"] {
        if let Some(rest) = image.strip_prefix(registry) {
            return rest;
        }
    }
    // An image without a name has the digest of its configuration.
    let is_digest = image.strip_prefix("sha256:").is_some_and(is_id);
    if is_digest { image.get(..7 + SHORT_ID_CHARS).unwrap_or(image) } else { image }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "4f0c1e7d9b2a5c8e3f6a1b4d7e0c9f2a5b8d1e4c7f0a3b6d9e2c5f8a1b4d7e0c";
    const B: &str = "9be1d2c3a4f5061728394a5b6c7d8e9f0a1b2c3d4e5f60718293a4b5c6d7e8f9";
    const UID: &str = "0d4f1a2b-3c4d-5e6f-7a8b-9c0d1e2f3a4b";

    fn path(template: &str) -> String {
        template
            .replace("{A}", A)
            .replace("{B}", B)
            .replace("{U}", UID)
            .replace("{u}", &UID.replace('-', "_"))
    }

    #[test]
    fn layouts_of_runtimes() {
        use Runtime::{Containerd, CriO, Docker, Lxc, Machine, Podman, Unknown};
        // The path, the innermost container, and whether it belongs to the pod.
        for (template, runtime, id, is_pod) in [
            ("/docker/{A}", Docker, A, false),
            ("/system.slice/docker-{A}.scope", Docker, A, false),
            ("/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{A}.scope", Docker, A, false),
            ("/docker/{A}/docker/{B}", Docker, B, false),
            ("/system.slice/docker-{A}.scope/docker/{B}", Docker, B, false),
            ("/system.slice/docker-{A}.scope/system.slice/nginx.service", Docker, A, false),
            ("/build/{A}", Unknown, A, false),
            ("/ecs/5f6e7d8c9b0a4f3e2d1c0b9a8f7e6d5c/{A}", Unknown, A, false),
            ("/kubepods/besteffort/pod{U}/{A}", Unknown, A, true),
            ("/kubepods/burstable/pod{U}/{A}", Unknown, A, true),
            ("/kubepods/pod{U}/{A}", Unknown, A, true),
            ("/kubepods/burstable/pod{U}/crio-{A}", CriO, A, true),
            (
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{u}.slice/cri-containerd-{A}.scope",
                Containerd,
                A,
                true,
            ),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{u}.slice/crio-{A}.scope",
                CriO,
                A,
                true,
            ),
            ("/kubepods.slice/kubepods-pod{u}.slice/docker-{A}.scope", Docker, A, true),
            ("/kubepods.slice/kubepods-pod{u}.slice/crio-{A}.scope/container", CriO, A, true),
            (
                "/system.slice/containerd.service/kubepods-burstable-pod{u}.slice:cri-containerd:{A}",
                Containerd,
                A,
                true,
            ),
            (
                "/system.slice/docker-{A}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{u}.slice/cri-containerd-{B}.scope",
                Containerd,
                B,
                true,
            ),
            ("/system.slice/nerdctl-{A}.scope", Containerd, A, false),
            ("/machine.slice/libpod-{A}.scope", Podman, A, false),
            ("/machine.slice/libpod-{A}.scope/container", Podman, A, false),
            ("/machine.slice/machine-libpod_pod_{B}.slice/libpod-{A}.scope", Podman, A, false),
            (
                "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{A}.scope/container",
                Podman,
                A,
                false,
            ),
            ("/libpod_parent/libpod-{A}", Podman, A, false),
            ("/libpod_parent/{B}/libpod-{A}", Podman, A, false),
            ("/system.slice/web.service/libpod-payload-{A}", Podman, A, false),
            ("/lxc/web", Lxc, "web", false),
            ("/lxc.payload.web", Lxc, "web", false),
            ("/lxc.payload/web/system.slice/cron.service", Lxc, "web", false),
            ("/machine.slice/systemd-nspawn@web.service/payload", Machine, "web", false),
            ("/machine.slice/machine-my\\x2dbox.scope", Machine, "my-box", false),
            ("/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt", Machine, "qemu-1-vm", false),
        ] {
            let path = path(template);
            let read = read(&path);
            let last = read.containers.last().unwrap_or_else(|| panic!("{template}"));
            assert_eq!((last.runtime, last.id.as_ref()), (runtime, id), "{template}");
            assert!(path.starts_with(last.path), "{template}");
            assert_eq!(read.pod.as_ref().map(|pod| pod.uid.as_str()), is_pod.then_some(UID), "{template}");
        }
        let nested = path("/docker/{A}/docker/{B}");
        let ids: Vec<_> =
            read(&nested).containers.into_iter().map(|c| (c.id.into_owned(), c.path.len())).collect();
        assert_eq!(ids, [(A.to_owned(), 8 + 64), (B.to_owned(), nested.len())]);
        let hash = "/kubepods/burstable/pod33d556edd3ae8ef21980288cef77ae8b";
        assert_eq!(read(hash).pod.unwrap().uid, "33d556edd3ae8ef21980288cef77ae8b", "of a static pod");
    }

    #[test]
    fn what_is_no_container_is_none() {
        for template in [
            "",
            "/",
            "//",
            "/system.slice/nginx.service",
            "/system.slice/docker.service",
            "/libpod_parent/{A}",
            "/libpod_parent/conmon",
            "/kubepods.slice/crio-conmon-{A}.scope",
            "/machine.slice/libpod-conmon-{A}.scope",
            "/docker/4F0C1E7D",
            "/docker/../../etc",
            "/machine.slice/machine-.scope",
            "/lxc/",
            "/podx/{A}0",
            "/kubepods/podnot-a-uid-at-all-but-36-characters-x",
            "::::",
            "/a:cri-containerd:short",
            "/\u{202e}{A}",
        ] {
            let path = path(template);
            assert_eq!(read(&path), CgroupPath::default(), "{template}");
        }
        let deep = format!("{}/docker/{A}", "/a".repeat(DEPTH_MAX));
        assert_eq!(read(&deep), CgroupPath::default());
    }

    #[test]
    fn names_are_those_that_people_use() {
        let none = |_: &str| Names::default();
        for (template, wanted) in [
            ("/system.slice/nginx.service", "unit nginx.service"),
            ("/system.slice/system-getty.slice/getty@tty1.service", "unit getty@tty1.service"),
            ("/system.slice/mitra.service/recorder", "unit mitra.service/recorder"),
            ("/system.slice", "slice system.slice"),
            ("/user.slice/user-1000.slice/session-3.scope", "unit session-3.scope of user 1000"),
            ("/docker/{A}", "docker container 4f0c1e7d9b2a"),
            ("/docker/{A}/system.slice/cron.service", "docker container 4f0c1e7d9b2a, unit cron.service"),
            ("/kubepods/pod{U}", "pod 0d4f1a2b-3c4d-5e6f-7a8b-9c0d1e2f3a4b"),
            ("/lxc.payload.web", "lxc container web"),
        ] {
            assert_eq!(name(&path(template), none).as_deref(), Some(wanted), "{template}");
        }
        assert_eq!(name("/", none), None);
        assert_eq!(name("/backup", none), None);

        let web = Names { container: Some("web"), image: Some("docker.io/library/nginx:1.25"), pod: None };
        let docker = path("/docker/{A}");
        let names = |group: &str| if group == docker { web } else { Names::default() };
        assert_eq!(name(&docker, names).as_deref(), Some("container web (nginx:1.25)"));
        let inner = format!("{docker}/system.slice/cron.service");
        assert_eq!(name(&inner, names).as_deref(), Some("container web (nginx:1.25), unit cron.service"));
        let unnamed = path("/docker/{A}/docker/{B}");
        assert_eq!(
            name(&unnamed, names).as_deref(),
            Some("docker container 9be1d2c3a4f5"),
            "not the outer one"
        );
        assert_eq!(name("/default/web", |_| web).as_deref(), Some("container web (nginx:1.25)"));

        let app = path("/kubepods/burstable/pod{U}/{A}");
        let pod = Names { pod: Some("shop/orders-7d9f"), ..Names::default() };
        let of_app = Names { container: Some("app"), ..pod };
        let said = |of: Names<'static>| name(&app, |group| if group == app { of } else { Names::default() });
        assert_eq!(said(of_app).as_deref(), Some("pod shop/orders-7d9f container app"));
        assert_eq!(said(pod).as_deref(), Some("pod shop/orders-7d9f infrastructure container"));
        let group = path("/kubepods/burstable/pod{U}");
        let of_pod = |of: &str| if of == group { pod } else { Names::default() };
        assert_eq!(name(&app, of_pod).as_deref(), Some("pod shop/orders-7d9f container 4f0c1e7d9b2a"));
        assert_eq!(name(&group, |_| pod).as_deref(), Some("pod shop/orders-7d9f"));
    }

    #[test]
    fn images_without_a_name_are_cut() {
        assert_eq!(short_image(&format!("sha256:{A}")), "sha256:4f0c1e7d9b2a");
        assert_eq!(short_image("quay.io/a/b:1"), "quay.io/a/b:1");
        assert_eq!(unescaped("a\\x2db\\xzz\\x"), "a-b\\xzz\\x");
    }
}
