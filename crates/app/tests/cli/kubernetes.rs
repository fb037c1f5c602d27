//! The manifest of Kubernetes, and containers with exactly the privileges that it names, under runc.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{MITRA, Running, good, helm, python, wait_until};
use crate::tls::{Keys, TOKEN};

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
/// What CAP_NET_ADMIN is needed for, which neither the unit nor the manifest has.
const NOT_THERE: &str = "resolvers";

fn manifest() -> String {
    format!("{PACKAGING}/kubernetes/mitra.yaml")
}

fn pod(python: &Path, args: &[&str]) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/pod.py");
    let output = Command::new(python).arg(script).args(args).output().expect("python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_manifest_of_kubernetes_has_only_what_kubernetes_knows() {
    let text = fs::read_to_string(manifest()).expect("the manifest");
    let image = concat!("/mitra:", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(text.matches(image).count(), 3, "one in the comment, one for each container");
    let Some(python) = python("yaml, kubernetes") else {
        return println!("skipped: the client of Kubernetes is not installed");
    };
    let wrong = pod(&python, &["check", &manifest()]);
    assert_eq!(wrong.trim(), "");
}

/// Everything that the chart lets a cluster change.
const VALUES: &str = r#"
image: registry.example.net/mitra:own
imagePullSecrets: [{name: registry-key}]
config: |
  [[output]]
  to = "prometheus"
  url = "https://prometheus.example.net/api/v1/write"
  ca-file = "/etc/mitra-credentials/ca.pem"
maxBytes: 10G
containers: {send: true, notify: true, upload: true}
port: 7000
tlsSecret: own-tls
credentialsSecret: own-credentials
resources: {recorder: {limits: {memory: 1Gi}}, send: {limits: {memory: 256Mi}}}
tolerations: [{key: dedicated, operator: Exists}]
nodeSelector: {pool: web}
affinity: {nodeAffinity: {}}
priorityClassName: own-class
paths: {archive: /data/mitra, cgroup: /sys/fs/cgroup/unified}
"#;

/// Runs Helm with the chart. `go install` does not tell Helm its version of Kubernetes.
fn chart(helm: &Path, args: &[&str], more: &[&str]) -> Result<String, String> {
    let mut command = Command::new(helm);
    command.args(args).arg(format!("{PACKAGING}/kubernetes"));
    command.args(["--namespace", "mitra", "--kube-version", "1.30.0"]).args(more);
    let output = command.output().expect("helm starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn the_chart_has_the_version_of_the_program_and_uses_each_of_its_values() {
    let read = |name: &str| fs::read_to_string(format!("{PACKAGING}/kubernetes/{name}")).expect("the chart");
    let about = read("Chart.yaml");
    for line in ["version: VERSION", "appVersion: \"VERSION\""] {
        let line = line.replace("VERSION", env!("CARGO_PKG_VERSION"));
        assert!(about.lines().any(|one| one == line), "{line}");
    }
    let templates = read("templates/mitra.yaml") + &read("templates/_daemonset.tpl");
    let schema: serde_json::Value = serde_json::from_str(&read("values.schema.json")).expect("JSON");
    let values = read("values.yaml");
    let is_name = |line: &&str| line.starts_with(|c: char| c.is_ascii_lowercase());
    let names: BTreeSet<&str> =
        values.lines().filter(is_name).filter_map(|line| Some(line.split_once(':')?.0)).collect();
    for name in &names {
        assert!(schema["properties"].get(name).is_some(), "{name} is not in the schema");
        assert!(VALUES.lines().any(|line| line.split(':').next() == Some(*name)), "{name} is not tried");
        let is_used =
            [format!("alues.{name}"), format!("\"{name}\"")].iter().any(|text| templates.contains(text));
        assert!(is_used, "{name} is not used");
    }
    let known = schema["properties"].as_object().expect("properties").keys().map(String::as_str);
    assert_eq!(known.filter(|name| *name != "global").collect::<BTreeSet<_>>(), names);
}

#[test]
fn the_chart_is_the_manifest_but_for_its_values() {
    let Some(helm) = helm() else {
        return println!("skipped: helm is not installed: tools/install-deps.sh packages");
    };
    let Some(python) = python("yaml, kubernetes") else {
        return println!("skipped: the client of Kubernetes is not installed");
    };
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    };
    let linted = chart(&helm, &["lint"], &[]);
    assert!(linted.is_ok(), "{linted:?}");
    let usual = file("usual.yaml", &chart(&helm, &["template", "mitra"], &[]).expect("a chart"));
    assert_eq!(pod(&python, &["same", &manifest(), &usual]).trim(), "");

    let values = file("values.yaml", VALUES);
    let text = chart(&helm, &["template", "mitra"], &["--values", &values]).expect("a chart");
    let own = file("own.yaml", &text);
    assert_eq!(pod(&python, &["check", &own]).trim(), "");
    // What the manifest says instead is nowhere any more.
    for gone in [
        "registry.example.org",
        ": 6174",
        ":6174",
        "secretName: mitra-tls",
        "2G",
        "system-node-critical",
        "path: /var/lib/mitra",
    ] {
        assert!(!text.contains(gone), "{gone}");
    }
    for there in [
        "registry.example.net/mitra:own",
        "registry-key",
        "/etc/mitra-credentials/ca.pem",
        "10G",
        "--listen=0.0.0.0:7000",
        "own-tls",
        "own-credentials",
        "memory: 1Gi",
        "memory: 256Mi",
        "key: dedicated",
        "pool: web",
        "nodeAffinity",
        "own-class",
        "path: /data/mitra/send",
        "path: /data/mitra/notify",
        "path: /sys/fs/cgroup/unified",
        "--state=/var/lib/mitra/send",
        "kubernetes.io/os: linux",
    ] {
        assert!(text.contains(there), "{there} is missing:\n{text}");
    }
    let alone = chart(&helm, &["template", "mitra"], &["--set", "containers.serve=false"]).expect("a chart");
    assert!(!alone.contains("mitra-tls") && !alone.contains("name: serve"), "{alone}");
    let alone = file("alone.yaml", &alone);
    assert_eq!(pod(&python, &["check", &alone]).trim(), "");
    for wrong in ["imagee=x", "containers.sent=true", "port=0", "paths.archive=relative"] {
        assert!(chart(&helm, &["template", "mitra"], &["--set", wrong]).is_err(), "{wrong} is taken");
    }
}

/// A recorder in a container has what the service has.
#[test]
fn capabilities_are_those_of_the_unit() {
    let unit = fs::read_to_string(format!("{PACKAGING}/mitra.service")).expect("the unit");
    let of_unit: BTreeSet<&str> = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
        .expect("capabilities")
        .split(' ')
        .map(|cap| cap.trim_start_matches("CAP_"))
        .collect();
    let text = fs::read_to_string(manifest()).expect("the manifest");
    let added: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("add: [")).collect();
    let [added] = added[..] else { panic!("one container has capabilities: {added:?}") };
    assert_eq!(added.trim_end_matches(']').split(", ").collect::<BTreeSet<_>>(), of_unit);
}

/// A root file system of the binary and its libraries, and the volumes of a pod.
struct Node {
    dir: tempfile::TempDir,
    python: PathBuf,
}

/// A container; it ends with the test.
struct Container<'a> {
    node: &'a Node,
    id: String,
    running: Running,
}

impl Node {
    fn make(python: PathBuf) -> Node {
        let node = Node { dir: tempfile::tempdir().expect("a directory"), python };
        let root = node.path("rootfs");
        for dir in
            ["usr/bin", "etc/mitra", "etc/mitra-tls", "var/lib/mitra", "proc", "sys", "dev", "tmp", "run"]
        {
            fs::create_dir_all(root.join(dir)).expect("a directory");
        }
        fs::copy(MITRA, root.join("usr/bin/mitra")).expect("the binary");
        let libraries = Command::new("ldd").arg(MITRA).output().expect("ldd");
        for library in String::from_utf8_lossy(&libraries.stdout).split_whitespace() {
            if let Some(name) = library.strip_prefix('/') {
                let to = root.join(name);
                fs::create_dir_all(to.parent().expect("a parent")).expect("a directory");
                fs::copy(library, to).expect("a library");
            }
        }
        for volume in ["archive", "config", "tls", "tmp", "serve-tmp"] {
            fs::create_dir_all(node.path("volumes").join(volume)).expect("a directory");
        }
        fs::write(node.path("volumes/config/mitra.toml"), "[captures]\nask = false\n").expect("a file");
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    /// A secret as the kubelet mounts it: the names are links, so that all files change at once.
    fn secret(&self, files: &[(&str, String)]) {
        let volume = self.path("volumes/tls");
        fs::create_dir(volume.join("..2026_11_28")).expect("a directory");
        symlink("..2026_11_28", volume.join("..data")).expect("a link");
        for (name, from) in files {
            let to = volume.join("..2026_11_28").join(name);
            fs::copy(from, &to).expect("a secret");
            fs::set_permissions(to, fs::Permissions::from_mode(0o400)).expect("a mode");
            symlink(format!("..data/{name}"), volume.join(name)).expect("a link");
        }
    }

    fn runc(&self) -> Command {
        let mut command = Command::new("runc");
        command.arg("--root").arg(self.path("runc")).stdin(Stdio::null());
        command
    }

    /// Starts a container of the manifest. `listen` takes the place of the address on which the node would be asked.
    fn start(&self, name: &str, listen: &str) -> Container<'_> {
        let profiles = format!("{PACKAGING}/kubernetes");
        let (root, volumes) = (self.text("rootfs"), self.text("volumes"));
        let config = pod(&self.python, &["oci", &manifest(), name, &root, &volumes, &profiles]);
        let bundle = self.path(name);
        fs::create_dir(&bundle).expect("a directory");
        fs::write(bundle.join("config.json"), config.replace("0.0.0.0:6174", listen)).expect("a file");
        let id = format!("mitra-test-{name}-{}", std::process::id());
        let mut command = self.runc();
        command.args(["run", "--bundle"]).arg(bundle).arg(&id);
        Container { node: self, id, running: Running::start(&mut command) }
    }
}

impl Container<'_> {
    /// Runs a command in the container, as the kubelet runs a probe.
    fn exec(&self, args: &[&str]) -> Result<String, String> {
        let output = self.node.runc().args(["exec", &self.id]).args(args).output().expect("runc starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        // It may have ended.
        _ = self.node.runc().args(["delete", "--force", &self.id]).output();
    }
}

/// The probes that a kernel takes, as `mitra doctor` says.
fn probes(doctor: &str) -> BTreeSet<String> {
    let taken =
        doctor.lines().filter_map(|line| line.strip_prefix("yes")?.trim_start().strip_prefix("probe "));
    taken.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_pod_of_the_manifest_records_the_host_and_is_asked() {
    if !["/usr/bin/runc", "/usr/sbin/runc"].iter().any(|runc| Path::new(runc).exists()) {
        return println!("skipped: runc is not installed");
    }
    let Some(python) = python("yaml") else { return println!("skipped: PyYAML is not installed") };
    let Some(keys) = Keys::make() else { return };
    let node = Node::make(python);
    // A process of the host with a name of its own.
    let witness = node.path("pod-witness");
    fs::copy("/bin/sleep", &witness).expect("a program");
    let mut witness = Command::new(witness).arg("300").spawn().expect("a process");

    let recorder = node.start("recorder", "");
    // The probe of the manifest.
    let alive = ["/usr/bin/mitra", "status", "--archive", "/var/lib/mitra", "--alive"];
    let mut why = String::new();
    wait_until("the recorder is ready", || match recorder.exec(&alive) {
        Ok(_) => true,
        Err(error) => {
            why = error;
            false
        }
    });
    let here = probes(&recorder.exec(&["/usr/bin/mitra", "doctor"]).expect("an answer"));
    let mut on_host = probes(&good(&["doctor"]));
    on_host.remove(NOT_THERE);
    println!("probes in the container: {here:?}");
    assert!(here.len() > 5, "there are hardly any probes to compare: {here:?}");
    assert_eq!(here, on_host, "the container refuses what the host has; before it was ready: {why}");
    let refused = recorder.exec(&["/usr/bin/mitra", "record", "--archive", "/usr/new"]);
    assert!(refused.is_err_and(|why| why.contains("Read-only")), "its root can be written");

    node.secret(&[
        ("tls.crt", keys.text("server.pem")),
        ("tls.key", keys.text("server.key")),
        ("token", keys.text("token")),
    ]);
    let mut serve = node.start("serve", "127.0.0.1:0");
    let said = serve.running.line();
    let address = said.split_whitespace().find(|word| word.starts_with("https://")).expect(&said).to_owned();
    let url =
        format!("{}/api/v1/status", address.split("/?").next().unwrap_or_default().trim_end_matches('/'));
    let ask = |token: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", &keys.text("ca.pem")]);
        let output =
            curl.arg("-H").arg(format!("Authorization: Bearer {token}")).arg(&url).output().expect("curl");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!((ask(TOKEN).as_str(), ask("guessed").as_str()), ("200", "401"), "{said}");
    drop(serve);

    let archive = node.text("volumes/archive");
    wait_until("the process of the host is recorded", || {
        good(&["dump", &archive, "--metric", "task.comm", "--format", "csv"]).contains("pod-witness")
    });
    // It may have ended.
    _ = witness.kill();
    _ = witness.wait();
}
