//! Work that has an end: builds, backups, upgrades, copies.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::busy;
use crate::incident::{Control, Need, Stop};
use crate::machine;
use crate::stage::{ProcessHandle, Stage};

/// The controls of this file.
pub const CONTROLS: &[Control] = &[
    Control {
        name: "compile",
        what: "a C project is built with as many jobs as there are CPUs, again and again",
        needs: &[Need::Tool("make"), Need::Tool("gcc")],
        make: compile,
    },
    Control {
        name: "package-upgrade",
        what: "packages are unpacked and configured into a root of their own",
        needs: &[Need::Tool("dpkg-deb"), Need::DiskBytes(1 << 30)],
        make: package_upgrade,
    },
    Control {
        name: "backup",
        what: "a tree of files is archived and compressed at low priority",
        needs: &[Need::Tool("tar"), Need::Tool("gzip"), Need::Tool("nice"), Need::DiskBytes(2 << 30)],
        make: backup,
    },
    Control {
        name: "ci-jobs",
        what: "short jobs of many kinds, one after the other with pauses: checkout, build, tests, packing",
        needs: &[Need::Tool("tar"), Need::Tool("gcc"), Need::Tool("git"), Need::Tool("python3")],
        make: ci_jobs,
    },
    Control {
        name: "copy-once",
        what: "one large file is copied once, and nobody else needs the cache or the disk",
        needs: &[Need::Tool("cp"), Need::DiskBytes(6 << 30), Need::MemoryBytes(4 << 30)],
        make: copy_once,
    },
    Control {
        name: "short-processes",
        what: "a monitoring script starts some tens of short programs a second",
        needs: &[Need::Tool("bash")],
        make: short_processes,
    },
    Control {
        name: "log-rotation",
        what: "a log is written at a steady pace, rotated and compressed",
        needs: &[Need::Tool("gzip"), Need::Tool("bash"), Need::DiskBytes(2 << 30)],
        make: log_rotation,
    },
];

/// Keeps one command running: restarts it after each success.
fn again_and_again(
    stage: &mut Stage,
    running: &mut Option<ProcessHandle>,
    what: &str,
    start: impl FnOnce(&mut Stage) -> Result<ProcessHandle, Stop>,
) -> Result<(), Stop> {
    match running.map(|handle| (handle, stage.ended(handle))) {
        Some((_, None)) => {}
        Some((handle, Some(false))) => stage.must_run(handle, what)?,
        Some((_, Some(true))) | None => *running = Some(start(stage)?),
    }
    Ok(())
}

/// A C project of `files` files.
pub fn write_project(dir: &Path, files: u64, functions: u64) -> Result<(), Stop> {
    fs::create_dir_all(dir)?;
    let mut makefile = String::from("CFLAGS = -O2\nall: main\n");
    let mut objects = String::new();
    for file in 0..files {
        let mut code = String::new();
        for f in 0..functions {
            _ = writeln!(
                code,
                "int f{file}_{f}(int *a, int n) {{ int s = {f}; for (int i = 0; i < n; i++) {{ \
                 if (a[i] % {} == 0) s += a[i] * {f}; else s ^= a[i] >> {}; a[i] = s; }} return s; }}",
                f + 2,
                f % 7
            );
        }
        fs::write(dir.join(format!("part{file}.c")), code)?;
        _ = write!(objects, " part{file}.o");
    }
    fs::write(dir.join("main.c"), "int main(void) { return 0; }\n")?;
    _ = writeln!(makefile, "main: main.o{objects}\nclean:\n\trm -f *.o main");
    fs::write(dir.join("Makefile"), makefile)?;
    Ok(())
}

fn compile(stage: &mut Stage) -> Result<(), Stop> {
    let dir = stage.dir().join("project");
    let (files, functions) = (stage.draw().between(40, 80), stage.draw().between(60, 150));
    write_project(&dir, files, functions)?;
    let jobs = machine::cpus().to_string();
    let mut build = None;
    busy(stage, |stage, _| {
        again_and_again(stage, &mut build, "make", |stage| {
            let line = format!("make -s clean && make -s -j{jobs}");
            stage.spawn(Command::new("sh").args(["-c", &line]).current_dir(&dir))
        })
    })
}

/// Packages in the system's package cache. Without any, builds some from installed files.
fn packages(stage: &mut Stage) -> Result<Vec<PathBuf>, Stop> {
    let cached = fs::read_dir("/var/cache/apt/archives").into_iter().flatten().flatten().map(|e| e.path());
    let mut found: Vec<PathBuf> =
        cached.filter(|p| p.extension().is_some_and(|e| e == "deb")).take(40).collect();
    if found.len() >= 8 {
        return Ok(found);
    }
    found.clear();
    for (i, source) in
        ["/usr/lib/python3", "/usr/share/doc", "/usr/share/perl", "/usr/share/zoneinfo", "/usr/bin"]
            .iter()
            .enumerate()
            .filter(|(_, s)| Path::new(s).exists())
    {
        let root = stage.dir().join(format!("pack{i}"));
        fs::create_dir_all(root.join("DEBIAN"))?;
        fs::create_dir_all(root.join("opt"))?;
        let control =
            format!("Package: lab-{i}\nVersion: 1\nArchitecture: all\nMaintainer: lab\nDescription: lab\n");
        fs::write(root.join("DEBIAN/control"), control)?;
        let line = format!(
            "find {source} -xdev -type f | head -1500 | tar -cf - -T - 2>/dev/null | tar -xf - -C {}",
            root.join("opt").display()
        );
        stage.run(Command::new("sh").args(["-c", &line]))?;
        let deb = stage.dir().join(format!("lab-{i}.deb"));
        stage.run(Command::new("dpkg-deb").args(["-Zgzip", "-b"]).arg(&root).arg(&deb))?;
        found.push(deb);
    }
    Ok(found)
}

fn package_upgrade(stage: &mut Stage) -> Result<(), Stop> {
    let packages = packages(stage)?;
    let root = stage.dir().join("root");
    let mut unpack = None;
    let mut turn = 0;
    busy(stage, |stage, _| {
        again_and_again(stage, &mut unpack, "dpkg-deb", |stage| {
            turn += 1;
            let package = &packages[turn % packages.len()];
            let to = root.join(package.file_stem().unwrap_or_default());
            // As dpkg does: unpack, flush to disk, run a maintainer script.
            let line = "dpkg-deb -x \"$1\" \"$2\" && sync -f \"$2\" && find \"$2\" -type f | head -50 | xargs -r md5sum >/dev/null; sleep 0.1";
            stage.spawn(Command::new("sh").args(["-c", line, "sh"]).arg(package).arg(&to))
        })
    })
}

fn backup(stage: &mut Stage) -> Result<(), Stop> {
    let tree = stage.dir().join("tree");
    let files = stage.draw().between(1_500, 4_000);
    write_project(&tree, files / 20, 100)?;
    for i in 0..files {
        let dir = tree.join(format!("d{}", i % 50));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(format!("f{i}")), i.to_string().repeat(2_000))?;
    }
    let mut tar = None;
    busy(stage, |stage, _| {
        again_and_again(stage, &mut tar, "tar", |stage| {
            let line = "nice -n 10 tar -cf - tree | nice -n 10 gzip -6 >backup.tar.gz; sleep 0.5";
            stage.spawn(Command::new("sh").args(["-c", line]))
        })
    })
}

fn ci_jobs(stage: &mut Stage) -> Result<(), Stop> {
    let project = stage.dir().join("project");
    write_project(&project, 12, 60)?;
    let git = "git init -q && git add . && git -c user.name=ci -c user.email=ci@localhost commit -qm all";
    stage.run(Command::new("sh").args(["-c", git]).current_dir(&project))?;
    let jobs = [
        "rm -rf work && git clone -q project work",
        "make -s -C work",
        "cd work && for i in 1 2 3 4 5 6 7 8; do ./main; python3 -c 'print(sum(range(200000)))'; done >/dev/null",
        "tar -czf work.tar.gz work",
        "python3 -c 'import json; [json.loads(json.dumps(list(range(2000)))) for _ in range(200)]'",
    ];
    let (mut job, mut turn) = (None, 0);
    let pause_s = stage.draw().real(0.2, 0.6);
    busy(stage, |stage, _| {
        again_and_again(stage, &mut job, "a job", |stage| {
            let line = format!("{}; sleep {pause_s:.1}", jobs[turn % jobs.len()]);
            turn += 1;
            stage.spawn(Command::new("sh").args(["-c", &line]))
        })
    })
}

fn copy_once(stage: &mut Stage) -> Result<(), Stop> {
    let mb = stage.draw().between(1_500, 2_500);
    let from = stage.write_file("large", mb << 20)?;
    let to = stage.dir().join("copy");
    let mut started = false;
    busy(stage, |stage, elapsed_s| {
        if !started && elapsed_s >= 2.0 {
            started = true;
            stage.spawn(Command::new("cp").arg(&from).arg(&to))?;
        }
        Ok(())
    })
}

fn short_processes(stage: &mut Stage) -> Result<(), Stop> {
    let pause_s = stage.draw().real(0.02, 0.04);
    busy_script(stage, &format!("while :; do /bin/true; read -t {pause_s:.3} <> <(:); done"))
}

/// A shell that runs `line` without a pause.
fn busy_script(stage: &mut Stage, line: &str) -> Result<(), Stop> {
    let mut shell = None;
    busy(stage, |stage, _| {
        again_and_again(stage, &mut shell, "bash", |stage| {
            stage.spawn(Command::new("bash").args(["-c", line]))
        })
    })
}

fn log_rotation(stage: &mut Stage) -> Result<(), Stop> {
    let (mb_per_s, seconds) = (stage.draw().between(2, 6), stage.draw().between(8, 15));
    let line = format!(
        "block=$(head -c 100000 /dev/urandom | base64 -w 120); n=0; while :; do \
         for i in $(seq {}); do printf '%s\\n' \"$block\" >>app.log; sleep 0.1; done; \
         n=$((n+1)); if [ $n -ge {seconds} ]; then n=0; rm -f app.log.2.gz; mv -f app.log.1.gz app.log.2.gz 2>/dev/null; \
         mv app.log app.log.1 && nice gzip -f app.log.1; fi; done",
        mb_per_s.min(10)
    );
    busy_script(stage, &line)
}
