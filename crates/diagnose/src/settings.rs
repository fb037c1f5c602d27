//! Settings of the kernel whose change can bring about a condition.

/// Which way a setting has to go to do its harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To more.
    Up,
    /// To less.
    Down,
    /// To anything else.
    Either,
}

/// When a change shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acts {
    /// At once, or when a limit is reached or a cache is shrunk.
    Now,
    /// When memory gets scarce.
    WhenScarce,
    /// When this metric of the whole machine comes to it.
    AtLevel(&'static str),
    /// At once, where there are as many dirty pages as make writers wait.
    AtDirtyLimit,
    /// For those who listen from then on, when their queue is full.
    ForListeners,
}

/// A setting and how its change does harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Its metric.
    pub metric: &'static str,
    /// Which way it has to go.
    pub direction: Direction,
    /// When that shows.
    pub acts: Acts,
}

/// The settings of a condition.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Why a change of them brings it about.
    pub because: &'static str,
    /// Whether the condition can be seen before the change, as far as timing tells.
    pub any_order: bool,
    /// The settings.
    pub list: &'static [Setting],
}

impl Settings {
    /// No setting brings it about.
    pub const NONE: Settings = Settings::new("", &[]);

    /// Settings, and why a change of them brings the condition about.
    pub const fn new(because: &'static str, list: &'static [Setting]) -> Settings {
        Settings { because, any_order: false, list }
    }
}

/// A setting with all states that its change can bring about.
#[derive(Debug)]
pub struct Feed {
    /// The setting.
    pub setting: Setting,
    /// The ids of the states.
    pub effects: Vec<&'static str>,
}

/// A setting that does harm when it is lowered.
pub const fn lowered(metric: &'static str, acts: Acts) -> Setting {
    Setting { metric, direction: Direction::Down, acts }
}

/// A setting that does harm when it is raised.
pub const fn raised(metric: &'static str, acts: Acts) -> Setting {
    Setting { metric, direction: Direction::Up, acts }
}

/// Writers are made to wait at the limit of dirty pages; the smaller it is the sooner. A limit in bytes that was 0 did not hold.
pub const DIRTY_LIMITS: Settings = Settings::new(
    "writers are made to wait at the new limit",
    &[
        lowered("sysctl.vm.dirty_ratio", Acts::AtDirtyLimit),
        changed("sysctl.vm.dirty_background_ratio"),
        changed("sysctl.vm.dirty_bytes"),
        changed("sysctl.vm.dirty_background_bytes"),
    ],
);

/// A limit of dirty pages of which either way does harm: a lower one makes writers wait, a higher one those who sync.
const fn changed(metric: &'static str) -> Setting {
    Setting { metric, direction: Direction::Either, acts: Acts::AtDirtyLimit }
}

/// Memory that the kernel keeps free is taken from the page cache.
pub const KEPT_FREE: &[Setting] = &[
    raised("sysctl.vm.min_free_kbytes", Acts::WhenScarce),
    raised("sysctl.vm.watermark_scale_factor", Acts::WhenScarce),
    raised("sysctl.vm.nr_hugepages", Acts::WhenScarce),
];
/// The same, and memory of the own node that is reclaimed before the other one gives any.
pub const KEPT_FREE_OR_LOCAL: &[Setting] =
    &[KEPT_FREE[0], KEPT_FREE[1], KEPT_FREE[2], raised("sysctl.vm.zone_reclaim_mode", Acts::WhenScarce)];

/// Two ports. What counts is how many lie between them.
pub const PORT_RANGE: &str = "sysctl.net.ipv4.ip_local_port_range";
