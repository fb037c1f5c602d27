//! What does not change while the machine is up.

use mitra_model::HostInfo;
use mitra_parse::fields::Fields;

use crate::file::Root;

/// Reads the facts of the machine, or of the tree that looks like one.
#[must_use]
pub fn host_info(root: &Root) -> HostInfo {
    let uname = rustix::system::uname();
    let text = |below: &str| root.text(below).filter(|text| !text.is_empty());
    let own = |name: &std::ffi::CStr| {
        if root.is_host() { name.to_string_lossy().into_owned() } else { String::new() }
    };
    HostInfo {
        hostname: text("proc/sys/kernel/hostname").unwrap_or_else(|| own(uname.nodename())),
        kernel: text("proc/sys/kernel/osrelease").unwrap_or_else(|| own(uname.release())),
        boot_id: text("proc/sys/kernel/random/boot_id").unwrap_or_default(),
        cpus: cpus(root),
        page_bytes: rustix::param::page_size() as u64,
        memory_bytes: memory_bytes(root),
        clock_ticks: u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100),
        more: std::collections::HashMap::new(),
    }
}

/// Online CPUs: the `cpuN` lines of `/proc/stat`.
fn cpus(root: &Root) -> u32 {
    let text = root.text("proc/stat").unwrap_or_default();
    let is_cpu = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    u32::try_from(text.lines().filter(is_cpu).count()).unwrap_or(0)
}

fn memory_bytes(root: &Root) -> u64 {
    let text = root.text("proc/meminfo").unwrap_or_default();
    Fields::new(&text).bytes("MemTotal").unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_described_by_its_own_files_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/sys/kernel")).unwrap();
        std::fs::write(dir.path().join("proc/sys/kernel/hostname"), "web-17\n").unwrap();
        std::fs::write(dir.path().join("proc/stat"), "cpu  1 2\ncpu0 1 2\ncpu1 1 2\nintr 5\n").unwrap();
        std::fs::write(dir.path().join("proc/meminfo"), "MemTotal:       2048 kB\n").unwrap();
        let host = host_info(&Root::open(dir.path()).unwrap());
        assert_eq!((host.hostname.as_str(), host.kernel.as_str()), ("web-17", ""));
        assert_eq!((host.cpus, host.memory_bytes), (2, 2 << 20));
    }
}
