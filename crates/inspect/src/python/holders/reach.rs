//! Which objects can be reached from where.
//!
//! Breadth first from the roots, so that the way to each object is a shortest one; for each object one parent is kept. What the
//! collector knows of and no root reaches is then told apart as the collector itself does it (`Modules/gcmodule.c`,
//! `subtract_refs`): an object that counts more references than were found among these is held by something that was not seen,
//! and so is what it refers to. The rest holds only itself.
//!
//! It takes 20 bytes for each object, and a table of 8 on the average.

use std::collections::HashMap;

use super::graph::{Edge, EdgeKind, Graph, Root};

/// No object, or no parent yet.
pub(super) const NONE: u32 = u32::MAX;
/// Has no parent, and needs none.
const ROOT: u32 = u32::MAX - 1;
/// Edges away from the modules at which the variables of running functions come in: what is in a variable of a module is two away,
/// and named by it even while a function has it in its hands.
const MODULE_DEPTH: u32 = 2;
/// Pairs of types, by kind of reference, that are counted.
const PAIRS_MAX: usize = 1 << 16;
/// Steps up a tree to see whose it is.
const CLIMB_MAX: usize = 1000;

/// The objects, and from where each was reached.
#[derive(Default)]
pub(super) struct Reach {
    pub addresses: Vec<u64>,
    /// Index into `names`.
    pub kinds: Vec<u32>,
    pub parents: Vec<u32>,
    /// In the order in which they were reached: a parent before its children.
    pub order: Vec<u32>,
    pub names: Names,
    /// Objects where paths begin; `Native` and `Itself` stand for many.
    pub roots: Vec<(u32, Root)>,
    /// By the types of what is held and of what holds it.
    pub pairs: HashMap<(u32, u32, EdgeKind), u64>,
    /// References that were not counted there.
    pub pairs_lost: u64,
    /// Objects that could not be taken, since there are too many.
    pub left_out: u64,
    /// Addresses that should have been objects, and were none.
    pub vanished: u64,
    objects_max: usize,
    /// What modules refer to by words of their own state, and from where: extensions have those, and no names for them.
    nameless: Vec<(u32, u32)>,
    /// Indices, at the places that the addresses hash to.
    table: Vec<u32>,
}

/// Types, by a small number.
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
    /// Goes through all of a heap, unless the graph says before that it is to end.
    pub(super) fn new(graph: &(impl Graph + ?Sized), objects_max: usize) -> Self {
        // Two below the marks.
        let objects_max = objects_max.min(ROOT as usize - 2);
        let mut reach = Self { table: vec![NONE; 1 << 16], objects_max, ..Self::default() };
        // They stand for whatever holds many objects one by one.
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
        // A way with names is told rather than a shorter one without.
        let begin = reach.order.len();
        for (target, from) in std::mem::take(&mut reach.nameless) {
            if reach.parents[target as usize] == NONE {
                reach.parents[target as usize] = from;
                reach.order.push(target);
            }
        }
        reach.spread_all(graph, begin, true);
        // Last, so that what there is no room for is what is far from the roots.
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

    /// Goes one step on from a stretch of the order, and takes what is new behind it.
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

    /// Everything that can be reached from what was added last.
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

    /// Tells apart what no root reached.
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
        // A string, a number: it goes with what holds it, and who else may hold it leads nowhere.
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
        // What the interpreter has in its hands, only if it counts that: its lists of free objects still point to some that are long in
        // use elsewhere.
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

    /// The parent of an object; `None` of a root.
    pub(super) fn parent(&self, index: u32) -> Option<u32> {
        self.parents.get(index as usize).copied().filter(|parent| *parent < ROOT)
    }

    /// The number of an object that was seen.
    pub(super) fn find(&self, address: u64) -> Option<u32> {
        Some(self.table[self.slot(address)]).filter(|index| *index != NONE)
    }

    /// Whether a root reaches it: anything but `Itself`. Of what is far from either that cannot be said, and it is taken for not.
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

    /// The number of an object, and whether it is new; `None` where there is none, or no room.
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

    /// Where an address stands in the table, or would.
    fn slot(&self, address: u64) -> usize {
        let mask = self.table.len() - 1;
        // Objects lie at multiples of 16, in rows: the golden ratio spreads them, and its upper bits best.
        let mut slot = ((address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24) as usize & mask;
        while self.table[slot] != NONE && self.addresses[self.table[slot] as usize] != address {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        self.table = vec![NONE; self.table.len() * 2];
        // The first two stand for no address.
        for index in 2..self.addresses.len() {
            let slot = self.slot(self.addresses[index]);
            self.table[slot] = index as u32;
        }
    }
}
