//! What is seen all the time for little and points to a condition, and the probes that would tell.
//!
//! A suspicion is not a verdict. It may be wrong, and costs a few seconds of a probe then; so its thresholds are lower
//! than those of the conditions of the diagnosis, and above what healthy machines under load do.

/// One suspicion.
#[derive(Debug, Clone, Copy)]
pub struct Suspicion {
    /// Its place in the order, and nobody else's: at most one is armed at a time, and the lowest rank wins. What names a
    /// culprit stands before what describes a state.
    pub rank: u32,
    /// Its name.
    pub name: &'static str,
    /// The condition of the diagnosis that it suspects; filled in where all of them are put together.
    pub suspects: &'static str,
    /// The condition in the language of rules.
    pub when: &'static str,
    /// The probes that would confirm or refute it.
    pub arm: &'static [&'static str],
    /// Whether they watch only the process for which it holds.
    pub is_of_culprit: bool,
    /// For how long.
    pub seconds: f64,
    /// For how long it rests after that, the first time.
    pub cool_down_s: f64,
    /// Why that is suspicious: the physics of the thresholds.
    pub why: &'static str,
}

impl Suspicion {
    /// One that says nothing yet: three seconds of a probe, and a minute of rest.
    pub const NONE: Suspicion = Suspicion {
        rank: 0,
        name: "",
        suspects: "",
        when: "",
        arm: &[],
        is_of_culprit: false,
        seconds: 3.0,
        cool_down_s: 60.0,
        why: "",
    };
}
