//! `/proc/slabinfo`: the caches of kernel objects. Only root may read it.
//!
//! ```text
//! slabinfo - version: 2.1
//! # name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> … : slabdata <active_slabs> <num_slabs> <sharedavail>
//! dentry             54592  56280    192   21    1 : tunables    0    0    0 : slabdata   2680   2680      0
//! ```
//!
//! See `cache_show` in `mm/slab_common.c` and `slabinfo(5)`.

use mitra_model::{Entity, Frame, NA, Strings};

use crate::Outcome;
use crate::column::Column;
use crate::rows::{Rows, lossy};
use crate::scan::{Lines, numbers, skip_blanks, word};

/// The parser of `/proc/slabinfo`.
#[derive(Debug)]
pub struct SlabInfo {
    caches: Rows,
    columns: [Column; 7],
}

impl Default for SlabInfo {
    fn default() -> Self {
        let columns = Column::list([
            "slab.active_objs",
            "slab.num_objs",
            "slab.objsize",
            "slab.objperslab",
            "slab.pagesperslab",
            "slab.active_slabs",
            "slab.num_slabs",
        ]);
        SlabInfo { caches: Rows::default(), columns }
    }
}

impl SlabInfo {
    /// Fills a row for each cache.
    pub fn parse(&mut self, input: &[u8], strings: &mut Strings, frame: &mut Frame) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let table = frame.table_mut(Entity::Slab);
        self.caches.begin(strings, table);
        while let Some(line) = lines.next(&mut outcome) {
            if line.starts_with(b"# name ") {
                continue;
            }
            if let Some(version) = line.strip_prefix(b"slabinfo - version: ") {
                if !version.starts_with(b"2.") {
                    outcome.bad(lines.number());
                    return outcome;
                }
                continue;
            }
            let row = cache(line)
                .and_then(|(name, values)| Some((self.caches.row(name, lossy, strings, table)?, values)));
            let Some((row, values)) = row else {
                outcome.bad(lines.number());
                continue;
            };
            for (column, value) in self.columns.iter().zip(values) {
                column.set(row, value);
            }
            if values.contains(&NA) {
                outcome.bad(lines.number());
            }
        }
        outcome
    }
}

/// Name and values of a line, in the order of the columns.
fn cache(line: &[u8]) -> Option<(&[u8], [i64; 7])> {
    let (name, rest) = word(line)?;
    let colon = rest.iter().position(|b| *b == b':')?;
    let mut objects = [NA; 5];
    if numbers(rest.get(..colon)?, &mut objects)? != 5 {
        return None;
    }
    let rest = rest.get(colon..)?.strip_prefix(b": tunables ")?;
    let colon = rest.iter().position(|b| *b == b':')?;
    // Kernels with CONFIG_DEBUG_SLAB append more after another colon.
    let data = skip_blanks(rest.get(colon..)?.strip_prefix(b": slabdata ")?);
    let data = data.get(..data.iter().position(|b| *b == b':').unwrap_or(data.len()))?;
    let mut slabs = [NA; 3];
    if numbers(data, &mut slabs)? != 3 {
        return None;
    }
    let [active_objs, num_objs, objsize, objperslab, pagesperslab] = objects;
    let [active_slabs, num_slabs, _] = slabs;
    Some((name, [active_objs, num_objs, objsize, objperslab, pagesperslab, active_slabs, num_slabs]))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        parsed("3.10", "proc/slabinfo").row_is("dentry", "slab.active_objs", 211_407);
        parsed("4.18", "proc/slabinfo").row_is("kmalloc-rcl-96", "slab.num_slabs", 312);
        parsed("5.15", "proc/slabinfo").row_is("ext4_inode_cache", "slab.pagesperslab", 8);
        parsed("6.1", "proc/slabinfo").row_is("xfs_inode", "slab.objsize", 1_024);
        let s = parsed("6.18", "proc/slabinfo");
        s.row_is("bio-312", "slab.objsize", 320);
        s.row_is("bio-312", "slab.num_slabs", 1);
        s.row_is("btrfs_delayed_node", "slab.active_objs", 0);
    }

    #[test]
    fn damage() {
        let good = b"dentry 1 2 3 4 5 : tunables 0 0 0 : slabdata 6 7 8\n";
        let s = Sample::of("proc/slabinfo", good);
        s.row_is("dentry", "slab.num_slabs", 7);
        s.count(7);
        let s = Sample::of(
            "proc/slabinfo",
            b"slabinfo - version: 2.1\na 1 2 3 4 : tunables 0 0 0 : slabdata 6 7 8\nb 1 2 3 4 5 : tunables 0 0 0 : slabdata 6 7\n\
              c 1 2 3 4 -5 : tunables 0 0 0 : slabdata 6 7 8\nd 1 2 3 4 5\ne 1 2 3 4 5 : tunables 0 0 0 : slabdata 6 7 8\r\n\
              dentry 1 2 3 4 5 : tunables 0 0 0 : slabdata 6 7 8 : globalstat 1 2\n\
              dentry 9 9 9 9 9 : tunables 0 0 0 : slabdata 6 7 8\nf 1 2 3 4 5 : tunables 0 0 0 : slabdata 6 7 8",
        );
        s.row_is("dentry", "slab.num_slabs", 7);
        s.count(7);
        assert_eq!((s.outcome.bad_lines, s.outcome.first_bad), (7, Some(2)));
        let s = Sample::of(
            "proc/slabinfo",
            b"slabinfo - version: 3.0\ndentry 1 2 3 4 5 : tunables 0 0 0 : slabdata 6 7 8\n",
        );
        s.count(0);
        assert_eq!(s.outcome.bad_lines, 1);
    }
}
