//! What a number measures, so that bytes are not compared with seconds.

use std::fmt;

use mitra_model::{Kind, Metric, Unit};

use crate::ast::{Literal, Measures};

/// Powers of the base units. All zero is a share, or a number of things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dimension {
    bytes: i8,
    seconds: i8,
    pages: i8,
}

/// A number without a unit fits everything.
pub type Measured = Option<Dimension>;

impl Dimension {
    const BYTES: Dimension = Dimension { bytes: 1, seconds: 0, pages: 0 };
    const SECONDS: Dimension = Dimension { bytes: 0, seconds: 1, pages: 0 };
    const PAGES: Dimension = Dimension { bytes: 0, seconds: 0, pages: 1 };
    /// Bytes for each page.
    pub const PAGE_BYTES: Dimension = Dimension { bytes: 1, seconds: 0, pages: -1 };

    /// What the metric's values are in.
    #[must_use]
    pub fn of(metric: &Metric) -> Dimension {
        let base = match metric.unit {
            Unit::Bytes | Unit::KiB | Unit::Sectors => Dimension::BYTES,
            Unit::Pages => Dimension::PAGES,
            Unit::Nanos | Unit::Micros | Unit::Millis | Unit::Ticks => Dimension::SECONDS,
            _ => Dimension::default(),
        };
        if matches!(metric.kind, Kind::Counter | Kind::Bucket) { base.per_second() } else { base }
    }

    /// What a literal is in.
    #[must_use]
    pub fn of_literal(literal: &Literal) -> Measured {
        let base = literal.unit.map(|unit| match unit.measures {
            Measures::Share => Dimension::default(),
            Measures::Bytes => Dimension::BYTES,
            Measures::Time => Dimension::SECONDS,
            Measures::Pages => Dimension::PAGES,
        });
        if literal.per_second { Some(base.unwrap_or_default().per_second()) } else { base }
    }

    /// Of a change per second.
    #[must_use]
    pub fn per_second(self) -> Dimension {
        self.over(Dimension::SECONDS)
    }

    /// Of a product.
    #[must_use]
    pub fn times(self, other: Dimension) -> Dimension {
        Dimension {
            bytes: self.bytes.saturating_add(other.bytes),
            seconds: self.seconds.saturating_add(other.seconds),
            pages: self.pages.saturating_add(other.pages),
        }
    }

    /// Of a quotient.
    #[must_use]
    pub fn over(self, other: Dimension) -> Dimension {
        Dimension {
            bytes: self.bytes.saturating_sub(other.bytes),
            seconds: self.seconds.saturating_sub(other.seconds),
            pages: self.pages.saturating_sub(other.pages),
        }
    }

    /// Whether two numbers can be compared. Pages are a number of things too: `vm.pgscan_kswapd > 500/s`.
    #[must_use]
    pub fn fits(self, other: Dimension) -> bool {
        let is_count = |d: Dimension| d.bytes == 0;
        (self.bytes, self.seconds) == (other.bytes, other.seconds)
            && (self.pages == other.pages || (is_count(self) && (self.pages == 0 || other.pages == 0)))
    }

    /// Whether pages stand where bytes stand in the other.
    #[must_use]
    pub fn is_pages_for_bytes(self, other: Dimension) -> bool {
        let as_bytes = |d: Dimension| (d.bytes.saturating_add(d.pages), d.seconds);
        self != other && as_bytes(self) == as_bytes(other)
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("bytes", self.bytes), ("pages", self.pages), ("s", self.seconds)];
        let print = |power: i8, name: &str| match power {
            1 => name.to_owned(),
            _ => format!("{name}^{power}"),
        };
        let above: Vec<String> = parts.iter().filter(|p| p.1 > 0).map(|(name, p)| print(*p, name)).collect();
        let below: Vec<String> =
            parts.iter().filter(|p| p.1 < 0).map(|(name, p)| print(p.saturating_neg(), name)).collect();
        match (above.is_empty(), below.is_empty()) {
            (true, true) => f.write_str("a plain number"),
            (true, false) => write!(f, "1/{}", below.join("/")),
            (false, true) => f.write_str(&above.join("·")),
            (false, false) => write!(f, "{}/{}", above.join("·"), below.join("/")),
        }
    }
}
