//! Compares the collectors on this machine with the usual tools. A missing tool is skipped with a
//! printed reason.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mitra_search::collectors::calendar::Calendar;
use mitra_search::collectors::{COLLECTORS, Cache, Source, packages, schedule, sysctl};
use mitra_search::document::{Document, Flag, Value};
use mitra_search::fields::{Type, field};

fn now_ns() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

fn source(cache: &Cache) -> Source<'_> {
    Source { root: Path::new("/"), now_ns: now_ns(), cache }
}

/// Runs a collector on this machine.
fn collect(name: &str) -> Vec<Document> {
    let cache = Cache::default();
    let collector = COLLECTORS.iter().find(|c| c.name == name).unwrap();
    (collector.collect)(&source(&cache)).unwrap_or_else(|reason| {
        println!("skipped: {reason}");
        Vec::new()
    })
}

/// The output of a program; `None`, with a printed reason, if it is missing or fails.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).env("TZ", "UTC").env("LC_ALL", "C").output();
    match output {
        Ok(output) if output.status.success() => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => {
            println!("skipped: {program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
            None
        }
        Err(e) => {
            println!("skipped: {program}: {e}");
            None
        }
    }
}

fn texts<'a>(document: &'a Document, name: &str) -> BTreeSet<&'a str> {
    let values = document.facts.get(name).into_iter().flatten();
    values.filter_map(|v| if let Value::Text(text) = v { Some(text.as_str()) } else { None }).collect()
}

fn content(document: &Document) -> &str {
    document.content.as_deref().unwrap()
}

#[test]
fn packages_are_those_of_dpkg_query() {
    let format = "--showformat=${db:Status-Status}\\t${Package}\\t${Version}\\n";
    let Some(output) = run("dpkg-query", &["-W", format]) else { return };
    let documents = collect("packages");
    let dpkg = documents.iter().find(|d| d.filename == "@packages/dpkg").unwrap();
    let mut count = 0;
    for line in output.lines() {
        let [state, name, version] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let has = texts(dpkg, &packages::field_name(name)).contains(version);
        assert_eq!(has, state == "installed", "{line}");
        assert!(content(dpkg).contains(&format!("{name} {version} ")), "{line}");
        count += 1;
    }
    assert_eq!(content(dpkg).lines().count(), count);
    println!("{count} packages");
}

#[test]
fn settings_are_those_of_sysctl() {
    let before = collect("sysctl");
    let Some(output) = run("sysctl", &["-a"]) else { return };
    let after = collect("sysctl");
    let lines: BTreeSet<&str> = before.iter().chain(&after).flat_map(|d| content(d).lines()).collect();
    let (mut same, mut other) = (0, Vec::new());
    for line in output.lines() {
        let Some((name, value)) = line.split_once(" = ").or_else(|| line.split_once(" =")) else { continue };
        let of_interface = name.split_once(".conf.").or_else(|| name.split_once(".neigh."));
        let interface =
            of_interface.map_or("all", |(_, rest)| rest.split('.').next().unwrap()).replace('/', ".");
        let has_device = Path::new(&format!("/sys/class/net/{interface}/device")).exists();
        let is_read = matches!(&*interface, "all" | "default" | "lo") || has_device;
        if sysctl::is_left_out(name) || name.starts_with("fs.binfmt_misc.") || !is_read {
            assert!(!lines.contains(line), "{line}");
            continue;
        }
        let ours = format!("{name} = {}", value.trim().replace('\t', " "));
        if lines.contains(&*ours) { same += 1 } else { other.push(ours) }
    }
    // Virtual interfaces with a device type are read as well, and other settings may change
    // meanwhile.
    assert!(other.is_empty(), "{other:#?}");
    assert!(same > 500, "{same}");
    println!("{same} settings");
    let swappiness = std::fs::read_to_string("/proc/sys/vm/swappiness").unwrap().trim().parse().unwrap();
    assert_eq!(after[0].facts.get("sysctl.vm.swappiness"), Some(&vec![Value::Number(swappiness)]));
}

#[test]
fn mounts_are_those_of_findmnt() {
    let Some(before) = run("findmnt", &["-rno", "TARGET,FSTYPE"]) else { return };
    let documents = collect("mounts");
    let after = run("findmnt", &["-rno", "TARGET,FSTYPE"]).unwrap();
    let ours: BTreeMap<String, &Document> =
        documents.iter().map(|d| (d.filename.trim_start_matches("@mount").to_owned(), d)).collect();
    let pairs = |text: &str| -> BTreeSet<(String, String)> {
        let split = |line: &str| line.split_once(' ').map(|(t, k)| (t.replace("\\x20", " "), k.to_owned()));
        text.lines().filter_map(split).collect()
    };
    let (before, after) = (pairs(&before), pairs(&after));
    // Other tests mount and unmount at the same time.
    let steady: Vec<_> = before.intersection(&after).collect();
    for (target, _) in &steady {
        let kinds: BTreeSet<&str> =
            steady.iter().filter(|(t, _)| t == target).map(|(_, k)| k.as_str()).collect();
        let kind = texts(ours[target], "fs.type");
        assert!(kind.is_subset(&kinds) && kind.len() == 1, "{target}: {kind:?}, {kinds:?}");
    }
    println!("{} mounts", ours.len());
    let Some(size) = run("stat", &["-f", "-c", "%S %b", "/"]) else { return };
    let numbers: Vec<f64> = size.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let ours = &ours["/"].facts;
    if ours.contains_key("fs.size") {
        assert_eq!(ours["fs.block_size"], [Value::Number(numbers[0])]);
        assert_eq!(ours["fs.size"], [Value::Number(numbers[0] * numbers[1])]);
    }
}

/// A loop mount for the duration of the test.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn the_geometry_of_xfs_is_that_of_mkfs() {
    let folder = tempfile::tempdir().unwrap();
    let (image, place) = (folder.path().join("image"), folder.path().join("place"));
    std::fs::File::create(&image).unwrap().set_len(400 << 20).unwrap();
    std::fs::create_dir(&place).unwrap();
    let (image, at) = (image.to_str().unwrap(), place.to_str().unwrap());
    let made = run("mkfs.xfs", &["-q", "-d", "su=64k,sw=4,agcount=5", image]);
    if made.is_none() || run("mount", &["-o", "loop", image, at]).is_none() {
        return;
    }
    let mounted = Mounted(&place);
    let documents = collect("mounts");
    let found = documents.iter().find(|d| d.filename == format!("@mount{at}")).unwrap();
    println!("{}", content(found));
    let number = |name: &str| {
        found.facts[name]
            == [Value::Number(match name {
                "fs.agcount" => 5.0,
                "fs.sunit" => 16.0,
                "fs.swidth" => 64.0,
                _ => 4096.0,
            })]
    };
    for name in ["fs.agcount", "fs.sunit", "fs.swidth", "fs.block_size"] {
        assert!(number(name), "{name}: {:?}", found.facts[name]);
    }
    drop(mounted);
}

#[test]
fn sockets_are_those_of_ss() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap();
    let ports = |flags: &str| -> Option<BTreeSet<u16>> {
        let output = run("ss", &[flags])?;
        let port = |line: &str| line.split_whitespace().nth(3)?.rsplit(':').next()?.parse().ok();
        Some(output.lines().filter_map(port).collect())
    };
    for (flags, kind) in [("-ltnH", "tcp "), ("-lunH", "udp ")] {
        let Some(before) = ports(flags) else { return };
        let documents = collect("sockets");
        let after = ports(flags).unwrap();
        let lines = documents.iter().flat_map(|d| content(d).lines()).filter(|line| line.starts_with(kind));
        let ours: BTreeSet<u16> =
            lines.filter_map(|line| line.split(' ').nth(1)?.rsplit(':').next()?.parse().ok()).collect();
        assert!(before.intersection(&after).all(|port| ours.contains(port)), "{flags}: {before:?}, {ours:?}");
        assert!(
            ours.iter().all(|port| before.contains(port) || after.contains(port)),
            "{flags}: {before:?}, {ours:?}"
        );
        println!("{} ports of {kind}", ours.len());
        if kind == "tcp " {
            let own = documents.iter().find(|d| texts(d, "socket.address").contains(&*here.to_string()));
            let own = own.unwrap_or_else(|| panic!("{here} is missing"));
            assert!(own.is(Flag::Volatile), "the kernel chose the port");
            let comm = std::fs::read_to_string("/proc/self/comm").unwrap().trim().replace([',', ' '], "_");
            // A child of another test has it too, until it runs its program.
            let line = content(own).lines().find(|line| line.starts_with(&format!("tcp {here} ")));
            let mut owners = line.and_then(|line| line.split(' ').nth(2)).unwrap_or_default().split(',');
            assert!(owners.any(|owner| owner == comm), "{}", content(own));
        }
    }
}

#[test]
fn units_are_those_of_systemctl() {
    let documents = collect("units");
    let Some(units) = documents.first() else { return };
    for (state, name) in [("enabled", "unit.enabled"), ("masked", "unit.masked")] {
        let state = format!("--state={state}");
        let Some(output) = run("systemctl", &["--root=/", "list-unit-files", "--no-legend", &state]) else {
            return;
        };
        // systemctl lists the template instead of the instance.
        let of = |unit: &str| match unit.split_once('@') {
            Some((stem, rest)) => format!("{stem}@.{}", rest.rsplit('.').next().unwrap()),
            None => unit.to_owned(),
        };
        let theirs: BTreeSet<String> =
            output.lines().filter_map(|line| line.split_whitespace().next()).map(of).collect();
        let ours: BTreeSet<String> = texts(units, name).into_iter().map(of).collect();
        assert_eq!(theirs.difference(&ours).collect::<Vec<_>>(), Vec::<&String>::new(), "{name}");
        println!("{} of {name}, of them {} of systemctl", ours.len(), theirs.len());
    }
}

/// The next elapses that systemd computes, in seconds since 1970; `None` if it rejects the
/// expression.
fn systemd_next(calendar: &str, base: &str) -> Option<Vec<String>> {
    let output = Command::new("systemd-analyze")
        .args(["calendar", "--iterations=6", &format!("--base-time={base}"), "--", calendar])
        .env("TZ", "UTC")
        .env("LC_ALL", "C")
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let times = text.lines().filter_map(|line| {
        let (_, time) = line.split_once("Next elapse: ").or_else(|| {
            line.trim_start()
                .strip_prefix("Iteration #")
                .or_else(|| line.trim_start().strip_prefix("Iter. #"))?
                .split_once(": ")
        })?;
        time.strip_suffix(" UTC").map(|t| t.split_once(' ').map_or(t, |(_, t)| t).to_owned())
    });
    output.status.success().then(|| times.collect())
}

fn our_next(calendar: &Calendar, mut ns: i64) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(at) = calendar.next_after(ns, 0).filter(|_| found.len() < 6) {
        found.push(mitra_model::report::Moment(at).to_string().replace('T', " ").chars().take(19).collect());
        ns = at;
    }
    found
}

#[test]
fn calendars_mean_what_systemd_says() {
    if run("systemd-analyze", &["calendar", "--base-time=2026-01-01", "daily"]).is_none() {
        return;
    }
    let base = "2026-11-22 07:00:00";
    let base_ns = 1_795_330_800_000_000_000;
    let mut calendars: Vec<String> = [
        "minutely",
        "hourly",
        "daily",
        "weekly",
        "monthly",
        "quarterly",
        "semiannually",
        "yearly",
        "annually",
        "Mon",
        "*-*-* 6,18:00",
        "Sun *-*-1..7 1:00:00",
        "*:00/10",
        "00:07:00",
        "1:05:00",
        "Sat,Sun 12:00",
        "Mon..Fri 9..17:30",
        "*-02-29 00:00",
        "2027-*-01/10 03:00",
        "*-*-1/5",
        "12-24",
        "Fri *-*-13 00:00",
        "*:*:0/20",
        "*-1..3/2-* 00:00 UTC",
        "2020-01-01",
        "*-02-30",
        "Wed..Mon",
        "Monday,fri 10:00",
        "10",
        "*-*-* 25:00",
        "5/10:0",
        "0/6:00",
        "*/6:00",
        "Sun-Tue",
        "Tue-Thu",
        "*-*-31",
        "2026..2028-12-31 23:59:59",
        "mon,",
        "*:0/75",
        "0:55/5",
        "0:50/9",
        "0:1..5/6",
        "0:1..5/4",
        "8..6:00",
        "daily UTC",
        "*-*-* *:*",
        "*-*-*",
    ]
    .map(str::to_owned)
    .into();
    // Unusual expressions as well.
    for n in 0..40_u32 {
        let days = ["", "Mon ", "Tue,Thu ", "Wed..Sat "][n as usize % 4];
        let (month, day, hour, minute) = (n % 12 + 1, n * 7 % 31 + 1, n * 5 % 24, n * 11 % 60);
        calendars.push(format!(
            "{days}*-{month}..12-1..{day}/2 {hour},{}:{minute}/{}",
            (hour + 9) % 24,
            n + 3
        ));
    }
    let (mut same, mut refused) = (0, Vec::new());
    for text in &calendars {
        let theirs = systemd_next(text, base);
        match (Calendar::parse_systemd(text), theirs) {
            (Ok(calendar), Some(theirs)) => {
                assert_eq!(our_next(&calendar, base_ns), theirs, "{text}");
                same += 1;
            }
            (Ok(_), None) => panic!("'{text}' is understood here only"),
            (Err(_), None) => {}
            (Err(e), Some(_)) => refused.push(e),
        }
    }
    println!("{same} alike, understood by systemd only: {refused:?}");
    assert!(same > 55 && refused.len() < 4, "{same}, {refused:?}");
}

#[test]
fn what_runs_by_itself_on_this_machine_is_understood() {
    let cache = Cache::default();
    let source = source(&cache);
    for schedule in schedule::schedules(&source) {
        let next = schedule.next_after(source.now_ns, 0);
        println!(
            "{} ({}): {:?}",
            schedule.name,
            schedule.calendar,
            next.map(|at| mitra_model::report::Moment(at).to_string())
        );
        assert!(next.is_some_and(|at| at > source.now_ns) || schedule.calendar == "@reboot", "{schedule:?}");
    }
}

#[test]
fn every_fact_is_a_field_of_its_type() {
    for collector in COLLECTORS {
        for document in collect(collector.name) {
            assert!(document.filename.starts_with('@') && document.host.is_empty(), "{}", document.filename);
            assert!(
                document.content.as_ref().is_some_and(|c| c.is_empty() || c.ends_with('\n')),
                "{}",
                document.filename
            );
            for (name, values) in &document.facts {
                let kind = field(name).unwrap_or_else(|| panic!("{name} is no field")).kind;
                for value in values {
                    let fits = match kind {
                        Type::Long => matches!(value, Value::Number(n) if n.fract() == 0.0),
                        Type::Double => matches!(value, Value::Number(n) if n.is_finite()),
                        Type::Keyword => matches!(value, Value::Text(_)),
                        Type::Date => matches!(value, Value::Time(_)),
                        Type::Text | Type::Day => false,
                    };
                    assert!(fits, "{name} is {kind:?} and not {value:?}");
                }
            }
        }
    }
}

/// All documents that do not change by themselves, by file name.
fn steady(cache: &Cache) -> BTreeMap<String, Document> {
    let source = source(cache);
    let documents = COLLECTORS.iter().flat_map(|c| (c.collect)(&source).unwrap_or_default());
    documents.filter(|d| !d.is(Flag::Volatile)).map(|d| (d.filename.clone(), d)).collect()
}

#[test]
#[ignore = "needs a quiet machine: make test-kernel"]
fn nothing_changes_while_nothing_changes() {
    // Other tests may mount a file system or load a module at the same time.
    let mut changed = Vec::new();
    for _ in 0..4 {
        let before = steady(&Cache::default());
        let busy = std::time::Instant::now();
        while busy.elapsed() < Duration::from_millis(300) {
            _ = std::fs::read("/proc/self/stat");
            _ = TcpListener::bind("127.0.0.1:0").and_then(|l| std::net::TcpStream::connect(l.local_addr()?));
            _ = tempfile::tempfile().and_then(|f| f.sync_all());
        }
        let after = steady(&Cache::default());
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let same = |name: &String| match (before.get(name), after.get(name)) {
            (Some(a), Some(b)) => a.same_state(b),
            _ => false,
        };
        changed = names.into_iter().filter(|name| !same(name)).cloned().collect();
        if changed.is_empty() {
            return;
        }
    }
    panic!("{changed:?} changed by themselves");
}

fn cpu_ms() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

#[test]
#[ignore = "needs a quiet machine: make test-kernel"]
fn a_pass_costs_little() {
    const PASSES: u32 = 5;
    let cache = Cache::default();
    let mut total = 0.0;
    println!("{:10} {:>9} {:>9} {:>9} {:>9}", "collector", "documents", "bytes", "first ms", "later ms");
    for collector in COLLECTORS {
        let started = cpu_ms();
        let found = (collector.collect)(&source(&cache)).unwrap_or_default();
        let first = cpu_ms() - started;
        let started = cpu_ms();
        (0..PASSES).for_each(|_| drop((collector.collect)(&source(&cache))));
        let later = (cpu_ms() - started) / f64::from(PASSES);
        total += later;
        let bytes: usize = found.iter().map(|d| content(d).len()).sum();
        println!("{:10} {:9} {bytes:9} {first:9.2} {later:9.2}", collector.name, found.len());
    }
    println!("all together: {total:.2} ms of CPU for a pass that finds nothing new");
    // Five times the target for an ordinary machine, because other tests run at the same time.
    assert!(total < 100.0, "{total:.2} ms");
}
