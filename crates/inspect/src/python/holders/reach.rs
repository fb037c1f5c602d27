//! Which objects are reachable, and from where.
//!
//! A breadth-first search from the roots, so that each path is a shortest one; each object keeps
//! one parent. Objects that the collector tracks and no root reaches are then classified as the
//! collector does it (`Modules/gcmodule.c`, `subtract_refs`). An object that counts more references
//! than were found among these is held by something unseen, and so are the objects that it refers
//! to. The rest hold only each other.
//!
//! It takes 20 bytes per object, and a table of 8 on average.

use std::collections::HashMap;

use super::graph::{Edge, EdgeKind, Graph, Root};

/// No object, or no parent yet.
pub(super) const NONE: u32 = u32::MAX;
/// No parent, and none needed.
const ROOT: u32 = u32::MAX - 1;
/// Distance from the modules at which variables of running functions become roots. A value of a
/// module variable has the distance two, and gets the name of that variable even while a function
/// uses it.
const MODULE_DEPTH: u32 = 2;
/// Limit of the pairs of types, by kind of reference, that are counted.
const PAIRS_MAX: usize = 1 << 16;
/// Steps up the tree to find an object's root.
const CLIMB_MAX: usize = 1000;

/// The objects, and the parent of each.
#[derive(Default)]
pub(super) struct Reach {
    pub addresses: Vec<u64>,
    /// Index into `names`.
    pub kinds: Vec<u32>,
    pub parents: Vec<u32>,
    /// In the order of the search: a parent before its children.
    pub order: Vec<u32>,
    pub names: Names,
    /// Objects where paths begin. `Native` and `Itself` are placeholders for many.
    pub roots: Vec<(u32, Root)>,
    /// Reference counts by the type of the target and the type of the source.
    pub pairs: HashMap<(u32, u32, EdgeKind), u64>,
    /// References that are missing there.
    pub pairs_lost: u64,
    /// Encounters of objects beyond the limit.
    pub left_out: u64,
    /// Addresses that should have been objects but were not.
    pub vanished: u64,
    objects_max: usize,
    /// References from words of a module's own state, with their source: extensions have those,
    /// without names.
    nameless: Vec<(u32, u32)>,
    /// Hash table of the indices, by address.
    table: Vec<u32>,
}

/// Numbers for types.
#[derive(Default)]
pub(super) struct Names {
    by_kind: HashMap<u64, u32>,
    pub kinds: Vec<u64>,
    pub names: Vec<String>,
}

impl Names {
    fn number(&mut self, graph: &(impl Graph + ?Sized), kind: u64) -> u32 {
        let Self { by_kind, kinds, names } = self;
        *by_kind.entry(kind).or_insert_with(|| {
            kinds.push(kind);
            names.push(graph.kind_name(kind));
            names.len() as u32 - 1
        })
    }

    pub(super) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("?", String::as_str)
    }
}

impl Reach {
    /// Searches the whole heap, unless the graph's budget ends first.
    pub(super) fn new(graph: &(impl Graph + ?Sized), objects_max: usize) -> Self {
        // Below the two special values.
        let objects_max = objects_max.min(ROOT as usize - 2);
        let mut reach = Self { table: vec![NONE; 1 << 16], objects_max, ..Self::default() };
        // Placeholders for unseen holders.
        let native = reach.stand_in(Root::Native);
        let itself = reach.stand_in(Root::Itself);
        let (mut of_frames, mut of_interpreter) = (Vec::new(), HashMap::new());
        graph.roots(&mut |root, address| match root {
            Root::Frame(_) => of_frames.push((root, address)),
            Root::Interpreter(_) => {
                of_interpreter.insert(address, root);
            }
            _ => reach.add_root(graph, root, address),
        });
        let mut at = 0;
        for depth in 0.. {
            if depth == MODULE_DEPTH {
                for (root, address) in std::mem::take(&mut of_frames) {
                    reach.add_root(graph, root, address);
                }
            }
            let end = reach.order.len();
            if at == end && depth >= MODULE_DEPTH {
                break;
            }
            reach.spread(graph, at, end, true);
            at = end;
        }
        // A path with names takes precedence over a shorter one without.
        let begin = reach.order.len();
        for (target, from) in std::mem::take(&mut reach.nameless) {
            if reach.parents[target as usize] == NONE {
                reach.parents[target as usize] = from;
                reach.order.push(target);
            }
        }
        reach.spread_all(graph, begin, true);
        // Last, so that objects far from the roots are the ones left out at the limit.
        graph.again();
        graph.each(&mut |address| {
            reach.insert(graph, address);
        });
        reach.unreached(graph, of_interpreter, native, itself);
        graph.again();
        reach
    }

    fn stand_in(&mut self, root: Root) -> u32 {
        let index = self.addresses.len() as u32;
        self.addresses.push(0);
        self.kinds.push(NONE);
        self.parents.push(ROOT);
        self.roots.push((index, root));
        index
    }

    fn add_root(&mut self, graph: &(impl Graph + ?Sized), root: Root, address: u64) {
        if let Some((index, _)) = self.insert(graph, address)
            && self.parents[index as usize] == NONE
        {
            self.parents[index as usize] = ROOT;
            self.order.push(index);
            self.roots.push((index, root));
        }
    }

    /// Visits the references of a part of `order`, and appends new objects to it.
    fn spread(&mut self, graph: &(impl Graph + ?Sized), from: usize, to: usize, counts: bool) {
        for at in from..to {
            if !graph.should_continue(1) {
                return;
            }
            let index = self.order[at];
            let is_module = self.names.name(self.kinds[index as usize]) == "module";
            self.each_reference(graph, index, counts, |reach, target, _, edge| {
                let parent = &mut reach.parents[target as usize];
                if *parent != NONE {
                    return;
                }
                if is_module && matches!(edge, Edge::Field { .. }) {
                    reach.nameless.push((target, index));
                } else {
                    *parent = index;
                    reach.order.push(target);
                }
            });
        }
    }

    /// Visits everything that is reachable from the objects added last.
    fn spread_all(&mut self, graph: &(impl Graph + ?Sized), mut at: usize, counts: bool) {
        while at < self.order.len() {
            let end = self.order.len();
            self.spread(graph, at, end, counts);
            at = end;
        }
    }

    fn each_reference(
        &mut self,
        graph: &(impl Graph + ?Sized),
        index: u32,
        counts: bool,
        mut take: impl FnMut(&mut Self, u32, bool, Edge),
    ) {
        let (address, from) = (self.addresses[index as usize], self.kinds[index as usize]);
        graph.references(address, &mut |target, edge: Edge| {
            if let Some((target, is_new)) = self.insert(graph, target) {
                if counts && edge != Edge::Type {
                    self.count(target, from, edge.into());
                }
                take(self, target, is_new, edge);
            }
        });
    }

    fn count(&mut self, target: u32, from: u32, edge: EdgeKind) {
        let pair = (self.kinds[target as usize], from, edge);
        let has_room = self.pairs.len() < PAIRS_MAX;
        match self.pairs.get_mut(&pair) {
            Some(count) => *count += 1,
            None if has_room => {
                self.pairs.insert(pair, 1);
            }
            None => self.pairs_lost += 1,
        }
    }

    /// Classifies the objects that no root reached.
    fn unreached(
        &mut self,
        graph: &(impl Graph + ?Sized),
        mut of_interpreter: HashMap<u64, Root>,
        native: u32,
        itself: u32,
    ) {
        let mut all: Vec<u32> =
            (0..self.parents.len() as u32).filter(|index| self.parents[*index as usize] == NONE).collect();
        let mut among: Vec<u32> = vec![0; self.addresses.len()];
        // Leaves such as strings and numbers belong to the object that holds them; their other
        // holders do not matter.
        let mut is_leaf: Vec<bool> = Vec::new();
        while let Some(index) = all.get(is_leaf.len()).copied().filter(|_| graph.should_continue(1)) {
            let mut leads = false;
            self.each_reference(graph, index, true, |reach, target, is_new, edge| {
                among.resize(reach.addresses.len(), 0);
                leads |= edge != Edge::Type;
                if reach.parents[target as usize] == NONE {
                    among[target as usize] = among[target as usize].saturating_add(1);
                    if is_new {
                        all.push(target);
                    }
                }
            });
            is_leaf.push(!leads);
        }
        graph.again();
        // Words of the interpreter's state count only if the object's reference count includes
        // them: free lists still point to objects that are long in use elsewhere.
        let mut outside = Vec::new();
        let begin = self.order.len();
        for (index, is_leaf) in all.iter().zip(is_leaf) {
            if !graph.should_continue(1) {
                return;
            }
            let address = self.addresses[*index as usize];
            let found = u64::from(among[*index as usize]);
            let is_held = graph.reference_count(address).is_some_and(|counted| counted > found);
            if !is_held || found > 0 && is_leaf {
                continue;
            }
            match of_interpreter.remove(&address) {
                Some(root) => {
                    self.parents[*index as usize] = ROOT;
                    self.order.push(*index);
                    self.roots.push((*index, root));
                }
                None => outside.push(*index),
            }
        }
        self.spread_all(graph, begin, false);
        self.order.push(native);
        let begin = self.order.len();
        for index in outside {
            if self.parents[index as usize] == NONE {
                self.parents[index as usize] = native;
                self.order.push(index);
            }
        }
        self.spread_all(graph, begin, false);
        self.order.push(itself);
        for index in all {
            if !graph.should_continue(1) {
                return;
            }
            if self.parents[index as usize] == NONE {
                self.parents[index as usize] = itself;
                self.order.push(index);
                let last = self.order.len() - 1;
                self.spread_all(graph, last, false);
            }
        }
    }

    /// The parent of an object; `None` for a root.
    pub(super) fn parent(&self, index: u32) -> Option<u32> {
        self.parents.get(index as usize).copied().filter(|parent| *parent < ROOT)
    }

    /// The index of a visited object.
    pub(super) fn find(&self, address: u64) -> Option<u32> {
        Some(self.table[self.slot(address)]).filter(|index| *index != NONE)
    }

    /// Whether a root other than `Itself` reaches it. If the climb takes more than `CLIMB_MAX`
    /// steps the answer is unknown, and counts as no.
    pub(super) fn is_rooted(&self, index: u32) -> bool {
        let mut top = index;
        for _ in 0..CLIMB_MAX {
            match self.parent(top) {
                Some(parent) => top = parent,
                None => return self.roots.iter().all(|(root, kind)| *root != top || *kind != Root::Itself),
            }
        }
        false
    }

    /// The index of an object, and whether it is new; `None` if there is no object, or no room.
    fn insert(&mut self, graph: &(impl Graph + ?Sized), address: u64) -> Option<(u32, bool)> {
        let slot = self.slot(address);
        if self.table[slot] != NONE {
            return Some((self.table[slot], false));
        }
        if self.addresses.len() >= self.objects_max {
            self.left_out += 1;
            return None;
        }
        let Some(kind) = graph.kind(address).filter(|_| address != 0) else {
            self.vanished += 1;
            return None;
        };
        let index = self.addresses.len() as u32;
        let number = self.names.number(graph, kind);
        self.addresses.push(address);
        self.kinds.push(number);
        self.parents.push(NONE);
        self.table[slot] = index;
        if self.addresses.len() * 4 > self.table.len() * 3 {
            self.grow();
        }
        Some((index, true))
    }

    /// The slot of an address in the table, used or free.
    fn slot(&self, address: u64) -> usize {
        let mask = self.table.len() - 1;
        // Objects lie at multiples of 16, in rows. Multiplying by the golden ratio spreads them,
        // best in the upper bits.
        let mut slot = ((address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24) as usize & mask;
        while self.table[slot] != NONE && self.addresses[self.table[slot] as usize] != address {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        self.table = vec![NONE; self.table.len() * 2];
        // The first two entries are placeholders without an address.
        for index in 2..self.addresses.len() {
            let slot = self.slot(self.addresses[index]);
            self.table[slot] = index as u32;
        }
    }
}
