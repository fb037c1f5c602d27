//! When each request is due.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Requests per second at most: above any machine, and far below where a nanosecond is too coarse.
pub const RATE_MAX: f64 = 10_000_000.0;
/// One a day.
const RATE_MIN: f64 = 1.0 / 86_400.0;

/// Requests per second: `500/s`, `30/m`, `0.5/s`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// A rate that can be kept track of, or `None`.
    #[must_use]
    pub fn new(per_s: f64) -> Option<Rate> {
        (RATE_MIN..=RATE_MAX).contains(&per_s).then_some(Rate(per_s))
    }

    /// Requests per second.
    #[must_use]
    pub fn per_s(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.0)
    }
}

const WANTED: &str = "not a rate; want 500/s, 30/m or 100..2000/s";

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse()? {
            Shape::Constant(rate) => Ok(rate),
            Shape::Ramp(..) => Err(WANTED.to_owned()),
        }
    }
}

/// How the rate goes on over time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// The same all the time.
    Constant(Rate),
    /// Evenly from one to the other.
    Ramp(Rate, Rate),
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Constant(rate) => rate.fmt(f),
            Shape::Ramp(from, to) => write!(f, "{}..{to}", from.0),
        }
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || WANTED.to_owned();
        let (numbers, unit) = text.trim().split_once('/').ok_or_else(bad)?;
        let seconds = match unit.trim() {
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(bad()),
        };
        let rate = |number: &str| {
            let number: f64 = number.trim().parse().map_err(|_| bad())?;
            Rate::new(number / seconds)
                .ok_or_else(|| format!("want a rate from one a day to {RATE_MAX:.0}/s"))
        };
        Ok(match numbers.split_once("..") {
            Some((from, to)) => Shape::Ramp(rate(from)?, rate(to)?),
            None => Shape::Constant(rate(numbers)?),
        })
    }
}

/// The times at which requests are due. Each is computed from the start and from no other one, so that nothing adds up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// The rate.
    pub shape: Shape,
    /// For how long; what would be due later is none of it.
    pub length: Duration,
}

impl Schedule {
    /// When request `n`, from 0, is due, counted from the start. `None` if the schedule has ended before.
    #[must_use]
    pub fn due(&self, n: u64) -> Option<Duration> {
        let (n, length_s) = (n as f64, self.length.as_secs_f64());
        let at_s = match self.shape {
            Shape::Constant(rate) => n / rate.0,
            // The area below the line, a·t + c·t², is n. This form of the root loses no digits where c is small.
            Shape::Ramp(Rate(from), Rate(to)) => {
                let c = (to - from) / (2.0 * length_s);
                let inner = from * from + 4.0 * c * n;
                if inner < 0.0 {
                    return None;
                }
                2.0 * n / (from + inner.sqrt())
            }
        };
        // Not so for NaN, either.
        let at = Duration::try_from_secs_f64(at_s).ok()?;
        (at < self.length).then_some(at)
    }

    /// How many requests it has.
    #[must_use]
    pub fn requests(&self) -> u64 {
        let length_s = self.length.as_secs_f64();
        let all = match self.shape {
            Shape::Constant(rate) => rate.0 * length_s,
            Shape::Ramp(from, to) => (from.0 + to.0) / 2.0 * length_s,
        };
        // The product may be off by one where it is nearly whole.
        let near = (all.ceil() as u64).saturating_sub(2);
        (near..near.saturating_add(5)).find(|n| self.due(*n).is_none()).unwrap_or(near)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn schedule(shape: &str, seconds: u64) -> Schedule {
        Schedule { shape: shape.parse().unwrap(), length: Duration::from_secs(seconds) }
    }

    #[test]
    fn rates_have_a_unit() {
        assert_eq!("500/s".parse(), Ok(Shape::Constant(Rate(500.0))));
        assert_eq!("30/m".parse(), Ok(Shape::Constant(Rate(0.5))));
        assert_eq!("100..2000/s".parse(), Ok(Shape::Ramp(Rate(100.0), Rate(2000.0))));
        for bad in ["", "500", "/s", "500/x", "-1/s", "0/s", "1e99/s", "nan/s", "inf/s", "1..2..3/s", "1../s"]
        {
            assert!(bad.parse::<Shape>().is_err(), "{bad}");
        }
        assert!("1..2/s".parse::<Rate>().is_err());
    }

    #[test]
    fn the_millionth_request_is_as_exact_as_the_first() {
        let day = schedule("3/s", 86_400 * 365);
        assert_eq!(day.due(0), Some(Duration::ZERO));
        assert_eq!(day.due(3), Some(Duration::from_secs(1)));
        assert_eq!(day.due(3 * 86_400 * 364), Some(Duration::from_secs(86_400 * 364)));
        assert_eq!(schedule("100/s", 60).requests(), 6000);
        assert_eq!(schedule("100/s", 60).due(6000), None);
        assert_eq!(schedule("100..300/s", 60).requests(), 12_000);
        assert_eq!(schedule("300..100/s", 60).requests(), 12_000);
    }

    proptest! {
        /// Times go up, and up to each of them as many requests are due as the area below the rate says.
        #[test]
        fn as_many_are_due_as_the_rate_says(from in 0.1_f64..5000.0, to in 0.1_f64..5000.0, seconds in 1_u64..100_000, at in 0.0_f64..1.0) {
            for shape in [Shape::Constant(Rate(from)), Shape::Ramp(Rate(from), Rate(to))] {
                let schedule = Schedule { shape, length: Duration::from_secs(seconds) };
                let end = match shape { Shape::Constant(_) => from, Shape::Ramp(..) => to };
                let n = (schedule.requests() as f64 * at) as u64;
                let Some(due) = schedule.due(n) else { continue };
                let t = due.as_secs_f64();
                let area = from * t + (end - from) * t * t / (2.0 * seconds as f64);
                prop_assert!((area - n as f64).abs() <= 1e-6 * area.max(1.0), "{area} {n}");
                prop_assert!(schedule.due(n + 1).is_none_or(|next| next > due));
                prop_assert!(schedule.due(schedule.requests()).is_none());
            }
        }
    }
}
