//! A machine that does not exist, for benchmarks and tests: plausible noise in every column of the metric table.
//!
//! Which columns move is decided once, by the name of the metric, so two runs with the same seed are the same.

use mitra_model::time::SECOND;
use mitra_model::{Entity, Frame, HostInfo, Key, Kind, Stamp, Strings, Unit, columns};

/// A small, fast, seeded source of noise (SplitMix64).
#[derive(Debug, Clone)]
pub struct Noise(u64);

impl Noise {
    /// Noise that is the same for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Noise(seed)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.any() % bound.max(1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A number of 4 to `bits` + 4 bits, every size as likely.
    pub fn sized(&mut self, bits: u64) -> i64 {
        let size = 4 + self.below(bits);
        self.below(1 << size) as i64
    }

    /// Something around `mean`, within half of it, more often near it.
    pub fn around(&mut self, mean: u64) -> i64 {
        let spread = mean / 2 + 1;
        let sum = self.below(spread) + self.below(spread);
        (mean + sum) as i64 - spread as i64
    }
}

/// How a column of the simulated machine moves.
#[derive(Debug, Clone, Copy)]
enum Motion {
    Still,
    /// Moves every so many seconds by around this much.
    Moves {
        one_in: u64,
        mean: u64,
    },
}

/// The simulated machine.
pub struct Machine {
    noise: Noise,
    strings: Strings,
    now: Stamp,
    frame: Frame,
    busy: usize,
    motions: Vec<Vec<Motion>>,
    next_tid: u32,
}

/// How many rows the simulated machine has of an entity other than tasks.
fn rows_of(entity: Entity) -> usize {
    match entity {
        Entity::System => 1,
        Entity::Cpu | Entity::Nic => 2,
        Entity::Node => 1,
        Entity::Zone | Entity::Disk => 3,
        Entity::Filesystem => 4,
        Entity::Slab => 180,
        Entity::Cgroup => 20,
        Entity::Irq => 30,
        Entity::Exited => 12,
        // Tasks are simulated apart; the others come from other tools' files only.
        _ => 0,
    }
}

fn motion(name: &str, entity: Entity, kind: Kind, unit: Unit) -> Motion {
    let hash = name.bytes().fold(7_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3));
    let pick = Noise::new(hash).below(100);
    let mean = match unit {
        Unit::Micros => 20_000,
        Unit::Nanos => 20_000_000,
        Unit::Bytes => 40_000,
        Unit::Ticks => 50,
        Unit::KiB | Unit::Pages | Unit::Sectors => 300,
        _ => 60,
    };
    // An idle machine: most kernel counters stand still. On a virtual machine with two CPUs about 90 of 800 columns
    // of the system moved from one second to the next, and of a CPU's 34 about five.
    let (each, sometimes) = match (entity, kind) {
        (_, Kind::Text) => (0, 0),
        (Entity::System, Kind::Gauge) => (9, 20),
        (Entity::System, _) => (10, 22),
        (Entity::Cpu, _) => (15, 40),
        (Entity::Slab | Entity::Cgroup | Entity::Filesystem, _) => (0, 3),
        (Entity::Exited, _) => (0, 20),
        (Entity::Irq, _) => (0, 25),
        (_, _) => (3, 12),
    };
    if pick < each {
        Motion::Moves { one_in: 1, mean }
    } else if pick < sometimes {
        Motion::Moves { one_in: 4 + pick, mean }
    } else {
        Motion::Still
    }
}

impl Machine {
    /// A machine with so many tasks, of which the first `busy` work.
    #[must_use]
    pub fn new(tasks: usize, busy: usize, seed: u64) -> Self {
        let motions = Entity::ALL
            .map(|entity| columns(entity).iter().map(|m| motion(m.name, entity, m.kind, m.unit)).collect());
        let mut machine = Machine {
            noise: Noise::new(seed),
            strings: Strings::new(),
            now: Stamp { real: 1_790_000_000 * SECOND, mono: 400 * SECOND, boot: 400 * SECOND },
            frame: Frame::new(),
            busy,
            motions: motions.into(),
            next_tid: 1,
        };
        for entity in Entity::ALL {
            for row in 0..rows_of(entity) {
                machine.add(entity, row);
            }
        }
        for _ in 0..tasks {
            machine.add_task();
        }
        machine
    }

    /// What it would call itself.
    #[must_use]
    pub fn host() -> HostInfo {
        HostInfo {
            hostname: "simulated".to_owned(),
            kernel: "6.18.0".to_owned(),
            boot_id: "00000000-0000-0000-0000-000000000001".to_owned(),
            cpus: 2,
            page_bytes: 4096,
            memory_bytes: 8 << 30,
            clock_ticks: 100,
            ..HostInfo::default()
        }
    }

    fn add(&mut self, entity: Entity, row: usize) {
        let name = self.strings.intern(&format!("{entity}{row}"));
        let key = match entity {
            Entity::System => Key::SYSTEM,
            Entity::Exited => Key::exited(1 + row as u32, name),
            _ => Key::named(name),
        };
        let noise = &mut self.noise;
        let cells = self.frame.table_mut(entity).push(key);
        for (cell, metric) in cells.iter_mut().zip(columns(entity)) {
            *cell = match metric.kind {
                Kind::Text => i64::from(name),
                _ => noise.sized(36),
            };
        }
    }

    fn add_task(&mut self) {
        let tid = self.next_tid;
        self.next_tid += 1 + self.noise.below(3) as u32;
        let born = self.now.boot - (400 * SECOND).min(self.now.boot) + self.noise.below(1 << 38) as i64;
        let comm = self.strings.intern(&format!("worker/{}", tid % 60));
        let cgroup = self.strings.intern(&format!("/system.slice/unit-{}.service", tid % 25));
        let noise = &mut self.noise;
        let cells = self.frame.table_mut(Entity::Task).push(Key::task(tid, born as u64));
        for (cell, metric) in cells.iter_mut().zip(columns(Entity::Task)) {
            *cell = match metric.name {
                "task.comm" => i64::from(comm),
                "task.cgroup" => i64::from(cgroup),
                "task.tgid" => i64::from(tid),
                "task.ppid" => 1,
                "task.state" => i64::from(b'S'),
                "task.cpu" => noise.below(2) as i64,
                "task.cpus_allowed" => 3,
                "task.cpus_allowed_count" => 2,
                "task.kthread" | "task.nice" | "task.policy" => 0,
                "task.cancelled_write_bytes" | "task.swap" | "task.rss_shmem" => 0,
                _ if metric.kind == Kind::Text
                    || metric.name.ends_with("_delay") && metric.name != "task.run_delay" =>
                {
                    mitra_model::NA
                }
                _ => noise.sized(20),
            };
        }
    }

    /// Lets a second go by.
    pub fn tick(&mut self) {
        let jitter = 40_000 + self.noise.below(120_000) as i64;
        let next = (self.now.mono / SECOND + 1) * SECOND + jitter;
        let step = next - self.now.mono;
        self.now = Stamp { real: self.now.real + step, mono: next, boot: self.now.boot + step };
        self.frame.time = self.now;
        self.frame.events.clear();
        for entity in Entity::ALL {
            if entity == Entity::Task {
                continue;
            }
            let motions = &self.motions[entity as usize];
            let table = self.frame.table_mut(entity);
            for row in 0..table.len() {
                let cells = table.row_mut(row);
                for ((cell, motion), metric) in cells.iter_mut().zip(motions).zip(columns(entity)) {
                    let Motion::Moves { one_in, mean } = *motion else { continue };
                    if !self.noise.one_in(one_in) {
                        continue;
                    }
                    let by = self.noise.around(mean);
                    *cell += if metric.kind == Kind::Gauge { by - mean as i64 } else { by };
                }
            }
        }
        self.tick_tasks();
    }

    fn tick_tasks(&mut self) {
        let noise = &mut self.noise;
        let table = self.frame.table_mut(Entity::Task);
        for row in 0..table.len() {
            let is_busy = row < self.busy;
            // Of the idle ones some wake up: two in a thousand each second.
            if !is_busy && !noise.one_in(500) {
                continue;
            }
            let cells = table.row_mut(row);
            let cpu_us = if is_busy { noise.around(15_000) } else { noise.around(60) };
            for (cell, metric) in cells.iter_mut().zip(columns(Entity::Task)) {
                *cell += match metric.name {
                    "task.cpu_time" => cpu_us,
                    "task.run_delay" => noise.around(if is_busy { 3_000 } else { 20 }),
                    // Counted in scheduler ticks of 4 ms.
                    "task.user_time" if is_busy => 4_000 * noise.below(6) as i64,
                    "task.system_time" if is_busy && noise.one_in(3) => 4_000,
                    "task.nvcsw" => noise.around(if is_busy { 120 } else { 1 }),
                    "task.nivcsw" if is_busy => noise.below(12) as i64,
                    "task.minflt" if is_busy && noise.one_in(3) => noise.around(90),
                    "task.rchar" | "task.wchar" if is_busy && row.is_multiple_of(2) => noise.around(60_000),
                    "task.syscr" | "task.syscw" if is_busy && row.is_multiple_of(2) => noise.around(40),
                    "task.write_bytes" if is_busy && row.is_multiple_of(5) => 4096 * noise.below(30) as i64,
                    "task.rss_anon" if is_busy && noise.one_in(3) => noise.below(60) as i64 - 29,
                    _ => 0,
                };
                match metric.name {
                    "task.state" if is_busy => {
                        *cell = i64::from(if noise.one_in(4) { b'R' } else { b'S' });
                    }
                    "task.cpu" if is_busy && noise.one_in(5) => *cell = 1 - *cell,
                    _ => {}
                }
            }
        }
        // One short-lived task each second.
        if table.len() > self.busy + 1 {
            table.swap_remove(self.busy);
            self.add_task();
        }
    }

    /// The machine as it is now.
    #[must_use]
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Its texts.
    #[must_use]
    pub fn strings(&self) -> &Strings {
        &self.strings
    }
}
