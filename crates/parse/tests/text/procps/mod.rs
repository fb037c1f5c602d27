//! vmstat, free, top, ps, uptime, slabtop and atop: what the real tools print, and what old versions printed.

use mitra_model::{SeriesSet, lookup};
use mitra_parse::text::procps;
use proptest::prelude::*;

use crate::support::{damaged, import, outputs_of, survive, tries};

mod atop;
mod memory;
mod processes;
mod vmstat;

use processes::OLD_TOP;

/// The values of a level or a rate; none where it was not read.
#[track_caller]
fn values(set: &SeriesSet, metric: &str, row: &str) -> Vec<f64> {
    assert!(lookup(metric).is_some(), "{metric}");
    set.get(metric, row).map_or_else(Vec::new, |s| s.values.to_vec())
}

/// The only value of a level or a rate.
#[track_caller]
fn level(set: &SeriesSet, metric: &str, row: &str) -> f64 {
    let list = values(set, metric, row);
    assert_eq!(list.len(), 1, "{metric} {row} {list:?}");
    list[0]
}

#[test]
fn what_only_looks_alike_is_not_read() {
    for text in [
        "r b swpd free\n1 2 3 4\n",
        "procs -----memory----- --swap-- -io- -system- -cpu-\nsome words that are not a header of it at all\n",
        "kthr    memory              page              faults              cpu\n----- ----------- ------------------------ ------------ -----------------------\n r  b   avm   fre   re  pi  po  fr   sr  cy  in   sy  cs us sy id wa    pc    ec\n 1  0 800000 12000   0   0   0   0    0   0  50  900 400  3  2 95  0  0.06   6.1\n",
        "up for days, load average: high, very, much\n",
        "top - of the list\nTasks: some\n",
        "CPU: 3 PID: 1234 Comm: kworker/0:1 Not tainted 5.15.0-91-generic #101\n",
        "PID COMM FD ERR PATH\n12 cat 3 0 /etc/passwd\n",
        "PCOMM PID PPID RET ARGS\nls 12 1 0 /bin/ls\n",
        "total used free shared buff/cache available\nlo: 1 2 3 4 5 6\n",
        "name total used free cached other\neth0: 1 2 3 4 5\n",
        "Active / Total Objects (% used) : many / more\n",
        "OBJS ACTIVE USE OBJ SIZE SLABS OBJ/SLAB CACHE SIZE NAME\n1 2 3 4 5 6 7 8\n",
        "MEM total 94.3G free 9.2G\n",
        "CPU vm 12 2026/11/21 13:35:05 10 100 2 470\n",
        "12 K total memory in use\n",
        "disk- ---reads--- ---writes---\n total merged\nvda 1 2\n",
    ] {
        let out = import("file", text);
        // A line with a time in it may well be one of a log.
        let metrics: Vec<&str> =
            out.set.metrics().map(|(name, _)| name).filter(|name| !name.starts_with("log.")).collect();
        assert!(metrics.is_empty(), "{text}: {metrics:?}");
        let file = &out.files[0];
        // Another reader may know what it is.
        let is_ours = |name: &String| procps::FORMATS.iter().any(|format| format.name == name);
        assert!(file.unread > 0 || !file.formats.iter().any(is_ours), "{text}: {:?}", file.formats);
    }
}

/// The beginnings of all outputs: more of them says nothing new.
fn beginnings() -> Vec<Vec<u8>> {
    let mut all = outputs_of(&["procps"]);
    all.push(OLD_TOP.into());
    for text in &mut all {
        text.truncate(4000);
    }
    all
}

proptest! {
    #![proptest_config(tries(400))]

    #[test]
    fn mutated_outputs_never_panic(content in damaged(beginnings())) {
        survive("mutated", content);
    }

    #[test]
    fn arbitrary_text_never_panics(text in "[ -~\n]{0,400}") {
        survive("file", text);
    }
}
