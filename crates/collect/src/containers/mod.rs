//! Names of containers and pods, for the rows of their cgroups.
//!
//! Each cgroup that may be one is looked up when it is first seen, again for a while if its runtime has not written its state yet, and now
//! and then after that, because containers are renamed. Only cgroups that exist are looked up, many at once, and what a runtime
//! says of all its containers, dead ones too, is read once for all of them and then forgotten. Files may lie on a file system that does
//! not answer: a thread of its own reads, and is left to itself if it hangs.

mod files;
mod look;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use mitra_model::cgroup_name::{Runtime, read};
use mitra_model::{NA, Strings};
use mitra_parse::container_state::{Pass, State};

use crate::aside::Aside;
use crate::cells::{col, set};
use crate::file::Root;
use crate::missing::{Missing, reason};
use files::Folder;
use look::{Question, look};

const SECOND_NS: i64 = 1_000_000_000;
/// As many are asked for at once.
const BATCH_MAX: usize = 64;
/// What was not found is looked up again after 1, 2, 4, … seconds, so many times.
const TRIES_MAX: u32 = 9;
/// The same for what is no container by its path and may be one of containerd (`ctr`).
const DOUBTFUL_TRIES_MAX: u32 = 4;
/// What was found is looked up again after this long.
const AGAIN_NS: i64 = 300 * SECOND_NS;
/// A thread that has not answered for this long hangs: reading some hundred small files takes milliseconds.
const HANGS_NS: i64 = 10 * SECOND_NS;
/// As many threads may hang before nothing is looked up any more.
const HANGING_MAX: usize = 4;
/// The name under which it is missing.
const MISSING: &str = "names of containers";

/// Of a cgroup that is a container or a pod, or may be one.
#[derive(Debug)]
pub struct Label {
    is_doubtful: bool,
    tries: u32,
    due_ns: i64,
    state: Option<State>,
    cells: [i64; 3],
    /// Whether the cells are not those of the state.
    is_stale: bool,
}

impl Label {
    /// `None` of a cgroup that cannot be a container.
    pub fn of(path: &str) -> Option<Box<Label>> {
        let found = read(path);
        let container = found.containers.last().filter(|container| container.path == path);
        // nspawn and virtual machines have no other name than the one in the path.
        if container.is_some_and(|container| container.runtime == Runtime::Machine) {
            return None;
        }
        let is_one = container.is_some() || found.pod.is_some_and(|pod| pod.path == path);
        // containerd names the cgroup of a container /NAMESPACE/ID if nobody says otherwise.
        let is_doubtful = !is_one
            && path.split('/').count() == 3
            && !path
                .split('/')
                .any(|part| [".slice", ".service", ".scope"].iter().any(|end| part.ends_with(end)));
        (is_one || is_doubtful).then(|| {
            Box::new(Label {
                is_doubtful,
                tries: 0,
                due_ns: i64::MIN,
                state: None,
                cells: [NA; 3],
                is_stale: false,
            })
        })
    }

    /// The ids of its texts are no longer valid.
    pub fn forget_texts(&mut self) {
        self.is_stale = self.state.is_some();
    }

    fn is_due(&self, now_ns: i64) -> bool {
        self.due_ns <= now_ns
    }

    /// Takes what was found. A container that ends loses its files first and keeps its name.
    fn answer(&mut self, state: Option<State>, now_ns: i64) {
        if state.is_some() {
            self.is_stale |= self.state != state;
            self.state = state;
        }
        self.tries = self.tries.saturating_add(1);
        let tries_max = if self.is_doubtful { DOUBTFUL_TRIES_MAX } else { TRIES_MAX };
        self.due_ns = match &self.state {
            // A pod is known before its containers.
            Some(state) if state.container.is_some() || self.tries >= tries_max => {
                now_ns.saturating_add(AGAIN_NS)
            }
            None if self.tries >= tries_max => i64::MAX,
            _ => now_ns.saturating_add(SECOND_NS << self.tries.saturating_sub(1).min(TRIES_MAX)),
        };
    }

    /// Writes the texts into a row.
    pub fn fill(&mut self, strings: &mut Strings, columns: &[usize; 3], row: &mut [i64]) {
        if std::mem::take(&mut self.is_stale) {
            let State { container, image, pod } = self.state.as_ref().unwrap_or(&EMPTY);
            self.cells = [container, image, pod]
                .map(|text| text.as_deref().map_or(NA, |text| i64::from(strings.intern(text))));
        }
        for (column, cell) in columns.iter().zip(self.cells) {
            set(row, *column, cell);
        }
    }
}

static EMPTY: State = State { container: None, image: None, pod: None };

/// The cgroup of the pod that a container is in, and the pod.
fn pod_of(question: &Question, state: &State) -> Option<(String, String)> {
    let path = read(&question.path).pod?.path.to_owned();
    (path != question.path).then_some((path, state.pod.clone()?))
}

/// A cgroup with its label.
pub struct Labelled<'a> {
    pub path: &'a str,
    pub label: &'a mut Label,
    /// Its directory below the root.
    pub dir: &'a dyn Fn() -> Option<String>,
}

/// How a cgroup is looked up, in the state of the machine.
type Look = fn(&Root, Option<&Pass<'_, Folder>>, &Question) -> Option<State>;

/// Looks names up beside the recorder.
pub struct Namer {
    thread: Option<Aside<Vec<Question>, Vec<Option<State>>>>,
    /// What was asked and not answered yet, since when, and how much of it is done.
    asked: Vec<Question>,
    asked_ns: i64,
    done: Arc<AtomicUsize>,
    /// How much of it was done at the last turn that saw more.
    seen: usize,
    /// Threads that were left and have not ended yet: each holds its count.
    left: Vec<Weak<AtomicUsize>>,
    pub columns: [usize; 3],
    look: Look,
}

impl Namer {
    pub fn new() -> Self {
        Namer {
            thread: None,
            asked: Vec::new(),
            asked_ns: 0,
            done: Arc::default(),
            seen: 0,
            left: Vec::new(),
            columns: ["cgroup.container", "cgroup.image", "cgroup.pod"].map(col),
            look,
        }
    }

    /// Takes what was found, and asks for what is due. `each` calls its argument with each cgroup that has a label.
    pub fn turn(
        &mut self,
        root: &Root,
        missing: &mut Missing,
        now_ns: i64,
        mut each: impl FnMut(&mut dyn FnMut(Labelled<'_>)),
    ) {
        let answers = self.thread.as_ref().and_then(|thread| thread.answers().last());
        if let Some(states) = answers {
            let mut found: Vec<_> = std::mem::take(&mut self.asked).into_iter().zip(states).collect();
            found.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
            let pods: Vec<_> =
                found.iter().filter_map(|(question, state)| pod_of(question, state.as_ref()?)).collect();
            each(&mut |group| {
                if let Ok(at) = found.binary_search_by(|(question, _)| question.path.as_str().cmp(group.path))
                {
                    group.label.answer(found.get_mut(at).and_then(|(_, state)| state.take()), now_ns);
                }
                // The kubelet's folders need not be where they usually are: the runtime names the pod too.
                if group.label.state.is_none()
                    && let Some((_, pod)) = pods.iter().find(|(path, _)| path == group.path)
                {
                    group.label.state = Some(State { pod: Some(pod.clone()), ..State::default() });
                    group.label.is_stale = true;
                }
            });
        } else if !self.asked.is_empty() {
            let done = self.done.load(Ordering::Relaxed);
            if std::mem::replace(&mut self.seen, done) != done {
                self.asked_ns = now_ns;
            }
            if now_ns.saturating_sub(self.asked_ns) > HANGS_NS {
                self.abandon(missing, &mut each);
            }
            return;
        }
        self.left.retain(|thread| thread.strong_count() > 0);
        if self.left.len() >= HANGING_MAX {
            return;
        }
        let asked = &mut self.asked;
        each(&mut |group| {
            if group.label.is_due(now_ns) && asked.len() < BATCH_MAX {
                let path = group.path.to_owned();
                asked.extend((group.dir)().map(|dir| Question { path, dir }));
            }
        });
        if !self.asked.is_empty() {
            self.ask(root, missing, now_ns);
        }
    }

    fn ask(&mut self, root: &Root, missing: &mut Missing, now_ns: i64) {
        if self.thread.is_none() {
            let (done, look) = (Arc::clone(&self.done), self.look);
            let root = Root::open(&root.path(""));
            let work = move |questions: Vec<Question>| {
                let root = root.as_ref().ok();
                let machine = root.and_then(|root| Folder::of_machine(root).ok());
                let machine = machine.as_ref().map(Pass::new);
                let answer = |question: &Question| {
                    let state = root.and_then(|root| look(root, machine.as_ref(), question));
                    done.fetch_add(1, Ordering::Relaxed);
                    state
                };
                questions.iter().map(answer).collect()
            };
            match Aside::start("mitra-names", work) {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => missing.add(MISSING, &reason(&error)),
            }
        }
        self.done.store(0, Ordering::Relaxed);
        self.seen = 0;
        self.asked_ns = now_ns;
        if !self.thread.as_ref().is_some_and(|thread| thread.ask(self.asked.clone())) {
            self.asked.clear();
        }
    }

    /// Leaves a thread that hangs to itself, and asks much later again what it hangs at.
    fn abandon(&mut self, missing: &mut Missing, each: &mut impl FnMut(&mut dyn FnMut(Labelled<'_>))) {
        let hangs = self.asked.get(self.done.load(Ordering::Relaxed)).map(|question| question.path.clone());
        each(&mut |group| {
            if Some(group.path) == hangs.as_deref() {
                group.label.due_ns = self.asked_ns.saturating_add(AGAIN_NS);
            }
        });
        self.asked.clear();
        self.thread = None;
        self.left.push(Arc::downgrade(&std::mem::take(&mut self.done)));
        let what = hangs.unwrap_or_default();
        let more = if self.left.len() >= HANGING_MAX { "; none is looked up until one answers" } else { "" };
        missing.add(MISSING, &format!("the state of the runtime of {what} does not answer{more}"));
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    use super::*;

    const A: &str = "4f0c1e7d9b2a5c8e3f6a1b4d7e0c9f2a5b8d1e4c7f0a3b6d9e2c5f8a1b4d7e0c";

    #[test]
    fn only_what_may_be_a_container_is_looked_up() {
        let uid = "0d4f1a2b-3c4d-5e6f-7a8b-9c0d1e2f3a4b";
        for (path, wanted) in [
            (format!("/docker/{A}"), true),
            (format!("/docker/{A}/system.slice/cron.service"), false),
            (format!("/system.slice/docker-{A}.scope"), true),
            (format!("/kubepods/pod{uid}"), true),
            (format!("/kubepods/pod{uid}/{A}"), true),
            ("/default/web".to_owned(), true),
            ("/machine.slice/machine-box.scope".to_owned(), false),
            ("/kubepods".to_owned(), false),
            ("/system.slice/nginx.service".to_owned(), false),
            ("/".to_owned(), false),
            ("/a/b/c".to_owned(), false),
        ] {
            assert_eq!(Label::of(&path).is_some(), wanted, "{path}");
        }
    }

    /// A namer with labels and a clock.
    struct Bench {
        namer: Namer,
        labels: Vec<(String, Box<Label>)>,
        missing: Missing,
        now_ns: i64,
        root: PathBuf,
    }

    impl Bench {
        fn new(paths: &[String], look: Look) -> Self {
            let labels = paths.iter().map(|path| (path.clone(), Label::of(path).unwrap())).collect();
            let namer = Namer { look, ..Namer::new() };
            Bench { namer, labels, missing: Missing::default(), now_ns: 0, root: PathBuf::from("/") }
        }

        fn turn(&mut self) {
            let root = Root::open(&self.root).unwrap();
            let labels = &mut self.labels;
            self.namer.turn(&root, &mut self.missing, self.now_ns, |f| {
                for (path, label) in labels.iter_mut() {
                    f(Labelled { path, label, dir: &|| Some(String::new()) });
                }
            });
        }

        /// Turns until nothing is asked any more.
        fn settle(&mut self) {
            let began = Instant::now();
            self.turn();
            while !self.namer.asked.is_empty() {
                assert!(began.elapsed() < Duration::from_secs(20));
                std::thread::sleep(Duration::from_millis(1));
                self.turn();
            }
        }

        fn named(&self) -> usize {
            self.labels.iter().filter(|(_, label)| label.state.is_some()).count()
        }
    }

    fn paths(count: usize) -> Vec<String> {
        (0..count).map(|i| format!("/docker/{i:064x}")).collect()
    }

    fn state(name: &str) -> Option<State> {
        Some(State { container: Some(name.to_owned()), ..State::default() })
    }

    #[test]
    fn many_are_named_at_once_and_renamed_later() {
        static NAME: AtomicUsize = AtomicUsize::new(1);
        let mut bench = Bench::new(&paths(200), |_, _, question| {
            state(&format!("{}-{}", &question.path[8..], NAME.load(Ordering::Relaxed)))
        });
        bench.settle();
        assert_eq!(bench.named(), 200);
        let name = |bench: &Bench| bench.labels[7].1.state.clone().unwrap().container.unwrap();
        assert_eq!(name(&bench), format!("{:064x}-1", 7));
        let (mut strings, mut row) = (Strings::new(), [NA; 3]);
        bench.labels[7].1.fill(&mut strings, &[0, 1, 2], &mut row);
        assert_eq!((strings.cell(row[0]), row[1], row[2]), (Some(name(&bench).as_str()), NA, NA));
        NAME.store(2, Ordering::Relaxed);
        bench.now_ns += AGAIN_NS / 2;
        bench.settle();
        assert_eq!(name(&bench), format!("{:064x}-1", 7), "not yet");
        bench.now_ns += AGAIN_NS;
        bench.settle();
        assert_eq!(name(&bench), format!("{:064x}-2", 7));
        bench.labels[7].1.fill(&mut strings, &[0, 1, 2], &mut row);
        assert_eq!(strings.cell(row[0]), Some(name(&bench).as_str()));
    }

    #[test]
    fn what_comes_late_is_found_and_what_never_comes_is_given_up() {
        static LOOKS: AtomicUsize = AtomicUsize::new(0);
        let mut bench = Bench::new(&paths(1), |_, _, _| {
            // The fourth look is seven seconds after the first.
            if LOOKS.fetch_add(1, Ordering::Relaxed) < 3 { None } else { state("late") }
        });
        for _ in 0..8 {
            bench.settle();
            bench.now_ns += SECOND_NS;
        }
        assert_eq!((bench.named(), LOOKS.load(Ordering::Relaxed)), (1, 4));

        static VAIN: AtomicUsize = AtomicUsize::new(0);
        let mut bench = Bench::new(&["/default/web".to_owned()], |_, _, _| {
            VAIN.fetch_add(1, Ordering::Relaxed);
            None
        });
        for _ in 0..600 {
            bench.settle();
            bench.now_ns += SECOND_NS;
        }
        assert_eq!(VAIN.load(Ordering::Relaxed), DOUBTFUL_TRIES_MAX as usize);
    }

    #[test]
    fn a_pod_is_named_by_its_container() {
        let pod = "/kubepods/pod0d4f1a2b-3c4d-5e6f-7a8b-9c0d1e2f3a4b".to_owned();
        let mut bench = Bench::new(&[pod.clone(), format!("{pod}/{A}")], |_, _, question| {
            let state =
                State { container: Some("app".to_owned()), image: None, pod: Some("shop/orders".to_owned()) };
            question.path.ends_with(A).then_some(state)
        });
        bench.settle();
        let state = bench.labels[0].1.state.clone();
        assert_eq!(state, Some(State { pod: Some("shop/orders".to_owned()), ..State::default() }));
    }

    #[test]
    fn a_name_outlives_its_file() {
        static LOOKS: AtomicUsize = AtomicUsize::new(0);
        let mut bench = Bench::new(&paths(1), |_, _, _| {
            if LOOKS.fetch_add(1, Ordering::Relaxed) == 0 { state("web") } else { None }
        });
        bench.settle();
        bench.now_ns += 2 * AGAIN_NS;
        bench.settle();
        assert_eq!((bench.named(), LOOKS.load(Ordering::Relaxed)), (1, 2));
    }

    #[test]
    fn a_runtime_that_hangs_costs_its_own_names() {
        let mut bench = Bench::new(&paths(3), |_, _, question| {
            if question.path.ends_with("001") {
                std::thread::sleep(Duration::from_secs(3_600));
            }
            state("web")
        });
        bench.turn();
        let began = Instant::now();
        while bench.namer.done.load(Ordering::Relaxed) < 1 {
            assert!(began.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
        bench.turn();
        assert_eq!(bench.named(), 0);
        bench.now_ns += HANGS_NS + 1;
        bench.turn();
        assert!(bench.missing.list().iter().any(|(what, why)| what == MISSING && why.contains("001")));
        bench.settle();
        assert_eq!(bench.named(), 2);
    }

    #[test]
    fn threads_that_hang_are_few_and_names_come_back_with_them() {
        static HANGS: AtomicBool = AtomicBool::new(true);
        let is_slow = |path: &str| path.ends_with(['0', '1', '2', '3']);
        let mut bench = Bench::new(&paths(8), |_, _, question| {
            while question.path.ends_with(['0', '1', '2', '3']) && HANGS.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            state("web")
        });
        for _ in 0..HANGING_MAX {
            bench.turn();
            assert!(is_slow(&bench.namer.asked[0].path), "{:?}", bench.namer.asked);
            bench.now_ns += HANGS_NS + 1;
            bench.turn();
        }
        bench.turn();
        assert!(bench.namer.asked.is_empty(), "no thread more");
        assert!(bench.missing.list().iter().any(|(_, why)| why.contains("none is looked up until")));
        HANGS.store(false, Ordering::Relaxed);
        let began = Instant::now();
        while bench.named() < 4 {
            assert!(began.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
            bench.turn();
        }
        bench.now_ns += AGAIN_NS;
        bench.settle();
        assert_eq!(bench.named(), 8);
    }

    /// The real look, in made-up state: a node with thousands of dead pods, whose lists are not read for each that lives.
    #[test]
    fn dead_pods_do_not_hide_live_ones_and_a_new_name_is_found() {
        const DEAD: usize = 5_000;
        const LIVE: usize = 70;
        let dir = tempfile::tempdir().unwrap();
        let uid = |i: usize| format!("{i:08x}-3c4d-5e6f-7a8b-9c0d1e2f3a4b");
        for i in 0..DEAD + LIVE {
            let name = format!("var/log/pods/shop_orders-{i}_{}", uid(i));
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let store = dir.path().join("var/lib/containers/storage/overlay-containers");
        std::fs::create_dir_all(&store).unwrap();
        let write = |name: &str| {
            let one = |i: usize| format!(r#"{{"id":"{i:064x}","names":["{name}-{i}"]}}"#);
            let list = format!("[{}]", (0..DEAD + LIVE).map(one).collect::<Vec<_>>().join(","));
            std::fs::write(store.join("containers.json"), list).unwrap();
        };
        write("first");
        let paths: Vec<String> = (DEAD..DEAD + LIVE)
            .flat_map(|i| {
                [format!("/kubepods/pod{}", uid(i)), format!("/machine.slice/libpod-{i:064x}.scope")]
            })
            .collect();
        let mut bench = Bench::new(&paths, look::<Folder>);
        bench.root = dir.path().to_owned();
        let settle = |bench: &mut Bench| {
            // Not all fit into one question.
            (0..4).for_each(|_| bench.settle());
            let last = bench.labels.iter().rev().take(2).map(|(_, label)| label.state.clone().unwrap());
            last.collect::<Vec<State>>()
        };
        let i = DEAD + LIVE - 1;
        let [container, pod]: [State; 2] = settle(&mut bench).try_into().unwrap();
        assert_eq!(
            (container.container, pod.pod),
            (Some(format!("first-{i}")), Some(format!("shop/orders-{i}")))
        );
        assert_eq!(bench.named(), 2 * LIVE);
        write("second");
        bench.now_ns += AGAIN_NS;
        assert_eq!(settle(&mut bench)[0].container, Some(format!("second-{i}")));
    }
}
