//! The allocation groups of an XFS file system all begin on the same disk of a striped array.
//!
//! XFS spreads its work over allocation groups, and each begins with headers that are read and written all the time. When
//! the size of a group is a multiple of the full stripe, all of these lie on one disk, which is busier than the others.
//! mkfs.xfs warns of it. A group that is smaller by one stripe unit moves each next header to the next disk. This is
//! a finding for the time of mkfs, not an incident.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "stripe-misaligned",
    title: "all allocation groups begin on one disk of the stripe",
    role: Role::Finding,
    area: "disk",
    needs: &["fs.type"],
    observe,
    remedies_of: remedies,
    next: &[measure(
        "the calculation for another array",
        "mitra xfs-geometry --level raid10 --disks 12 --stripe-unit 256k",
    )],
    source: include_str!("stripe_misaligned.rs"),
    ..Condition::ROOT
};

/// What mkfs printed, in its own units.
struct Layout {
    device: String,
    ag_count: u64,
    ag_blocks: u64,
    block_bytes: u64,
    unit: u64,
    width: u64,
    quote: Vec<mitra_model::report::Quote>,
}

fn layouts(view: &View<'_>) -> Vec<Layout> {
    let all = view.set.events.iter().filter_map(|e| match &e.kind {
        EventKind::Geometry {
            device,
            ag_count,
            ag_blocks,
            block_bytes,
            stripe_unit_blocks,
            stripe_width_blocks,
            ..
        } => Some(Layout {
            device: device.clone(),
            ag_count: *ag_count,
            ag_blocks: *ag_blocks,
            block_bytes: *block_bytes,
            unit: *stripe_unit_blocks,
            width: *stripe_width_blocks,
            quote: view.event_quote(e).into_iter().collect(),
        }),
        _ => None,
    });
    all.collect()
}

impl Layout {
    fn is_misaligned(&self) -> bool {
        self.width > self.unit
            && self.unit > 0
            && self.ag_count > 1
            && self.ag_blocks.is_multiple_of(self.width)
    }
}

fn observe(view: &View<'_>) -> Observation {
    let layouts = layouts(view);
    let Some(bad) = layouts.iter().find(|l| l.is_misaligned()) else {
        return match layouts.first() {
            Some(good) if good.unit > 0 => Observation::Inactive(format!(
                "allocation groups of {} blocks are not a multiple of the stripe of {}",
                good.ag_blocks, good.width
            )),
            Some(_) => Observation::inactive("the file system has no stripe geometry"),
            None => Observation::cannot_tell("the layout of the file system: xfs_info MOUNTPOINT"),
        };
    };
    finding(view, bad, &layouts).active()
}

fn finding(view: &View<'_>, bad: &Layout, all: &[Layout]) -> Finding {
    let mut finding = view.finding_at(mitra_model::Era::Fact.zero());
    finding.culprit.device = Some(bad.device.clone());
    let better = bad.ag_blocks - bad.unit;
    let sectors = bad.block_bytes / 512;
    finding.statement = format!(
        "{}: allocation groups of {} blocks are a multiple of the full stripe of {} blocks, so all of their headers lie on \
         one disk; agsize {better} blocks of {} bytes, one stripe unit less, moves each to the next",
        bad.device, bad.ag_blocks, bad.width, bad.block_bytes
    );
    finding.remarks.push(format!(
        "{} blocks of stripe unit and {} of stripe width are the same as sunit={} and swidth={} in sectors of 512 bytes: a \
         stripe unit of {} KiB over {} data disks",
        bad.unit,
        bad.width,
        bad.unit * sectors,
        bad.width * sectors,
        bad.unit * bad.block_bytes / 1024,
        bad.width / bad.unit
    ));
    finding.remarks.push(
        "units differ from option to option: sunit and swidth are given in sectors and printed in blocks, agsize is given \
         in bytes and printed in blocks"
            .to_owned(),
    );
    if all.iter().any(|l| l.ag_blocks == better && l.unit == bad.unit) {
        finding.remarks.push(format!("one of the files already has agsize={better} blocks"));
    }
    let number = |what: &str, value: u64, unit: &str| Evidence {
        metric: format!("xfs.{what}"),
        entity: bad.device.clone(),
        during: value as f64,
        unit: unit.to_owned(),
        quotes: bad.quote.clone(),
        ..Evidence::default()
    };
    finding.evidence = vec![
        number("agsize", bad.ag_blocks, "blocks"),
        number("agcount", bad.ag_count, ""),
        number("sunit", bad.unit, "blocks"),
        number("swidth", bad.width, "blocks"),
        Evidence {
            during: (better * bad.block_bytes) as f64,
            unit: "bytes".to_owned(),
            ..number("agsize wanted", 0, "")
        },
    ];
    finding.confidence = 1.0;
    finding
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let of = |metric: &str| finding.evidence.iter().find(|e| e.metric == metric).map(|e| e.during);
    let (Some(bytes), Some(unit), Some(width)) = (of("xfs.agsize wanted"), of("xfs.sunit"), of("xfs.swidth"))
    else {
        return Vec::new();
    };
    let device = words::shell(finding.device());
    let block = of("xfs.agsize").map_or(4096.0, |ag| bytes / (ag - unit));
    vec![Remedy {
        action: "create the file system with allocation groups that are one stripe unit smaller".to_owned(),
        command: format!(
            "mkfs.xfs -d sunit={:.0},swidth={:.0},agsize={bytes:.0} {device}",
            unit * block / 512.0,
            width * block / 512.0
        ),
        verify: "mkfs.xfs -N with the same options prints the layout and no warning".to_owned(),
        risk: "mkfs destroys what is on the device; -N only prints".to_owned(),
    }]
}
