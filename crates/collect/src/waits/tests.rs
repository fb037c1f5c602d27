use super::*;

/// A mutex of the C library.
struct Pthread(std::cell::UnsafeCell<libc::pthread_mutex_t>);
// SAFETY: threads share it only through the functions of the C library.
unsafe impl Sync for Pthread {}

impl Pthread {
    fn lock(&self) -> u32 {
        // SAFETY: it is initialised, lives for ever, and stays where it is.
        assert_eq!(unsafe { libc::pthread_mutex_lock(self.0.get()) }, 0);
        tid()
    }

    fn unlock(&self) {
        // SAFETY: likewise, and this thread holds it.
        assert_eq!(unsafe { libc::pthread_mutex_unlock(self.0.get()) }, 0);
    }
}

fn tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

#[test]
fn who_holds_a_mutex_of_the_c_library_and_who_waits_for_it() {
    static MUTEX: Pthread = Pthread(std::cell::UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
    let mut looker = Looker::new().unwrap();
    let pid = std::process::id();
    let address = MUTEX.0.get().addr() as u64;
    let mut of_this = || {
        let is_this = |edge: &Edge| matches!(edge.end, End::Thread { word, .. } if word == address);
        looker.look(&[pid]).edges.into_iter().find(is_this)
    };
    let holder = MUTEX.lock();
    let (tell, told) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        tell.send(tid()).unwrap();
        MUTEX.lock();
        MUTEX.unlock();
    });
    let waits = told.recv().unwrap();
    let found = loop {
        if let Some(found) = of_this() {
            break found;
        }
        std::thread::yield_now();
    };
    assert_eq!((found.pid, found.tid, found.kind), (pid, waits, Kind::Mutex));
    assert_eq!(found.end, End::Thread { word: address, tid: holder });
    MUTEX.unlock();
    waiter.join().unwrap();
    assert_eq!(of_this(), None);
}

#[test]
fn who_sleeps_for_moments_before_a_locked_file_tries_for_its_lock() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel();
    let sleeper = std::thread::spawn(move || {
        tell.send(tid()).unwrap();
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let sleeps = told.recv().unwrap();
    let mut looker = Looker::new().unwrap();
    let mut look = || {
        let mut seen = Vec::new();
        let mut files = Vec::new();
        while seen.len() < 20 {
            let look = looker.look(&[std::process::id()]);
            let of_this = look.edges.iter().filter(|edge| edge.tid == sleeps && edge.kind != Kind::Cpu);
            seen.extend(of_this.map(|edge| (edge.kind, edge.end)));
            files.extend(look.files);
            std::thread::sleep(Duration::from_millis(10));
        }
        (seen, files)
    };
    assert!(look().0.iter().all(|seen| *seen == (Kind::Timer, End::Unknown)), "nobody has a lock");
    let mut holder =
        std::process::Command::new("flock").args([&path, "sleep", "60"]).spawn().expect("util-linux");
    let is_held = || rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err();
    while !is_held() {
        rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock).unwrap();
        std::thread::yield_now();
    }
    let (seen, files) = look();
    let tries = (Kind::Tries, End::Process(holder.id()));
    assert!(seen.contains(&tries), "{seen:?}");
    assert!(seen.iter().all(|(_, end)| [End::Unknown, tries.1].contains(end)), "{seen:?}");
    assert!(files.contains(&((std::process::id(), Kind::Tries, tries.1), path)), "{files:?}");
    holder.kill().unwrap();
    holder.wait().unwrap();
    stop.send(()).unwrap();
    sleeper.join().unwrap();
}

#[test]
fn whom_a_look_has_no_time_for_is_left_out() {
    let mut looker = Looker::new().unwrap();
    let pid = std::process::id();
    let look = looker.look_within(&[pid], Duration::ZERO);
    assert_eq!((look.edges.len(), look.left_out > 0), (0, true));
    let look = looker.look(&[pid]);
    let is_this = |edge: &Edge| (edge.tid, edge.kind) == (tid(), Kind::Cpu);
    assert!(look.edges.iter().any(is_this), "{look:?}");
}

#[test]
fn only_a_service_that_answers_less_than_waits_is_looked_at() {
    let mut waits = Waits::new();
    let mut strings = Strings::default();
    let id = strings.intern("127.0.0.1:80");
    let mut wanted = |requests: i64, open: i64| {
        let mut frame = Frame::new();
        let row = frame.table_mut(Entity::Service).push(Key::named(id));
        set(row, waits.requests, requests);
        set(row, waits.open, open);
        set(row, waits.service_pid, 42);
        waits.kept_waiting(&frame, &strings)
    };
    assert_eq!(wanted(100, 5), [0; 0], "nothing is known of before");
    assert_eq!(wanted(150, 5), [0; 0], "fifty were answered");
    assert_eq!(wanted(152, 5), [42]);
    assert_eq!(wanted(152, 1), [0; 0], "one may wait for long");
    assert_eq!(wanted(152, 2), [42]);
}

#[test]
fn the_client_of_a_session_that_holds_what_others_wait_for_is_looked_at() {
    let waits = Waits::new();
    let mut strings = Strings::default();
    // Of PostgreSQL, and of MariaDB with the process id of the server in front.
    for server in ["", "4242:"] {
        let mut frame = Frame::new();
        for (id, blocked_by, client) in
            [("41", "43", 71), ("42", "41,43", 72), ("43", "", 73), ("44", "", 74)]
        {
            let key = Key::named(strings.intern(&format!("{server}{id}")));
            let blocked_by = (!blocked_by.is_empty()).then(|| i64::from(strings.intern(blocked_by)));
            let row = frame.table_mut(Entity::Session).push(key);
            set(row, waits.blocked_by, blocked_by.unwrap_or(NA));
            set(row, waits.client_pid, client);
        }
        assert_eq!(waits.clients_of_holders(&frame, &strings), [73], "{server}");
    }
}

#[test]
fn a_service_that_answers_much_later_than_usual_is_looked_at_until_it_is_usual() {
    let mut waits = Waits::new();
    let mut strings = Strings::default();
    let id = strings.intern("127.0.0.1:80");
    let (mut t, mut requests, mut wait_ns) = (0, 0, 0);
    let mut wanted = |rate: i64, each_ms: i64| {
        (t, requests, wait_ns) = (t + 1_000_000_000, requests + rate, wait_ns + rate * each_ms * 1_000_000);
        let mut frame = Frame::new();
        frame.time.mono = t;
        let row = frame.table_mut(Entity::Service).push(Key::named(id));
        let values = [(waits.requests, requests), (waits.open, 0), (waits.wait_time, wait_ns)];
        values
            .into_iter()
            .chain([(waits.service_pid, 42)])
            .for_each(|(column, value)| set(row, column, value));
        waits.kept_waiting(&frame, &strings)
    };
    (0..5).for_each(|_| assert_eq!(wanted(50, 10), [0; 0]));
    assert_eq!(wanted(50, 40), [42], "two clients wait");
    assert_eq!(wanted(50, 25), [0; 0], "somewhat later");
    assert_eq!(wanted(10, 60), [0; 0], "most of the time nobody waits");
    assert_eq!(wanted(800, 12), [0; 0], "many wait, and each as long as usual");
    let late = (0..3_600).take_while(|_| !wanted(50, 40).is_empty()).count();
    assert!((100..1_200).contains(&late), "{late} s");
}

fn edge(tid: u32, kind: Kind, end: End, part: u32) -> Edge {
    Edge { pid: 7, tid, kind, end, part, is_stuck: tid == 8 }
}

#[test]
fn rows_have_the_mean_of_all_looks_and_the_threads_of_the_one_with_most() {
    let pipe = End::Process(9);
    let edges = [
        (edge(8, Kind::Pipe, pipe, 840), 1),
        (edge(10, Kind::Cpu, End::Unknown, 840), 1),
        (edge(8, Kind::Pipe, pipe, 840), 2),
        (edge(10, Kind::Pipe, pipe, 420), 2),
        (edge(10, Kind::Tcp, End::Unknown, 420), 2),
    ];
    let rows = mean(&edges, 2);
    let of = |at: usize| (row_name(&rows[at].0), centi(rows[at].1.threads), centi(rows[at].1.stuck));
    assert_eq!(of(0), ("7>pipe:9".to_owned(), 125, 100));
    assert_eq!(of(1), ("7>cpu".to_owned(), 50, 0));
    assert_eq!(of(2), ("7>tcp".to_owned(), 25, 0));
    assert_eq!(rows[0].1.tids, [8, 10]);
    assert_eq!(rows[1].1.tids, [10]);
    // Free again by the last look.
    assert_eq!(mean(&edges[..3], 3)[0].1.tids, [8]);
}

#[test]
fn a_mutex_that_changed_hands_has_one_row_of_who_held_it_last() {
    let held_by = |tid| End::Thread { word: 0x7f10, tid };
    let edges = [(edge(8, Kind::Mutex, held_by(10), 840), 1), (edge(8, Kind::Mutex, held_by(11), 840), 2)];
    let rows = mean(&edges, 2);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].0, rows[0].1.threads), ((7, Kind::Mutex, held_by(11)), 1.0));
    assert_eq!(row_name(&rows[0].0), "7>mutex:7f10");
}

/// Bytes that say that a mutex is held by the thread with this id, and that others wait for it.
fn lie(owner: u32) -> &'static [std::sync::atomic::AtomicU32; 10] {
    let words = [2, 0, owner, 1, 0, 0, 0, 0, 0, 0];
    Box::leak(Box::new(words.map(std::sync::atomic::AtomicU32::new)))
}

#[test]
fn a_process_that_lies_about_the_owner_of_a_mutex_names_only_its_own_threads() {
    let mut looker = Looker::new().unwrap();
    let pid = std::process::id();
    for (owner, is_own) in
        [(1, false), (std::os::unix::process::parent_id(), false), (u32::MAX, false), (pid, true)]
    {
        let word = lie(owner);
        let address = word[0].as_ptr() as u64;
        let (tell, told) = std::sync::mpsc::channel();
        let waiter = std::thread::spawn(move || {
            tell.send(tid()).unwrap();
            // SAFETY: the word lives for ever.
            unsafe { libc::syscall(libc::SYS_futex, word[0].as_ptr(), 128, 2, std::ptr::null::<()>()) };
        });
        let waiter_tid = told.recv().unwrap();
        let seen = loop {
            let edges = looker.look(&[pid]).edges;
            let of_waiter = edges.into_iter().find(|edge| edge.tid == waiter_tid);
            match of_waiter {
                Some(edge) if matches!(edge.kind, Kind::Futex | Kind::Mutex) => break edge.end,
                _ => std::thread::yield_now(),
            }
        };
        let wanted = if is_own { End::Thread { word: address, tid: owner } } else { End::Unknown };
        assert_eq!(seen, wanted);
        while !waiter.is_finished() {
            // SAFETY: likewise.
            unsafe { libc::syscall(libc::SYS_futex, word[0].as_ptr(), 129, 1) };
        }
        waiter.join().unwrap();
    }
}

#[test]
fn a_stream_that_flowed_for_long_dries_up_once() {
    let mut stream = Stream::default();
    let mut sent = 0;
    let mut then = |bytes: i64, connections: i64| {
        sent += bytes;
        let is_dry;
        (stream, is_dry) = stream.then(sent, connections, false);
        is_dry
    };
    // Nine frames are a download that has ended.
    assert!((0..9).all(|_| !then(5, 4)));
    assert!(!then(0, 4) && !then(0, 4));
    assert!((0..10).all(|_| !then(5, 4)));
    assert!(!then(0, 4), "one frame says nothing");
    assert!(then(0, 4) && !then(0, 0), "nobody is connected");
    assert_eq!((0..100).filter(|_| then(0, 4)).count(), 57, "and not for ever");
    assert!(!then(5, 4) && !then(0, 4) && !then(0, 4), "it has to flow again before");
    let answers = (0..20).fold(Stream::default(), |stream, i| stream.then(i, 4, true).0);
    assert!(!answers.then(19, 4, false).0.then(19, 4, false).1, "answers are no stream");
}
