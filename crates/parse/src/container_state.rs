//! What container runtimes keep of their containers in files: names, images and pods.
//!
//! ```text
//! Docker      /var/lib/docker/containers/ID/config.v2.json
//! containerd  /run/containerd/io.containerd.runtime.v2.task/NAMESPACE/ID/config.json, an OCI bundle
//! CRI-O       /run/containers/storage/overlay-containers/ID/userdata/config.json, an OCI bundle
//! Podman      /var/lib/containers/storage/overlay-containers/containers.json, and volatile-containers.json of `--rm`
//! kubelet     /var/log/pods/NAMESPACE_POD_UID/
//! ```
//!
//! Whoever starts a container chooses what stands in them. A file that is not as expected says nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

/// Longer names are cut. Names of Kubernetes have up to 253 characters, those of images up to 255 before the tag.
const NAME_BYTES_MAX: usize = 400;
/// A pod's infrastructure container, as the kubelet labels it.
const SANDBOX: &str = "POD";

/// The names of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// Its own name. The infrastructure container of a pod has none.
    pub container: Option<String>,
    /// Its image.
    pub image: Option<String>,
    /// Its pod, as `namespace/name`.
    pub pod: Option<String>,
}

impl State {
    fn new(container: Option<&str>, image: Option<&str>, pod: Option<String>) -> Option<State> {
        let container = container.filter(|name| *name != SANDBOX || pod.is_none()).and_then(bounded);
        let state = State { container, image: image.and_then(bounded), pod };
        (state.container.is_some() || state.pod.is_some()).then_some(state)
    }
}

/// A name that is not empty, cut to its bound.
fn bounded(name: &str) -> Option<String> {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).filter(|name| !name.is_empty()).map(str::to_owned)
}

fn pod(namespace: Option<&str>, name: Option<&str>) -> Option<String> {
    Some(format!("{}/{}", bounded(namespace?)?, bounded(name?)?))
}

type Text = Option<String>;

/// What Docker, the kubelet, containerd, CRI-O and nerdctl write beside a container.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    #[serde(rename = "io.kubernetes.container.name")]
    container: Text,
    #[serde(rename = "io.kubernetes.pod.name")]
    pod: Text,
    #[serde(rename = "io.kubernetes.pod.namespace")]
    namespace: Text,
    #[serde(rename = "io.kubernetes.cri-o.ImageName")]
    crio_image: Text,
    #[serde(rename = "io.kubernetes.cri.container-name")]
    cri_container: Text,
    #[serde(rename = "io.kubernetes.cri.image-name")]
    cri_image: Text,
    #[serde(rename = "io.kubernetes.cri.sandbox-name")]
    cri_pod: Text,
    #[serde(rename = "io.kubernetes.cri.sandbox-namespace")]
    cri_namespace: Text,
    #[serde(rename = "nerdctl/name")]
    nerdctl: Text,
}

impl Labels {
    fn pod(&self) -> Option<String> {
        pod(self.cri_namespace.as_deref(), self.cri_pod.as_deref())
            .or_else(|| pod(self.namespace.as_deref(), self.pod.as_deref()))
    }
}

/// `config.v2.json` of Docker: `{"Name":"/web","Config":{"Image":"nginx:1.25","Labels":{…},…},…}`.
#[must_use]
pub fn docker(bytes: &[u8]) -> Option<State> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default, rename = "Name")]
        name: Text,
        #[serde(default, rename = "Config")]
        config: Option<Config>,
    }
    #[derive(Deserialize)]
    struct Config {
        #[serde(default, rename = "Image")]
        image: Text,
        #[serde(default, rename = "Labels")]
        labels: Option<Labels>,
    }
    let file: File = serde_json::from_slice(bytes).ok()?;
    let config = file.config.unwrap_or(Config { image: None, labels: None });
    let labels = config.labels.unwrap_or_default();
    let pod = labels.pod();
    let own = file.name.as_deref().map(|name| name.trim_start_matches('/'));
    let of_pod = labels.container.as_deref().filter(|_| pod.is_some());
    State::new(of_pod.or(own), config.image.as_deref(), pod)
}

/// What the `config.json` of an OCI bundle says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bundle {
    /// The names in its annotations.
    pub state: Option<State>,
    /// The folder of Docker that has more of the container: where its `/etc/hostname` comes from.
    pub docker: Option<String>,
}

/// `config.json` of an OCI bundle: `{"annotations":{"io.kubernetes.cri.container-name":"app",…},"mounts":[…],…}`.
#[must_use]
pub fn bundle(bytes: &[u8]) -> Option<Bundle> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        annotations: Option<Labels>,
        #[serde(default)]
        mounts: Option<Vec<Mount>>,
    }
    #[derive(Deserialize)]
    struct Mount {
        #[serde(default)]
        destination: Text,
        #[serde(default)]
        source: Text,
    }
    let file: File = serde_json::from_slice(bytes).ok()?;
    let labels = file.annotations.unwrap_or_default();
    let image = labels.cri_image.as_deref().or(labels.crio_image.as_deref());
    let pod = labels.pod();
    let of_pod = labels.cri_container.as_deref().or(labels.container.as_deref()).filter(|_| pod.is_some());
    let state = State::new(of_pod.or(labels.nerdctl.as_deref()), image, pod);
    let mounts = file.mounts.unwrap_or_default();
    let hostname = mounts.iter().find(|mount| mount.destination.as_deref() == Some("/etc/hostname"));
    let folder = hostname.and_then(|mount| mount.source.as_deref()?.strip_suffix("/hostname"));
    Some(Bundle { state, docker: folder.map(str::to_owned) })
}

/// The containers of `containers.json` of containers/storage, by id:
/// `[{"id":"4f0c…","names":["web"],"metadata":"{\"image-name\":\"docker.io/library/nginx:1.25\",…}",…},…]`.
///
/// A list that is cut off has none.
#[must_use]
pub fn storage(bytes: &[u8]) -> BTreeMap<String, State> {
    #[derive(Deserialize)]
    struct Entry {
        id: String,
        #[serde(default)]
        names: Option<Vec<String>>,
        #[serde(default)]
        metadata: Text,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default, rename = "image-name")]
        image: Text,
    }
    // Entries are read one by one: the list of all would take several times the memory of the names.
    struct All;
    impl<'de> Visitor<'de> for All {
        type Value = BTreeMap<String, State>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of containers")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            let mut all = BTreeMap::new();
            while let Some(entry) = entries.next_element::<Entry>()? {
                let metadata =
                    entry.metadata.as_deref().and_then(|text| serde_json::from_str::<Metadata>(text).ok());
                let image = metadata.and_then(|metadata| metadata.image);
                let name = entry.names.as_ref().and_then(|names| names.first());
                let state = State::new(name.map(String::as_str), image.as_deref(), None);
                all.extend(state.map(|state| (entry.id, state)));
            }
            Ok(all)
        }
    }
    serde_json::Deserializer::from_slice(bytes).deserialize_seq(All).unwrap_or_default()
}

/// The pod that a folder of the kubelet is of, if it has this UID: `shop_orders-7d9f_0d4f1a2b-…`. Names of Kubernetes have no
/// underscore.
#[must_use]
pub fn pod_folder(name: &str, uid: &str) -> Option<String> {
    let rest = name.strip_suffix(uid)?.strip_suffix('_')?;
    let (namespace, name) = rest.split_once('_')?;
    pod(Some(namespace), Some(name)).filter(|_| !name.contains('_') && !uid.is_empty())
}

/// Folders of containerd with a folder for each of its namespaces.
pub const TASKS: [&str; 2] =
    ["run/containerd/io.containerd.runtime.v2.task", "run/k3s/containerd/io.containerd.runtime.v2.task"];
/// Folders of containers/storage, by storage driver.
pub const STORES: [&str; 4] = [
    "var/lib/containers/storage/overlay-containers",
    "run/containers/storage/overlay-containers",
    "var/lib/containers/storage/vfs-containers",
    "run/containers/storage/vfs-containers",
];
/// The kubelet's folder of logs.
const POD_LOGS: &str = "var/log/pods";

/// The files of a machine, their paths given without the leading slash.
pub trait Files {
    /// A whole file; `None` if there is none.
    fn read(&self, path: &str) -> Option<Vec<u8>>;
    /// The names in a folder.
    fn names(&self, folder: &str) -> Vec<String>;
}

/// The state of the runtimes in one pass over many containers: what says something of all of them is read once, because a node
/// has folders of thousands of dead pods, and Podman one list of all containers, dead ones too.
pub struct Pass<'f, F> {
    files: &'f F,
    names: RefCell<BTreeMap<String, Rc<[String]>>>,
    lists: RefCell<BTreeMap<String, Rc<BTreeMap<String, State>>>>,
}

impl<'f, F: Files> Pass<'f, F> {
    /// Reads nothing yet.
    #[must_use]
    pub fn new(files: &'f F) -> Self {
        Pass { files, names: RefCell::default(), lists: RefCell::default() }
    }

    fn names(&self, folder: &str) -> Rc<[String]> {
        let mut known = self.names.borrow_mut();
        Rc::clone(known.entry(folder.to_owned()).or_insert_with(|| self.files.names(folder).into()))
    }

    fn list(&self, path: &str) -> Rc<BTreeMap<String, State>> {
        let mut known = self.lists.borrow_mut();
        let read = || Rc::new(self.files.read(path).map(|bytes| storage(&bytes)).unwrap_or_default());
        Rc::clone(known.entry(path.to_owned()).or_insert_with(read))
    }

    /// What is known of a container where runtimes usually keep their state.
    #[must_use]
    pub fn usual(&self, id: &str) -> Option<State> {
        let files = self.files;
        let of_docker = || docker(&files.read(&format!("var/lib/docker/containers/{id}/config.v2.json"))?);
        let of_task = |tasks: &&str| {
            let namespaces = self.names(tasks);
            let of = |namespace: &String| {
                bundle(&files.read(&format!("{tasks}/{namespace}/{id}/config.json"))?)?.state
            };
            namespaces.iter().find_map(of)
        };
        of_docker()
            .or_else(|| TASKS.iter().find_map(of_task))
            .or_else(|| STORES.iter().find_map(|store| self.of_store(store, id)))
    }

    /// The same of one folder of containers/storage. CRI-O has a bundle with annotations, Podman a list of names.
    #[must_use]
    pub fn of_store(&self, store: &str, id: &str) -> Option<State> {
        let of_bundle = || bundle(&self.files.read(&format!("{store}/{id}/userdata/config.json"))?)?.state;
        let listed = |list: &&str| self.list(&format!("{store}/{list}")).get(id).cloned();
        of_bundle().or_else(|| ["containers.json", "volatile-containers.json"].iter().find_map(listed))
    }

    /// The pod of a UID that the kubelet has logs of, as `namespace/name`.
    #[must_use]
    pub fn of_pod(&self, uid: &str) -> Option<String> {
        self.names(POD_LOGS).iter().find_map(|name| pod_folder(name, uid))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "4f0c1e7d9b2a5c8e3f6a1b4d7e0c9f2a5b8d1e4c7f0a3b6d9e2c5f8a1b4d7e0c";

    fn state(container: &str, image: &str, pod: &str) -> Option<State> {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Some(State { container: text(container), image: text(image), pod: text(pod) })
    }

    #[test]
    fn docker_names_its_containers() {
        let plain = br#"{"StreamConfig":{},"State":{"Running":true,"Pid":812},"ID":"4f0c","Config":{"Hostname":"4f0c","Env":["A=b"],"Image":"nginx:1.25","Labels":{"maintainer":"x"}},"Image":"sha256:aa","Name":"/web","Driver":"overlay2"}"#;
        assert_eq!(docker(plain), state("web", "nginx:1.25", ""));
        let pod = br#"{"Name":"/k8s_app_orders-7d9f_shop_0d4f_0","Config":{"Image":"sha256:bb","Labels":{"io.kubernetes.container.name":"app","io.kubernetes.pod.name":"orders-7d9f","io.kubernetes.pod.namespace":"shop","io.kubernetes.docker.type":"container"}}}"#;
        assert_eq!(docker(pod), state("app", "sha256:bb", "shop/orders-7d9f"));
        let sandbox = br#"{"Name":"/k8s_POD_x","Config":{"Image":"pause","Labels":{"io.kubernetes.container.name":"POD","io.kubernetes.pod.name":"orders-7d9f","io.kubernetes.pod.namespace":"shop"}}}"#;
        assert_eq!(docker(sandbox), state("", "pause", "shop/orders-7d9f"));
        assert_eq!(docker(br#"{"Name":"/web","Config":{"Image":"a","Labels":null}}"#), state("web", "a", ""));
        assert_eq!(docker(br#"{"Name":"/web"}"#), state("web", "", ""));
    }

    #[test]
    fn bundles_have_annotations() {
        let containerd = br#"{"ociVersion":"1.1.0","process":{"args":["/app"]},"annotations":{
            "io.kubernetes.cri.container-name":"app","io.kubernetes.cri.container-type":"container",
            "io.kubernetes.cri.image-name":"quay.io/shop/orders:2.4","io.kubernetes.cri.sandbox-id":"655b",
            "io.kubernetes.cri.sandbox-name":"orders-7d9f","io.kubernetes.cri.sandbox-namespace":"shop",
            "io.kubernetes.cri.sandbox-uid":"0d4f"},"linux":{}}"#;
        assert_eq!(
            bundle(containerd).unwrap().state,
            state("app", "quay.io/shop/orders:2.4", "shop/orders-7d9f")
        );
        let sandbox = br#"{"annotations":{"io.kubernetes.cri.container-type":"sandbox",
            "io.kubernetes.cri.sandbox-name":"orders-7d9f","io.kubernetes.cri.sandbox-namespace":"shop"}}"#;
        assert_eq!(bundle(sandbox).unwrap().state, state("", "", "shop/orders-7d9f"));
        let crio = br#"{"annotations":{"io.container.manager":"cri-o","io.kubernetes.container.name":"app",
            "io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.cri-o.Image":"aa11",
            "io.kubernetes.cri-o.ImageName":"quay.io/shop/orders:2.4","io.kubernetes.pod.name":"orders-7d9f",
            "io.kubernetes.pod.namespace":"shop","io.kubernetes.pod.uid":"0d4f"}}"#;
        assert_eq!(bundle(crio).unwrap().state, state("app", "quay.io/shop/orders:2.4", "shop/orders-7d9f"));
        let nerdctl = br#"{"annotations":{"nerdctl/name":"web","nerdctl/namespace":"default"}}"#;
        assert_eq!(bundle(nerdctl).unwrap().state, state("web", "", ""));
        let docker = br#"{"mounts":[{"destination":"/proc","type":"proc","source":"proc"},
            {"destination":"/etc/hostname","type":"bind","source":"/srv/docker/containers/4f0c/hostname","options":["rbind"]}]}"#;
        let read = bundle(docker).unwrap();
        assert_eq!((read.state, read.docker.as_deref()), (None, Some("/srv/docker/containers/4f0c")));
        assert_eq!(bundle(b"{}"), Some(Bundle::default()));
    }

    #[test]
    fn storage_has_one_list_of_all() {
        let list = format!(
            r#"[{{"id":"aa","names":["old"],"image":"1","metadata":"{{}}"}},
            {{"id":"{ID}","names":["web","alias"],"image":"sha","layer":"bb",
              "metadata":"{{\"image-name\":\"docker.io/library/nginx:1.25\",\"image-id\":\"sha\",\"name\":\"web\",\"created-at\":1}}",
              "created":"2026-11-27T19:00:00Z","flags":{{"Volatile":true}}}},
            {{"id":"cc","metadata":null}}]"#
        );
        let all = storage(list.as_bytes());
        assert_eq!(all.get(ID).cloned(), state("web", "docker.io/library/nginx:1.25", ""));
        assert_eq!(all.get("aa").cloned(), state("old", "", ""));
        assert_eq!(all.len(), 2, "one has no name: {all:?}");
        assert_eq!(storage(list.get(..300).unwrap().as_bytes()), BTreeMap::new(), "a list that is cut off");
    }

    #[test]
    fn folders_of_pods_have_their_uid() {
        let uid = "0d4f1a2b-3c4d-5e6f-7a8b-9c0d1e2f3a4b";
        let named = |name: &str| pod_folder(name, uid);
        assert_eq!(named(&format!("shop_orders-7d9f_{uid}")).as_deref(), Some("shop/orders-7d9f"));
        assert_eq!(named(&format!("shop_{uid}")), None);
        assert_eq!(named(&format!("a_b_c_{uid}")), None);
        assert_eq!(named(&format!("_b_{uid}")), None);
        assert_eq!(named("shop_orders-7d9f_1234"), None);
    }

    #[test]
    fn what_a_stranger_writes_is_bounded_and_changes_nothing_else() {
        let long = "é".repeat(5_000);
        let name = docker(format!(r#"{{"Name":"/{long}"}}"#).as_bytes()).unwrap().container.unwrap();
        assert_eq!(name.len(), NAME_BYTES_MAX);
        for bytes in [
            br#"{"Name":{"a":1}}"#.as_slice(),
            br#"{"Name":"/"}"#,
            br#"{"Name":"/a","Name":"/b"}"#,
            br#"{"Name":"/a","Config":{"Labels":"x"}}"#,
            br#"[]"#,
            b"",
            b"\xff\xfe",
        ] {
            assert_eq!(docker(bytes), None, "{}", String::from_utf8_lossy(bytes));
        }
        // A label of a container that is in no pod does not rename it.
        let label = br#"{"Name":"/web","Config":{"Labels":{"io.kubernetes.container.name":"other"}}}"#;
        assert_eq!(docker(label), state("web", "", ""));
        let deep = "[".repeat(100_000);
        assert_eq!(
            (docker(deep.as_bytes()), bundle(deep.as_bytes()), storage(deep.as_bytes())),
            (None, None, BTreeMap::new())
        );
    }

    /// Files by path, and what was asked for.
    #[derive(Default)]
    struct Tree {
        files: BTreeMap<String, String>,
        asked: RefCell<Vec<String>>,
    }

    impl Files for Tree {
        fn read(&self, path: &str) -> Option<Vec<u8>> {
            self.asked.borrow_mut().push(path.to_owned());
            Some(self.files.get(path)?.clone().into_bytes())
        }

        fn names(&self, folder: &str) -> Vec<String> {
            self.asked.borrow_mut().push(folder.to_owned());
            let below = self.files.keys().filter_map(|path| path.strip_prefix(folder)?.strip_prefix('/'));
            let names: std::collections::BTreeSet<&str> =
                below.filter_map(|rest| rest.split('/').next()).collect();
            names.into_iter().map(str::to_owned).collect()
        }
    }

    #[test]
    fn dead_containers_are_read_once_in_a_pass_and_names_anew_in_the_next() {
        const DEAD: usize = 5_000;
        const LIVE: usize = 100;
        let store = STORES[0];
        let (id, uid) =
            (|i: usize| format!("{i:064x}"), |i: usize| format!("{i:08x}-0000-0000-0000-000000000000"));
        let list = |name: &str| {
            let one = |i: usize| format!(r#"{{"id":"{}","names":["{name}-{i}"]}}"#, id(i));
            format!("[{}]", (0..DEAD + LIVE).map(one).collect::<Vec<_>>().join(","))
        };
        let mut tree = Tree::default();
        for i in 0..DEAD + LIVE {
            tree.files.insert(format!("{POD_LOGS}/shop_orders-{i}_{}/app/0.log", uid(i)), String::new());
            if i < DEAD {
                tree.files.insert(format!("{}/k8s.io/{}/config.json", TASKS[0], id(i)), "{}".to_owned());
            }
        }
        for name in ["first", "renamed"] {
            tree.files.insert(format!("{store}/containers.json"), list(name));
            tree.asked.borrow_mut().clear();
            let pass = Pass::new(&tree);
            for i in DEAD..DEAD + LIVE {
                assert_eq!(pass.usual(&id(i)), state(&format!("{name}-{i}"), "", ""));
                assert_eq!(pass.of_pod(&uid(i)), Some(format!("shop/orders-{i}")));
            }
            let asked = tree.asked.borrow();
            let of_all = asked.iter().filter(|path| !path.contains("0000"));
            let mut of_all: Vec<&String> = of_all.collect();
            let count = of_all.len();
            of_all.sort();
            of_all.dedup();
            assert_eq!(of_all.len(), count, "each list and folder once: {of_all:?}");
            // Docker's file, one for each namespace of containerd, CRI-O's bundle.
            assert!(asked.len() - count <= LIVE * 3, "{} of {LIVE} containers", asked.len() - count);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_read_does_not_panic(
            text in "(\\{|\\}|\\[|\\]|,|:|null|1|\"Name\"|\"Config\"|\"Labels\"|\"annotations\"|\"mounts\"|\"id\"|\"names\"|\"metadata\"|\"x\"|é){0,40}"
        ) {
            _ = docker(text.as_bytes());
            _ = bundle(text.as_bytes());
            _ = storage(text.as_bytes());
            _ = pod_folder(&text, "x");
        }
    }
}
