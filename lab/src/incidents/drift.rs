//! Changes that do no harm at once. A sysctl or the limit of a cgroup is changed while there is
//! little load. Minutes later the load returns to its earlier height and is too much.
//!
//! Each incident begins at the usual load, under the old value, which is healthy. Then the change
//! is made, with a restart of the service where the change needs one, as in a deployment.
//! [`Stage::pause`] passes with little load. Only then the trouble starts. A run takes six minutes,
//! so a round has none of them; `make lab-drift` runs them. The same changes without the load
//! afterwards are [`CONTROLS`].

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::incident::{Control, Incident, Need, Stop, Truth, WithPath};
use crate::stage::{Cgroup, Isolation, Stage, Victim};

const SWAPS: &[Need] = &[Need::Tool("mkswap"), Need::Tool("swapon"), Need::Tool("swapoff"), Need::OwnSwap];

/// The incidents of this file.
pub const INCIDENTS: &[Incident] = &[
    Incident::new("drift-swappiness", "config-drift", "host", drift_swappiness)
        .what("vm.swappiness was raised minutes ago; a job that reads files now pushes memory in use to swap")
        .needs(SWAPS)
        .chain(&["swap-thrash"]),
    Incident::new("drift-somaxconn", "config-drift", "host", drift_somaxconn)
        .what("net.core.somaxconn was shrunk and a server deployed minutes ago; the usual waves of clients find its queue full")
        .chain(&["listen-overflow"]),
    Incident::new("drift-cgroup-cpu", "cpu-quota-throttled", "cpu", drift_cpu)
        .what("the quota of a group was lowered minutes ago, when its service had little to do"),
    Incident::new("drift-cgroup-memory", "oom-kill", "reclaim", drift_memory)
        .what("the memory limit of a group was lowered minutes ago, when its service used little of it")
        .needs(&[Need::NoSwap]),
];

/// The same changes, with no harm afterwards.
pub const CONTROLS: &[Control] = &[
    Control {
        name: "harmless-swappiness",
        what: "vm.swappiness is raised, and nobody needs more memory than there is",
        needs: SWAPS,
        make: harmless_swappiness,
    },
    Control {
        name: "harmless-somaxconn",
        what: "net.core.somaxconn is shrunk and a server started anew, and its clients are few",
        needs: &[],
        make: harmless_somaxconn,
    },
    Control {
        name: "harmless-cgroup",
        what: "quota and memory limit of a group are lowered to more than its service needs",
        needs: &[Need::NoSwap],
        make: harmless_cgroup,
    },
];

/// Factor by which the service of a control may slow down.
const UNHARMED: f64 = 2.5;
/// Time limit for ending a cgroup's processes before the next ones start, seconds.
const END_S: u64 = 5;

/// A service that uses all its memory, and a job that reads files beside it. Together they need
/// more than the cgroup may have, and the kernel can drop and re-read the files.
struct Shop {
    service: String,
    job: String,
    limit_mb: u64,
    service_mb: u64,
    files: PathBuf,
}

impl Shop {
    fn draw(stage: &mut Stage) -> Result<Self, Stop> {
        stage.zram_swap(1 << 30)?;
        let limit_mb = stage.draw().between(240, 320);
        let service_mb = limit_mb * 7 / 10;
        // Three tenths of the limit are left for files.
        let files_mb = (limit_mb as f64 * stage.real((0.50, 0.60), (0.38, 0.42))) as u64;
        let files = stage.write_file("files", files_mb << 20)?;
        let (service, job) = (stage.draw().name(), stage.draw().name());
        Ok(Self { service, job, limit_mb, service_mb, files })
    }

    /// Starts the service in a new cgroup. In cgroup v1 a cgroup keeps the swappiness from its
    /// creation, so a change applies only to later ones.
    fn open(&self, stage: &mut Stage) -> Result<(Cgroup, Victim), Stop> {
        let cgroup = stage.cgroup(&["memory"])?;
        cgroup.limit_memory_but_swap(self.limit_mb << 20)?;
        let place = Isolation { cgroup: Some(&cgroup), netns: None };
        let service = stage.role(&self.service, "touch-gently", self.service_mb.to_string(), &place)?;
        Ok((cgroup, service))
    }

    /// Ends both processes. Their cached files stay charged to the old cgroup, and the next one
    /// would get them for free, so the cache of the file is dropped.
    fn close(&self, stage: &mut Stage, service: &Victim, job: Option<&Victim>) -> Result<(), Stop> {
        for one in [Some(service), job].into_iter().flatten() {
            stage.end(one.handle(), Signal::TERM, END_S)?;
        }
        let file = format!("if={}", self.files.display());
        stage.run(Command::new("dd").args([&file, "iflag=nocache", "count=0", "status=none"])).map(drop)
    }

    fn start_job(&self, stage: &mut Stage, cgroup: &Cgroup) -> Result<Victim, Stop> {
        let place = Isolation { cgroup: Some(cgroup), netns: None };
        stage.role(&self.job, "read-file", self.files.display().to_string(), &place)
    }
}

/// The maximum of the kernel, and the only value with which it scans no file pages at all. With any
/// lower value it keeps file pages that are used as often as the service's memory, whatever share
/// of both it scans.
const SWAP_FIRST: &str = "200";

fn drift_swappiness(stage: &mut Stage) -> Result<Truth, Stop> {
    let shop = Shop::draw(stage)?;
    let (cgroup, before) = shop.open(stage)?;
    let job = shop.start_job(stage, &cgroup)?;
    stage.healthy()?;
    shop.close(stage, &before, Some(&job))?;
    stage.sysctl("vm.swappiness", SWAP_FIRST)?;
    let (cgroup, service) = shop.open(stage)?;
    stage.pause()?;

    stage.trouble_starts();
    shop.start_job(stage, &cgroup)?;
    stage.trouble()?;
    if stage.ended(service.handle()).is_some() {
        return Err(Stop::NotMade("the kernel killed it for lack of memory".to_owned()));
    }
    stage.must_move("vm.pswpin", 20.0)?;
    stage.suffered(&service, stage.loud(2.0, 1.3))?;
    let name = Some("vm.swappiness".to_owned());
    Ok(Truth { sysctl: name.clone(), change: name, ..Truth::default() })
}

fn harmless_swappiness(stage: &mut Stage) -> Result<(), Stop> {
    let shop = Shop::draw(stage)?;
    let (_, before) = shop.open(stage)?;
    stage.healthy()?;
    shop.close(stage, &before, None)?;
    stage.sysctl("vm.swappiness", SWAP_FIRST)?;
    let (_, service) = shop.open(stage)?;
    stage.wait(SETTLE)?;
    stage.trouble_starts();
    stage.trouble()?;
    stage.unharmed(&service, UNHARMED)
}

/// A freshly started service is measured only after it has allocated its memory.
const SETTLE: Duration = Duration::from_secs(3);

/// A server that takes one client at a time, and clients that arrive in bursts with a short pause
/// between.
struct Counter {
    address: String,
    server: String,
    clients: String,
    pace: String,
    wave: String,
}

/// The backlog of a server that leaves the limit to the kernel.
const AS_MANY_AS_MAY: u64 = 65_535;

impl Counter {
    fn draw(stage: &mut Stage) -> Result<Self, Stop> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let (server, clients) = (stage.draw().name(), stage.draw().name());
        // Each client takes the server up to 5 ms more.
        let pace_ms = stage.draw().uniform(4, 7);
        let per_s = 1000 / (pace_ms + 5);
        let pace = stage.file("pace");
        fs::write(&pace, pace_ms.to_string())?;
        // In 0.3 s as many clients come as the server serves in 0.7 s.
        let wave = format!("{} 8000 300 1000", per_s * 7 / 3);
        Ok(Self { address, server, clients, pace, wave })
    }

    /// Starts the server, and waits until it listens.
    fn open(&self, stage: &mut Stage) -> Result<Victim, Stop> {
        let argument = format!("{} {AS_MANY_AS_MAY} {}", self.address, self.pace);
        let server = stage.role(&self.server, "tcp-serve", argument, &Isolation::default())?;
        let address = self.address.clone();
        stage.wait_for("the server", 10, |_| std::net::TcpStream::connect(&address).is_ok())?;
        Ok(server)
    }

    fn wave(&self, stage: &mut Stage) -> Result<Victim, Stop> {
        stage.role(
            &self.clients,
            "tcp-crowd",
            format!("{} {}", self.address, self.wave),
            &Isolation::default(),
        )
    }

    fn visitor(&self, stage: &mut Stage) -> Result<Victim, Stop> {
        let name = stage.draw().name();
        stage.role(&name, "tcp-visit", format!("{} 50 8000", self.address), &Isolation::default())
    }
}

/// Lowers `somaxconn` in the machine's own network namespace, where the recorder is, and restarts
/// the server: a listening socket keeps its old limit.
fn shrink_queue(stage: &mut Stage, counter: &Counter, server: &Victim) -> Result<Victim, Stop> {
    const PATH: &str = "/proc/sys/net/core/somaxconn";
    let small = stage.between((4, 10), (14, 24));
    let now: u64 = fs::read_to_string(PATH).at(PATH)?.trim().parse().unwrap_or(0);
    if now < small * 8 {
        return Err(Stop::Skipped(format!("net.core.somaxconn is {now} already")));
    }
    stage.sysctl("net.core.somaxconn", &small.to_string())?;
    stage.end(server.handle(), Signal::TERM, END_S)?;
    counter.open(stage)
}

fn drift_somaxconn(stage: &mut Stage) -> Result<Truth, Stop> {
    let counter = Counter::draw(stage)?;
    let server = counter.open(stage)?;
    let victim = counter.visitor(stage)?;
    let wave = counter.wave(stage)?;
    stage.healthy()?;
    stage.calm();
    stage.end(wave.handle(), Signal::TERM, END_S)?;
    shrink_queue(stage, &counter, &server)?;
    stage.pause()?;

    stage.trouble_starts();
    counter.wave(stage)?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(3.0, 1.3))?;
    let name = Some("net.core.somaxconn".to_owned());
    Ok(Truth { sysctl: name.clone(), change: name, ..Truth::default() })
}

fn harmless_somaxconn(stage: &mut Stage) -> Result<(), Stop> {
    let counter = Counter::draw(stage)?;
    let server = counter.open(stage)?;
    let victim = counter.visitor(stage)?;
    stage.healthy()?;
    shrink_queue(stage, &counter, &server)?;
    stage.wait(SETTLE)?;
    stage.trouble_starts();
    stage.trouble()?;
    stage.unharmed(&victim, UNHARMED)
}

/// Milliseconds between the requests of a service. At 4 ms each they take 40 % of a CPU, or next to
/// nothing.
const USUAL_MS: &str = "10";
const CALM_MS: &str = "500";

fn drift_cpu(stage: &mut Stage) -> Result<Truth, Stop> {
    let cgroup = stage.cgroup(&["cpu"])?;
    cgroup.limit_cpu(stage.draw().pick(&[80, 100, 150]))?;
    let percent = stage.between((8, 14), (24, 32));
    let pace = stage.file("pace");
    fs::write(&pace, USUAL_MS)?;
    let name = stage.draw().name();
    let place = Isolation { cgroup: Some(&cgroup), netns: None };
    let service = stage.role(&name, "work", pace.clone(), &place)?;
    stage.healthy()?;
    fs::write(&pace, CALM_MS)?;
    cgroup.limit_cpu(percent)?;
    stage.pause()?;

    stage.trouble_starts();
    fs::write(&pace, USUAL_MS)?;
    stage.trouble()?;
    stage.suffered(&service, stage.loud(3.0, 1.3))?;
    Ok(Truth {
        cgroup: Some(cgroup.name().to_owned()),
        change: Some("cpu.max".to_owned()),
        ..Truth::of(&service)
    })
}

/// A killed service is restarted with the same parameters.
fn drift_memory(stage: &mut Stage) -> Result<Truth, Stop> {
    let cgroup = stage.cgroup(&["memory"])?;
    let usual_mb = stage.draw().between(160, 320);
    cgroup.limit_memory((usual_mb * 3 / 2) << 20)?;
    let size = stage.file("size");
    fs::write(&size, usual_mb.to_string())?;
    // Loud: reaches its full size within seconds and is killed again and again. Faint: killed once,
    // in the middle.
    let seconds = stage.real((2.0, 3.0), (6.0, 8.0));
    let small_mb = usual_mb * stage.draw().between(50, 75) / 100;
    let quick = format!("{size} {usual_mb}");
    let slow = format!("{size} {}", (small_mb as f64 / seconds) as u64);
    let name = stage.draw().name();
    let place = Isolation { cgroup: Some(&cgroup), netns: None };
    let before = stage.role(&name, "swell", quick, &place)?;
    stage.healthy()?;
    stage.must_run(before.handle(), "the service")?;
    fs::write(&size, CALM_MB)?;
    stage.end(before.handle(), Signal::TERM, END_S)?;
    let mut now = stage.role(&name, "swell", slow.clone(), &place)?;
    stage.wait(SETTLE)?;
    cgroup.limit_memory(small_mb << 20)?;
    stage.pause()?;
    stage.must_run(now.handle(), "the service")?;

    stage.trouble_starts();
    fs::write(&size, usual_mb.to_string())?;
    let mut pids = vec![now.pid()];
    let mut killed = false;
    stage.trouble_on(|stage, _| {
        if stage.ended(now.handle()).is_some() {
            // The first kill shows that the cgroup's memory is used up.
            if !killed {
                stage.onset_is_now();
            }
            killed = true;
            now = stage.role(&name, "swell", slow.clone(), &place)?;
            pids.push(now.pid());
        }
        Ok(())
    })?;
    stage.must_move("vm.oom_kill", 0.5 / stage.length().as_secs_f64())?;
    Ok(Truth {
        process: Some(name),
        pids,
        cgroup: Some(cgroup.name().to_owned()),
        change: Some("memory.max".to_owned()),
        ..Truth::default()
    })
}

/// MB that the service of a cgroup holds under little load.
const CALM_MB: &str = "30";

fn harmless_cgroup(stage: &mut Stage) -> Result<(), Stop> {
    let cgroup = stage.cgroup(&["cpu", "memory"])?;
    cgroup.limit_cpu(150)?;
    cgroup.limit_memory(400 << 20)?;
    let size = stage.file("size");
    fs::write(&size, CALM_MB)?;
    let (name, other) = (stage.draw().name(), stage.draw().name());
    let place = Isolation { cgroup: Some(&cgroup), netns: None };
    let service = stage.role(&name, "work", "", &place)?;
    let holder = stage.role(&other, "swell", format!("{size} 100"), &place)?;
    stage.healthy()?;
    // The service takes 40 % of a CPU.
    cgroup.limit_cpu(stage.draw().between(80, 100))?;
    cgroup.limit_memory(stage.draw().between(120, 200) << 20)?;
    stage.trouble_starts();
    stage.trouble()?;
    stage.must_run(holder.handle(), "what holds memory")?;
    stage.unharmed(&service, UNHARMED)
}
