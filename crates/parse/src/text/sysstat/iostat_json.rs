//! `iostat -o JSON`, see [`super::json`].

use super::columns::Kind;
use super::iostat_reports::Reports;
use super::json::{Object, each, names, starts as is_sysstat};
use super::plan::{COLUMNS_MAX, Cells, Plan, Plans};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new("iostat -o JSON", "the same as JSON", starts, read);

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    is_sysstat(lines) && names(lines, &[b"\"avg-cpu\"", b"\"disk_device\""])
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let (mut reports, mut plans) = (Reports::default(), Plans::default());
    let mut cells: Cells = [f64::NAN; COLUMNS_MAX];
    each(lines, import, "iostat", false, &mut |report, import| {
        if let Some(time) = report.time {
            reports.stamp(time);
        }
        reports.begin(import);
        for object in &report.objects {
            let (kind, name) = match object.section.as_slice() {
                b"avg-cpu" => (Kind::Cpu, &b"all"[..]),
                b"disk" if !object.name.is_empty() => (Kind::Disk, object.name.as_slice()),
                _ => continue,
            };
            let Some(plan) = plan(object, kind, &mut plans, import).and_then(|i| plans.get(i)) else {
                continue;
            };
            object.fill(&mut cells);
            reports.table(import, plan);
            reports.row(import, plan, name, object.line, &cells);
        }
    });
    reports.end(import);
}

/// The plan of an object with these keys, which lack the sign of the percentages.
fn plan(object: &Object, kind: Kind, plans: &mut Plans, import: &mut Import) -> Option<usize> {
    let key = [&object.section[..], b" ", &object.keys].concat();
    plans.known(&key).or_else(|| {
        let is_percent =
            |key: &[u8]| kind == Kind::Cpu || matches!(key, b"util" | b"rrqm" | b"wrqm" | b"drqm");
        let name = |key: &[u8]| if is_percent(key) { [b"%", key].concat() } else { key.to_vec() };
        let names: Vec<Vec<u8>> = object.keys().map(name).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        plans.add(&key, Plan::of(kind, &names, import))
    })
}
