//! Compiles the BPF programs of `bpf/` with clang, once per build and for any kernel: the
//! field offsets are filled in when they are loaded.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

const INSTALL: &str = "apt-get install clang libbpf-dev";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CLANG");
    // The folder has headers too.
    println!("cargo::rerun-if-changed=bpf");
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    if let Err(why) = programs().and_then(|names| names.iter().try_for_each(|name| compile(name, &out_dir))) {
        eprintln!("{why}");
        exit(1);
    }
}

/// The names of `bpf/*.bpf.c`.
fn programs() -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir("bpf").map_err(|error| format!("cannot list bpf: {error}"))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.strip_suffix(".bpf.c").map(str::to_owned)).collect())
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
            format!("cannot run `{clang}`: {error}\nthe BPF programs need it:\n    {INSTALL}")
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
