//! `mpstat -o JSON`, see [`super::json`].
//!
//! ```text
//! {
//!     "timestamp": "13:35:11",
//!     "cpu-load": [
//!         {"cpu": "all", "usr": 64.00, "nice": 0.00, "sys": 36.00, "iowait": 0.00, …, "idle": 0.00}
//!     ]
//! },
//! ```

use super::columns::Kind;
use super::json::{Object, each, names, starts as is_sysstat};
use super::plan::{COLUMNS_MAX, Cells, Plan, Plans};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new("mpstat -o JSON", "the same as `mpstat`, as JSON", starts, read);

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let lists: &[&[u8]] = &[
        b"\"cpu-load\"",
        b"\"sum-interrupts\"",
        b"\"individual-interrupts\"",
        b"\"soft-interrupts\"",
        b"\"node-load\"",
    ];
    // `sadf -j` has the same frame, but there a time is an object.
    is_sysstat(lines)
        && names(lines, &[b"\"timestamp\": \"", b"\"timestamp\":\""])
        && names(lines, lists)
        && !names(lines, &[b"\"avg-cpu\"", b"\"disk_device\""])
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut rows = Rows { plans: Plans::default(), cells: [f64::NAN; COLUMNS_MAX] };
    let mut first: Option<(Vec<Object>, When)> = None;
    let mut count = 0_u32;
    each(lines, import, "mpstat", false, &mut |report, import| {
        if report.has_single_interrupts {
            import.note("mpstat -I CPU: interrupts by number are passed over");
        }
        count = count.saturating_add(1);
        let when = report.time.unwrap_or(When::Step(count));
        // The first report waits: whether it is of an interval shows when there is a second.
        if let Some((objects, when)) = first.take() {
            rows.put(&objects, when, import);
        }
        if count == 1 {
            first = Some((report.objects, when));
        } else {
            rows.put(&report.objects, when, import);
        }
    });
    if let Some((objects, when)) = first {
        // A single report is an average since boot, unless an interval was asked for; the file does not say.
        let asked = import.context.ran("mpstat", None) && import.context.interval_s.is_some();
        rows.put(&objects, if asked { when } else { When::Fact }, import);
    }
}

struct Rows {
    plans: Plans,
    cells: Cells,
}

impl Rows {
    fn put(&mut self, objects: &[Object], when: When, import: &mut Import) {
        for object in objects {
            let (before, after) = match object.section.as_slice() {
                b"cpu-load" => ("%", ""),
                b"sum-interrupts" => ("", "/s"),
                b"soft-interrupts" => ("", ""),
                _ => continue,
            };
            // Old versions print the number of a CPU as a number.
            let named = !object.name.is_empty();
            let number = object.value(b"cpu").filter(|n| *n >= 0.0).map(|n| (n as u64).to_string());
            let cpu =
                if named { object.name.as_slice() } else { number.as_deref().unwrap_or_default().as_bytes() };
            if cpu != b"all" && integer(cpu).is_none_or(|n| n >= 65_536) {
                continue;
            }
            let key = [&object.section[..], b" ", &object.keys].concat();
            let plan = self.plans.known(&key).or_else(|| {
                let name = |key: &[u8]| [before.as_bytes(), key, after.as_bytes()].concat();
                let names: Vec<Vec<u8>> = object.keys().map(name).collect();
                let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
                self.plans.add(&key, Plan::of(Kind::Cpu, &names, import))
            });
            if let Some(plan) = plan.and_then(|i| self.plans.get(i)) {
                object.fill(&mut self.cells);
                plan.put(import, cpu, when, object.line, &self.cells);
            }
        }
    }
}
