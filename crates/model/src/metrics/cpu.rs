//! CPU time, interrupts, softirqs and load.

use crate::metric::{Entity, Kernel, Metric, Unit, counter, gauge};

const fn system_ticks(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::System, name, Unit::Ticks, source, since, help)
}

const fn system_count(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::System, name, Unit::Count, source, since, help)
}

const fn level(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Count, source, since, help)
}

const fn centi(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Centi, source, since, help)
}

const fn cpu_ticks(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Cpu, name, Unit::Ticks, source, since, help)
}

const fn cpu_count(name: &'static str, source: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Cpu, name, Unit::Count, source, since, help)
}

/// Of all CPUs together.
pub const CPU_SYSTEM: &[Metric] = &[
    system_ticks(
        "sys.cpu_user",
        "/proc/stat:cpu",
        Kernel(2, 6),
        "Time of all CPUs in user mode, nice processes not included. Contains the time of guests.",
    ),
    system_ticks(
        "sys.cpu_nice",
        "/proc/stat:cpu",
        Kernel(2, 6),
        "Time of all CPUs in user mode for processes with a positive nice value. Contains the time of nice guests.",
    ),
    system_ticks(
        "sys.cpu_system",
        "/proc/stat:cpu",
        Kernel(2, 6),
        "Time of all CPUs in kernel mode, interrupts not included.",
    ),
    system_ticks(
        "sys.cpu_idle",
        "/proc/stat:cpu",
        Kernel(2, 6),
        "Time of all CPUs with nothing to run and no I/O pending that was started on them.",
    ),
    system_ticks(
        "sys.cpu_iowait",
        "/proc/stat:cpu",
        Kernel(2, 6),
        "Idle time of CPUs on which a task waits for I/O. It is idle time: it falls when anything else runs, and low iowait does not mean that nobody waits.",
    ),
    system_ticks(
        "sys.cpu_irq",
        "/proc/stat:cpu",
        Kernel(2, 6),
        "Time of all CPUs in hard interrupts. Stays 0 without CONFIG_IRQ_TIME_ACCOUNTING, when ticks are charged to whatever was interrupted.",
    ),
    system_ticks(
        "sys.cpu_softirq",
        "/proc/stat:cpu",
        Kernel(2, 6),
        "Time of all CPUs in soft interrupts, ksoftirqd included only where interrupt time is accounted precisely.",
    ),
    system_ticks(
        "sys.cpu_steal",
        "/proc/stat:cpu",
        Kernel(2, 6),
        "Time that virtual CPUs were ready to run while the hypervisor ran something else.",
    ),
    system_ticks(
        "sys.cpu_guest",
        "/proc/stat:cpu",
        Kernel(2, 6),
        "Time of all CPUs running virtual machines. Already part of sys.cpu_user: do not add it again.",
    ),
    system_ticks(
        "sys.cpu_guest_nice",
        "/proc/stat:cpu",
        Kernel(2, 6),
        "Time of all CPUs running nice virtual machines. Already part of sys.cpu_nice.",
    ),
    system_count(
        "sys.intr",
        "/proc/stat:intr",
        Kernel(2, 6),
        "Interrupts served, the unnumbered ones of the architecture included.",
    ),
    system_count("sys.softirq", "/proc/stat:softirq", Kernel(2, 6), "Soft interrupts run, of all kinds."),
    system_count("sys.ctxt", "/proc/stat:ctxt", Kernel(2, 6), "Context switches on all CPUs."),
    system_count(
        "sys.forks",
        "/proc/stat:processes",
        Kernel(2, 6),
        "Tasks created: processes and threads alike.",
    ),
    level(
        "sys.procs_running",
        "/proc/stat:procs_running",
        Kernel(2, 6),
        "Tasks running or runnable at the moment of the sample. The recorder itself is one of them.",
    ),
    level(
        "sys.procs_blocked",
        "/proc/stat:procs_blocked",
        Kernel(2, 6),
        "Tasks in an I/O wait at the moment of the sample. Not all tasks in D state: locks of the kernel are not counted.",
    ),
    centi(
        "sys.load1",
        "/proc/loadavg",
        Kernel(2, 6),
        "Tasks runnable or in D state, averaged exponentially over one minute. Contains tasks that wait, not only those that use a CPU.",
    ),
    centi("sys.load5", "/proc/loadavg", Kernel(2, 6), "As sys.load1, over five minutes."),
    centi("sys.load15", "/proc/loadavg", Kernel(2, 6), "As sys.load1, over fifteen minutes."),
    level(
        "sys.cpus_online",
        "/proc/stat",
        Kernel(2, 6),
        "CPUs that are online: the rows cpuN of /proc/stat.",
    ),
];

/// Of each CPU.
pub const CPU: &[Metric] = &[
    cpu_ticks(
        "cpu.user",
        "/proc/stat:cpuN",
        Kernel(2, 6),
        "Time in user mode, nice processes not included. Contains cpu.guest.",
    ),
    cpu_ticks(
        "cpu.nice",
        "/proc/stat:cpuN",
        Kernel(2, 6),
        "Time in user mode for processes with a positive nice value. Contains cpu.guest_nice.",
    ),
    cpu_ticks("cpu.system", "/proc/stat:cpuN", Kernel(2, 6), "Time in kernel mode, interrupts not included."),
    cpu_ticks(
        "cpu.idle",
        "/proc/stat:cpuN",
        Kernel(2, 6),
        "Time with nothing to run and no I/O pending that was started here. On a tickless CPU it may step backwards a little.",
    ),
    cpu_ticks(
        "cpu.iowait",
        "/proc/stat:cpuN",
        Kernel(2, 6),
        "Idle time while a task that last ran here waits for I/O. The task may wake up elsewhere, so the CPU says little. It may step backwards.",
    ),
    cpu_ticks(
        "cpu.irq",
        "/proc/stat:cpuN",
        Kernel(2, 6),
        "Time in hard interrupts. Stays 0 without CONFIG_IRQ_TIME_ACCOUNTING.",
    ),
    cpu_ticks("cpu.softirq", "/proc/stat:cpuN", Kernel(2, 6), "Time in soft interrupts."),
    cpu_ticks(
        "cpu.steal",
        "/proc/stat:cpuN",
        Kernel(2, 6),
        "Time that this virtual CPU was ready to run while the hypervisor ran something else.",
    ),
    cpu_ticks(
        "cpu.guest",
        "/proc/stat:cpuN",
        Kernel(2, 6),
        "Time running a virtual machine; already part of cpu.user.",
    ),
    cpu_ticks(
        "cpu.guest_nice",
        "/proc/stat:cpuN",
        Kernel(2, 6),
        "Time running a nice virtual machine; already part of cpu.nice.",
    ),
    cpu_count("softirq.hi", "/proc/softirqs:HI", Kernel(2, 6), "High-priority tasklets run on this CPU."),
    cpu_count("softirq.timer", "/proc/softirqs:TIMER", Kernel(2, 6), "Rounds of expired timers on this CPU."),
    cpu_count(
        "softirq.net_tx",
        "/proc/softirqs:NET_TX",
        Kernel(2, 6),
        "Rounds of freeing and requeueing sent packets on this CPU. Ordinary sending does not pass here.",
    ),
    cpu_count(
        "softirq.net_rx",
        "/proc/softirqs:NET_RX",
        Kernel(2, 6),
        "Rounds of polling network devices on this CPU. One CPU far ahead of the others: interrupts are not spread.",
    ),
    cpu_count(
        "softirq.block",
        "/proc/softirqs:BLOCK",
        Kernel(2, 6),
        "Completions of block requests on this CPU that were moved out of the hard interrupt.",
    ),
    cpu_count(
        "softirq.irq_poll",
        "/proc/softirqs:IRQ_POLL or BLOCK_IOPOLL",
        Kernel(2, 6),
        "Rounds of polled block completions. Called BLOCK_IOPOLL before 4.5.",
    ),
    cpu_count("softirq.tasklet", "/proc/softirqs:TASKLET", Kernel(2, 6), "Tasklets run on this CPU."),
    cpu_count("softirq.sched", "/proc/softirqs:SCHED", Kernel(2, 6), "Rounds of load balancing on this CPU."),
    cpu_count(
        "softirq.hrtimer",
        "/proc/softirqs:HRTIMER",
        Kernel(2, 6),
        "Rounds of high-resolution timers that run in soft interrupt context.",
    ),
    cpu_count(
        "softirq.rcu",
        "/proc/softirqs:RCU",
        Kernel(2, 6),
        "Rounds of RCU callbacks on this CPU. A flood of freed dentries or sockets shows here.",
    ),
];
