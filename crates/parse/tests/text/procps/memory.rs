//! free and slabtop, and load as uptime and w print it.

use mitra_model::Era;
use mitra_model::time::SECOND;

use super::{level, values};
use crate::support::{case, import, lines, near, output, series, whole};

#[test]
fn free_of_the_upload_case() {
    let mib = 1_048_576.0;
    for (folder, used, free, cache, available) in
        [("baseline-32g", 18421.0, 11218.0, 34773.0, 45407.0), ("incident", 15421.0, 349.0, 48643.0, 48409.0)]
    {
        let out = whole(case(format!("upload-100g/{folder}/free.txt")));
        assert_eq!(level(&out.set, "mem.total", ""), 64_414.0 * mib);
        assert_eq!(level(&out.set, "mem.used", ""), used * mib);
        assert_eq!(level(&out.set, "mem.free", ""), free * mib);
        assert_eq!(level(&out.set, "mem.shmem", ""), 5.0 * mib);
        assert_eq!(level(&out.set, "mem.buff_cache", ""), cache * mib);
        assert_eq!(level(&out.set, "mem.available", ""), available * mib);
        assert_eq!(level(&out.set, "mem.swap_total", ""), 0.0);
        assert_eq!(lines(series(&out.set, "mem.free", "")), [3]);
    }
}

#[test]
fn free_of_every_unit_and_locale() {
    for locale in ["C", "de_DE", "fr_FR"] {
        for (name, tolerance) in [("free", 0.0), ("free-h", 0.05), ("free-wlt", 0.0), ("free-m-v", 0.001)] {
            let out = whole(output(format!("procps/{name}.{locale}.txt")));
            let total = level(&out.set, "mem.total", "");
            let real = 24_684_084.0 * 1024.0;
            assert!((total - real).abs() <= real * tolerance, "{name} {locale} {total}");
            assert_eq!(level(&out.set, "mem.swap_total", ""), 0.0);
            let available = level(&out.set, "mem.available", "");
            assert!(available < total && available > level(&out.set, "mem.free", ""), "{name} {locale}");
        }
        assert!(level(&whole(output(format!("procps/free-wlt.{locale}.txt"))).set, "mem.cached", "") > 1e9);
    }
    assert_eq!(
        level(&whole(output("procps/free-m-v.C.txt")).set, "mem.commit_limit", ""),
        12_052.0 * 1_048_576.0
    );
    let out = whole(output("procps/free-s.txt"));
    let axis = &out.set.get("mem.free", "").unwrap().axis;
    assert_eq!((axis.len(), axis.t[2] - axis.t[0]), (3, 2 * SECOND));
}

#[test]
fn free_of_old_versions_and_without_a_unit() {
    let old = "             total       used       free     shared    buffers     cached\nMem:      16333384   16000000     333384          0     200000    9000000\n-/+ buffers/cache:    6800000    9533384\nSwap:      2097148       1024    2096124\n";
    let out = import("file", old);
    assert_eq!(level(&out.set, "mem.cached", ""), 9_000_000.0 * 1024.0);
    assert_eq!(level(&out.set, "mem.buffers", ""), 200_000.0 * 1024.0);
    assert_eq!(level(&out.set, "mem.swap_free", ""), 2_096_124.0 * 1024.0);
    assert!(values(&out.set, "mem.available", "").is_empty() && values(&out.set, "mem.shmem", "").is_empty());
    assert_eq!(out.files[0].unread, 0);
    let head = "total used free shared buff/cache available\n";
    for (row, total) in [
        ("Mem: 64413 15421 349 5 48643 48409", Some(64_413.0 * 1_048_576.0)),
        ("Mem: 67542319104 16170090496 366116864 5242880 51006046208 50760368128", Some(67_542_319_104.0)),
        ("Mem: 62 15 0 0 47 47", None),
    ] {
        let out = import("file", format!("{head}{row}\nSwap: 0 0 0\n"));
        assert_eq!(values(&out.set, "mem.total", "").first().copied(), total, "{row}");
        assert_eq!(out.files[0].notes.len(), usize::from(total.is_none()));
    }
    assert_eq!(
        level(&import("file", format!("# free --si -g\n{head}Mem: 67 15 0 0 52 52\n")).set, "mem.total", ""),
        67e9
    );
    let out =
        import("file", "SwapUse           0 CachUse     2293440  MemUse      611936 MemFree    22120976\n");
    assert_eq!(level(&out.set, "mem.free", ""), 22_120_976.0 * 1024.0);
}

#[test]
fn slabtop_and_atop_of_the_session_drop_case() {
    let out = whole(case("lb-session-drop/slabtop.txt"));
    assert_eq!(level(&out.set, "slab.num_objs", "dentry"), 414_578_178.0);
    assert_eq!(level(&out.set, "slab.active_objs", "dentry"), 387_795_876.0);
    assert_eq!(level(&out.set, "slab.bytes", "dentry"), 78_967_272.0 * 1024.0);
    assert_eq!(level(&out.set, "slab.num_slabs", "dentry"), 19_741_818.0);
    assert_eq!(level(&out.set, "slab.objperslab", "buffer_head"), 39.0);
    assert_eq!(level(&out.set, "slabs.active_objs", ""), 388_963_608.0);
    assert_eq!(level(&out.set, "slabs.num_objs", ""), 415_847_504.0);
    assert!(near(level(&out.set, "slabs.size", ""), 78_163_097.48 * 1024.0));
    assert_eq!(lines(series(&out.set, "slab.bytes", "kmalloc-256")), [14]);
    assert_eq!(out.set.each("slab.bytes").count(), 6);

    let out = whole(case("lb-session-drop/atop-mem.txt"));
    let gib = 1024.0 * 1024.0 * 1024.0;
    assert!(near(level(&out.set, "mem.total", ""), 94.3 * gib));
    assert!(near(level(&out.set, "mem.slab", ""), 75.7 * gib));
    assert!(near(level(&out.set, "mem.sreclaimable", ""), 75.5 * gib));
    assert!(near(level(&out.set, "mem.cached", ""), 5.4 * gib));
    assert!(near(level(&out.set, "mem.dirty", ""), 18.1 * 1_048_576.0));
    assert_eq!(out.set.get("mem.slab", "").unwrap().axis.t.len(), 1);
    assert_eq!(Era::of(out.set.get("mem.slab", "").unwrap().axis.t[0]), Era::Fact);
}

#[test]
fn slabtop_of_every_locale() {
    for locale in ["C", "de_DE", "fr_FR"] {
        let out = whole(output(format!("procps/slabtop.{locale}.txt")));
        assert!(level(&out.set, "slab.num_objs", "dentry") > 1e5, "{locale}");
        assert!(level(&out.set, "slabs.num_objs", "") > level(&out.set, "slab.num_objs", "dentry"));
        assert!(level(&out.set, "slabs.size", "") > level(&out.set, "slabs.active_size", ""));
        assert_eq!(level(&out.set, "slab.objperslab", "buffer_head"), 39.0);
    }
}

#[test]
fn uptime_and_w() {
    for name in ["uptime", "w"] {
        for locale in ["C", "de_DE", "fr_FR"] {
            let out = whole(output(format!("procps/{name}.{locale}.txt")));
            let load = level(&out.set, "sys.load1", "");
            assert!(load > 1.0 && load < 10.0, "{load}");
            let t = out.set.get("sys.load15", "").unwrap().axis.t[0];
            assert_eq!(Era::of(t), Era::Day);
        }
    }
    let out = import(
        "file",
        " 03:12:09 PM up 210 days, 20:01,  1 user,  load average: 117.45, 98.02, 60.33\nUSER     TTY      FROM             LOGIN@   IDLE   JCPU   PCPU WHAT\nme       pts/0    10.0.0.7         13:02    4.00s  0.05s  0.00s w\n",
    );
    assert_eq!((level(&out.set, "sys.load1", ""), out.files[0].unread), (117.45, 0));
    let t = out.set.get("sys.load1", "").unwrap().axis.t[0] - Era::Day.zero();
    assert_eq!(t, (15 * 3600 + 12 * 60 + 9) * SECOND);
}
