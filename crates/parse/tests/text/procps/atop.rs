//! atop, its screens and its lines for programs.

use mitra_model::time::SECOND;

use super::{level, values};
use crate::support::{import, near, output, whole};

#[test]
fn atop_screens() {
    let out = whole(output("procps/atop.txt"));
    let t = &out.set.get("mem.slab", "").unwrap().axis;
    assert_eq!((t.len(), t.t[2] - t.t[1]), (3, SECOND));
    assert_eq!(values(&out.set, "sys.load1", "")[0], 2.51);
    assert!(near(values(&out.set, "mem.slab", "")[0], 441.9 * 1_048_576.0));
    assert_eq!(out.set.host.cpus, 2);
    // The rates of the first screen are of the time since boot.
    assert_eq!(values(&out.set, "sys.cpu_idle", "").len(), 2);
    assert_eq!(values(&out.set, "sys.ctxt", "").len(), 2);
    assert!(values(&out.set, "cpu.idle", "1").len() <= 2);
    assert!(values(&out.set, "task.user_time", "1@0").len() < 3);
    let text = "ATOP - lb1   2026/11/21  12:41:31   ------   10s elapsed
CPU | sys     336% | user     12% | irq      20% | idle     32% | wait      0% |
cpu | sys      97% | user      1% | irq       2% | idle      0% | cpu011 w  0% |
PAG | scan   31e5 | stall   1200 | swin      0 | swout    10 |
DSK |     nvme0n1 | busy     12% | read     100 | write   5000 | MBw/s    1.5 |
NET | eth0    12% | pcki  90000 | pcko   8000 | si  80 Mbps | so  800 Kbps |
  PID SYSCPU USRCPU BDELAY  VGROW  RGROW  RDDSK  WRDSK  CPU CMD     1/1
 4242  9.00s  0.50s  0.10s     0K     0K   1.0M     0K  95% curl
";
    let out = import("file", text);
    assert_eq!(out.files[0].unread, 0);
    assert!(
        near(level(&out.set, "sys.cpu_system", ""), 3.36) && near(level(&out.set, "cpu.system", "11"), 0.97)
    );
    assert!(
        near(level(&out.set, "vm.pgscan", ""), 310_000.0) && level(&out.set, "vm.allocstall", "") == 120.0
    );
    assert_eq!(level(&out.set, "disk.writes", "nvme0n1"), 500.0);
    assert!(near(level(&out.set, "disk.io_time", "nvme0n1"), 0.12));
    assert_eq!(
        (level(&out.set, "nic.rx_bytes", "eth0"), level(&out.set, "nic.tx_bytes", "eth0")),
        (1e7, 1e5)
    );
    assert!(near(level(&out.set, "task.system_time", "4242@0"), 0.9));
    assert!(near(level(&out.set, "task.read_bytes", "4242@0"), 104_857.6));
    assert_eq!(out.set.get("vm.pgscan", "").unwrap().axis.dt, [10.0]);
    let t = out.set.get("vm.pgscan", "").unwrap().axis.t[0];
    assert_eq!(t.div_euclid(SECOND).rem_euclid(86_400), 12 * 3600 + 41 * 60 + 31);
}

/// `pcp atop` has no line that says so: all processes together ran for longer than the CPUs can.
#[test]
fn a_first_screen_of_the_time_since_boot_is_known_without_a_word() {
    let text = "ATOP - lb1   2026/11/21  12:41:31   ------   20s elapsed
PRC | sys    8h21m | user  24h31m | #proc    392 | #zombie    0 | no  procacct |
CPL | numcpu     8 | avg1    0.23 | avg5    0.24 | csw 838830e4 | intr 17700e6 |
MEM | tot    15.3G | free  286.3M | cache 721.6M | buff   48.0M | slab  624.3M |
    PID SYSCPU USRCPU BDELAY  VGROW  RGROW  RDDSK  WRDSK  CPU CMD
    878  2.00s 18.80s  0.00s 268.7M   3.4M     0B     0B   0% sedispatch
";
    let out = import("file", text);
    assert!(out.set.get("sys.ctxt", "").is_none() && out.set.get("task.user_time", "878@0").is_none());
    assert_eq!(level(&out.set, "sys.load1", ""), 0.23);
    assert!(out.files[0].notes[0].contains("since boot"), "{:?}", out.files[0].notes);
    let short = text.replace("8h21m", "9.00s").replace("24h31m", "42.0s");
    assert!(import("file", short).set.get("task.user_time", "878@0").is_some());
}

#[test]
fn atop_lines_for_programs() {
    let out = whole(output("procps/atop-P.txt"));
    assert_eq!(out.set.host.cpus, 2);
    assert_eq!(values(&out.set, "sys.load1", "").len(), 3);
    let idle = values(&out.set, "sys.cpu_idle", "");
    assert!(idle.len() == 2 && idle.iter().all(|v| (0.0..=2.1).contains(v)), "{idle:?}");
    let text = "SEP
CPU vm 1795268105 2026/11/21 13:35:05 10 100 2 470 1510 0 0 0 0 20 10 0 5192 100 0 0
MEM vm 1795268105 2026/11/21 13:35:05 10 4096 6171021 5224639 807823 17835 63443 43491 54242 0 2780 0 0 2097152 0 0 0 0 0 0 0 939
DSK vm 1795268105 2026/11/21 13:35:05 10 vda 4000 5 40 904 1499136 14 655400 0 4.15
PRC vm 1795268105 2026/11/21 13:35:05 10 42 (a (b) c) D 100 50 700 -5 110 0 0 1 0 42 y 6300095 (folio_wait_bit_common) 200 -3 -3
PRD vm 1795268105 2026/11/21 13:35:05 10 42 (a (b) c) D n y 1 80 1 160 0 42 n y
NET vm 1795268105 2026/11/21 13:35:05 10 eth0 100 20000 10 1000 1000 1
PSI vm 1795268105 2026/11/21 13:35:05 10 y 72.5 24.6 14.1 782504 0.0 0.0 0.0 5000000 0 0 0 0 5.8 2.0 1.5 207479 0.0 0.2 0.6 0
DSK vm 1795268105 2026/11/21 13:35:05 10 sdb x
";
    let out = import("file", text);
    assert_eq!(out.files[0].unread, 1);
    assert!(
        near(level(&out.set, "sys.cpu_user", ""), 1.51) && near(level(&out.set, "sys.cpu_softirq", ""), 0.02)
    );
    assert_eq!(level(&out.set, "mem.slab", ""), 63_443.0 * 4096.0);
    assert_eq!(level(&out.set, "mem.page_tables", ""), 939.0 * 4096.0);
    assert!(near(level(&out.set, "disk.io_time", "vda"), 0.4));
    assert_eq!(level(&out.set, "disk.write_bytes", "vda"), 149_913.6 * 512.0);
    assert_eq!(out.set.text("task.comm", "42@0").unwrap().last(), Some("a (b) c"));
    assert!(
        near(level(&out.set, "task.system_time", "42@0"), 0.7)
            && near(level(&out.set, "task.blkio_delay", "42@0"), 0.2)
    );
    assert_eq!(level(&out.set, "task.write_bytes", "42@0"), 16.0 * 512.0);
    assert_eq!(values(&out.set, "task.state", "42@0"), [f64::from(b'D')]);
    assert_eq!(values(&out.set, "task.nice", "42@0"), [-5.0]);
    assert!(near(level(&out.set, "task.run_delay", "42@0"), 0.000_630_009_5));
    assert_eq!(out.set.text("task.kstack", "42@0").unwrap().last(), Some("folio_wait_bit_common"));
    assert!(near(level(&out.set, "psi.memory_some", ""), 0.5));
    assert_eq!(out.set.get("mem.slab", "").unwrap().axis.t, [1_795_268_105 * SECOND]);
}
