//! `perf stat` and `perf sched`, as they were printed on a machine that compiled.

use mitra_model::Era;
use proptest::prelude::*;

use crate::support::{
    check, close, damaged, import, is_empty, lines, near, one, output, outputs_of, seconds_in, series,
    survive, text_of, tries, whole,
};

#[test]
fn counts_of_the_machine() {
    let read = whole(output("perf/stat-a.txt"));
    check(&read.set, "sys.ctxt", "", &[178.0 / 1.005_572_633]);
    check(&read.set, "vm.pgfault", "", &[5062.0 / 1.005_572_633]);
    assert_eq!(lines(series(&read.set, "sys.ctxt", "")), [5]);
    let read = whole(output("perf/stat-a-x.csv"));
    // Its clocks say how long it took: 1003.60 ms on 2.000 CPUs.
    check(&read.set, "sys.ctxt", "", &[101.0 / 0.5018]);
}

#[test]
fn counts_by_intervals() {
    for (path, switches, times) in [
        (
            "perf/stat-a-I.txt",
            [92.0 / 0.500_564_083, 130.0 / 0.503_528_795, 98.0 / 0.500_824_641, 77.0 / 0.096_676_906]
                .to_vec(),
            vec![0, 1, 1, 1],
        ),
        (
            "perf/stat-a-x-I.csv",
            [84.0 / 0.500_579_023, 87.0 / 0.503_312_729, 71.0 / 0.197_739_566].to_vec(),
            vec![0, 1, 1],
        ),
        (
            "perf/stat-a-j-I.json",
            [103.0 / 0.500_595_952, 57.0 / 0.500_862_965, 63.0 / 0.202_084_163].to_vec(),
            vec![0, 1, 1],
        ),
    ] {
        let read = whole(output(path));
        let found = series(&read.set, "sys.ctxt", "");
        assert_eq!(seconds_in(Era::Sequence, found), times, "{path}");
        close(&found.values.to_vec(), &switches);
    }
}

#[test]
fn a_command_has_a_note() {
    let read = whole(output("perf/stat-command.txt"));
    assert!(is_empty(&read));
    let notes = &read.files[0].notes;
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0].contains("'true'")
            && notes[0].contains("0.41 CPUs used")
            && notes[0].contains("50 page faults"),
        "{notes:?}"
    );
    let counters = " Performance counter stats for 'gzip x':\n\n     1,000,000      cycles    #    2.1 GHz\n       520,000      instructions              #    0.52  insn per cycle\n\n       1.5 seconds time elapsed\n\n";
    let read = import("x", counters);
    assert_eq!(read.files[0].unread, 0);
    assert!(read.files[0].notes[0].contains("0.52 instructions a cycle"), "{:?}", read.files[0].notes);
}

#[test]
fn waits_for_cpus() {
    let read = whole(output("perf/sched-latency-p.txt"));
    let total = |metric: &str, row: &str| one(&read.set, metric, row).0;
    assert!(near(total("task.cpu_time", "20112@0"), 0.449_705));
    assert!(near(total("task.run_delay", "20112@0"), 34.0 * 0.000_578));
    assert_eq!(text_of(&read.set, "task.comm", "20112@0"), Some("lto cgu.2.rcgu."));
    let read = whole(output("perf/sched-latency.txt"));
    assert!(read.set.total("task.cpu_time", "20112@0").is_some());
    let notes = read.files[0].notes.join("\n");
    assert!(notes.contains("4.0 ms") && notes.contains("3 rows are of several tasks"), "{notes}");
}

#[test]
fn waits_for_cpus_by_second() {
    let read = whole(output("perf/sched-timehist.txt"));
    let ran = series(&read.set, "task.cpu_time", "20082@0");
    assert_eq!(seconds_in(Era::Boot, ran), [740, 740]);
    assert!(ran.values.iter().all(|share| *share > 0.5 && *share < 1.05), "{:?}", ran.values);
    whole(output("perf/sched-timehist-w-n.txt"));
    // A stay of two seconds lies in the seconds that it covers.
    let text = "           time    cpu  task name                       wait time  sch delay   run time\n\
        \x20                       [tid/pid]                          (msec)     (msec)     (msec)\n\
        --------------- ------  ------------------------------  ---------  ---------  ---------\n\
        \x20     10.000000 [0000]  other[7]                            0.000      0.000      0.000 \n\
        \x20     13.500000 [0000]  a [b] c[42/41]                      0.000    500.000   2500.000 \n";
    let read = import("x", text);
    assert_eq!((read.files[0].unread, text_of(&read.set, "task.comm", "42@0")), (0, Some("a [b] c")));
    check(&read.set, "task.cpu_time", "42@0", &[0.0, 1.0, 1.0, 1.0]);
    check(&read.set, "task.run_delay", "42@0", &[0.5, 0.0, 0.0, 0.0]);
}

#[test]
fn retransmits_by_connection() {
    let text = "LADDR:LPORT              RADDR:RPORT             RETRANSMITS\n\
        192.168.10.50:60366  <-> 172.217.21.194:443             700\n\
        [fe80::1]:1234       <-> [fe80::2]:80                     3\n";
    let read = import("x", text);
    assert!(is_empty(&read) && read.files[0].unread == 0);
    assert_eq!(read.files[0].notes, ["tcpretrans: 703 segments of 2 connections were sent again"]);
}

#[test]
fn near_misses() {
    for text in [
        "Performance counter stats were lost\n",
        "1,2,3,4,5\n1,2,3,4,6\n",
        "12,cycles of the moon,3,4,5\n",
        "{\"counter-value\": \"x\"}\n",
        "Task | Runtime\n a:1 | 2\n",
        "time is short\n",
    ] {
        let read = import("x", text);
        assert!(is_empty(&read) && read.files[0].formats.iter().all(|format| format == "log"), "{text}");
    }
}

proptest! {
    #![proptest_config(tries(200))]

    #[test]
    fn changed_outputs_are_survived(content in damaged(outputs_of(&["perf"]))) {
        survive("perf.txt", content);
    }
}
