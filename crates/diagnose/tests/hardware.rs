//! Interrupts, and devices that report errors or go away, as a recording has them, and what looks like it.

#[path = "support/disks.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod disks;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use disks::{N, text};
use mitra_model::EventKind;
use support::{HEALTHY, Machine, ids, row};

/// Interrupts on two CPUs; a task on the first one that waits so much.
fn interrupts(first: f64, second: f64, waits: f64) -> Machine {
    let mut m = Machine::idle();
    for (cpu, share) in [("0", first), ("1", second)] {
        m.row("cpu.softirq", cpu, 0.005, share).row("cpu.irq", cpu, 0.0, 0.0);
        m.row("cpu.idle", cpu, 0.97, 0.95 - share);
    }
    m.sys("sys.cpu_idle", 1.94, 1.9 - first - second);
    m.row("nic.rx_packets", "eth0", 100.0, 250_000.0).row("softnet.processed", "0", 50.0, 250_000.0);
    m.task(60, "quoted", 0).task_rate(60, "task.cpu", 0.0, 0.0).task_rate(60, "task.run_delay", 0.0, waits);
    m
}

#[test]
fn interrupts_on_one_cpu_that_make_its_tasks_wait() {
    let report = interrupts(0.8, 0.02, 0.4).explain();
    assert_eq!(ids(&report), ["interrupt-imbalance"]);
    assert_eq!(report.incidents[0].root_cause.culprit.nic.as_deref(), Some("eth0"));
    assert!(interrupts(0.4, 0.02, 0.0).explain().incidents.is_empty(), "nobody suffers");
    assert!(interrupts(0.4, 0.35, 0.4).explain().incidents.is_empty(), "they are shared");
}

#[test]
fn the_device_whose_interrupt_is_there_is_named_and_the_loopback_last() {
    let mut m = interrupts(0.8, 0.02, 0.4);
    m.row("nic.rx_packets", "lo", 100.0, 400_000.0).row("nic.rx_packets", "br0", 100.0, 260_000.0);
    m.row("irq.count", "24", 10.0, 9_000.0).row("irq.busiest_cpu", "24", 0.0, 0.0);
    text(&mut m, "irq.description", "24", "IR-PCI-MSI 524288-edge eth0-TxRx-0");
    let nic = |m: &Machine| m.explain().incidents[0].root_cause.culprit.nic.clone();
    assert_eq!(nic(&m).as_deref(), Some("eth0"));
    let moved = |m: &Machine| {
        let remedies = m.explain().incidents[0].remedies.clone();
        remedies
            .into_iter()
            .map(|remedy| remedy.command)
            .find(|command| command.contains("smp_affinity_list"))
    };
    assert_eq!(moved(&m).as_deref(), Some("echo 1 > /proc/irq/24/smp_affinity_list"));
    let first = m.explain().incidents[0].remedies[0].command.clone();
    assert!(first.contains("rps_cpus"), "a single one only moves: {first}");
    // Only a pair of virtual devices brings that many.
    m.row("nic.rx_packets", "eth0", 10.0, 10.0).row("nic.rx_packets", "br0", 10.0, 10.0);
    m.row("nic.rx_packets", "veth3@web", 10.0, 240_000.0);
    assert_eq!(nic(&m).as_deref(), Some("veth3"));
    // An interrupt that hardly comes is not what fills the CPU.
    m.row("irq.count", "24", 10.0, 30.0);
    assert_eq!(moved(&m), None);
}

#[test]
fn interrupts_of_one_cpu_are_shared_out_among_the_idlest() {
    let mut m = interrupts(0.8, 0.02, 0.4);
    m.set.host.cpus = 4;
    for (cpu, idle) in [("2", 0.6), ("3", 0.99)] {
        m.row("cpu.softirq", cpu, 0.005, 0.01).row("cpu.irq", cpu, 0.0, 0.0).row("cpu.idle", cpu, 0.97, idle);
    }
    m.sys("sys.cpu_idle", 3.8, 2.6);
    for (irq, rate, cpu) in
        [("24", 9_000.0, 0.0), ("25", 8_000.0, 0.0), ("26", 7_000.0, 0.0), ("27", 9_000.0, 1.0)]
    {
        m.row("irq.count", irq, 10.0, rate).row("irq.busiest_cpu", irq, cpu, cpu);
        text(&mut m, "irq.description", irq, &format!("IR-PCI-MSI {irq}-edge eth0-TxRx-{irq}"));
    }
    let moved = |m: &Machine| m.explain().incidents[0].remedies[0].command.clone();
    let to = |irq: &str, cpu: &str| format!("echo {cpu} > /proc/irq/{irq}/smp_affinity_list");
    assert_eq!(moved(&m), [to("24", "3"), to("25", "1"), to("26", "2")].join("; "));
    // A full one gets none.
    m.row("cpu.idle", "2", 0.97, 0.1).sys("sys.cpu_idle", 3.8, 2.1);
    assert_eq!(moved(&m), [to("24", "3"), to("25", "1"), to("26", "3")].join("; "));
}

#[test]
fn two_queues_of_a_card_on_two_of_many_cpus_are_not_shared() {
    let mut m = interrupts(0.8, 0.75, 0.4);
    m.set.host.cpus = 8;
    for cpu in ["2", "3", "4", "5", "6", "7"] {
        m.row("cpu.softirq", cpu, 0.005, 0.01).row("cpu.irq", cpu, 0.0, 0.0).row("cpu.idle", cpu, 0.97, 0.95);
    }
    m.sys("sys.cpu_idle", 7.8, 6.0);
    assert_eq!(ids(&m.explain()), ["interrupt-imbalance"]);
}

#[test]
fn a_task_that_is_charged_for_the_interrupts_of_its_cpu_suffers_from_them() {
    // A part of the interrupts comes while the CPU idles, without a tick, and is nowhere counted.
    let machine = |charged: f64| {
        let mut m = Machine::idle();
        for (cpu, [user, idle], [user_now, softirq, idle_now]) in
            [("0", [0.4, 0.595], [0.41, 0.2, 0.26]), ("1", [0.02, 0.97], [0.05, 0.01, 0.93])]
        {
            m.row("cpu.user", cpu, user, user_now).row("cpu.softirq", cpu, 0.0, softirq);
            m.row("cpu.idle", cpu, idle, idle_now);
        }
        m.task(60, "quoted", 0).task_rate(60, "task.cpu", 0.0, 0.0).task_rate(
            60,
            "task.cpu_time",
            0.4,
            charged,
        );
        m.values("task.cpus_allowed_count", &row(60), 0, vec![1.0; N]);
        m
    };
    assert_eq!(ids(&machine(0.61).explain()), ["interrupt-imbalance"]);
    assert!(machine(0.42).explain().incidents.is_empty(), "nobody suffers");
}

#[test]
fn pinned_tasks_that_are_in_each_others_way_are_a_cause_beside_the_interrupts() {
    let roots = |pinned: u32| -> Vec<String> {
        let mut m = interrupts(0.6, 0.02, 0.0);
        for tid in 70..70 + pinned {
            m.task(tid, "packer", HEALTHY).task_during(tid, "task.run_delay", 0.85);
            m.task_during(tid, "task.cpus_allowed", 1.0).task_during(tid, "task.cpus_allowed_count", 1.0);
            m.task_during(tid, "task.cpu", 0.0);
        }
        m.sys("tasks.run_delay", 0.01, 0.85 * f64::from(pinned));
        let report = m.explain();
        let all = report.incidents.iter().flat_map(|i| std::iter::once(&i.root_cause).chain(&i.other_roots));
        all.map(|r| r.condition.clone()).collect()
    };
    // Alone with the interrupts it waits for them; four would wait for each other.
    assert_eq!(roots(1), ["interrupt-imbalance"]);
    let mut four = roots(4);
    four.sort();
    assert_eq!(four, ["cpu-affinity-misplaced", "interrupt-imbalance"]);
}

#[test]
fn errors_and_losses_of_devices() {
    let error = |what: &str, device: &str| {
        let mut m = Machine::idle();
        for second in [70, 72, 74] {
            let text = format!("{what} of {device}");
            m.event(second, EventKind::DeviceError { what: what.into(), device: device.into(), text });
        }
        m.explain()
    };
    let report = error("io-error", "sdb");
    assert_eq!(ids(&report), ["hardware-error"]);
    assert_eq!(report.incidents[0].root_cause.culprit.device.as_deref(), Some("sdb"));
    // What was corrected now and then lost nothing.
    assert!(error("corrected-error", "MC0").incidents.is_empty());
    let mut m = Machine::idle();
    for second in 70..95 {
        let (what, device, text) = ("corrected-error".into(), "MC0".into(), "EDAC MC0: 1 CE".into());
        m.event(second, EventKind::DeviceError { what, device, text });
    }
    let report = m.explain();
    assert_eq!(ids(&report), ["hardware-error"]);
    let incident = &report.incidents[0];
    assert_eq!(incident.root_cause.culprit.address.as_deref(), Some("MC0"));
    assert!(incident.remedies.iter().all(|r| !r.command.contains("smartctl")), "{:?}", incident.remedies);
    let report = error("link-down", "eth1");
    assert_eq!(ids(&report), ["device-lost"]);
    let root = &report.incidents[0].root_cause;
    assert_eq!(root.culprit.nic.as_deref(), Some("eth1"));
    assert!(root.remarks.is_empty(), "nobody said that it came back: {:?}", root.remarks);
    let report = error("pool-full", "dm-4");
    assert_eq!(ids(&report), ["hardware-error"]);
    let incident = &report.incidents[0];
    assert_eq!(incident.root_cause.culprit.device.as_deref(), Some("dm-4"));
    assert!(incident.remedies.iter().any(|r| r.command.contains("lvextend")), "{:?}", incident.remedies);
    // Nobody suffers from a warning, or from a path beside another one.
    for (what, device, remark, command) in [
        ("path-failed", "sdc", "sdc flaps: it failed 3 times", "-n /dev/sdc"),
        ("path-failed", "259:1", "flaps", "/sys/dev/block/259:1"),
        ("path-failed", "", "flaps", "multipath -ll"),
        ("disk-failing", "sda", "", "smartctl -x /dev/sda"),
        ("disk-failing", "bus/0 [megaraid_disk_05]", "", "smartctl -x -d megaraid,5 /dev/bus/0"),
    ] {
        let report = error(what, device);
        assert!(report.incidents.is_empty(), "{what}");
        let found = report.findings.iter().find(|finding| finding.condition == "hardware-error").unwrap();
        assert_eq!(found.culprit.device.as_deref(), Some(device).filter(|device| !device.is_empty()));
        assert!(found.remarks.join(" ").contains(remark), "{:?}", found.remarks);
        assert!(found.remedies.iter().any(|r| r.command.ends_with(command)), "{:?}", found.remedies);
    }
}

/// Errors of devices, each with its second, in one recording.
fn errors(list: &[(usize, &str, &str)]) -> Machine {
    let mut m = Machine::idle();
    for (second, what, device) in list {
        let text = format!("{what} of {device}");
        let (what, device) = ((*what).to_owned(), (*device).to_owned());
        m.event(*second, EventKind::DeviceError { what, device, text });
    }
    m
}

#[test]
fn what_lost_something_is_told_before_what_is_reported_more_often() {
    let report =
        errors(&[(70, "path-failed", "sdc"), (72, "path-failed", "sdc"), (74, "io-error", "sdb")]).explain();
    assert_eq!(ids(&report), ["hardware-error"]);
    let root = &report.incidents[0].root_cause;
    assert_eq!(root.culprit.device.as_deref(), Some("sdb"), "{}", root.statement);
}

#[test]
fn a_failure_that_two_logs_have_is_no_flapping() {
    let report = errors(&[(70, "path-failed", "sdc"), (70, "path-failed", "sdc")]).explain();
    let found = report.findings.iter().find(|finding| finding.condition == "hardware-error").unwrap();
    assert!(!found.remarks.join(" ").contains("flaps"), "{:?}", found.remarks);
}

#[test]
fn a_warning_of_a_disk_crashes_no_program() {
    // Whether the crash is told as a cause of its own.
    let crashed = |what: &str| {
        let mut m = errors(&[(70, what, "sda")]);
        let crash = EventKind::Crash {
            pid: 90,
            comm: "orderd".into(),
            address: 0x10,
            ip: 0x514a,
            error: 4,
            object: None,
            base: None,
            file_offset: None,
        };
        m.event(71, crash);
        let report = m.explain();
        let mut roots =
            report.incidents.iter().flat_map(|i| [&i.root_cause].into_iter().chain(&i.other_roots));
        roots.any(|root| root.condition == "process-crash")
    };
    assert!(!crashed("io-error"), "a page could not be read");
    for what in ["disk-failing", "path-failed", "pool-full"] {
        assert!(crashed(what), "{what}");
    }
}

#[test]
fn a_link_that_comes_back_again_and_again_flaps() {
    let remarks = |ups: &[usize]| {
        let mut m = Machine::idle();
        for second in [70, 74, 78] {
            // The driver and the bond.
            for text in ["eth1 NIC Link is Down", "bond0: (slave eth1): link status definitely down"] {
                let (what, device, text) = ("link-down".into(), "eth1".into(), text.into());
                m.event(second, EventKind::DeviceError { what, device, text });
            }
            if ups.contains(&(second + 1)) {
                let (what, device, state) = ("interface".into(), "eth1".into(), "up".into());
                m.event(second + 1, EventKind::Device { what, device, state });
            }
        }
        m.explain().incidents[0].root_cause.remarks.join(" ")
    };
    assert!(remarks(&[71, 75]).contains("eth1 flaps: it came up again 2 times"));
    assert!(!remarks(&[71]).contains("flaps"));
}
