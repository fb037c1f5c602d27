//! vmstat of every locale and version, and its other tables.

use mitra_model::Era;
use mitra_model::time::SECOND;

use super::{level, values};
use crate::support::{case, import, import_file, lines, near, output, series, whole};

#[test]
fn vmstat_of_the_page_fault_case() {
    let out = whole(case("content-page-faults/vmstat.txt"));
    assert_eq!(out.files[0].formats, ["vmstat"]);
    assert_eq!(values(&out.set, "sys.procs_running", ""), [8.0, 9.0, 16.0, 22.0, 6.0, 4.0, 5.0]);
    assert_eq!(values(&out.set, "sys.procs_blocked", ""), [0.0; 7]);
    assert_eq!(values(&out.set, "vm.pgpgout", "")[..2], [1492.0 * 1024.0, 0.0]);
    assert_eq!(values(&out.set, "sys.ctxt", "")[0], 60_876.0);
    assert_eq!(values(&out.set, "mem.cached", "")[6], 19_213_880.0 * 1024.0);
    let user = values(&out.set, "sys.cpu_user", "");
    assert!(near(user[0], 0.53) && near(user[6], 0.61), "{user:?}");
    let axis = &out.set.get("sys.ctxt", "").unwrap().axis;
    assert!(axis.t.iter().all(|t| Era::of(*t) == Era::Sequence));
    assert_eq!(axis.t[1] - axis.t[0], SECOND);
    assert_eq!(axis.dt, [1.0; 7]);
    assert_eq!(lines(series(&out.set, "sys.ctxt", "")), [4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(out.files[0].notes.len(), 1);
}

#[test]
fn vmstat_of_every_locale() {
    for locale in ["C", "de_DE", "fr_FR"] {
        let out = whole(output(format!("procps/vmstat-w-t.{locale}.txt")));
        let axis = &out.set.get("sys.cpu_idle", "").unwrap().axis;
        assert_eq!(axis.len(), 3, "{locale}");
        assert!(axis.t.iter().all(|t| Era::of(*t) == Era::Dated) && axis.t[0] / SECOND > 1_795_000_000);
        let shares = ["user", "system", "idle", "iowait", "steal"];
        let sum: f64 = shares.iter().map(|s| values(&out.set, &format!("sys.cpu_{s}"), "")[1]).sum();
        assert!((0.97..=1.03).contains(&sum), "{locale} {sum}");
        assert!(values(&out.set, "mem.free", "")[0] > 1e10 && values(&out.set, "mem.buffers", "")[0] < 1e9);
        let out = whole(output(format!("procps/vmstat-a-SM.{locale}.txt")));
        assert!(values(&out.set, "mem.inactive", "")[0] > 1e9, "{locale}");
        assert!(
            values(&out.set, "mem.buffers", "").is_empty() && values(&out.set, "mem.cached", "").is_empty()
        );
        assert_eq!(values(&out.set, "mem.active", "").len(), 2);
    }
    let out = whole(output("procps/vmstat-w-t.fr_FR.txt"));
    assert_eq!(values(&out.set, "vm.pgpgout", ""), [2136.0 * 1024.0, 10_692.0 * 1024.0, 12.0 * 1024.0]);
    assert_eq!(values(&out.set, "sys.ctxt", ""), [736.0, 524.0, 458.0]);
    assert_eq!(lines(series(&out.set, "sys.ctxt", "")), [5, 6, 7]);
}

#[test]
fn vmstat_rows_since_boot_and_old_versions() {
    let out = whole(output("procps/vmstat-one.txt"));
    assert_eq!(Era::of(out.set.get("sys.ctxt", "").unwrap().axis.t[0]), Era::Fact);
    assert!(out.files[0].notes[0].contains("averages since boot"));
    assert_eq!(values(&whole(output("procps/vmstat-y.txt")).set, "sys.ctxt", "").len(), 2);
    // Of procps 3.2 with swapping; a header in between, a damaged row, another run.
    let header = "procs -----------memory---------- ---swap-- -----io---- --system-- -----cpu------\n r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n";
    let row = " 1  2 512000  40960  10240 204800  400  800    64   128 1000 2000 10 20 30 40  0\n";
    let many = row.repeat(12);
    let out = import(
        "file",
        format!("$ vmstat 5\n{header}{many}{header}{row} 1 x 512000 40960 10240 204800 1 2\n{row}"),
    );
    assert_eq!(values(&out.set, "vm.pswpin", ""), [100.0; 13]);
    assert_eq!(values(&out.set, "vm.pswpout", "")[0], 200.0);
    assert_eq!(out.files[0].unread, 1);
    assert_eq!(out.set.get("vm.pswpin", "").unwrap().axis.dt[1], 5.0);
    let out = import("file", format!("{header}{row}{row}{row}{header}{row}{row}"));
    assert_eq!(values(&out.set, "sys.ctxt", "").len(), 3);
    // Without idle and stolen time, and before there was `wa`.
    let out = import(
        "file",
        format!(
            "r b w swpd free buff cache si so bi bo in cs us sy id\n{0}{0}",
            "0 0 0 0 8 4 4 0 0 1 2 3 4 10 20 70\n"
        ),
    );
    assert_eq!(level(&out.set, "mem.free", ""), 8192.0);
    assert_eq!(level(&out.set, "sys.ctxt", ""), 4.0);
}

#[test]
fn the_other_tables_of_vmstat() {
    let out = whole(output("procps/vmstat-s.txt"));
    assert_eq!(out.set.total("vm.pswpout", "").unwrap().values, [6_988_443.0]);
    assert_eq!(out.set.total("sys.forks", "").unwrap().values, [710_571.0]);
    assert_eq!(level(&out.set, "mem.total", ""), 24_684_084.0 * 1024.0);
    for locale in ["C", "de_DE", "fr_FR"] {
        let out = whole(output(format!("procps/vmstat-d.{locale}.txt")));
        assert_eq!(out.set.total("disk.write_bytes", "loop0").unwrap().values, [2_198_164.0 * 512.0]);
        assert_eq!(out.set.each_total("disk.reads").count(), 10);
    }
    let out = whole(output("procps/vmstat-d-1-2.txt"));
    let writes = values(&out.set, "disk.writes", "vda");
    assert!(writes.len() == 2 && writes[1] >= 0.0, "{writes:?}");
    let out = whole(output("procps/vmstat-m.txt"));
    assert_eq!(level(&out.set, "slab.objsize", "Acpi-State"), 80.0);
    // Its sums over all disks have no metric.
    assert!(import_file(output("procps/vmstat-D.txt")).files[0].unread > 0);
    let out = import(
        "file",
        "vda1          reads   read sectors  writes    requested writes\n               100           800      30        240\n",
    );
    assert_eq!(out.set.total("disk.read_bytes", "vda1").unwrap().values, [409_600.0]);
}
