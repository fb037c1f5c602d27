//! Compiles the BPF programs of `bpf/` with clang, once per build and for any kernel: the
//! field offsets are filled in when they are loaded.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

const PROGRAMS: &[&str] = &[
    "tasks",
    "block",
    "events",
    "net",
    "dns",
    "capture_offcpu",
    "capture_oncpu",
    "capture_faults",
    "capture_growth",
    "capture_cache",
    "capture_lookups",
    "capture_syscalls",
    "capture_runqlat",
    "capture_locks",
    "capture_fork",
    "capture_trace",
];
const HEADERS: &[&str] =
    &["kernel.h", "record.h", "clock.h", "net.h", "capture.h", "chain.h", "calls.h", "names.h"];
const INSTALL: &str = "apt-get install clang libbpf-dev";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_BPF").is_none() {
        return;
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    for header in HEADERS {
        println!("cargo::rerun-if-changed=bpf/{header}");
    }
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for program in PROGRAMS {
        println!("cargo::rerun-if-changed=bpf/{program}.bpf.c");
        if let Err(why) = compile(program, &out_dir) {
            eprintln!("{why}");
            exit(1);
        }
    }
}

fn compile(program: &str, out_dir: &Path) -> Result<(), String> {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let target = match env::var("CARGO_CFG_TARGET_ENDIAN").as_deref() {
        Ok("big") => "bpfeb",
        _ => "bpfel",
    };
    let output = Command::new(&clang)
        .current_dir("bpf")
        .args(["-target", target, "-mcpu=v3", "-O2", "-g", "-fdebug-compilation-dir=."])
        .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-unused-function"])
        .args(["-c", &format!("{program}.bpf.c"), "-o"])
        .arg(out_dir.join(format!("{program}.bpf.o")))
        .output()
        .map_err(|error| {
            format!(
                "cannot run `{clang}`: {error}\nthe BPF programs need it; either\n    {INSTALL}\n\
                 or build without them: --no-default-features"
            )
        })?;
    if output.status.success() {
        return Ok(());
    }
    let messages = String::from_utf8_lossy(&output.stderr);
    let hint = if messages.contains("bpf/bpf_helpers.h") || messages.contains("bpf/bpf_core_read.h") {
        format!("\nthe headers of libbpf are missing:\n    {INSTALL}")
    } else {
        String::new()
    };
    Err(format!("cannot compile bpf/{program}.bpf.c:\n{messages}{hint}"))
}
