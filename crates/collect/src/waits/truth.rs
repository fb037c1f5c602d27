//! What is seen of waits, against graphs of processes that a program makes and knows.

mod named;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::ends::{End, Kind};
use super::look::{Edge, Look, Looker};
use plan::{BETWEEN, NOBODY, Op, Plan, Random};

const GRAPHS: u64 = 200;
/// Threads that are ready wait within so long, also on a busy machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);

/// The processes that the program has made. All end with it.
struct Graph {
    plan: Plan,
    program: Child,
    pids: Vec<u32>,
    tids: Vec<u32>,
    _directory: tempfile::TempDir,
}

impl Drop for Graph {
    fn drop(&mut self) {
        let group = i32::try_from(self.program.id()).expect("an id");
        // SAFETY: it has a process group of its own, and no memory is touched.
        unsafe { libc::kill(-group, libc::SIGKILL) };
        // Inside of namespaces it is another process that starts it, and takes all others with it.
        self.program.kill().expect("the program");
        self.program.wait().expect("the end of the program");
    }
}

impl Graph {
    fn make(plan: Plan) -> Option<Graph> {
        Graph::start(plan, Command::new(program()?))
    }

    /// In a PID namespace and a network namespace of its own.
    fn make_apart(plan: Plan) -> Option<Graph> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--net", "--fork", "--kill-child"]).arg(program()?);
        let mut graph = Graph::start(plan, unshare)?;
        let outer = outer_ids();
        for id in graph.pids.iter_mut().chain(&mut graph.tids) {
            *id = outer[id];
        }
        Some(graph)
    }

    fn start(plan: Plan, mut command: Command) -> Option<Graph> {
        let directory = tempfile::tempdir().expect("a directory");
        command.arg(directory.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = command.spawn().expect("the program");
        program.stdin.as_mut().expect("a pipe").write_all(plan.script().as_bytes()).expect("the script");
        let (mut pids, mut tids) = (Vec::new(), Vec::new());
        for line in BufReader::new(program.stdout.as_mut().expect("a pipe")).lines() {
            let line = line.expect("a line");
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["p", _, pid] => pids.push(pid.parse().expect(pid)),
                ["t", _, tid] => tids.push(tid.parse().expect(tid)),
                _ => break,
            }
        }
        assert_eq!((pids.len(), tids.len()), (plan.parents.len(), plan.ops.len()), "{}", plan.script());
        Some(Graph { plan, program, pids, tids, _directory: directory })
    }

    fn process(&self, number: i32) -> End {
        End::Process(self.pids[number as usize])
    }

    /// What a thread waits for: all of it has to be seen.
    fn truth(&self, op: &Op) -> BTreeSet<(Kind, End)> {
        let one = |kind, end| BTreeSet::from([(kind, end)]);
        match op.name {
            "sleep" => one(Kind::Timer, End::Unknown),
            "spin" | "churn" => one(Kind::Cpu, End::Unknown),
            "accept" => one(Kind::Accept, End::Unknown),
            "condition" => one(Kind::Futex, End::Unknown),
            "many" => one(Kind::Poll, End::Unknown),
            "closed" => one(Kind::Other, End::Unknown),
            "flock" | "fcntl" => one(Kind::FileLock, self.process(self.plan.locks[op.a as usize].0 as i32)),
            "child" => one(Kind::Child, self.process(op.a)),
            "children" => {
                let own = |i: &i32| self.plan.parents[*i as usize] == op.process as i32;
                let children = (0..self.pids.len() as i32).filter(own);
                children.map(|i| (Kind::Child, self.process(i))).collect()
            }
            "mutex" => {
                let holds = |other: &&(usize, &Op)| {
                    other.1.process == op.process && other.1.holds == Some(op.a as usize)
                };
                let holder = self.plan.ops.iter().enumerate().find(|other| holds(&other)).expect("a holder");
                one(Kind::Mutex, End::Thread { word: 0, tid: self.tids[holder.0] })
            }
            // Another thread could, or a process that has it too: nobody is to be named.
            "pipe_copy" | "pipe_shared" => one(Kind::Pipe, End::Unknown),
            // It may be woken by its own threads.
            "either" if op.b == op.process as i32 => one(Kind::Poll, End::Unknown),
            "either" => [op.a, op.b].map(|a| (Kind::Pipe, self.process(a))).into(),
            "tcp_woken" | "unix_woken" => one(Kind::Answer, self.process(op.a)),
            "unix_serve" | "tcp_serve" => one(Kind::Client, self.process(op.a)),
            "pipe_write" => one(Kind::Full, self.process(op.a)),
            "pair_write" | "tcp_push" => one(Kind::Sends, self.process(op.a)),
            name if name.starts_with("pipe") => one(Kind::Pipe, self.process(op.a)),
            name if name.starts_with("tcp") => one(Kind::Tcp, self.process(op.a)),
            _ => one(Kind::Unix, self.process(op.a)),
        }
    }

    /// Holders that are named and are none: none may be, at any moment.
    fn wrong(&self, look: &Look) -> Vec<Edge> {
        let is_wrong = |edge: &&Edge| {
            // Of a connection that is full: a thread of the same process waits to write into it.
            let is_of = |(op, tid): &(&Op, &u32)| match edge.kind {
                Kind::Unread => op.name == "tcp_push" && self.pids[op.process] == edge.pid,
                _ => **tid == edge.tid,
            };
            let ops = self.plan.ops.iter().zip(&self.tids).filter(is_of);
            let truth: BTreeSet<_> = ops.flat_map(|(op, _)| self.truth(op)).collect();
            edge.end != End::Unknown && !truth.iter().any(|(_, end)| *end == plain(edge.end))
        };
        look.edges.iter().filter(is_wrong).copied().collect()
    }

    /// Threads of which something else is seen than is so.
    fn missed(&self, look: &Look) -> Vec<(Op, BTreeSet<(Kind, End)>)> {
        let mut missed = Vec::new();
        for (op, tid) in self.plan.ops.iter().zip(&self.tids) {
            let own = look.edges.iter().filter(|edge| edge.tid == *tid && edge.pid == self.pids[op.process]);
            let seen: BTreeSet<_> = own.map(|edge| (edge.kind, plain(edge.end))).collect();
            if seen != self.truth(op) {
                missed.push((op.clone(), seen));
            }
        }
        missed
    }

    /// The processes that one waits for, directly or through others.
    fn reached(&self, from: usize) -> BTreeSet<u32> {
        let mut reached = BTreeSet::from([self.pids[from]]);
        loop {
            let before = reached.len();
            for op in &self.plan.ops {
                if reached.contains(&self.pids[op.process]) {
                    // Who waits to be asked is not looked at further.
                    reached.extend(self.truth(op).into_iter().filter_map(|(kind, end)| match (kind, end) {
                        (Kind::Client, _) => None,
                        (_, End::Process(pid)) => Some(pid),
                        _ => None,
                    }));
                }
            }
            if reached.len() == before {
                return reached;
            }
        }
    }
}

/// The ids of the tasks in PID namespaces below this one, by those that they have there.
fn outer_ids() -> BTreeMap<u32, u32> {
    let mut outer = BTreeMap::new();
    let tasks = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    for task in tasks("/proc".as_ref()).flat_map(|process| tasks(&process.join("task")).collect::<Vec<_>>()) {
        let status = std::fs::read_to_string(task.join("status")).unwrap_or_default();
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        let ids: Vec<u32> = ids.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect();
        if let ([here, there], true) = (&ids[..], status.starts_with("Name:\tgraph\n")) {
            outer.insert(*there, *here);
        }
    }
    outer
}

/// Without the address of a mutex, which the program does not say.
fn plain(end: End) -> End {
    match end {
        End::Thread { tid, .. } => End::Thread { word: 0, tid },
        end => end,
    }
}

/// The program, compiled once.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<(tempfile::TempDir, PathBuf)>> = OnceLock::new();
    let built = PROGRAM.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("graph");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/waits/graph.c");
        let mut compiler = Command::new("cc");
        match compiler.args(["-O1", "-pthread", "-w", "-o"]).arg(&path).arg(source).status() {
            Ok(status) if status.success() => Some((directory, path)),
            _ => None,
        }
    });
    if built.is_none() {
        println!("skipped: no C compiler");
    }
    built.as_ref().map(|(_, path)| path.as_path())
}

fn looker() -> Option<Looker> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return None;
    }
    Some(Looker::new().expect("a looker"))
}

fn thread_of(process: usize, name: &'static str, a: i32) -> Op {
    Op { process, name, a, b: NOBODY, holds: None }
}

/// Looks until everything is seen as it is.
fn settled(graph: &Graph, looker: &mut Looker) -> Look {
    let began = Instant::now();
    loop {
        let look = looker.look(&graph.pids);
        let wrong = graph.wrong(&look);
        assert!(wrong.is_empty(), "{wrong:?} of\n{}", graph.plan.script());
        let missed = graph.missed(&look);
        if missed.is_empty() {
            return look;
        }
        assert!(began.elapsed() < SETTLED_WITHIN, "{missed:?} of\n{}", graph.plan.script());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn two_hundred_random_graphs_are_seen_as_they_are() {
    let Some(mut looker) = looker() else { return };
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 1..=GRAPHS {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let Some(graph) = Graph::make(Plan::draw(&mut random)) else { return };
        let look = settled(&graph, &mut looker);
        assert_eq!(look.left_out, 0);
        graph.plan.ops.iter().for_each(|op| *seen.entry(op.name).or_default() += 1);
        // Whoever is waited for is looked at too, and nobody else.
        let from = random.below(graph.pids.len());
        let (reached, began) = (graph.reached(from), Instant::now());
        loop {
            let edges = looker.look(&[graph.pids[from]]).edges;
            let walked: BTreeSet<u32> = edges.iter().map(|edge| edge.pid).collect();
            assert!(walked.is_subset(&reached), "from {from} of\n{}", graph.plan.script());
            // The kernel wakes those who write to a connection now and then.
            if walked == reached {
                break;
            }
            assert!(began.elapsed() < SETTLED_WITHIN, "{walked:?} from {from} of\n{}", graph.plan.script());
        }
    }
    println!("{seen:?}");
    assert!(BETWEEN.iter().all(|name| seen.contains_key(name)), "{seen:?}");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_thread_that_waits_is_stuck_and_one_that_runs_is_not() {
    let Some(mut looker) = looker() else { return };
    let plan = Plan {
        parents: vec![NOBODY; 2],
        ops: vec![thread_of(0, "pipe_read", 1), thread_of(1, "churn", NOBODY)],
        ..Plan::default()
    };
    let Some(graph) = Graph::make(plan) else { return };
    let of_first = |look: &Look| look.edges.iter().find(|edge| edge.tid == graph.tids[0]).copied();
    let began = Instant::now();
    while !of_first(&looker.look(&graph.pids)).is_some_and(|edge| edge.is_stuck) {
        assert!(began.elapsed() < SETTLED_WITHIN);
    }
    // Ids and descriptors come and go meanwhile.
    for _ in 0..200 {
        let look = looker.look(&graph.pids);
        let first = of_first(&look).expect("an edge");
        // A child that has just begun has the other end too.
        assert!(first.is_stuck && [graph.process(1), End::Unknown].contains(&first.end), "{first:?}");
        let is_own = |edge: &&Edge| edge.pid == graph.pids[1] && edge.kind != Kind::Child;
        assert!(look.edges.iter().filter(is_own).all(|edge| edge.end == End::Unknown));
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn descriptors_that_are_closed_or_are_ten_thousand() {
    let Some(mut looker) = looker() else { return };
    let plan = Plan {
        parents: vec![NOBODY; 2],
        ops: vec![
            thread_of(0, "many", NOBODY),
            thread_of(0, "pipe_read", 1),
            thread_of(1, "closed", NOBODY),
            thread_of(1, "pair_read", 0),
        ],
        ..Plan::default()
    };
    let Some(graph) = Graph::make(plan) else { return };
    settled(&graph, &mut looker);
    let began = Instant::now();
    looker.look(&graph.pids);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_lock_that_a_script_holds_whose_flock_has_ended_is_the_scripts() {
    let Some(mut looker) = looker() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("a lock");
    // Its child has the open file as well.
    let script = format!("exec 9>>'{}'; flock 9; echo held; sleep 60; :", file.display());
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).stdout(Stdio::piped()).process_group(0);
    let mut holder = shell.spawn().expect("a shell");
    let mut held = String::new();
    BufReader::new(holder.stdout.as_mut().expect("a pipe")).read_line(&mut held).expect("a line");
    let mut waiter = Command::new("flock").arg(&file).arg("true").spawn().expect("flock");
    let wanted = (Kind::FileLock, End::Process(holder.id()));
    let began = Instant::now();
    let seen = loop {
        let edges = looker.look(&[waiter.id()]).edges;
        let own = edges.iter().filter(|edge| edge.pid == waiter.id());
        let seen: Vec<_> = own.map(|edge| (edge.kind, edge.end)).collect();
        if seen == [wanted] || began.elapsed() > SETTLED_WITHIN {
            break seen;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let group = Pid::from_child(&holder);
    rustix::process::kill_process_group(group, Signal::KILL).expect("killed");
    for child in [&mut holder, &mut waiter] {
        child.wait().expect("its end");
    }
    assert_eq!(seen, [wanted]);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn who_is_traced_waits_for_the_tracer() {
    let Some(mut looker) = looker() else { return };
    let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
    let pid = i32::try_from(child.id()).expect("an id");
    // SAFETY: it stops a process of this test, and touches no memory.
    let attached = unsafe { libc::ptrace(libc::PTRACE_ATTACH, pid, 0, 0) };
    assert_eq!(attached, 0, "{}", std::io::Error::last_os_error());
    let wanted = (Kind::Traced, End::Process(std::process::id()));
    let began = Instant::now();
    let seen = loop {
        let seen: Vec<_> =
            looker.look(&[child.id()]).edges.iter().map(|edge| (edge.kind, edge.end)).collect();
        // The tracer is looked at, too.
        if seen.contains(&wanted) || began.elapsed() > SETTLED_WITHIN {
            break seen;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    child.kill().expect("killed");
    child.wait().expect("its end");
    assert!(seen.contains(&wanted), "{seen:?}");
}

/// Where groups of a hierarchy are made, and what is written to which file of one to freeze and to thaw it.
#[derive(Debug, Clone, Copy)]
struct Freezer {
    groups: &'static str,
    file: &'static str,
    freeze: &'static str,
    thaw: &'static str,
}

const VERSION_1: Freezer =
    Freezer { groups: "/sys/fs/cgroup/freezer", file: "freezer.state", freeze: "FROZEN", thaw: "THAWED" };
const VERSION_2: Freezer =
    Freezer { groups: "/sys/fs/cgroup", file: "cgroup.freeze", freeze: "1", thaw: "0" };
/// Version 2 beside version 1.
const UNIFIED: Freezer = Freezer { groups: "/sys/fs/cgroup/unified", ..VERSION_2 };

/// A process that sleeps in a group of its own. Both end with the test.
struct Sleeper {
    freezer: Freezer,
    group: PathBuf,
    sleep: Child,
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // Who is frozen by version 1 is not killed.
        let _thawed = self.write(self.freezer.file, self.freezer.thaw);
        let _killed = self.sleep.kill();
        let _ended = self.sleep.wait();
        // The kernel lets go of the group a moment after the last of its tasks.
        let began = Instant::now();
        while self.group.exists() && std::fs::remove_dir(&self.group).is_err() {
            if began.elapsed() > SETTLED_WITHIN {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Sleeper {
    /// `None` where the kernel or the machine has no such freezer.
    fn begin(freezer: Freezer) -> Option<Sleeper> {
        let groups = Path::new(freezer.groups);
        // What holds the hierarchies of version 1 is a directory like any other.
        if !groups.join("cgroup.procs").exists() {
            return None;
        }
        let group = groups.join(format!("mitra-test-{}", std::process::id()));
        let sleep = Command::new("sleep").arg("60").spawn().expect("sleep");
        let sleeper = Sleeper { freezer, group, sleep };
        std::fs::create_dir(&sleeper.group).ok()?;
        if !sleeper.group.join(freezer.file).exists() {
            return None;
        }
        sleeper.write("cgroup.procs", &sleeper.sleep.id().to_string()).expect("it is in the group");
        Some(sleeper)
    }

    fn write(&self, file: &str, text: &str) -> std::io::Result<()> {
        std::fs::write(self.group.join(file), text)
    }

    /// What it waits for, once that is what is wanted or does not become it.
    fn waits(&self, looker: &mut Looker, wanted: Kind) -> Vec<(Kind, End)> {
        waits_of(looker, self.sleep.id(), (wanted, End::Unknown))
    }
}

/// What a process waits for, once that is what is wanted or does not become it.
fn waits_of(looker: &mut Looker, pid: u32, wanted: (Kind, End)) -> Vec<(Kind, End)> {
    let began = Instant::now();
    loop {
        let edges = looker.look(&[pid]).edges;
        let own = edges.iter().filter(|edge| edge.pid == pid);
        let seen: Vec<_> = own.map(|edge| (edge.kind, edge.end)).collect();
        if seen == [wanted] || began.elapsed() > SETTLED_WITHIN {
            return seen;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn who_is_frozen_waits_for_the_freezer() {
    let Some(mut looker) = looker() else { return };
    let mut is_any = false;
    for freezer in [VERSION_1, VERSION_2, UNIFIED] {
        let Some(sleeper) = Sleeper::begin(freezer) else { continue };
        assert_eq!(sleeper.waits(&mut looker, Kind::Timer), [(Kind::Timer, End::Unknown)], "{freezer:?}");
        sleeper.write(freezer.file, freezer.freeze).expect("frozen");
        assert_eq!(sleeper.waits(&mut looker, Kind::Frozen), [(Kind::Frozen, End::Unknown)], "{freezer:?}");
        is_any = true;
    }
    if !is_any {
        println!("skipped: no freezer of cgroups");
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn processes_in_namespaces_of_their_own() {
    let Some(mut looker) = looker() else { return };
    let holder = Op { holds: Some(0), ..thread_of(0, "sleep", NOBODY) };
    let plan = Plan {
        parents: vec![NOBODY, 0, NOBODY],
        locks: vec![(2, "flock")],
        ops: vec![
            holder,
            thread_of(0, "mutex", 0),
            thread_of(0, "child", 1),
            thread_of(1, "unix_read", 2),
            thread_of(1, "pair_poll", 2),
            thread_of(2, "unix_serve", 0),
            thread_of(1, "flock", 0),
        ],
    };
    let Some(graph) = Graph::make_apart(plan) else { return };
    settled(&graph, &mut looker);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn more_processes_and_threads_than_are_looked_at_are_counted() {
    let Some(mut looker) = looker() else { return };
    let ops = (0..300).map(|_| thread_of(0, "sleep", NOBODY)).collect();
    let Some(graph) = Graph::make(Plan { parents: vec![NOBODY], ops, ..Plan::default() }) else { return };
    let look = looker.look(&graph.pids);
    // The first thread of the process only waits for signals.
    assert_eq!((look.edges.len(), look.left_out), (256, 301 - 256));
}

/// What a look costs: eight processes of 64 threads, half of which wait for others.
#[test]
#[ignore = "a measurement: by_hand"]
fn cost_of_a_look_by_hand() {
    let Some(mut looker) = looker() else { return };
    let ops = (0..8 * 63).map(|i| {
        let process = i % 8;
        let next = ((process + 1) % 8) as i32;
        thread_of(process, ["pipe_read", "sleep", "pair_read", "condition"][i / 8 % 4], next)
    });
    let plan = Plan { parents: vec![NOBODY; 8], ops: ops.collect(), ..Plan::default() };
    let Some(graph) = Graph::make(plan) else { return };
    settled(&graph, &mut looker);
    let mut times: Vec<Duration> = (0..100)
        .map(|_| {
            let began = Instant::now();
            looker.look(&graph.pids);
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("median {:?}, least {:?}, most {:?}", times[50], times[0], times[99]);
}
