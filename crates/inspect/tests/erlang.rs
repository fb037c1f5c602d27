//! A real Erlang VM whose heaps are larger than the threshold of its allocator: the advice reduces
//! its faults.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mitra_inspect::Target;
use mitra_inspect::runtimes::{self, ErlangHeap, Options, Runtime, erlang};

/// Processes that build a list, drop it and collect: heaps of one to eight megabytes. The number of
/// lists is written to a file.
fn load(done: &Path) -> String {
    format!(
        "C = counters:new(1, []), \
         W = fun W(N) -> L = lists:seq(1, N), _ = lists:sum(L), erlang:garbage_collect(), counters:add(C, 1, 1), timer:sleep(0), W(N) end, \
         [spawn(fun() -> W(60000 + 8000 * I) end) || I <- lists:seq(1, 32)], \
         R = fun R() -> ok = file:write_file(\"{0}.new\", integer_to_list(counters:get(C, 1))), ok = file:rename(\"{0}.new\", \"{0}\"), \
         timer:sleep(100), R() end, R().",
        done.display()
    )
}

struct Vm(Child);

impl Drop for Vm {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn start(arguments: &[&str], environment: &[(&str, &str)], program: &str) -> Vm {
    let mut command = Command::new("erl");
    command.args(arguments).args(["-noshell", "-eval", program]).envs(environment.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let vm = Vm(command.spawn().unwrap());
    // The script execs one program after the other; the last one is the VM.
    let started = Instant::now();
    loop {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", vm.0.id())).unwrap_or_default();
        if name.starts_with("beam") {
            return vm;
        }
        assert!(started.elapsed().as_secs() < 10, "erl became {name}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_absent() -> bool {
    let is_there = Command::new("erl")
        .args(["-noshell", "-eval", "halt(0)."])
        .output()
        .is_ok_and(|o| o.status.success());
    if !is_there {
        println!("skipped: erl is not on this machine");
    }
    !is_there
}

fn pause(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds));
}

fn minor_faults(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(7).unwrap().parse().unwrap()
}

/// Minor faults and lists per second.
fn measure(pid: u32, done: &Path) -> (f64, f64) {
    let lists = || std::fs::read_to_string(done).unwrap_or_default().parse::<f64>().unwrap_or(0.0);
    let (faults, before, started) = (minor_faults(pid), lists(), Instant::now());
    pause(2.5);
    let seconds = started.elapsed().as_secs_f64();
    ((minor_faults(pid) - faults) as f64 / seconds, (lists() - before) / seconds)
}

fn look(pid: u32, options: &Options) -> ErlangHeap {
    match runtimes::read_heap(&Target::open(pid).unwrap(), options).unwrap() {
        Some(Runtime::Erlang(heap)) => heap,
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "needs a quiet machine: make test-kernel"]
fn the_advice_lowers_the_faults_of_a_vm() {
    if is_absent() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let done = dir.path().join("done");
    let program = load(&done);

    let vm = start(&[], &[], &program);
    pause(1.5);
    let (faults, lists) = measure(vm.0.id(), &done);
    // With a whole CPU it has ten times as many.
    if faults < 20_000.0 {
        println!(
            "skipped: others leave so little of this machine that the VM has {faults:.0} minor faults/s"
        );
        return;
    }
    let options = Options::default();
    let heap = look(vm.0.id(), &options);
    println!("before: {faults:.0} minor faults/s, {lists:.0} lists/s; {:?} {:?}", heap.looks, heap.faults);
    let advice = heap.advice.unwrap_or_else(|| panic!("no advice: {:?} {:?}", heap.no_advice, heap.notes));
    println!("advice: {} because {}", advice.flags.join(" "), advice.because);
    drop(vm);
    assert_eq!(advice.allocators.len(), 1, "{advice:?}");
    assert_eq!(advice.allocators[0].name, "eheap_alloc");
    assert!(advice.allocators[0].sbct_bytes_now == 512 << 10, "{advice:?}");

    let flags: Vec<&str> = advice.flags.iter().map(String::as_str).collect();
    let vm = start(&flags, &[], &program);
    // The shared carriers grow first.
    pause(4.0);
    let (faults_after, lists_after) = measure(vm.0.id(), &done);
    let heap = look(vm.0.id(), &options);
    println!(
        "after: {faults_after:.0} minor faults/s ({:.1} times fewer), {lists_after:.0} lists/s; {}",
        faults / faults_after.max(1.0),
        heap.no_advice.as_deref().unwrap_or("and more advice")
    );
    // Independent of how much CPU time other processes left.
    let (each, each_after) = (faults / lists.max(1.0), faults_after / lists_after.max(1.0));
    println!(
        "{each:.0} minor faults for each list before, {each_after:.1} after: {:.1} times fewer",
        each / each_after.max(0.1)
    );
    assert!(faults_after * 5.0 < faults && each_after * 5.0 < each, "{faults_after} after {faults}");
    assert_eq!(heap.advice, None);
    assert_eq!(heap.allocator_flags.len(), 3, "{:?}", heap.allocator_flags);
    let set = heap.allocators.iter().find(|one| one.name == "eheap_alloc").unwrap();
    assert_eq!(set.sbct_bytes, Some(advice.allocators[0].sbct_bytes));
    assert_eq!(set.lmbcs_bytes, Some(advice.allocators[0].lmbcs_bytes));
}

/// The VM's own answer agrees with its memory.
#[test]
#[ignore = "needs a quiet machine: make test-kernel"]
fn what_is_read_is_what_the_vm_says() {
    if is_absent() {
        return;
    }
    // A separate port mapper, so that the test neither uses nor starts another one.
    let port = (20_000 + std::process::id() % 20_000).to_string();
    let program = "T = ets:new(t, []), [ets:insert(T, {I, binary:copy(<<1>>, 100)}) || I <- lists:seq(1, 50000)], \
        P = [spawn(fun() -> L = lists:seq(1, 100000 + I), receive stop -> lists:sum(L) end end) || I <- lists:seq(1, 20)], \
        timer:sleep(60000), P, T.";
    let name = format!("mitra_test_{}", std::process::id());
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join(".erlang.cookie"), "not_to_be_printed").unwrap();
    std::fs::set_permissions(home.path().join(".erlang.cookie"), std::fs::Permissions::from_mode(0o400))
        .unwrap();
    let environment = [
        ("ERL_EPMD_PORT", port.as_str()),
        ("ERL_EPMD_ADDRESS", "127.0.0.1"),
        ("HOME", home.path().to_str().unwrap()),
    ];
    let vm = start(&["-sname", &name], &environment, program);
    pause(2.5);
    let options = Options { seconds: 0.1, ..Options::default() };
    // Instances that change between two reads cannot be compared. On a busy machine the VM may
    // still be loading.
    let mut seen = None;
    for _ in 0..10 {
        let read = look(vm.0.id(), &options);
        let asked = look(vm.0.id(), &Options { ask_runtime: true, ..options });
        let (compared, single) = compare(&read, &asked);
        let is_enough = 2 * compared > asked.allocators.len() && single >= 20;
        let is_last = is_enough || asked.source != Some(erlang::Source::Asked);
        seen = Some((read, asked, is_enough));
        if is_last {
            break;
        }
        pause(1.0);
    }
    let (read, asked, is_enough) = seen.unwrap();
    drop(vm);
    // epmd ends only once it knows that no node is left.
    for _ in 0..50 {
        let ended = Command::new("epmd").args(["-port", &port, "-kill"]).output();
        if ended.is_ok_and(|output| !String::from_utf8_lossy(&output.stdout).contains("living nodes")) {
            break;
        }
        pause(0.05);
    }
    println!("{:?} {:?}", asked.notes, asked.memory);
    assert!(!format!("{asked:?}").contains("not_to_be_printed"));
    assert_eq!(read.source, Some(erlang::Source::Memory), "{:?}", read.notes);
    assert_eq!(read.looks.torn, 0);
    assert_eq!((read.memory.as_ref(), read.version.is_some()), (None, true));
    if asked.source != Some(erlang::Source::Asked) {
        println!("skipped: {:?}", asked.notes);
        return;
    }
    assert!(asked.memory.unwrap().total_bytes.unwrap() > 10 << 20);
    assert!(asked.release.is_some() && asked.cache.is_some());
    assert!(is_enough);
}

/// Compares the instances that were not used meanwhile, which must be equal. Returns how many these
/// are, and how many single-block carriers they have.
fn compare(read: &ErlangHeap, asked: &ErlangHeap) -> (usize, u64) {
    let (mut compared, mut single) = (0, 0);
    for said in &asked.allocators {
        let read =
            read.allocators.iter().find(|read| (&read.name, read.instance) == (&said.name, said.instance));
        let read = read.unwrap_or_else(|| panic!("{} {} was not found", said.name, said.instance));
        assert_eq!(
            (read.sbct_bytes, read.smbcs_bytes, read.lmbcs_bytes),
            (said.sbct_bytes, said.smbcs_bytes, said.lmbcs_bytes)
        );
        // The VM always does a little, and more to answer: only unused instances must be equal.
        if read.calls != said.calls {
            println!(
                "{} {}: {:?}, and {:?} when it was asked",
                read.name, read.instance, read.calls, said.calls
            );
            continue;
        }
        let carriers = |of: &erlang::Pool| (of.carriers, of.carriers_bytes);
        assert_eq!(carriers(&read.mbcs), carriers(&said.mbcs), "{} {}", said.name, said.instance);
        assert_eq!(read.sbcs, said.sbcs, "{} {}", said.name, said.instance);
        compared += 1;
        single += read.sbcs.carriers.unwrap();
    }
    println!(
        "{compared} instances of {} are the same, with {single} carriers of single blocks",
        asked.allocators.len()
    );
    (compared, single)
}
