use mitra_model::{Entity, Frame, Key, NA, Strings, column};

use super::reading::{CgroupRef, Ended, Reading, comm_from, used};
use super::*;

const S: u64 = 1_000_000_000;

/// A machine made of numbers: tasks as they are read, one pass after the other.
struct Machine {
    tasks: Tasks,
    strings: Strings,
    paths: CgroupPaths,
    frame: Frame,
    now: u64,
    shed: Shed,
}

impl Machine {
    fn new() -> Self {
        Machine {
            tasks: Tasks::new(true),
            strings: Strings::new(),
            paths: CgroupPaths::new(&[]),
            frame: Frame::new(),
            now: 1_000 * S,
            shed: Shed::None,
        }
    }

    /// One second later: these tasks live, those have ended.
    fn pass(&mut self, alive: &[Reading], ended: &[Ended]) -> Vec<Option<Remainder>> {
        self.pass_with_stacks(&alive.iter().map(|r| (*r, "")).collect::<Vec<_>>(), ended)
    }

    fn pass_with_stacks(&mut self, alive: &[(Reading, &str)], ended: &[Ended]) -> Vec<Option<Remainder>> {
        self.now += S;
        self.frame.clear();
        let table = self.frame.table_mut(Entity::Task);
        self.tasks.begin(i64::try_from(self.now).unwrap(), self.shed, &self.strings, table);
        let mut context = PassContext { table, strings: &mut self.strings, paths: &self.paths };
        for (reading, stack) in alive {
            self.tasks.add(reading, stack, &mut context);
        }
        self.tasks.end(true);
        let said = ended.iter().map(|e| self.tasks.ended(e)).collect();
        self.tasks.finish(&mut self.frame, &mut self.strings, i64::try_from(S).unwrap());
        said
    }

    fn system(&mut self, metric: &str) -> i64 {
        self.frame.system_mut()[column(metric).unwrap()]
    }

    fn task(&self, tid: u32, born_ns: u64, metric: &str) -> i64 {
        let table = self.frame.table(Entity::Task);
        let at = table.keys().iter().position(|key| *key == Key::task(tid, born_ns)).expect("a row");
        table.row(at)[column(metric).unwrap()]
    }

    fn group(&mut self, ppid: u32, comm: &str, metric: &str) -> i64 {
        let key = Key::exited(ppid, self.strings.intern(comm));
        let table = self.frame.table(Entity::Exited);
        let at = table.keys().iter().position(|k| *k == key).expect("a group");
        table.row(at)[column(metric).unwrap()]
    }
}

fn task(tid: u32, tgid: u32, born_ns: u64, cpu_us: i64) -> Reading {
    let mut r = Reading::new(tid, tgid, born_ns);
    r.ppid = 1;
    r.comm = comm_from(b"worker");
    r.state = b'S';
    r.used = [NA; used::COUNT];
    r.used[used::CPU] = cpu_us;
    r.used[used::USER] = cpu_us;
    r.used[used::SYSTEM] = 0;
    for counter in [used::MINFLT, used::MAJFLT, used::READ, used::WRITE, used::RUN_DELAY] {
        r.used[counter] = cpu_us / 10;
    }
    r
}

fn end(r: &Reading, cpu_us: i64, is_process: bool, now: u64) -> Ended {
    let last = task(r.tid, r.tgid, r.born_ns, cpu_us);
    Ended {
        tid: r.tid,
        tgid: r.tgid,
        ppid: 1,
        born_ns: r.born_ns,
        process_born_ns: r.born_ns,
        end_ns: now,
        is_process,
        comm: r.comm,
        parent_comm: comm_from(b"init"),
        status: 0,
        used: last.used,
    }
}

#[test]
fn what_came_before_the_recording_is_not_counted() {
    let mut m = Machine::new();
    m.pass(&[task(10, 10, 5 * S, 7_000_000)], &[]);
    assert_eq!(m.system("tasks.cpu_time"), 0);
    assert_eq!(m.system("tasks.busiest"), 0);
    m.pass(&[task(10, 10, 5 * S, 7_250_000)], &[]);
    assert_eq!(m.system("tasks.cpu_time"), 250_000);
    assert_eq!(m.system("tasks.busiest"), 250_000);
    assert_eq!(m.system("tasks.run_delay"), 25_000);
    assert_eq!(m.system("tasks.blkio_delay"), NA, "no task has it");
    assert_eq!(m.task(10, 5 * S, "task.cpu_time"), 7_250_000);
}

#[test]
fn a_task_that_is_new_counts_from_its_birth() {
    let mut m = Machine::new();
    m.pass(&[], &[]);
    let born = m.now + S / 2;
    m.pass(&[task(10, 10, born, 400_000)], &[]);
    assert_eq!(m.system("tasks.cpu_time"), 400_000);
}

#[test]
fn an_id_that_is_used_again_is_another_task() {
    let mut m = Machine::new();
    m.pass(&[task(10, 10, 5 * S, 9_000_000)], &[]);
    let born = m.now + S / 2;
    m.pass(&[task(10, 10, born, 100)], &[end(&task(10, 10, 5 * S, 0), 9_300_000, true, born)]);
    assert_eq!(m.frame.table(Entity::Task).keys(), [Key::task(10, born)]);
    assert_eq!(m.system("tasks.cpu_time"), 300_000 + 100);
    assert_eq!(m.group(1, "worker", "exited.cpu_time"), 300_000);
    m.pass(&[task(10, 10, born, 150)], &[]);
    assert_eq!(m.system("tasks.cpu_time"), 300_000 + 150);
}

#[test]
fn the_remainder_of_a_process_is_what_no_frame_had_counted() {
    let mut m = Machine::new();
    m.pass(&[], &[]);
    let born = m.now + 1;
    let r = task(10, 10, born, 500_000);
    m.pass(&[r], &[]);
    let said = m.pass(&[], &[end(&r, 800_000, true, born + 2 * S)]);
    assert_eq!(said, [Some(Remainder { was_seen: true, is_notable: true })]);
    assert_eq!(m.system("tasks.cpu_time"), 800_000);
    assert_eq!(m.system("tasks.exited"), 1);
    assert_eq!(m.system("tasks.exited_cpu_time"), 300_000);
    assert_eq!(m.group(1, "worker", "exited.count"), 1);
    assert_eq!(m.group(1, "worker", "exited.cpu_time"), 300_000);
    assert_eq!(m.group(1, "worker", "exited.majflt"), 30_000);
    assert_eq!(m.group(1, "worker", "exited.run_delay"), 30_000);
    assert_eq!(m.group(1, "worker", "exited.lifetime"), 2_000_000);
    assert_eq!(m.group(1, "worker", "exited.last_pid"), 10);
}

#[test]
fn a_process_that_no_frame_saw_is_counted_whole_and_is_no_event() {
    let mut m = Machine::new();
    m.pass(&[], &[]);
    m.pass(&[], &[]);
    let r = task(10, 10, m.now + S / 2, 0);
    let said = m.pass(&[], &[end(&r, 2_000, true, m.now + S)]);
    assert_eq!(said, [Some(Remainder { was_seen: false, is_notable: false })]);
    assert_eq!(m.system("tasks.cpu_time"), 2_000);
    assert_eq!(m.group(1, "worker", "exited.cpu_time"), 2_000);
}

#[test]
fn threads_that_end_belong_to_their_process() {
    let mut m = Machine::new();
    m.pass(&[], &[]);
    let born = m.now + 1;
    let (leader, thread) = (task(10, 10, born, 100_000), task(11, 10, born + 1, 200_000));
    m.pass(&[leader, thread], &[]);
    assert_eq!(m.system("tasks.cpu_time"), 300_000);
    // The thread ends after 50 ms more, and one that no frame saw came and went.
    let mut thread_end = end(&thread, 250_000, false, 0);
    thread_end.process_born_ns = born;
    let mut unseen_end = end(&task(12, 10, m.now + S / 2, 0), 7_000, false, 0);
    unseen_end.process_born_ns = born;
    m.pass(&[leader], &[thread_end, unseen_end]);
    assert_eq!(m.system("tasks.cpu_time"), 300_000 + 50_000 + 7_000);
    // The process ends: its record holds all threads, 1 ms of them new.
    m.pass(&[], &[end(&leader, 100_000 + 250_000 + 7_000 + 1_000, true, 0)]);
    assert_eq!(m.system("tasks.cpu_time"), 358_000);
    assert_eq!(m.group(1, "worker", "exited.cpu_time"), 1_000);
    assert_eq!(m.system("tasks.exited"), 1);
}

#[test]
fn what_dead_threads_used_before_the_recording_stays_out_of_the_remainder() {
    let mut m = Machine::new();
    let mut leader = task(10, 10, 5 * S, 1_000_000);
    leader.dead = [9_000_000, 9_000_000, 0];
    m.pass(&[leader], &[]);
    m.pass(&[], &[end(&leader, 10_040_000, true, 0)]);
    assert_eq!(m.group(1, "worker", "exited.cpu_time"), 40_000);
    assert_eq!(m.group(1, "worker", "exited.minflt"), 0, "faults of the dead threads are not known");
}

#[test]
fn a_zombie_is_not_counted_twice() {
    let mut m = Machine::new();
    m.pass(&[], &[]);
    let r = task(10, 10, m.now + 1, 500_000);
    m.pass(&[r], &[]);
    let mut zombie = task(10, 10, r.born_ns, 800_000);
    zombie.state = b'Z';
    m.pass(&[zombie], &[end(&r, 800_000, true, 0)]);
    assert_eq!(m.system("tasks.cpu_time"), 800_000);
    m.pass(&[zombie], &[]);
    assert_eq!(m.system("tasks.cpu_time"), 800_000);
    assert_eq!(m.task(10, r.born_ns, "task.state"), i64::from(b'Z'));
}

#[test]
fn ends_that_were_only_added_up_do_not_count_again_what_frames_saw() {
    let mut m = Machine::new();
    m.pass(&[], &[]);
    let r = task(10, 10, m.now + 1, 500_000);
    m.pass(&[r], &[]);
    m.now += S;
    m.frame.clear();
    let table = m.frame.table_mut(Entity::Task);
    m.tasks.begin(i64::try_from(m.now).unwrap(), Shed::None, &m.strings, table);
    m.tasks.end(true);
    let mut all = [NA; used::COUNT];
    all[used::CPU] = 500_000 + 90_000;
    m.tasks.ended_many(1, &r.comm, &comm_from(b"init"), &EndedMany { processes: 31, used: all });
    m.tasks.finish(&mut m.frame, &mut m.strings, i64::try_from(S).unwrap());
    assert_eq!(m.system("tasks.cpu_time"), 590_000);
    assert_eq!(m.system("tasks.exited"), 31);
    assert_eq!(m.group(1, "worker", "exited.count"), 31);
    assert_eq!(m.group(1, "worker", "exited.cpu_time"), 90_000);
}

#[test]
fn a_pass_that_breaks_off_forgets_nobody() {
    let mut m = Machine::new();
    let r = task(10, 10, 5 * S, 1_000);
    m.pass(&[r], &[]);
    m.now += S;
    m.frame.clear();
    let table = m.frame.table_mut(Entity::Task);
    m.tasks.begin(i64::try_from(m.now).unwrap(), Shed::None, &m.strings, table);
    m.tasks.end(false);
    m.tasks.finish(&mut m.frame, &mut m.strings, i64::try_from(S).unwrap());
    m.pass(&[task(10, 10, 5 * S, 3_000)], &[]);
    assert_eq!(m.system("tasks.cpu_time"), 2_000);
}

#[test]
fn tasks_may_come_in_any_order() {
    let mut m = Machine::new();
    let at = |cpu: i64| [30, 10, 20, 40, 5].map(|tid| task(tid, tid, 5 * S, cpu));
    m.pass(&at(1_000), &[]);
    m.pass(&at(3_000), &[]);
    assert_eq!(m.system("tasks.cpu_time"), 5 * 2_000);
    assert_eq!(m.system("tasks.total"), 5);
}

#[test]
fn idle_tasks_lose_their_rows_and_stay_counted() {
    let mut m = Machine::new();
    let mut stuck = task(12, 10, 5 * S, 0);
    stuck.state = b'D';
    let mut tasks = [task(10, 10, 5 * S, 0), task(11, 10, 5 * S, 0), stuck, task(13, 10, 5 * S, 0)];
    m.pass(&tasks, &[]);
    tasks[3].used[used::CPU] = 5;
    for (shed, left) in [
        (Shed::IdleThreads, vec![10, 12, 13]),
        (Shed::Threads, vec![10]),
        (Shed::IdleProcesses, vec![]),
        (Shed::None, vec![10, 11, 12, 13]),
    ] {
        m.shed = shed;
        tasks[3].used[used::CPU] += 5;
        m.pass(&tasks, &[]);
        let rows: Vec<u64> = m.frame.table(Entity::Task).keys().iter().map(|key| key.id).collect();
        assert_eq!(rows, left, "{shed:?}");
        assert_eq!(m.system("tasks.total"), 4);
        assert_eq!(m.system("tasks.recorded"), i64::try_from(left.len()).unwrap());
        assert_eq!(m.system("tasks.uninterruptible"), 1);
    }
}

#[test]
fn waits_are_told_apart_by_their_stacks() {
    let mut m = Machine::new();
    let stuck = |tid: u32, iowait: bool| {
        let mut r = task(tid, tid, 5 * S, 0);
        (r.state, r.iowait) = (b'D', iowait);
        r
    };
    let all = [
        (stuck(1, true), "folio_wait_bit_common;filemap_read"),
        (stuck(2, false), "rwsem_down_write_slowpath;down_write_killable;__vm_munmap"),
        (stuck(3, false), "shrink_folio_list;try_to_free_pages"),
        (stuck(4, true), "balance_dirty_pages;generic_perform_write"),
        (stuck(5, false), "kernel_clone;__x64_sys_vfork"),
        (stuck(6, true), "some_new_function"),
        (stuck(7, false), ""),
    ];
    m.pass_with_stacks(&all, &[]);
    for (metric, count) in [
        ("tasks.uninterruptible", 7),
        ("tasks.d_io", 2),
        ("tasks.d_lock", 1),
        ("tasks.d_memory", 1),
        ("tasks.d_throttle", 1),
        ("tasks.d_other", 2),
    ] {
        assert_eq!(m.system(metric), count, "{metric}");
    }
    let stack = m.strings.cell(m.task(2, 5 * S, "task.kstack")).unwrap();
    assert!(stack.starts_with("rwsem_down"));
    assert_eq!(m.task(7, 5 * S, "task.kstack"), NA);
}

#[test]
fn delays_are_unavailable_while_nobody_counts_them() {
    let mut m = Machine::new();
    let at = |us: i64| {
        let mut r = task(10, 10, 5 * S, 0);
        r.used[used::DELAYS] = us;
        r
    };
    m.pass(&[at(5)], &[]);
    m.pass(&[at(9)], &[]);
    assert_eq!((m.system("tasks.blkio_delay"), m.task(10, 5 * S, "task.blkio_delay")), (4, 9));
    assert_eq!(m.system("tasks.swapin_delay"), NA);
    m.tasks.set_delays_on(false);
    m.pass(&[at(9)], &[]);
    assert_eq!((m.system("tasks.blkio_delay"), m.task(10, 5 * S, "task.blkio_delay")), (NA, NA));
}

#[test]
fn user_time_never_falls_and_both_add_up_to_the_run_time() {
    let mut m = Machine::new();
    let at = |run: i64, user: i64| {
        let mut r = task(10, 10, 5 * S, run);
        r.used[used::USER] = user;
        r.used[used::SYSTEM] = run - user;
        r.is_split = true;
        r
    };
    m.pass(&[at(1_000, 800)], &[]);
    m.pass(&[at(1_100, 700)], &[]);
    let split = (m.task(10, 5 * S, "task.user_time"), m.task(10, 5 * S, "task.system_time"));
    assert_eq!(split, (800, 300));
    m.pass(&[at(1_100, 700)], &[]);
    assert_eq!(m.task(10, 5 * S, "task.user_time"), 800, "an idle task's cells do not move");
}

#[test]
fn texts_get_new_ids_when_the_strings_are_forgotten() {
    let mut m = Machine::new();
    let r = task(10, 10, 5 * S, 0);
    m.pass(&[r], &[end(&task(9, 9, 5 * S, 0), 1, true, 0)]);
    m.strings.clear();
    m.strings.intern("somebody else");
    m.pass(&[r], &[]);
    assert_eq!(m.strings.cell(m.task(10, 5 * S, "task.comm")), Some("worker"));
    assert_eq!(m.group(1, "worker", "exited.count"), 1);
}

#[test]
fn parents_that_come_and_go_take_no_room_from_later_ones() {
    let mut m = Machine::new();
    m.pass(&[], &[]);
    // Thirty scripts a second, each of which starts one program, for a minute; and a service that does so all the time.
    for second in 0..60 {
        m.now += S;
        let mut many: Vec<Ended> = (0..30)
            .map(|i| {
                end(&task(10_000 + 30 * second + i, 10_000 + 30 * second + i, m.now, 0), 1_000, true, m.now)
            })
            .collect();
        for (i, e) in many.iter_mut().enumerate() {
            e.ppid = 5_000 + 30 * second + i as u32;
        }
        many[0].ppid = 77;
        m.pass(&[], &many);
        assert_eq!(m.group(5_001 + 30 * second, "worker", "exited.count"), 1, "in second {second}");
    }
    assert_eq!(m.group(77, "worker", "exited.count"), 60);
    let table = m.frame.table(Entity::Exited);
    assert!(table.len() <= ended::GROUPS_MAX && table.keys().iter().all(|key| key.id != 0));
}

#[test]
fn groups_of_ended_processes_are_bounded_and_idle_ones_leave() {
    let mut m = Machine::new();
    m.pass(&[], &[]);
    let many: Vec<Ended> = (0..600)
        .map(|i| {
            let mut e = end(&task(100 + i, 100 + i, m.now, 0), 1_000, true, m.now);
            e.comm = comm_from(format!("p{i}").as_bytes());
            e
        })
        .collect();
    m.pass(&[], &many);
    assert_eq!(m.frame.table(Entity::Exited).len(), ended::GROUPS_MAX);
    assert_eq!(m.group(0, "other", "exited.count"), 600 - 511);
    assert_eq!(m.system("tasks.exited"), 600);
    m.now += 601 * S;
    m.pass(&[], &[]);
    assert!(m.frame.table(Entity::Exited).is_empty());
}

/// As [`Machine::pass`] in a frame that is used again; of tasks that are still there is only the id.
fn pass_with_still(m: &mut Machine, alive: &[Result<Reading, u32>], is_complete: bool) -> bool {
    m.now += S;
    m.frame.clear_but(Some(Entity::Task));
    let table = m.frame.table_mut(Entity::Task);
    let wants_whole = m.tasks.begin(i64::try_from(m.now).unwrap(), m.shed, &m.strings, table);
    let mut context = PassContext { table, strings: &mut m.strings, paths: &m.paths };
    for one in alive {
        match one {
            Ok(reading) => m.tasks.add(reading, "", &mut context),
            Err(tid) => m.tasks.add_still(*tid, true, &mut context),
        }
    }
    m.tasks.end(is_complete);
    m.tasks.finish(&mut m.frame, &mut m.strings, i64::try_from(S).unwrap());
    wants_whole
}

#[test]
fn rows_of_tasks_that_have_not_run_stay_and_those_of_others_move() {
    let mut m = Machine::new();
    m.tasks.set_sees_locks(true);
    let mut frozen = task(13, 13, 5 * S, 300);
    frozen.state = b'D';
    let all = [task(10, 10, 5 * S, 100), task(11, 11, 5 * S, 200), task(12, 12, 5 * S, 0), frozen];
    let whole: Vec<_> = all.iter().map(|r| Ok(*r)).collect();
    assert!(pass_with_still(&mut m, &whole, true));
    assert!(!pass_with_still(&mut m, &[Err(10), Err(11), Ok(task(12, 12, 5 * S, 70)), Err(13)], true));
    let keys = |m: &Machine| m.frame.table(Entity::Task).keys().iter().map(|k| k.id).collect::<Vec<_>>();
    assert_eq!(keys(&m), [10, 11, 12, 13]);
    assert_eq!(m.system("tasks.cpu_time"), 70);
    assert_eq!((m.system("tasks.total"), m.system("tasks.recorded")), (4, 4));
    assert_eq!((m.system("tasks.uninterruptible"), m.system("tasks.d_other")), (1, 1));
    // One goes, one comes; waits for locks are told of one that sleeps since.
    m.tasks.lock_wait(13, 5 * S, 4_000);
    let born = task(9, 9, m.now, 5);
    assert!(!pass_with_still(&mut m, &[Err(10), Ok(born), Err(12), Err(13)], true));
    assert_eq!(keys(&m), [10, 12, 13, 9]);
    assert_eq!(m.task(13, 5 * S, "task.cpu_time"), 300);
    assert_eq!(m.task(13, 5 * S, "task.lock_wait"), 4_000);
    assert_eq!(m.task(12, 5 * S, "task.cpu_time"), 70);
    // What a pass did not reach is not known, and whoever is not known has no row.
    pass_with_still(&mut m, &[Err(9), Err(10), Err(77)], false);
    assert_eq!(keys(&m), [10, 9]);
    assert!(pass_with_still(&mut m, &whole, true), "one that is not known makes all come whole");
    assert_eq!(keys(&m), [10, 11, 12, 13]);
}

#[test]
fn less_detail_drops_rows_of_tasks_that_have_not_run() {
    let mut m = Machine::new();
    let all = [Ok(task(10, 10, 5 * S, 1)), Ok(task(11, 10, 5 * S, 1))];
    pass_with_still(&mut m, &all, true);
    m.shed = Shed::IdleProcesses;
    assert!(pass_with_still(&mut m, &all, true), "another level of detail");
    assert!(m.frame.table(Entity::Task).is_empty());
    assert!(!pass_with_still(&mut m, &[Err(10), Ok(task(11, 10, 5 * S, 1))], true));
    assert!(m.frame.table(Entity::Task).is_empty());
    assert_eq!((m.system("tasks.total"), m.system("tasks.recorded")), (2, 0));
}

#[test]
fn an_unknown_group_has_no_path() {
    let mut m = Machine::new();
    let mut r = task(10, 10, 5 * S, 0);
    r.cgroup = CgroupRef::Ids { unified: 77, cpu: u64::MAX, memory: u64::MAX };
    m.pass(&[r], &[]);
    assert_eq!(m.task(10, 5 * S, "task.cgroup"), NA);
    r.cgroup = CgroupRef::Path(m.strings.intern("/web"));
    m.pass(&[r], &[]);
    assert_eq!(m.strings.cell(m.task(10, 5 * S, "task.cgroup")), Some("/web"));
}

#[test]
fn descriptors_stay_as_they_were_last_seen_and_the_fullest_process_is_told() {
    let mut m = Machine::new();
    let with = |fds: Option<[i64; 3]>| {
        let mut r = task(10, 10, 5 * S, 1_000);
        r.files = fds;
        r
    };
    m.pass(&[with(Some([900, 1_000, 7])), task(11, 11, 5 * S, 0)], &[]);
    assert_eq!(m.system("tasks.fds_fullest"), 900_000);
    m.pass(&[with(None), task(11, 11, 5 * S, 0)], &[]);
    assert_eq!(m.task(10, 5 * S, "task.fds"), 900, "it has not run");
    assert_eq!(m.task(10, 5 * S, "task.netns"), 7);
    assert_eq!(m.task(11, 5 * S, "task.fds"), NA);
    m.pass(&[with(Some([5_000, NA, 7]))], &[]);
    assert_eq!(m.system("tasks.fds_fullest"), NA, "nobody has a limit");
}

#[test]
fn waits_for_locks_add_up_also_when_the_kernel_began_anew() {
    let mut m = Machine::new();
    let born = 5 * S;
    m.pass(&[task(10, 10, born, 0)], &[]);
    assert_eq!(m.task(10, born, "task.lock_wait"), NA, "nobody reports them");
    m.tasks.set_sees_locks(true);
    m.pass(&[task(10, 10, born, 0)], &[]);
    assert_eq!(m.task(10, born, "task.lock_wait"), 0);
    for (told, sum) in [(4_000, 4_000), (9_000, 9_000), (2_000, 11_000)] {
        m.tasks.lock_wait(10, born, told);
        m.tasks.lock_wait(10, born + 1, 1_000_000);
        m.pass(&[task(10, 10, born, 0)], &[]);
        assert_eq!(m.task(10, born, "task.lock_wait"), sum);
    }
}
