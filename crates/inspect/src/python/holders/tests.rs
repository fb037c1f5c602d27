//! Small synthetic heaps.

use std::cell::Cell;
use std::collections::BTreeMap;

use super::*;

const MODULE: u64 = 1;
const DICT: u64 = 2;
const LIST: u64 = 3;
const STR: u64 = 4;
const SESSION: u64 = 5;
const FUNCTION: u64 = 6;
const CELL: u64 = 7;

/// Objects by address.
#[derive(Default)]
struct Heap {
    objects: BTreeMap<u64, Object>,
    roots: Vec<(Root, u64)>,
    texts: BTreeMap<u64, String>,
    /// Limit of the steps, if there is one.
    steps: Option<Cell<u64>>,
}

struct Object {
    kind: u64,
    references: Vec<(u64, Edge)>,
    /// References from unsearched places.
    outside: u64,
}

impl Heap {
    fn add(&mut self, kind: u64) -> u64 {
        let address = 0x10_0000 + 64 * self.objects.len() as u64;
        self.objects.insert(address, Object { kind, references: Vec::new(), outside: 0 });
        address
    }

    fn string(&mut self, text: &str) -> u64 {
        let address = self.add(STR);
        self.texts.insert(address, text.to_owned());
        address
    }

    fn refer(&mut self, from: u64, to: u64, edge: Edge) {
        self.objects.get_mut(&from).unwrap().references.push((to, edge));
    }

    /// An object that a variable of a module, or an attribute in a dict, refers to.
    fn variable(&mut self, owner: u64, name: &str, kind: u64) -> u64 {
        let dict = self.objects[&owner].references.iter().find(|(_, edge)| *edge == Edge::Dict);
        let dict = dict.map(|(dict, _)| *dict).unwrap_or_else(|| {
            let dict = self.add(DICT);
            self.refer(owner, dict, Edge::Dict);
            dict
        });
        let (key, value) = (self.string(name), self.add(kind));
        self.refer(dict, key, Edge::Key);
        self.refer(dict, value, Edge::Value { key });
        value
    }

    fn module(&mut self, name: &str) -> u64 {
        let module = self.add(MODULE);
        self.roots.push((Root::Module(name.to_owned()), module));
        module
    }

    fn held(&self, type_name: &str) -> TypeHolders {
        let held = holders(self, &Wanted::Types(vec![type_name.to_owned()]), 1_000_000);
        held.types.into_iter().next().unwrap()
    }
}

impl Graph for Heap {
    fn each(&self, take: &mut dyn FnMut(u64)) {
        for (address, object) in &self.objects {
            if object.kind != STR {
                take(*address);
            }
        }
    }

    fn roots(&self, take: &mut dyn FnMut(Root, u64)) {
        for (root, address) in &self.roots {
            take(root.clone(), *address);
        }
    }

    fn kind(&self, address: u64) -> Option<u64> {
        self.objects.get(&address).map(|object| object.kind)
    }

    fn kind_name(&self, kind: u64) -> String {
        let names = ["", "module", "dict", "list", "str", "app.Session", "function", "cell"];
        names[kind as usize].to_owned()
    }

    fn references(&self, address: u64, take: &mut dyn FnMut(u64, Edge)) {
        for (target, edge) in self.objects.get(&address).map_or(&[][..], |object| &object.references) {
            take(*target, *edge);
        }
    }

    fn reference_count(&self, address: u64) -> Option<u64> {
        let all = self.objects.values().flat_map(|object| &object.references);
        let counted = all.filter(|(target, _)| *target == address).count() as u64;
        Some(self.objects.get(&address)?.outside + counted)
    }

    fn bytes(&self, address: u64) -> u64 {
        10 * self.objects.get(&address).map_or(0, |object| object.kind)
    }

    fn name(&self, _from: u64, edge: Edge) -> Option<String> {
        match edge {
            Edge::Value { key: name } | Edge::Attribute { name } => self.texts.get(&name).cloned(),
            Edge::Field { offset: 8 } => Some("__closure__".to_owned()),
            Edge::Field { .. } => Some("cell_contents".to_owned()),
            _ => None,
        }
    }

    fn should_continue(&self, steps: u64) -> bool {
        let Some(left) = &self.steps else { return true };
        left.set(left.get().saturating_sub(steps));
        left.get() > 0
    }
}

/// A heap with further objects that are not searched for.
fn heap() -> (Heap, u64) {
    let mut heap = Heap::default();
    let other = heap.module("os");
    for i in 0..20 {
        heap.variable(other, &format!("name{i}"), [LIST, DICT, FUNCTION][i % 3]);
    }
    let app = heap.module("app");
    (heap, app)
}

#[test]
fn a_dict_in_a_module_is_named() {
    let (mut heap, app) = heap();
    let cache = heap.variable(app, "CACHE", DICT);
    for i in 0..100 {
        let (key, session) = (heap.string(&format!("visitor-{i}")), heap.add(SESSION));
        heap.refer(cache, key, Edge::Key);
        heap.refer(cache, session, Edge::Value { key });
    }
    // A function holds one of them, and the cache does too.
    let frame = |variable: &str| Root::Frame(format!("local '{variable}' of handle()"));
    let session = heap.objects.iter().find(|(_, object)| object.kind == SESSION).map(|(address, _)| *address);
    heap.roots.push((frame("session"), session.unwrap()));
    heap.roots.push((frame("cache"), cache));
    let held = heap.held("app.Session");
    assert_eq!((held.objects, held.objects_held_natively, held.objects_held_by_themselves), (100, 0, 0));
    let holder = &held.holders[0];
    assert_eq!(holder.path.root, Root::Module("app".to_owned()));
    assert_eq!(holder.path.text, "app.CACHE");
    assert_eq!((holder.objects, holder.objects_direct), (99, 99));
    assert_eq!(holder.type_name.as_deref(), Some("dict"));
    // The keys of a cache are contents.
    assert_eq!(holder.sample.as_ref().unwrap().text, "app.CACHE[…]");
    assert_eq!(held.holders.len(), 1, "one session is no holder: {:?}", held.holders);
    let referrer = Referrer { type_name: "dict".to_owned(), edge: EdgeKind::Value, references: 100 };
    assert_eq!(held.referrers, [referrer]);
}

#[test]
fn a_search_that_is_ended_early_has_no_half_answers() {
    let (mut heap, app) = heap();
    let cache = heap.variable(app, "CACHE", LIST);
    for index in 0..100 {
        let (session, inner) = (heap.add(SESSION), heap.add(CELL));
        heap.refer(cache, session, Edge::Item { index });
        heap.refer(session, inner, Edge::Field { offset: 16 });
    }
    let wanted = Wanted::Types(vec!["app.Session".to_owned(), "cell".to_owned()]);
    let whole = holders(&heap, &wanted, 1_000_000);
    assert!(!whole.is_stopped && whole.types.len() == 2);
    let mut seen = [0; 3];
    for steps in 1..10_000 {
        heap.steps = Some(Cell::new(steps));
        let held = holders(&heap, &wanted, 1_000_000);
        seen[held.types.len()] += 1;
        assert_eq!(held.types[..], whole.types[..held.types.len()], "{steps}");
        assert_eq!(held.is_stopped, held.types.len() < 2, "{steps}");
        if !held.is_stopped {
            break;
        }
    }
    assert!(seen.iter().all(|times| *times > 0), "{seen:?}");
}

#[test]
fn the_way_leads_through_objects_closures_and_lists() {
    let (mut heap, app) = heap();
    let store = heap.variable(app, "STORE", SESSION);
    let items = heap.variable(store, "items", LIST);
    for _ in 0..50 {
        let function = heap.add(FUNCTION);
        let cells = heap.add(LIST);
        let cell = heap.add(CELL);
        let inner = heap.add(DICT);
        heap.refer(items, function, Edge::Item { index: 0 });
        heap.refer(function, cells, Edge::Field { offset: 8 });
        heap.refer(cells, cell, Edge::Item { index: 0 });
        heap.refer(cell, inner, Edge::Field { offset: 16 });
    }
    let held = heap.held("cell");
    assert_eq!(held.holders.len(), 1);
    assert_eq!(held.holders[0].path.text, "app.STORE.items");
    assert_eq!((held.holders[0].objects, held.holders[0].objects_direct), (50, 0));
    assert_eq!(held.holders[0].sample.as_ref().unwrap().text, "app.STORE.items[…].__closure__[…]");
    let held = heap.held("dict");
    assert_eq!(held.holders[0].path.text, "app.STORE.items");
    assert_eq!(
        held.holders[0].sample.as_ref().unwrap().text,
        "app.STORE.items[…].__closure__[…].cell_contents"
    );
}

#[test]
fn data_that_stands_where_names_do_is_not_said() {
    const MAIL: &str = "alice@example.com";
    let (mut heap, app) = heap();
    let store = heap.variable(app, "STORE", SESSION);
    // One by name in its dict, one by a name without a dict.
    heap.variable(store, MAIL, LIST);
    let (name, cell) = (heap.string(MAIL), heap.add(CELL));
    heap.refer(store, cell, Edge::Attribute { name });
    heap.variable(app, "0d9a7c3e-beef-4dad-9f00-aabbccddeeff", CELL);
    let strange = heap.module(MAIL);
    heap.variable(strange, "queue", FUNCTION);
    for type_name in ["list", "cell", "function"] {
        let held = heap.held(type_name);
        let said = format!("{held:?}");
        assert!(!said.contains("example") && !said.contains("beef"), "{said}");
    }
    let (lists, cells) = (heap.held("list"), heap.held("cell"));
    let texts = |held: &TypeHolders| {
        let samples = held.holders.iter().filter_map(|holder| holder.sample.as_ref());
        samples.map(|path| path.text.clone()).collect::<Vec<_>>()
    };
    assert!(texts(&lists).iter().any(|text| text == "app.STORE[…]"), "{lists:?}");
    assert!(texts(&cells).iter().all(|text| text.starts_with("app") && text.ends_with("[…]")), "{cells:?}");
}

#[test]
fn behind_what_is_left_out_no_key_is_taken_for_a_name() {
    let (mut heap, app) = heap();
    let mut node = heap.variable(app, "HEAD", DICT);
    // An object, its dict, a dict in it, and again: wherever the path is cut, the next step may be
    // a key.
    let next = heap.string("next");
    for _ in 0..30 {
        let (object, namespace, inner) = (heap.add(LIST), heap.add(DICT), heap.add(DICT));
        let key = heap.string("alice");
        heap.refer(node, object, Edge::Value { key });
        heap.refer(object, namespace, Edge::Dict);
        heap.refer(namespace, inner, Edge::Value { key: next });
        node = inner;
    }
    for i in 0..3 {
        // Cuts at each offset once.
        let further = heap.add(DICT);
        heap.refer(node, further, Edge::Item { index: i });
        let cell = heap.add(CELL);
        heap.refer(further, cell, Edge::Item { index: i });
        node = further;
        let said = format!("{:?}", heap.held("cell"));
        assert!(said.contains(" steps … ") && !said.contains("alice"), "{said}");
    }
}

#[test]
fn a_long_chain_is_said_briefly() {
    let (mut heap, app) = heap();
    let mut node = heap.variable(app, "HEAD", SESSION);
    let name = heap.string("next");
    for _ in 0..5000 {
        let next = heap.add(SESSION);
        heap.refer(node, next, Edge::Attribute { name });
        node = next;
    }
    let held = heap.held("app.Session");
    let path = &held.holders[0].path;
    assert!(path.text.starts_with("app.HEAD(.next)×"), "{}", path.text);
    assert!(path.text.len() < 100 && path.steps_left_out > 2000, "{}", path.text);
}

#[test]
fn cycles_that_nobody_holds_are_told_from_what_native_code_holds() {
    let (mut heap, _) = heap();
    let peer = heap.string("peer");
    for i in 0..60 {
        let (one, other) = (heap.add(SESSION), heap.add(SESSION));
        let (dict, text) = (heap.add(DICT), heap.string("text"));
        heap.refer(one, dict, Edge::Dict);
        heap.refer(dict, other, Edge::Value { key: peer });
        heap.refer(dict, text, Edge::Value { key: peer });
        heap.refer(other, one, Edge::Attribute { name: peer });
        if i % 3 == 0 {
            heap.objects.get_mut(&other).unwrap().outside = 1;
        }
    }
    let held = heap.held("app.Session");
    assert_eq!((held.objects_held_natively, held.objects_held_by_themselves), (40, 80));
    assert_eq!(held.holders[0].path.root, Root::Itself);
    assert_eq!((held.holders[0].objects, held.holders[1].objects), (80, 40));
    let sample = held.holders[0].sample.as_ref().unwrap();
    assert_eq!(sample.text, "a app.Session.peer.peer is itself");
    assert_eq!(held.holders[1].path.root, Root::Native);
    // Objects that hang on them belong to them.
    let held = heap.held("str");
    assert_eq!(held.objects_held_by_themselves + held.objects_held_natively, 60);
}

#[test]
fn the_largest_types_can_be_asked_for_and_bounds_are_said() {
    let (heap, _) = heap();
    let held = holders(&heap, &Wanted::Largest(2), 1000);
    let names: Vec<&str> = held.types.iter().map(|held| held.type_name.as_str()).collect();
    assert_eq!(names, ["str", "function"]);
    assert_eq!((held.objects, held.objects_left_out), (heap.objects.len() as u64, 0));
    let held = holders(&heap, &Wanted::Largest(2), 10);
    assert!(held.objects <= 10 && held.objects_left_out > 0);
}

#[test]
fn references_into_nothing_are_counted() {
    let (mut heap, app) = heap();
    let list = heap.variable(app, "LIST", LIST);
    for address in [0, 1, u64::MAX, 0x10_0001] {
        heap.refer(list, address, Edge::Item { index: 0 });
    }
    let held = holders(&heap, &Wanted::Types(vec!["nothing".to_owned()]), 1000);
    assert_eq!(held.vanished, 4);
    assert_eq!((held.types[0].objects, held.types[0].holders.len()), (0, 0));
}
