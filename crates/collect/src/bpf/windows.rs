//! When the turns of connections are looked at: all the time, or, on a machine with very many of them, in a window of each three
//! seconds. The programs that see them are detached between two windows and cost nothing there. Unix sockets keep no count of what they
//! send: where some serve, and not too much is sent, the program that sees it stays attached and only counts.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::sys::{self, MapReader};

/// From the beginning of one window to that of the next. To attach and to detach holds the other CPUs up for half a millisecond each,
/// which a request waits that meets it. Four times a second each that made the 99th percentile of a busy server 13 % higher, once a second
/// 4 %, each two or three seconds 2 to 3 %.
const PERIOD_NS: u64 = 3_000_000_000;
/// It may take longer to attach: the kernel waits for a grace period of RCU, if none has passed since it was detached, which takes
/// seconds on a machine that is overloaded with interrupts. A window is as long then, up to this: who is to be explained is seen.
const WINDOW_NS_MAX: u64 = 1_000_000_000;
/// Each window begins with a look at all connections, which takes no more than so much of all time.
const PASSES_PER_PERIOD: u64 = 2000;
/// The setting that says which window it is; 0: none.
const WINDOW: u32 = 1;

/// What is needed to see turns.
pub(super) struct Seeing {
    /// The programs that see what arrives and what is sent.
    pub(super) programs: [OwnedFd; 2],
    /// What goes over all connections as a window begins.
    pub(super) pass: OwnedFd,
    pub(super) settings: MapReader<u32, u32>,
}

/// What is attached, of both programs.
type Links = [Option<OwnedFd>; 2];
const ARRIVED: usize = 0;
const SENT: usize = 1;

impl Seeing {
    /// Attaches one that is not attached.
    fn attach_one(&self, links: &mut Links, which: usize) -> io::Result<()> {
        if links[which].is_none() {
            links[which] = Some(sys::attach_tracing(self.programs[which].as_fd())?);
        }
        Ok(())
    }

    fn attach(&self, links: &mut Links) -> io::Result<()> {
        [ARRIVED, SENT].into_iter().try_for_each(|which| self.attach_one(links, which))
    }
}

#[derive(Debug)]
struct Plan {
    /// Of all time, so much is to be seen.
    share: f64,
    /// What is sent is counted all the time.
    counts_sends: bool,
    ends: bool,
    /// How long nothing was seen.
    blind_ns: u64,
    /// Since when nothing is.
    since_ns: Option<u64>,
    /// Why nothing can be seen.
    error: Option<String>,
}

#[derive(Debug)]
struct Shared {
    plan: Mutex<Plan>,
    changed: Condvar,
}

impl Shared {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as long as the plan says, at most for so long.
    fn wait(&self, most_ns: u64, goes_on: impl Fn(&Plan) -> bool) {
        let wait = Duration::from_nanos(most_ns);
        drop(self.changed.wait_timeout_while(self.plan(), wait, |plan| !plan.ends && goes_on(plan)));
    }
}

/// The thread that attaches and detaches. It ends when this is dropped; nobody waits for it, as it may wait for the kernel.
#[derive(Debug)]
pub struct Windows {
    shared: Arc<Shared>,
}

impl Windows {
    /// Attaches, and sees everything until something else is planned.
    pub(super) fn start(seeing: Seeing) -> io::Result<Self> {
        let plan =
            Plan { share: 1.0, counts_sends: false, ends: false, blind_ns: 0, since_ns: None, error: None };
        let shared = Arc::new(Shared { plan: Mutex::new(plan), changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("services".to_owned()).stack_size(128 * 1024);
        thread.spawn(move || {
            let failed = run(&of_thread, &seeing).err();
            of_thread.plan().error = failed.map(|error| error.to_string());
        })?;
        Ok(Windows { shared })
    }

    /// From now on, so much of all time is seen, and what is sent over Unix sockets counted all the time or not.
    pub fn plan(&self, share: f64, counts_sends: bool) {
        let mut plan = self.shared.plan();
        if plan.share != share || plan.counts_sends != counts_sends {
            (plan.share, plan.counts_sends) = (share, counts_sends);
            self.shared.changed.notify_all();
        }
    }

    /// For how long nothing was seen in all, since it was attached first.
    pub fn blind_ns(&self) -> io::Result<u64> {
        let plan = self.shared.plan();
        if let Some(error) = &plan.error {
            return Err(io::Error::other(error.clone()));
        }
        let since = plan.since_ns.map_or(0, |since| sys::now_mono_ns().saturating_sub(since));
        Ok(plan.blind_ns.saturating_add(since))
    }

    /// Does something while no window begins: one pass over the connections at a time.
    pub(super) fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        let _plan = self.shared.plan();
        work()
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        self.shared.plan().ends = true;
        self.shared.changed.notify_all();
    }
}

/// Attaches, as often as it takes. False: this ends.
fn attach(shared: &Shared, seeing: &Seeing, links: &mut Links) -> bool {
    loop {
        let attached = seeing.attach(links);
        shared.plan().error = attached.as_ref().err().map(ToString::to_string);
        if attached.is_ok() {
            return true;
        }
        shared.wait(PERIOD_NS, |_| true);
        if shared.plan().ends {
            return false;
        }
    }
}

fn run(shared: &Shared, seeing: &Seeing) -> io::Result<()> {
    let is_partial = |plan: &Plan| plan.share < 1.0;
    let mut window = 0_u32;
    let mut blind_ns = 0;
    let mut links = Links::default();
    while attach(shared, seeing, &mut links) {
        window = window.wrapping_add(1).max(1);
        seeing.settings.store(&WINDOW, &window)?;
        let began_ns = sys::now_mono_ns();
        let pass_ns = {
            let mut plan = shared.plan();
            if let Some(since) = plan.since_ns.take() {
                blind_ns = began_ns.saturating_sub(since);
                plan.blind_ns = plan.blind_ns.saturating_add(blind_ns);
                sys::iterate(seeing.pass.as_fd())?;
            }
            sys::now_mono_ns().saturating_sub(began_ns)
        };
        shared.wait(u64::MAX, |plan| !is_partial(plan));
        let share = shared.plan().share;
        let period_ns = PERIOD_NS.max(pass_ns.saturating_mul(PASSES_PER_PERIOD));
        let is_late = blind_ns > period_ns * 3 / 2;
        let window_ns = if is_late { blind_ns.min(WINDOW_NS_MAX) } else { (period_ns as f64 * share) as u64 };
        let left = |of: u64| of.saturating_sub(sys::now_mono_ns().saturating_sub(began_ns));
        shared.wait(left(window_ns), is_partial);
        {
            let mut plan = shared.plan();
            if plan.ends {
                return Ok(());
            }
            if plan.share >= 1.0 {
                continue;
            }
            plan.since_ns = Some(sys::now_mono_ns());
        }
        seeing.settings.store(&WINDOW, &0)?;
        links[ARRIVED] = None;
        while is_partial(&shared.plan()) && left(period_ns) > 0 {
            let counts_sends = shared.plan().counts_sends;
            if counts_sends {
                // If not now, then with the next window.
                let _ = seeing.attach_one(&mut links, SENT);
            } else {
                links[SENT] = None;
            }
            shared.wait(left(period_ns), |plan| is_partial(plan) && plan.counts_sends == counts_sends);
            if shared.plan().ends {
                return Ok(());
            }
        }
    }
    Ok(())
}
