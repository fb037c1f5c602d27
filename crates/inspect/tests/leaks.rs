//! The holders of leaked objects, in real services of several Python versions.

#[path = "services/pythons.rs"]
mod pythons;
#[path = "services/service.rs"]
#[expect(dead_code, reason = "each test program uses its own part of it")]
mod service;

use std::time::{Duration, Instant};

use mitra_inspect::Target;
use mitra_inspect::python::holders::{OBJECTS_MAX, Root, TypeHolders, Wanted, holders};
use pythons::pythons;
use service::Service;

/// Versions of the three ways in which frames and attributes are stored.
const MINORS: [u32; 4] = [8, 11, 12, 13];
/// Units of work, enough for a clear leak.
const UNITS: u64 = 3000;

/// The holders of a type in a service that has worked.
fn look(service: &Service, type_name: &str) -> (TypeHolders, Duration) {
    let target = Target::open(service.pid()).unwrap();
    let begin = Instant::now();
    let mut heap = mitra_inspect::python::open(&target).unwrap();
    heap.walk();
    let held = holders(&heap, &Wanted::Types(vec![type_name.to_owned()]), OBJECTS_MAX);
    let took = begin.elapsed();
    assert_eq!(held.objects_left_out, 0);
    (held.types.into_iter().next().unwrap(), took)
}

/// Runs a kind of work on each version, and checks the holders of the leaking type against the
/// number of leaked objects.
fn each(kind: &str, type_name: &str, check: impl Fn(&str, &TypeHolders, u64)) {
    for (version, python) in pythons(&MINORS) {
        let mut service = Service::start(&python, &["--work", kind]);
        service.work(UNITS / 50, 50);
        let truth = service.truth();
        let name =
            if type_name.contains('.') { type_name.to_owned() } else { format!("builtins.{type_name}") };
        let leaked = truth["leaked"][&name].as_u64().unwrap();
        let (held, took) = look(&service, type_name);
        let holder = held.holders.first().unwrap_or_else(|| panic!("{version}: nobody holds {type_name}"));
        println!(
            "{kind} on {version}: {} of {} {type_name} by {} ({took:?}), e.g. {}; natively {}, by themselves {}",
            holder.objects,
            held.objects,
            holder.path.text,
            holder.sample.as_ref().map_or("-", |path| path.text.as_str()),
            held.objects_held_natively,
            held.objects_held_by_themselves,
        );
        check(&version, &held, leaked);
        let near = held.objects.abs_diff(leaked) as f64 <= 0.01 * leaked as f64 + 5.0;
        assert!(near || held.objects > leaked, "{version}: {} of {leaked}", held.objects);
        let most = holder.objects as f64 >= 0.95 * leaked as f64;
        assert!(most, "{version}: {} has {} of {leaked}", holder.path.text, holder.objects);
    }
}

#[test]
fn a_growing_dict_in_a_module() {
    each("dict", "leaks.Session", |version, held, leaked| {
        let holder = &held.holders[0];
        assert_eq!(holder.path.text, "leaks.SESSIONS", "{version}");
        assert_eq!(holder.path.root, Root::Module("leaks".to_owned()), "{version}");
        assert_eq!(holder.type_name.as_deref(), Some("dict"), "{version}");
        assert!(holder.objects_direct + 5 >= leaked, "{version}");
        assert_eq!(held.referrers[0].type_name, "dict", "{version}");
    });
}

#[test]
fn cycles_with_a_finalizer_that_the_collector_does_not_free() {
    each("cycle", "leaks.Connection", |version, held, leaked| {
        let holder = &held.holders[0];
        assert_eq!(holder.path.root, Root::Itself, "{version}");
        assert!(held.objects_held_by_themselves as f64 >= 0.95 * leaked as f64, "{version}");
        assert!(held.has_finalizer, "{version}");
        let sample = holder.sample.as_ref().unwrap();
        assert_eq!(sample.text, "a leaks.Connection.peer.peer is itself", "{version}");
    });
}

#[test]
fn references_that_an_extension_never_gives_back() {
    each("reference", "leaks.Order", |version, held, leaked| {
        let holder = &held.holders[0];
        assert_eq!(holder.path.root, Root::Native, "{version}");
        assert!(held.objects_held_natively as f64 >= 0.95 * leaked as f64, "{version}");
    });
}

/// `cargo test --release -p mitra-inspect --test leaks -- --ignored --nocapture` prints the cost
/// for a large heap.
#[test]
#[ignore = "a measurement: a heap of some three million objects"]
fn by_hand_a_large_heap() {
    let Some((version, python)) = pythons(&[11]).pop() else { return };
    let mut service = Service::start(&python, &["--work", "dict"]);
    service.work(400, 1000);
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        status.lines().find(|line| line.starts_with("VmHWM")).unwrap().to_owned()
    };
    let target = Target::open(service.pid()).unwrap();
    let mut heap = mitra_inspect::python::open(&target).unwrap();
    let begin = Instant::now();
    let walked = heap.walk();
    println!("{version}: {} objects walked in {:?}, {}", walked.objects, begin.elapsed(), peak());
    let begin = Instant::now();
    let held = holders(&heap, &Wanted::Largest(5), OBJECTS_MAX);
    println!("{} objects gone through in {:?}, {}", held.objects, begin.elapsed(), peak());
    for held in held.types {
        let of = |holder: &mitra_inspect::python::holders::Holder| {
            format!("{} by {}", holder.objects, holder.path.text)
        };
        println!(
            "{} {}: {}",
            held.objects,
            held.type_name,
            held.holders.iter().map(of).collect::<Vec<_>>().join("; ")
        );
    }
}

#[test]
fn a_cache_without_a_bound() {
    each("cache", "leaks.Quote", |version, held, _| {
        let text = &held.holders[0].path.text;
        assert!(text.starts_with("leaks.quote"), "{version}: {text}");
    });
    each("cache-object", "leaks.Quote", |version, held, _| {
        assert_eq!(held.holders[0].path.text, "leaks.STORE.items", "{version}");
    });
}

#[test]
fn data_as_names_of_attributes_is_not_said() {
    each("attribute-data", "leaks.Session", |version, held, _| {
        let holder = &held.holders[0];
        assert!(holder.path.text.starts_with("leaks.STORE"), "{version}: {}", holder.path.text);
        assert_eq!(holder.sample.as_ref().unwrap().text, "leaks.STORE[…]", "{version}");
        assert!(!format!("{held:?}").contains("example"), "{version}: {held:?}");
    });
}

#[test]
fn tasks_that_wait_for_ever() {
    each("tasks", "_asyncio.Task", |version, held, _| {
        assert_eq!(held.holders[0].path.text, "leaks.BACKGROUND", "{version}");
    });
    each("timers", "_asyncio.Task", |version, held, _| {
        let text = &held.holders[0].path.text;
        assert!(text.contains("_scheduled"), "{version}: {text}");
    });
}

#[test]
fn closures_in_a_list() {
    each("closures", "function", |version, held, _| {
        assert_eq!(held.holders[0].path.text, "leaks.HANDLERS", "{version}");
    });
    each("closures", "cell", |version, held, _| {
        let holder = &held.holders[0];
        assert_eq!(holder.path.text, "leaks.HANDLERS", "{version}");
        assert!(holder.sample.as_ref().unwrap().text.contains("__closure__"), "{version}");
    });
}
