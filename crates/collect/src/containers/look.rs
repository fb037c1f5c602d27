//! Who a cgroup belongs to: the state files of runtimes, first where they usually are, then where the process that watches over the
//! container has them.
//!
//! containerd's shim works in the folder of its bundle. conmon has the folder as an argument. Both see it as the runtime does, so that
//! moved state (k3s, another data folder) and runtimes in containers are found without their configuration.

use mitra_model::cgroup_name::{Runtime, read};
use mitra_parse::container_state::{Files, Pass, State, bundle, docker};

use super::files::Folder;
use crate::file::{Buffer, Root};

/// A container's first process is started by its shim or conmon, maybe with one in between.
const PARENTS_MAX: usize = 4;
/// As deep the processes of a container are looked for: one that runs systemd has them further below.
const DEPTH_MAX: usize = 4;
/// In so many of the cgroups below one.
const GROUPS_MAX: usize = 64;
/// More of the arguments of conmon is not read.
const COMMAND_BYTES_MAX: usize = 64 * 1024;

/// A cgroup whose names are wanted.
#[derive(Debug, Clone)]
pub struct Question {
    /// Its path below the hierarchy.
    pub path: String,
    /// Its directory below the root, in one hierarchy.
    pub dir: String,
}

/// Finds the names of a cgroup. `machine` is the state of the machine's runtimes, in a pass over several cgroups.
pub fn look<F: Files>(root: &Root, machine: Option<&Pass<'_, F>>, question: &Question) -> Option<State> {
    let found = read(&question.path);
    let container = found.containers.last();
    // LXC has the name in the path.
    if let Some(named) = container.filter(|container| container.runtime == Runtime::Lxc) {
        return Some(State { container: Some(named.id.clone().into_owned()), ..State::default() });
    }
    // A user chooses the names of the cgroups below its own: only the watcher of a rootless container says what it is.
    let machine = machine.filter(|_| !is_of_user(&question.path));
    let pod = || machine?.of_pod(&found.pod.as_ref()?.uid);
    // The cgroup of a pod has no state of its own.
    if found.pod.as_ref().is_some_and(|pod| pod.path == question.path)
        && container.is_none_or(|c| c.path != question.path)
    {
        return pod().map(|pod| State { pod: Some(pod), ..State::default() });
    }
    let id =
        container.map_or_else(|| question.path.rsplit('/').next().unwrap_or_default(), |c| c.id.as_ref());
    let usual = container.and_then(|container| machine?.usual(&container.id));
    let mut state = usual.or_else(|| by_watcher(root, &question.dir, id));
    if let Some(state) = state.as_mut().filter(|state| state.pod.is_none()) {
        state.pod = pod();
    }
    // The cgroup of the pod has the pod's name, also where the runtime says nothing of this one.
    state
}

/// Whether a cgroup is below that of a user.
fn is_of_user(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with("user-") && part.ends_with(".slice"))
}

/// Asks the process that watches over those of a cgroup.
fn by_watcher(root: &Root, dir: &str, id: &str) -> Option<State> {
    let first = first_process(root, dir, 0)?;
    match watcher(root, first)? {
        Watcher::Shim(pid) => by_shim(root, pid, id),
        Watcher::Conmon(pid) => by_conmon(root, pid, id),
    }
}

enum Watcher {
    Shim(u32),
    Conmon(u32),
}

fn watcher(root: &Root, first: u32) -> Option<Watcher> {
    let mut pid = first;
    for _ in 0..PARENTS_MAX {
        let stat = root.text(&format!("proc/{pid}/stat"))?;
        // A name may have brackets.
        let rest = stat.rsplit_once(") ")?.1;
        pid = rest.split(' ').nth(1)?.parse().ok()?;
        let comm = root.text(&format!("proc/{pid}/comm"))?;
        if comm.starts_with("containerd-shim") {
            return Some(Watcher::Shim(pid));
        }
        if comm == "conmon" {
            return Some(Watcher::Conmon(pid));
        }
    }
    None
}

/// The lowest process id of a cgroup or of the first one below that has any.
fn first_process(root: &Root, dir: &str, depth: usize) -> Option<u32> {
    let mut buffer = Buffer::default();
    let list = root.read(&format!("{dir}/cgroup.procs"), &mut buffer).ok()?;
    let pids =
        std::str::from_utf8(list).ok()?.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0);
    pids.min().or_else(|| {
        if depth >= DEPTH_MAX {
            return None;
        }
        let entries = std::fs::read_dir(root.path(dir)).ok()?;
        let dirs = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let names = dirs.filter_map(|entry| entry.file_name().into_string().ok());
        names.take(GROUPS_MAX).find_map(|name| first_process(root, &format!("{dir}/{name}"), depth + 1))
    })
}

fn by_shim(root: &Root, shim: u32, id: &str) -> Option<State> {
    if id.is_empty() || id.contains('/') || id == ".." {
        return None;
    }
    // One shim may watch over all containers of a pod: their bundles are beside its own.
    let tasks = Folder::of_process(root, shim, "cwd").ok()?.above().ok()?;
    let bundle = bundle(&tasks.read(&format!("{id}/config.json"))?)?;
    let of_docker = || {
        let of_shim = Folder::of_process(root, shim, "root").ok()?;
        docker(&of_shim.read(&format!("{}/config.v2.json", bundle.docker.as_deref()?))?)
    };
    // What containerd itself runs (`ctr`) has no other name than its id.
    let own = || Some(State { container: Some(id.to_owned()), ..State::default() });
    bundle.state.clone().or_else(of_docker).or_else(own)
}

fn by_conmon(root: &Root, conmon: u32, id: &str) -> Option<State> {
    let mut buffer = Buffer::default();
    let command = root.read(&format!("proc/{conmon}/cmdline"), &mut buffer).ok()?;
    let words = command.get(..command.len().min(COMMAND_BYTES_MAX))?.split(|byte| *byte == 0);
    let mut words = words.filter_map(|word| std::str::from_utf8(word).ok());
    let (mut bundle, mut name, mut is_of_it) = (None, None, false);
    while let Some(word) = words.next() {
        match word {
            "-b" | "--bundle" => bundle = words.next(),
            "-n" | "--name" => name = words.next(),
            "-c" | "--cid" => is_of_it |= words.next() == Some(id),
            _ => {}
        }
    }
    if !is_of_it {
        return None;
    }
    let stored = || {
        let store = bundle?.strip_suffix("/userdata")?.strip_suffix(id)?;
        let folder = Folder::of_process(root, conmon, "root").ok()?;
        Pass::new(&folder).of_store(store.trim_end_matches('/'), id)
    };
    let named = || {
        Some(State { container: Some(name.filter(|name| !name.is_empty())?.to_owned()), ..State::default() })
    };
    stored().or_else(named)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use mitra_parse::container_state::{STORES, TASKS};

    use super::*;

    const A: &str = "4f0c1e7d9b2a5c8e3f6a1b4d7e0c9f2a5b8d1e4c7f0a3b6d9e2c5f8a1b4d7e0c";
    const B: &str = "9be1d2c3a4f5061728394a5b6c7d8e9f0a1b2c3d4e5f60718293a4b5c6d7e8f9";
    const UID: &str = "0d4f1a2b-3c4d-5e6f-7a8b-9c0d1e2f3a4b";

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            Tree(tempfile::tempdir().unwrap())
        }

        fn put(&self, path: &str, text: &str) -> &Self {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
            self
        }

        /// A process with its parent.
        fn process(&self, pid: u32, comm: &str, parent: u32) -> &Self {
            self.put(&format!("proc/{pid}/stat"), &format!("{pid} ({comm}) S {parent} 1 1\n"));
            self.put(&format!("proc/{pid}/comm"), &format!("{comm}\n"))
        }

        fn link(&self, pid: u32, link: &str, to: &Path) -> &Self {
            symlink(self.0.path().join(to), self.0.path().join(format!("proc/{pid}/{link}"))).unwrap();
            self
        }

        fn look(&self, path: &str) -> [String; 3] {
            let question = Question { path: path.to_owned(), dir: format!("cg{path}") };
            let root = Root::open(self.0.path()).unwrap();
            let machine = Folder::of_machine(&root).unwrap();
            let state = look(&root, Some(&Pass::new(&machine)), &question).unwrap_or_default();
            [state.container, state.image, state.pod].map(Option::unwrap_or_default)
        }
    }

    const CRI: &str = r#"{"annotations":{"io.kubernetes.cri.container-name":"app","io.kubernetes.cri.image-name":"quay.io/shop/orders:2",
        "io.kubernetes.cri.sandbox-name":"orders-7d9f","io.kubernetes.cri.sandbox-namespace":"shop"}}"#;
    const CRIO: &str = r#"{"annotations":{"io.kubernetes.container.name":"app","io.kubernetes.cri-o.ImageName":"quay.io/shop/orders:2",
        "io.kubernetes.pod.name":"orders-7d9f","io.kubernetes.pod.namespace":"shop"}}"#;
    const APP: [&str; 3] = ["app", "quay.io/shop/orders:2", "shop/orders-7d9f"];

    fn listed(id: &str, name: &str) -> String {
        format!(
            r#"[{{"id":"{id}","names":["{name}"],"metadata":"{{\"image-name\":\"localhost/{name}:1\"}}"}}]"#
        )
    }

    #[test]
    fn usual_folders_of_each_runtime() {
        let tree = Tree::new();
        assert_eq!(tree.look(&format!("/docker/{A}")), [""; 3]);
        tree.put(
            &format!("var/lib/docker/containers/{A}/config.v2.json"),
            r#"{"Name":"/web","Config":{"Image":"nginx:1.25"}}"#,
        );
        assert_eq!(tree.look(&format!("/docker/{A}")), ["web", "nginx:1.25", ""]);
        assert_eq!(tree.look(&format!("/system.slice/docker-{A}.scope")), ["web", "nginx:1.25", ""]);

        let pod = format!("/kubepods/burstable/pod{UID}");
        for task in TASKS {
            let tree = Tree::new();
            tree.put(&format!("{task}/k8s.io/{A}/config.json"), CRI);
            assert_eq!(tree.look(&format!("{pod}/{A}")), APP);
            assert_eq!(tree.look(&format!("{pod}/{B}")), [""; 3]);
        }
        for store in STORES {
            let tree = Tree::new();
            tree.put(&format!("{store}/{A}/userdata/config.json"), CRIO);
            assert_eq!(tree.look(&format!("{pod}/crio-{A}")), APP);
            tree.put(&format!("{store}/containers.json"), &listed(B, "db"));
            assert_eq!(tree.look(&format!("/machine.slice/libpod-{B}.scope")), ["db", "localhost/db:1", ""]);
            tree.put(&format!("{store}/volatile-containers.json"), &listed(A, "job"));
        }
        assert_eq!(Tree::new().look("/lxc.payload.web"), ["web", "", ""]);
    }

    #[test]
    fn a_link_of_the_machine_is_followed() {
        let tree = Tree::new();
        tree.put(&format!("data/docker/containers/{A}/config.v2.json"), r#"{"Name":"/web"}"#);
        std::fs::create_dir_all(tree.0.path().join("var/lib")).unwrap();
        symlink("/data/docker", tree.0.path().join("var/lib/docker")).unwrap();
        assert_eq!(tree.look(&format!("/docker/{A}")), ["web", "", ""]);
    }

    #[test]
    fn pods_have_a_folder_of_logs() {
        let tree = Tree::new();
        for i in 0..3_000 {
            std::fs::create_dir_all(tree.0.path().join(format!("var/log/pods/old_dead-{i}_{i:032}")))
                .unwrap();
        }
        let pod = format!("/kubepods/pod{UID}");
        assert_eq!(tree.look(&pod), [""; 3]);
        tree.put(&format!("var/log/pods/shop_orders-7d9f_{UID}/app/0.log"), "");
        assert_eq!(tree.look(&pod), ["", "", "shop/orders-7d9f"]);
        assert_eq!(
            tree.look(&format!("{pod}/{A}")),
            ["", "", ""],
            "the runtime says nothing, and this need not be the container that holds the pod together"
        );
    }

    #[test]
    fn a_shim_leads_to_its_bundles() {
        let tree = Tree::new();
        tree.put("cg/default/web/cgroup.procs", "31\n30\n");
        tree.process(30, "app", 20).process(31, "child", 30).process(20, "containerd-shim", 1);
        tree.put("state/tasks/default/pause/config.json", "{}").link(
            20,
            "cwd",
            Path::new("state/tasks/default/pause"),
        );
        assert_eq!(tree.look("/default/web"), [""; 3], "no bundle of that name");
        tree.put("state/tasks/default/web/config.json", "{}");
        assert_eq!(tree.look("/default/web"), ["web", "", ""]);
        tree.put("state/tasks/default/web/config.json", CRI);
        assert_eq!(tree.look("/default/web"), APP);

        // Docker in a container, with a folder of its own.
        tree.put(&format!("cg/docker/{A}/docker/{B}/cgroup.procs"), "");
        tree.put(&format!("cg/docker/{A}/docker/{B}/init/cgroup.procs"), "50\n");
        tree.process(50, "a) S 1 (b", 40).process(40, "containerd-shim", 30);
        let hostname = format!(
            r#"{{"mounts":[{{"destination":"/etc/hostname","source":"/inner/containers/{B}/hostname"}}]}}"#
        );
        tree.put(&format!("rootfs/run/tasks/moby/{B}/config.json"), &hostname);
        tree.link(40, "cwd", Path::new(&format!("rootfs/run/tasks/moby/{B}"))).link(
            40,
            "root",
            Path::new("rootfs"),
        );
        tree.put(
            &format!("rootfs/inner/containers/{B}/config.v2.json"),
            r#"{"Name":"/nested","Config":{"Image":"a:1"}}"#,
        );
        assert_eq!(tree.look(&format!("/docker/{A}/docker/{B}")), ["nested", "a:1", ""]);
    }

    #[test]
    fn conmon_is_told_the_bundle() {
        let tree = Tree::new();
        let group = format!("/user.slice/libpod-{A}.scope");
        tree.put(&format!("cg{group}/cgroup.procs"), "")
            .put(&format!("cg{group}/container/cgroup.procs"), "60\n");
        tree.process(60, "sleep", 55).process(55, "conmon", 1);
        let command = |id: &str| {
            format!(
                "conmon\0--api-version\01\0-c\0{id}\0-b\0/home/me/store/overlay-containers/{id}/userdata\0-n\0given\0"
            )
        };
        tree.put("proc/55/cmdline", &command(B));
        assert_eq!(tree.look(&group), [""; 3], "of another container");
        tree.put("proc/55/cmdline", &command(A)).link(55, "root", Path::new(""));
        assert_eq!(tree.look(&group), ["given", "", ""]);
        tree.put("home/me/store/overlay-containers/volatile-containers.json", &listed(A, "renamed"));
        assert_eq!(tree.look(&group), ["renamed", "localhost/renamed:1", ""]);
    }

    #[test]
    fn hostile_state_gives_nothing() {
        let tree = Tree::new();
        tree.put("cg/x/cgroup.procs", "\u{0}\n-1\n99999999999\nno\n");
        assert_eq!(tree.look("/x"), [""; 3]);
        tree.put("cg/x/cgroup.procs", "70\n").process(70, "loop", 70);
        assert_eq!(tree.look("/x"), [""; 3]);
        tree.put("proc/70/stat", "70");
        assert_eq!(tree.look("/x"), [""; 3]);
        tree.put(&format!("var/lib/docker/containers/{A}/config.v2.json"), &"[".repeat(1_000_000));
        assert_eq!(tree.look(&format!("/docker/{A}")), [""; 3]);
    }
}
