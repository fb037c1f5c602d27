//! Random graphs of processes, as a script for the program that makes them.

/// No process.
pub const NOBODY: i32 = -1;

/// Numbers that look like chance and are the same each time (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }
}

/// A thread that waits.
#[derive(Debug, Clone)]
pub struct Op {
    pub process: usize,
    pub name: &'static str,
    pub a: i32,
    pub b: i32,
    pub holds: Option<usize>,
}

/// What the program is told to make.
#[derive(Debug, Default)]
pub struct Plan {
    pub parents: Vec<i32>,
    /// The process that holds the lock of each file, and of which kind.
    pub locks: Vec<(usize, &'static str)>,
    pub ops: Vec<Op>,
}

/// Waits for another process at the other end of something.
pub const BETWEEN: [&str; 20] = [
    "pipe_read",
    "pipe_write",
    "pipe_poll",
    "pipe_select",
    "pipe_epoll",
    "pair_read",
    "pair_write",
    "pair_poll",
    "unix_read",
    "unix_serve",
    "unix_queue",
    "unix_epoll",
    "tcp_read",
    "tcp_serve",
    "tcp_push",
    "tcp_queue",
    "tcp_select",
    "tcp_woken",
    "unix_woken",
    "pipe_copy",
];
pub const ALONE: [&str; 3] = ["sleep", "accept", "condition"];

impl Plan {
    pub fn draw(random: &mut Random) -> Plan {
        let count = 3 + random.below(8);
        let mut plan = Plan::default();
        for process in 0..count {
            let has_parent = process > 0 && random.below(3) == 0;
            plan.parents.push(if has_parent { random.below(process) as i32 } else { NOBODY });
        }
        for _ in 0..random.below(4) {
            plan.locks.push((random.below(count), ["flock", "fcntl"][random.below(2)]));
        }
        for process in 0..count {
            let from = plan.ops.len();
            for _ in 0..random.below(5) {
                let op = plan.draw_op(random, process);
                plan.ops.push(op);
            }
            plan.draw_mutexes(random, from);
        }
        if random.below(20) == 0 {
            plan.ops.push(Op { process: 0, name: "spin", a: NOBODY, b: NOBODY, holds: None });
        }
        plan
    }

    fn draw_op(&self, random: &mut Random, process: usize) -> Op {
        let count = self.parents.len();
        let other = |random: &mut Random| ((process + 1 + random.below(count - 1)) % count) as i32;
        let op = |name, a, b| Op { process, name, a, b, holds: None };
        let a = other(random);
        match random.below(12) {
            0 => op(ALONE[random.below(ALONE.len())], NOBODY, NOBODY),
            1 | 2 => {
                let children: Vec<i32> =
                    (0..count as i32).filter(|i| self.parents[*i as usize] == process as i32).collect();
                match children[..] {
                    [] => op("sleep", NOBODY, NOBODY),
                    _ if random.below(2) == 0 => op("children", NOBODY, NOBODY),
                    _ => op("child", children[random.below(children.len())], NOBODY),
                }
            }
            3 | 4 if !self.locks.is_empty() => {
                let file = random.below(self.locks.len());
                let (holder, kind) = self.locks[file];
                // The kernel refuses circles of the one kind.
                if holder == process || kind == "fcntl" && holder > process {
                    return op("sleep", NOBODY, NOBODY);
                }
                op(kind, file as i32, NOBODY)
            }
            5 => {
                let b = if random.below(3) == 0 { process as i32 } else { other(random) };
                if b == process as i32 {
                    return op("either", a, b);
                }
                let name = if a == b { "pipe_read" } else { ["either", "pipe_shared"][random.below(2)] };
                op(name, a, b)
            }
            _ => op(BETWEEN[random.below(BETWEEN.len())], a, NOBODY),
        }
    }

    /// Has some threads of a process, from an index on, hold mutexes, and others wait for these: in circles too.
    fn draw_mutexes(&mut self, random: &mut Random, from: usize) {
        let count = self.ops.len() - from;
        if count < 2 {
            return;
        }
        let mutexes = random.below(count);
        for mutex in 0..mutexes {
            self.ops[from + mutex].holds = Some(mutex);
        }
        for op in &mut self.ops[from..] {
            if mutexes > 0 && random.below(3) == 0 {
                let mutex = random.below(mutexes);
                if op.holds != Some(mutex) {
                    (op.name, op.a, op.b) = ("mutex", mutex as i32, NOBODY);
                }
            }
        }
    }

    pub fn script(&self) -> String {
        let mut script = String::new();
        for parent in &self.parents {
            script.push_str(&format!("process {parent}\n"));
        }
        for (file, (process, kind)) in self.locks.iter().enumerate() {
            script.push_str(&format!("lock {process} {file} {kind}\n"));
        }
        for (i, op) in self.ops.iter().enumerate() {
            script.push_str(&format!("thread {} {} {} {}\n", op.process, op.name, op.a, op.b));
            if let Some(mutex) = op.holds {
                script.push_str(&format!("holds {i} {mutex}\n"));
            }
        }
        script + "go\n"
    }
}
