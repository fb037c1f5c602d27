//! Recorders, exporters and consoles of other projects.

use mitra_model::time::SECOND;
use mitra_model::{Era, EventKind};
use proptest::prelude::*;

use crate::support::{
    check, check_row, damaged, events, import, import_file, is_empty, near, one, output, outputs_of,
    seconds_in, series, string_of, survive, text_of, tries, whole,
};

/// 2026-11-27 23:10:00 UTC.
const T0: i64 = 1_795_821_000;

#[track_caller]
fn formats(path: &str) -> Vec<String> {
    import_file(output(path)).files.remove(0).formats
}

#[test]
fn answers_of_prometheus() {
    let read = whole(output("prometheus/query-range.json"));
    let load = series(&read.set, "sys.load1", "");
    assert_eq!(load.axis.t, [T0, T0 + 15, T0 + 30].map(|t| t * SECOND));
    check(&read.set, "sys.load1", "", &[0.21, 0.25, 3.5]);
    check(&read.set, "mem.available", "", &[8_388_608.0, 4_194_304.0, 2_097_152.0]);
    let read = whole(output("prometheus/query-range-jq.json"));
    let last =
        |metric: &str, row: &str| series(&read.set, metric, row).values.iter().next_back().copied().unwrap();
    assert!(near(last("cpu.user", "0"), 7.0 / 15.0));
    assert!(near(last("disk.read_bytes", "vda"), 3_000_000.0 / 15.0));
    // Each CPU is there, so that all of them are.
    assert!(near(last("sys.cpu_idle", ""), 20.0 / 15.0) && near(last("sys.cpu_user", ""), 11.0 / 15.0));
    assert_eq!(read.set.host.cpus, 2);
    assert!(read.set.get("sys.load1", "").is_none(), "of another machine");
    assert!(read.files[0].notes.iter().any(|note| note.contains("only those of web-17:9100")));
    let read = whole(output("prometheus/query.json"));
    assert_eq!(one(&read.set, "vm.pgmajfault", "").0, 4711.0);
    assert_eq!(one(&read.set, "tcp.RetransSegs", "").0, 12.0);
    // The result of an expression says nothing.
    let read = import_file(output("prometheus/expression.json"));
    assert!(is_empty(&read) && read.files[0].unread == 1 && read.files[0].formats.is_empty());
}

#[test]
fn answers_of_netdata() {
    let read = whole(output("netdata/jsonwrap.json"));
    let set = &read.set;
    assert_eq!(series(set, "sys.cpu_user", "").axis.t[0], T0 * SECOND);
    let share =
        series(set, "sys.cpu_user", "").values.iter().map(|v| (v * 100.0).round()).collect::<Vec<_>>();
    assert_eq!(share, [20.0, 30.0, 40.0]);
    let read = whole(output("netdata/data-disk.vda.json"));
    check(&read.set, "disk.write_bytes", "vda", &[256.0 * 1024.0, 512.0 * 1024.0]);
    // The same without the name of the chart.
    let bytes = crate::support::bytes(output("netdata/data-disk.vda.json"));
    assert!(is_empty(&import("data.json", bytes)));
}

#[test]
fn containers_and_pods() {
    let read = whole(output("docker/stats.txt"));
    check(&read.set, "cgroup.cpu_usage", "db", &[1.5025]);
    check_row(
        &read.set,
        "web",
        &[
            ("cgroup.memory_current", 120.5 * 1024.0 * 1024.0, 2),
            ("cgroup.memory_max", 512.0 * 1024.0 * 1024.0, 2),
            ("cgroup.pids_current", 12.0, 2),
            ("cgroup.io_read_bytes", 8190.0, 2),
        ],
    );
    let read = whole(output("docker/stats-stream.txt"));
    check(&read.set, "cgroup.cpu_usage", "web", &[0.1, 0.9]);
    assert_eq!(seconds_in(Era::Sequence, series(&read.set, "cgroup.cpu_usage", "web")).len(), 2);
    // A container that does not run has no numbers, and others come behind it.
    let stopped = "5e1c4a7b9d20   old   --   -- / --   --   --   --   --\n";
    let content = string_of(output("docker/stats.txt")).replacen("\n", &format!("\n{stopped}"), 1);
    let read = import("x", content);
    assert_eq!(read.files[0].unread, 0, "{:?}", read.files[0]);
    assert_eq!(one(&read.set, "cgroup.pids_current", "web").0, 12.0);
    let read = whole(output("docker/podman-stats.txt"));
    check_row(
        &read.set,
        "cache",
        &[("cgroup.memory_current", 12_500_000.0, 2), ("cgroup.pids_current", 4.0, 2)],
    );
    let read = whole(output("kubectl/top-pod-A.txt"));
    check(&read.set, "cgroup.cpu_usage", "shop/web-7f6c4d8b9-abcde", &[0.25]);
    check(&read.set, "cgroup.cpu_usage", "shop/db-0", &[2.0]);
    check_row(&read.set, "shop/db-0", &[("cgroup.memory_current", 3.0 * 1024.0 * 1024.0 * 1024.0, 4)]);
    let read = whole(output("kubectl/top-pod-containers.txt"));
    check(&read.set, "cgroup.cpu_usage", "web-7f6c4d8b9-abcde/sidecar", &[0.01]);
    // Nodes are other machines.
    assert!(is_empty(&import_file(output("kubectl/top-node.txt"))));
}

#[test]
fn sessions_of_postgres() {
    let set = whole(output("postgres/activity.txt")).set;
    assert_eq!(text_of(&set, "session.activity", "4242"), Some("idle in transaction"));
    assert_eq!(text_of(&set, "session.activity", "4243"), Some("UPDATE waiting"));
    assert_eq!(text_of(&set, "session.waits_for", "4243"), Some("transactionid"));
    assert_eq!(text_of(&set, "session.blocked_by", "4243"), Some("4242"));
    assert_eq!(text_of(&set, "session.blocked_by", "4242"), None);
    assert_eq!(text_of(&set, "session.client", "4242"), Some("10.0.0.7"));
    assert_eq!(one(&set, "session.pid", "4244"), (4244.0, 5));
    let set = whole(output("postgres/activity-old.txt")).set;
    assert_eq!(text_of(&set, "session.activity", "10002"), Some("DELETE waiting"));
    assert_eq!(text_of(&set, "session.activity", "10001"), Some("idle"));
    let read = whole(output("postgres/activity-x.txt"));
    assert_eq!(read.files[0].formats, ["pg_stat_activity"]);
    let set = read.set;
    assert_eq!(text_of(&set, "session.activity", "4243"), Some("UPDATE waiting"));
    assert_eq!(text_of(&set, "session.activity", "4242"), Some("idle in transaction"));
    assert_eq!(text_of(&set, "session.client", "4243"), Some("10.0.0.7"));
    assert_eq!(text_of(&set, "session.client", "4242"), None);
    assert_eq!(one(&set, "session.pid", "4242"), (4242.0, 13));
}

#[test]
fn transactions_of_innodb() {
    let set = whole(output("innodb/mysql.txt")).set;
    assert_eq!(text_of(&set, "session.activity", "8"), Some("UPDATE waiting"));
    assert_eq!(text_of(&set, "session.waits_for", "8"), Some("row lock"));
    assert_eq!(one(&set, "session.state_time", "8").0, 12.0);
    assert_eq!(text_of(&set, "session.activity", "7"), Some("idle in transaction"));
    assert_eq!(one(&set, "session.state_time", "7"), (95.0, 29));
    assert_eq!(series(&set, "session.state_time", "7").axis.t[0], (T0 + 1) * SECOND);
    // Locks and read views of a transaction are no statement, and a statement may begin with a comment.
    let of = |below: &str| {
        let thread = "MySQL thread id 7, OS thread handle 139760, query id 10 localhost shop\n";
        let content =
            string_of(output("innodb/mysql.txt")).replacen(thread, &format!("{thread}{below}\n"), 1);
        text_of(&import("x", content).set, "session.activity", "7").map(str::to_owned)
    };
    for below in [
        "Trx read view will not see trx with id >= 4213, sees < 4211",
        "TABLE LOCK table `shop`.`stock` trx id 4211 lock mode IX",
    ] {
        assert_eq!(of(below).as_deref(), Some("idle in transaction"), "{below}");
    }
    assert_eq!(of("/* cart:17 */ (SELECT 1) UNION SELECT 2").as_deref(), Some("SELECT"));
    let prepared = string_of(output("innodb/mysql.txt")).replace("ACTIVE 95 sec", "ACTIVE (PREPARED) 95 sec");
    assert_eq!(one(&import("x", prepared).set, "session.state_time", "7").0, 95.0);
}

#[test]
fn profiles_of_go() {
    let set = whole(output("pprof/top.txt")).set;
    assert_eq!(one(&set, "path.samples", "runtime.mallocgc"), (420.0, 8));
    assert_eq!(one(&set, "path.samples", "runtime.memmove"), (200.0, 10));
    assert!(set.total("path.samples", "main.main").is_none());
    let set = whole(output("pprof/top-short.txt")).set;
    assert_eq!(one(&set, "path.samples", "runtime.nanotime (inline)"), (1.0, 7));
}

#[test]
fn access_logs_with_times() {
    let read = whole(output("access/haproxy.log"));
    assert_eq!(read.files[0].formats, ["access log with times"]);
    let requests = series(&read.set, "service.requests", "web");
    assert_eq!(requests.axis.t[0], (T0 + 10) * SECOND);
    assert_eq!(requests.values[0], 2.0);
    let p99 = series(&read.set, "service.latency_p99", "web");
    assert_eq!((p99.values[0], *p99.values.iter().next_back().unwrap()), (0.026, 0.9));
    assert_eq!(p99.axis.places[0].line, 1);
    check(
        &read.set,
        "service.response_time",
        "web",
        &[20.0 * 0.026 / 10.0, (10.0 * 0.026 + 9.0 * 0.9) / 10.0, 0.09],
    );
    let read = whole(output("access/nginx-named.log"));
    // An hour east of Greenwich.
    assert_eq!(series(&read.set, "service.requests", "nginx-named.log").axis.t[0], (T0 - 3600 + 10) * SECOND);
    check(&read.set, "service.latency_max", "nginx-named.log", &[0.1, 0.12]);
    let read = whole(output("access/nginx-last.log"));
    check(&read.set, "service.latency_max", "nginx-last.log", &[0.1, 2.5]);
    // Without a time it is a log like others.
    assert_eq!(formats("access/combined.log"), ["log"]);
}

#[test]
fn entries_of_the_journal() {
    let read = whole(output("journal/export.txt"));
    let kills = events(&read, |kind| matches!(kind, EventKind::OomKill { .. }));
    assert_eq!(kills.len(), 1);
    assert_eq!((kills[0].real, kills[0].place.unwrap().line), ((T0 + 1) * SECOND, 8));
}

#[test]
fn near_misses() {
    for text in [
        "Time,\"a\",\"b\"\n2026-11-27 23:10:01,1,2\n",
        "Time,x.y,z.w\n2026-11-27 23:10:01,1,2\n",
        "AAA,note\nBBB,1,2\n",
        "#Date Time Value\n20261127 23:10:01 5\n",
        "#cpu sys idle\n1 2 3\n",
        "# TYPE my_app_requests_total counter\nmy_app_requests_total 5\n",
        "node_load1\n",
        "node_load1: 5\n",
        "{\"status\":\"success\",\"data\":[1,2]}\n",
        "CONTAINER ID   IMAGE     COMMAND\n4ee8a1f0c2d3   web       x\n",
        "NAME   CPU(cores)   CPU%   MEMORY(bytes)   MEMORY%\nn 1 2% 3Mi 4%\n",
        "node 0 has size: 24105 MB\n",
        "Total DISK READ is high | nobody knows\n",
        " pid | name\n-----+------\n  12 | x\n",
        "Type: cpu\nthe cpu is fine\n",
        "10.0.0.7 [27/Nov/2026:23:10:00 +0000] hello\n",
    ] {
        let read = import("x", text);
        let only_log = read.files[0].formats.iter().all(|format| format == "log");
        assert!(is_empty(&read) && only_log, "{text}: {:?}", read.files[0]);
    }
}

proptest! {
    #![proptest_config(tries(300))]

    #[test]
    fn changed_outputs_are_survived(
        content in damaged(outputs_of(&[
            "prometheus", "netdata", "docker", "kubectl", "postgres", "innodb", "pprof", "access", "pmrep", "dstat", "nmon", "collectl",
            "exporter", "iotop", "numactl",
        ])),
    ) {
        survive("system.cpu.json", content);
    }
}

#[test]
fn csv_of_dstat() {
    let read = whole(output("dstat/T.csv"));
    let set = &read.set;
    assert_eq!(set.host.hostname, "web-17");
    let user = series(set, "cpu.user", "1");
    // The first row is of the time since boot.
    let ms: Vec<i64> = user.axis.t.iter().map(|t| (t + 500_000) / 1_000_000).collect();
    assert_eq!(ms, [1_795_824_337_809, 1_795_824_338_807]);
    check(set, "cpu.user", "1", &[0.940_59, 0.94]);
    check(set, "disk.write_bytes", "vda", &[22_536_192.0, 0.0]);
    check(set, "sys.procs_running", "", &[2.0, 2.0, 2.0]);
    check(set, "sock.tcp_tw", "", &[2.0, 2.0, 2.0]);
    let read = whole(output("dstat/tcdnmsy.csv"));
    let idle = series(&read.set, "sys.cpu_idle", "");
    // 2026-11-28 00:05:34.
    assert_eq!(idle.axis.t[0], (T0 + 3334) * SECOND);
    check(
        &read.set,
        "mem.free",
        "",
        &[23_487_574_016.0, 23_478_857_728.0, 23_458_242_560.0, 23_412_170_752.0],
    );
    check(&read.set, "sys.ctxt", "", &[461.0, 1595.0, 314.0]);
    assert_eq!(series(&read.set, "sys.load1", "").axis.places[1].line, 8);
}

#[test]
fn recordings_of_nmon() {
    let read = whole(output("nmon/plain.nmon"));
    let set = &read.set;
    assert_eq!((set.host.hostname.as_str(), set.host.cpus), ("web-17", 2));
    let user = series(set, "cpu.user", "0");
    // 2026-11-28 00:04:30.
    assert_eq!(user.axis.t, [T0 + 3270, T0 + 3272].map(|t| t * SECOND));
    check(set, "cpu.user", "0", &[0.792, 0.894]);
    check(set, "mem.free", "", &[22_945.8, 22_905.6].map(|mib| mib * 1024.0 * 1024.0));
    check(set, "disk.read_bytes", "vda", &[4533.4 * 1024.0, 4983.9 * 1024.0]);
    check(set, "sys.ctxt", "", &[1354.4]);
    let read = whole(output("nmon/t.nmon"));
    check(&read.set, "task.cpu_time", "9359@0", &[0.0892]);
    assert_eq!(text_of(&read.set, "task.comm", "9359@0"), Some("dd"));
    assert_eq!(one(&read.set, "task.rss", "9359@0").0, 1772.0 * 1024.0);
}

#[test]
fn columns_of_collectl() {
    let read = whole(output("collectl/plain-oT.txt"));
    let switches = series(&read.set, "sys.ctxt", "");
    assert_eq!(crate::support::clocks(switches), [281, 282, 283]);
    check(&read.set, "sys.ctxt", "", &[1323.0, 940.0, 565.0]);
    let read = whole(output("collectl/plain.txt"));
    assert_eq!(seconds_in(Era::Sequence, series(&read.set, "sys.intr", "")), [0, 1, 2]);
    let read = whole(output("collectl/P.txt"));
    let set = &read.set;
    check(set, "cpu.nice", "0", &[0.95, 0.95, 0.89]);
    check(set, "mem.free", "", &[23_344_124.0, 23_255_848.0, 23_206_184.0].map(|kib| kib * 1024.0));
    check(set, "disk.read_bytes", "vda", &[0.0, 0.0, 3828.0 * 1024.0]);
    // 2026-11-28 00:04:46.
    assert_eq!(series(set, "cpu.user", "0").axis.t[0], (T0 + 3286) * SECOND);
    let read = whole(output("collectl/P-sep.txt"));
    assert_eq!(series(&read.set, "sys.cpu_nice", "").values.len(), 3);
    assert_eq!(series(&read.set, "sys.ctxt", "").values.iter().next_back(), Some(&421.0));
}

#[test]
fn tasks_of_iotop() {
    let read = whole(output("iotop/py-b-t.txt"));
    let set = &read.set;
    check(set, "task.write_bytes", "10640@0", &[0.0, 11.57 * 1024.0]);
    assert_eq!(text_of(set, "task.comm", "3778@0"), Some("kworker/u8:5-ex"));
    assert_eq!(crate::support::clocks(series(set, "task.read_bytes", "10640@0")), [294, 295]);
    assert!(set.get("task.blkio_delay", "10640@0").is_none(), "unavailable");
    let read = whole(output("iotop/c-b.txt"));
    check(&read.set, "task.write_bytes", "10704@0", &[7.89 * 1024.0, 11.71 * 1024.0]);
    let read = whole(output("iotop/c-b-okq.txt"));
    check(&read.set, "task.write_bytes", "9570@0", &[3.93 * 1024.0, 3.92 * 1024.0]);
    let read = whole(output("iotop/py-b-aP.txt"));
    let total = read.set.total("task.write_bytes", "3778@0").unwrap();
    assert_eq!(total.values.iter().next_back(), Some(&(32.0 * 1024.0)));
}

#[test]
fn exporters_of_prometheus() {
    let read = whole(output("exporter/node_exporter-1.5.txt"));
    let set = &read.set;
    assert_eq!(set.host.cpus, 2);
    assert!(one(set, "sys.load1", "").0 > 0.0);
    assert!(one(set, "cpu.user", "1").0 > 0.0);
    assert!(one(set, "mem.active_anon", "").0 > 0.0 && one(set, "vm.pgmajfault", "").0 > 0.0);
    assert!(one(set, "disk.read_bytes", "vda").0 > 0.0 && one(set, "nic.rx_bytes", "eth0").0 >= 0.0);
    assert!(near(one(set, "fs.total_bytes", "/").0, 270_553_174_016.0));
    assert_eq!(text_of(set, "fs.type", "/"), Some("ext4"));
    assert!(set.total("tcp.OutSegs", "").is_some() && set.get("sock.tcp_inuse", "").is_some());
    let read = whole(output("exporter/openmetrics.txt"));
    assert!(one(&read.set, "sys.ctxt", "").0 > 0.0);
    // Answers that were taken in a loop, each behind its time.
    let answer = |seconds: u32| {
        format!(
            "Fri Nov 27 23:10:{seconds:02} UTC 2026\n# TYPE node_context_switches_total counter\nnode_context_switches_total {}\n# TYPE node_load1 gauge\nnode_load1 0.{seconds}\n",
            1000 + 50 * seconds
        )
    };
    let read = import("x", answer(10) + &answer(20));
    assert_eq!(read.files[0].unread, 0, "{:?}", read.files[0]);
    assert_eq!(series(&read.set, "sys.ctxt", "").values.iter().next_back(), Some(&50.0));
    check(&read.set, "sys.load1", "", &[0.1, 0.2]);
    let groups = "# TYPE container_cpu_usage_seconds_total counter\n\
        container_cpu_usage_seconds_total{cpu=\"total\",id=\"/kubepods/pod1\",pod=\"web\"} 12.5 1795821001000\n\
        container_cpu_usage_seconds_total{cpu=\"total\",id=\"/kubepods/pod1\",pod=\"web\"} 13.5 1795821011000\n\
        container_spec_memory_limit_bytes{id=\"/kubepods/pod1\"} 0 1795821001000\n";
    let set = import("x", groups).set;
    assert_eq!(series(&set, "cgroup.cpu_usage", "/kubepods/pod1").values.iter().next_back(), Some(&0.1));
    assert!(set.get("cgroup.memory_max", "/kubepods/pod1").is_none());
}

#[test]
fn nodes_of_numactl() {
    let read = whole(output("numactl/H-two.txt"));
    assert_eq!(one(&read.set, "node.mem_free", "0"), (1024.0 * 1024.0 * 1024.0, 4));
    assert_eq!(one(&read.set, "node.mem_total", "1"), (48_379.0 * 1024.0 * 1024.0, 6));
    whole(output("numactl/H.txt"));
}

#[test]
fn events_of_blkparse() {
    let text = "  8,0    1        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n\
        \x20 8,0    1        2     0.000100000   697  D   W 223490 + 8 [kjournald]\n\
        \x20 8,0    1        3     0.002100000     0  C   W 223490 + 8 [0]\n\
        \x20 8,0    0        4     1.000000000   700  D   R 1000 + 16 [cat]\n\
        \x20 8,0    0        5     1.010000000     0  C   R 1000 + 16 [0]\n\
        CPU0 (8,0):\n Reads Queued:           1,        8KiB\t Writes Queued:           0,        0KiB\n";
    let read = import("x", text);
    assert_eq!((read.files[0].unread, read.files[0].formats.as_slice()), (0, &["blkparse".to_owned()][..]));
    assert_eq!(one(&read.set, "disk.traced_latency_p99", "8,0").0, 0.01);
    check(&read.set, "disk.write_bytes", "8,0", &[4096.0, 0.0]);
    assert!(is_empty(&import("x", "8,0 1 is a number\n8,0 1 is a number\n")));
}

#[test]
fn csv_of_pmrep() {
    let set = whole(output("pmrep/machine.csv")).set;
    check(&set, "sys.load1", "", &[0.21, 0.25]);
    check(&set, "sys.ctxt", "", &[1024.5, 2048.25]);
    check(&set, "mem.free", "", &[270_568.0, 260_100.0, 260_000.0].map(|kib| kib * 1024.0));
    check(&set, "vm.pgmajfault", "", &[0.0, 12.0]);
    assert_eq!(series(&set, "sys.load1", "").axis.t[0], (T0 + 1) * SECOND);
    let set = whole(output("pmrep/devices.csv")).set;
    check(&set, "disk.reads", "vda", &[12.0, 14.0]);
    check(&set, "disk.write_bytes", "vda", &[66_048.0, 131_072.0]);
    check(&set, "nic.rx_bytes", "eth0", &[1200.0, 2400.0]);
    // Counters as the kernel has them (`-r`) are no rates.
    let raw = "Time,\"kernel.all.pswitch\",\"kernel.all.load-1 minute\"\n2026-11-27 23:10:01,81234567,0.210\n\
               2026-11-27 23:10:02,81235591,0.250\n";
    let set = import("x", raw).set;
    check(&set, "sys.load1", "", &[0.21, 0.25]);
    assert!(set.get("sys.ctxt", "").is_none());
}

#[test]
fn tables_of_pmrep() {
    const MIB: f64 = 1024.0 * 1024.0;
    let set = whole(output("pmrep/load.txt")).set;
    check(&set, "sys.load1", "", &[0.16, 0.16, 0.25]);
    check(&set, "sys.load15", "", &[0.18, 0.18, 0.18]);
    // The first sample has no rate.
    check(&set, "sys.ctxt", "", &[1427.016, 2129.04]);
    check(&set, "mem.free", "", &[3_060_624.0, 3_060_268.0, 3_060_268.0].map(|kib| kib * 1024.0));
    let switches = series(&set, "sys.ctxt", "");
    assert_eq!(crate::support::clocks(switches), [38_498, 38_499]);
    assert_eq!(crate::support::lines(switches), [5, 6]);
    let read = whole(output("pmrep/x.txt"));
    let set = &read.set;
    assert_eq!(set.host.hostname, "web-17");
    check(set, "disk.reads", "vda", &[12.0, 14.0]);
    check(set, "disk.reads", "nvme0n1", &[1.5, 0.0]);
    check(set, "disk.write_bytes", "vda", &[0.5 * MIB, MIB]);
    check(set, "nic.rx_bytes", "eth0", &[2.0 * MIB, 4.0 * MIB]);
    check(set, "mem.free", "", &[264.227, 254.003, 253.906].map(|mib| mib * MIB));
    let reads = series(set, "disk.reads", "vda");
    assert_eq!(seconds_in(Era::Sequence, reads), [2, 4]);
    assert_eq!(crate::support::lines(reads), [15, 20]);
    // It may be `nvme10n1p1`.
    assert!(set.get("disk.reads", "nvme10n1").is_none());
    assert!(read.files[0].notes.iter().any(|note| note.contains("may be cut")), "{:?}", read.files[0]);
    // Raw counters, and no unit at all.
    let set = import("x", "  k.a.pswitch\n        count\n         1000\n").set;
    assert_eq!(one(&set, "sys.ctxt", ""), (1000.0, 3));
    assert!(is_empty(&import("x", "  m.u.free  k.a.pswitch\n    264227     1427.016\n")));
    let volume = "  d.d.read\n  vg-root\n   count/s\n    12.000\n";
    assert!(is_empty(&import("x", volume)), "of disk.dm");
    for text in ["  a.out  b.sh\n   are  files\n", "  k.a.load\nis the name of a column\n"] {
        let read = import("x", text);
        assert!(is_empty(&read) && read.files[0].formats.is_empty(), "{text}: {:?}", read.files[0]);
    }
}
