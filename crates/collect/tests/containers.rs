//! Containers of real runtimes, which this test starts, get the names that people gave them.
//!
//! Each runtime has its state in a folder of the test, where nobody looks without asking the process that watches over the container.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mitra_collect::{Config, Sampler};
use mitra_model::{Entity, Frame, StrId, column};

/// A runtime unpacks an image meanwhile, on a machine that compiles beside.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a root file system of one static program, and an image of it.
struct Image {
    dir: tempfile::TempDir,
}

impl Image {
    fn new() -> Result<Image, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let bin = dir.path().join("rootfs/bin");
        std::fs::create_dir_all(&bin).expect("a directory");
        std::fs::copy("/bin/busybox", bin.join("busybox"))
            .map_err(|error| format!("/bin/busybox: {error}"))?;
        for name in ["sh", "sleep"] {
            std::os::unix::fs::symlink("busybox", bin.join(name)).expect("a link");
        }
        let image = Image { dir };
        said(
            Command::new("tar")
                .arg("-C")
                .arg(image.path("rootfs"))
                .arg("-cf")
                .arg(image.path("image.tar"))
                .arg("."),
        )?;
        Ok(image)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Image {
    /// Runtimes leave the cgroups above those of their containers.
    fn drop(&mut self) {
        let Ok(hierarchies) = std::fs::read_dir("/sys/fs/cgroup") else { return };
        let hierarchies: Vec<PathBuf> = hierarchies.flatten().map(|entry| entry.path()).collect();
        for hierarchy in hierarchies.iter().map(PathBuf::as_path).chain([Path::new("/sys/fs/cgroup")]) {
            for above in ["default", "docker", "kubepods", "libpod_parent"] {
                remove_empty(&hierarchy.join(above), 0);
            }
        }
    }
}

/// Removes cgroups without processes. The kernel keeps the others.
fn remove_empty(dir: &Path, depth: usize) {
    let below = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    below.filter(|path| depth < 4 && path.is_dir()).for_each(|path| remove_empty(&path, depth + 1));
    let _kept = std::fs::remove_dir(dir);
}

/// What a command prints, or why it did not do it.
fn said(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether a program is there. Not all machines can have all runtimes.
fn is_there(program: &str) -> bool {
    let is_there = ["/usr/bin", "/usr/sbin"].iter().any(|dir| Path::new(dir).join(program).exists());
    if !is_there {
        println!("skipped: {program} is not installed");
    }
    is_there
}

/// A daemon and what it has started; both leave with the test.
struct Daemon {
    child: Child,
    clean: Box<dyn Fn()>,
}

impl Daemon {
    fn start(command: &mut Command, socket: &Path, log: &Path, clean: impl Fn() + 'static) -> Daemon {
        let log = std::fs::File::create(log).expect("a file");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("a daemon");
        let daemon = Daemon { child, clean: Box::new(clean) };
        let began = Instant::now();
        while !socket.exists() {
            assert!(began.elapsed() < PATIENCE, "no {}", socket.display());
            std::thread::sleep(Duration::from_millis(50));
        }
        daemon
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        (self.clean)();
        let pid = rustix::process::Pid::from_child(&self.child);
        // It may have ended by itself.
        let _ended = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _reaped = self.child.wait();
    }
}

/// Ends with the test.
struct Started(Vec<Command>);

impl Drop for Started {
    fn drop(&mut self) {
        for command in &mut self.0 {
            let _removed = said(command);
        }
    }
}

/// The names of the cgroup whose path ends so, once they are as wanted.
fn wait_for(sampler: &mut Sampler, end: &str, wanted: [&str; 3]) {
    let columns =
        ["cgroup.container", "cgroup.image", "cgroup.pod"].map(|name| column(name).expect("a metric"));
    let mut frame = Frame::new();
    let began = Instant::now();
    let mut last = None;
    while began.elapsed() < PATIENCE {
        sampler.sample(&mut frame).expect("a sample");
        let strings = sampler.strings();
        for (key, row) in frame.table(Entity::Cgroup).rows() {
            let path = StrId::try_from(key.id).ok().and_then(|id| strings.get(id)).unwrap_or_default();
            if path.trim_end_matches(".scope").ends_with(end) {
                let names = columns.map(|column| strings.cell(row[column]).unwrap_or_default().to_owned());
                if names == wanted {
                    return;
                }
                last = Some((path.to_owned(), names));
            }
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("{end}: {last:?} instead of {wanted:?}");
}

fn sampler() -> Sampler {
    Sampler::open(Config { use_bpf: false, ..Config::default() }).expect("a sampler")
}

fn unique(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn podman_names_containers_also_those_that_leave_nothing() {
    let mut whys = Vec::new();
    // crun takes no machine with cgroups of both versions.
    for runtime in ["crun", "runc"] {
        match podman_with(runtime) {
            Ok(()) => return,
            Err(why) => whys.push(format!("{runtime}: {}", why.replace('\n', " "))),
        }
    }
    println!("skipped: podman starts no containers here: {}", whys.join("; "));
}

/// An error if a container cannot be started.
fn podman_with(runtime: &str) -> Result<(), String> {
    let image = Image::new()?;
    let dir = image.path("podman");
    let podman = |args: &[&str]| {
        let mut command = Command::new("podman");
        for (flag, folder) in [("--root", "root"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
            command.arg(flag).arg(dir.join(folder));
        }
        command
            .args(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--runtime", runtime])
            .args(args);
        command
    };
    let tar = image.path("image.tar");
    said(&mut podman(&["import", tar.to_str().expect("UTF-8"), "localhost/mitra-web:1"]))?;
    let (kept, passing, renamed) = (unique("web"), unique("job"), unique("shop"));
    let run = |name: &str, more: &[&str]| {
        // Without CAP_SYS_RESOURCE nobody raises limits.
        let limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"];
        let args = [
            &["run", "-d", "--network", "none", "--name", name],
            limits.as_slice(),
            more,
            &["localhost/mitra-web:1", "sleep", "300"],
        ];
        said(&mut podman(&args.concat()))
    };
    let _started =
        Started([&kept, &passing, &renamed].map(|name| podman(&["rm", "-f", "-t", "0", name])).into());
    let id = run(&kept, &[])?;
    wait_for(&mut sampler(), &id, [&kept, "localhost/mitra-web:1", ""]);
    let id_of_job = run(&passing, &["--rm"])?;
    wait_for(&mut sampler(), &id_of_job, [&passing, "localhost/mitra-web:1", ""]);
    // conmon still has the old name among its arguments.
    said(&mut podman(&["rename", &kept, &renamed])).expect("another name");
    wait_for(&mut sampler(), &id, [&renamed, "localhost/mitra-web:1", ""]);
    Ok(())
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn containerd_names_containers_and_what_the_kubelet_starts() {
    if ![is_there("containerd"), is_there("ctr"), is_there("runc"), is_there("busybox")].iter().all(|is| *is)
    {
        return;
    }
    let image = Image::new().expect("a root file system");
    let socket = image.path("sock");
    let config = format!(
        "version = 2\nroot = {:?}\nstate = {:?}\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = {socket:?}\n",
        image.path("containerd"),
        image.path("state"),
    );
    std::fs::write(image.path("config.toml"), config).expect("a file");
    let ctr = {
        let socket = socket.clone();
        move |args: &[&str]| {
            let mut command = Command::new("ctr");
            command.arg("-a").arg(&socket).args(args);
            command
        }
    };
    let (web, app) = (unique("web"), format!("{:064x}", std::process::id()));
    let clean = {
        let (ctr, names) = (ctr.clone(), [web.clone(), app.clone()]);
        move || {
            for name in &names {
                let _killed = said(&mut ctr(&["task", "rm", "-f", name]));
                let _removed = said(&mut ctr(&["container", "rm", name]));
            }
        }
    };
    let mut command = Command::new("containerd");
    command.arg("--config").arg(image.path("config.toml"));
    let _daemon = Daemon::start(&mut command, &socket, &image.path("log"), clean);
    let rootfs = image.path("rootfs");
    let run = |id: &str, more: &[&str]| {
        let rootfs = rootfs.to_str().expect("UTF-8");
        let args = [&["run", "-d", "--rootfs"], more, &[rootfs, id, "/bin/sleep", "300"]];
        said(&mut ctr(&args.concat()))
    };
    if let Err(why) = run(&web, &[]) {
        return println!("skipped: containerd starts no containers here: {why}");
    }
    wait_for(&mut sampler(), &format!("/default/{web}"), [&web, "", ""]);
    // As the CRI plugin starts one: the annotations are its own, the cgroup is the kubelet's.
    let group =
        format!("/kubepods/burstable/pod0d4f1a2b-3c4d-5e6f-7a8b-9c0d{:08x}/{app}", std::process::id());
    let annotations = [
        "io.kubernetes.cri.container-type=container",
        "io.kubernetes.cri.container-name=app",
        "io.kubernetes.cri.image-name=quay.io/shop/orders:2",
        "io.kubernetes.cri.sandbox-name=orders-7d9f",
        "io.kubernetes.cri.sandbox-namespace=shop",
    ];
    let annotations: Vec<&str> =
        annotations.iter().flat_map(|annotation| ["--annotation", *annotation]).collect();
    run(&app, &[&["--cgroup", &group], annotations.as_slice()].concat()).expect("a container of a pod");
    wait_for(&mut sampler(), &group, ["app", "quay.io/shop/orders:2", "shop/orders-7d9f"]);
    let mut of_pod = sampler();
    let pod = group.rsplit_once('/').expect("a path").0;
    wait_for(&mut of_pod, pod, ["", "", "shop/orders-7d9f"]);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn docker_names_containers_also_in_a_mount_namespace_of_its_own() {
    if ![is_there("dockerd"), is_there("docker"), is_there("runc"), is_there("busybox")].iter().all(|is| *is)
    {
        return;
    }
    let image = Image::new().expect("an image");
    let (socket, inner) = (image.path("sock"), image.path("inner"));
    std::fs::create_dir_all(&inner).expect("a directory");
    // As in a container with Docker in it: nobody outside sees its files.
    let script = "mount -t tmpfs none \"$1\" && exec dockerd --data-root \"$1/data\" --exec-root \"$1/exec\" -p \"$1/pid\" \
                  -H \"unix://$2\" --iptables=false --ip6tables=false --bridge=none --storage-driver=vfs";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&inner).arg(&socket);
    let docker = {
        let socket = socket.clone();
        move |args: &[&str]| {
            let mut command = Command::new("/usr/bin/docker");
            command.arg("-H").arg(format!("unix://{}", socket.display())).args(args);
            command
        }
    };
    let (outer, nested) = (unique("outer"), unique("nested"));
    let clean = {
        let (docker, names) = (docker.clone(), [outer.clone(), nested.clone(), unique("renamed")]);
        move || {
            for name in &names {
                let _removed = said(&mut docker(&["rm", "-f", name]));
            }
        }
    };
    let _daemon = Daemon::start(&mut command, &socket, &image.path("log"), clean);
    let tar = image.path("image.tar");
    let began = Instant::now();
    while let Err(why) = said(&mut docker(&["import", tar.to_str().expect("UTF-8"), "mitra-web:1"])) {
        if began.elapsed() > PATIENCE {
            return println!("skipped: dockerd does not start here: {why}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let run = |name: &str, more: &[&str]| {
        let args =
            [&["run", "-d", "--network", "none", "--name", name], more, &["mitra-web:1", "sleep", "300"]];
        said(&mut docker(&args.concat()))
    };
    let id = match run(&outer, &[]) {
        Ok(id) => id,
        Err(why) => return println!("skipped: docker starts no containers here: {why}"),
    };
    wait_for(&mut sampler(), &id, [&outer, "mitra-web:1", ""]);
    let parent = format!("/docker/{id}/docker");
    let id_of_nested =
        run(&nested, &["--cgroup-parent", &parent]).expect("a container in the cgroup of another one");
    wait_for(&mut sampler(), &format!("{parent}/{id_of_nested}"), [&nested, "mitra-web:1", ""]);
    said(&mut docker(&["rename", &outer, &unique("renamed")])).expect("another name");
    wait_for(&mut sampler(), &id, [&unique("renamed"), "mitra-web:1", ""]);
}
