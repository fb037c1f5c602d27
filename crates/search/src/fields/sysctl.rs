//! Kernel settings whose values are text. All others are numbers or lists of numbers.

/// Names without the leading `sysctl.`. A `*` matches one part between dots.
pub const WORDS: &[&str] = &[
    "kernel.core_pattern",
    "kernel.domainname",
    "kernel.hostname",
    "kernel.hotplug",
    "kernel.modprobe",
    "kernel.osrelease",
    "kernel.ostype",
    "kernel.version",
    "kernel.arch",
    "kernel.poweroff_cmd",
    "kernel.printk_devkmsg",
    "kernel.random.boot_id",
    "kernel.random.uuid",
    "kernel.seccomp.actions_avail",
    "kernel.seccomp.actions_logged",
    "kernel.sched_domain.*",
    "fs.binfmt_misc.*",
    "net.core.default_qdisc",
    "net.core.rps_default_mask",
    "net.core.flow_limit_cpu_bitmap",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_available_ulp",
    "net.ipv4.tcp_fastopen_key",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv6.conf.*.stable_secret",
    "net.mptcp.scheduler",
    "net.mptcp.available_schedulers",
    "net.mptcp.path_manager",
    "net.netfilter.nf_log.*",
    "net.sctp.cookie_hmac_alg",
    "dev.cdrom.info",
    "vm.numa_zonelist_order",
    "sunrpc.transports",
];

/// Whether the values of `sysctl.NAME` are text.
#[must_use]
pub fn is_words(field: &str) -> bool {
    let Some(name) = field.strip_prefix("sysctl.") else { return false };
    WORDS.iter().any(|pattern| matches(pattern, name))
}

fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = name.split('.');
    pattern.split('.').all(|p| parts.next().is_some_and(|part| p == "*" || p == part))
        && parts.next().is_none()
}
