//! How long things took: a histogram with three digits, from a nanosecond to a day.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
use serde::de::Error as _;
use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Serialize, Serializer};

/// Longer times are counted as this.
const NS_MAX: u64 = 86_400_000_000_000;
/// Digits that are kept: a value is off by a thousandth at most.
const DIGITS: u8 = 3;
/// The head of the form that is read and written, version 2 without compression.
const COOKIE: u32 = 0x1c84_9303 | 0x10;
/// Bytes of the head.
const HEAD: usize = 40;
/// No histogram of these bounds has more counters, of nine bytes at most.
const BYTES_MAX: usize = HEAD + 9 * 100_000;

/// The quantiles that are told, by their names in JSON.
pub const QUANTILES: &[(&str, f64)] =
    &[("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999)];

/// Times of many requests, in bounded memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution(Histogram<u64>);

impl Default for Distribution {
    fn default() -> Self {
        Distribution(Histogram::new_with_bounds(1, NS_MAX, DIGITS).expect("the bounds are valid"))
    }
}

impl Distribution {
    /// Counts one.
    pub fn record(&mut self, took: Duration) {
        self.0.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(NS_MAX).max(1));
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// A quantile in seconds. `None` if so few were counted that none lies beyond it.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let beyond = self.count() as f64 * (1.0 - q);
        // 1 - 0.999 is a little less than a thousandth.
        (beyond > 1.0 - 1e-9).then(|| self.0.value_at_quantile(q) as f64 / 1e9)
    }

    /// The longest in seconds, `None` if there is none.
    #[must_use]
    pub fn max(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.0.max() as f64 / 1e9)
    }

    /// The mean in seconds, `None` if there is none.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.0.mean() / 1e9)
    }

    /// Adds what another one has counted, exactly: both have the same bounds.
    pub fn add(&mut self, other: &Distribution) {
        // Fails for other bounds only, and none are made or read.
        _ = self.0.add(&other.0);
    }

    /// HdrHistogram's form, version 2, in base64.
    fn text(&self) -> Result<String, String> {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&self.0, &mut bytes).map_err(|error| error.to_string())?;
        Ok(STANDARD.encode(bytes))
    }

    /// Reads it again. Anybody may have written it: what the library would trust is looked at before.
    fn of_text(text: &str) -> Result<Distribution, String> {
        let bad = || "no histogram of mitra load".to_owned();
        if text.len() > BYTES_MAX * 4 / 3 + 4 {
            return Err(bad());
        }
        let bytes = STANDARD.decode(text).map_err(|_| bad())?;
        let word = |at: usize| {
            let four = bytes.get(at..at + 4)?;
            four.try_into().ok().map(u32::from_be_bytes)
        };
        let payload = bytes.get(HEAD..).ok_or_else(bad)?;
        // The library makes as much room as the length says, and negates the least of all numbers.
        let is_least = |nine: &[u8]| nine.iter().all(|byte| *byte == 0xff);
        if word(0) != Some(COOKIE)
            || word(4) != u32::try_from(payload.len()).ok()
            || word(12) != Some(u32::from(DIGITS))
            || payload.windows(9).any(is_least)
        {
            return Err(bad());
        }
        let bounds = (word(16), word(20), word(24), word(28));
        let wanted = (Some(0), Some(1), Some((NS_MAX >> 32) as u32), Some(NS_MAX as u32));
        if bounds != wanted {
            return Err(bad());
        }
        let read: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).map_err(|_| bad())?;
        // Counts of a run that anybody could have made: sums of several stay below the end of the numbers.
        let mut all = 0_u64;
        for one in read.iter_recorded() {
            all = all.saturating_add(one.count_at_value());
        }
        if all > u64::MAX >> 16 || all != read.len() {
            return Err(bad());
        }
        Ok(Distribution(read))
    }
}

impl Serialize for Distribution {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("count", &self.count())?;
        let quantiles = QUANTILES.iter().map(|(name, q)| (*name, self.quantile(*q)));
        let whole = [("mean", self.mean()), ("max", self.max())];
        for (name, value) in whole.into_iter().chain(quantiles) {
            if let Some(value) = value {
                map.serialize_entry(name, &value)?;
            }
        }
        map.serialize_entry("histogram_ns", &self.text().map_err(S::Error::custom)?)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Stored {
            histogram_ns: String,
        }
        let stored = Stored::deserialize(deserializer)?;
        Distribution::of_text(&stored.histogram_ns).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(ns: &[u64]) -> Distribution {
        let mut made = Distribution::default();
        ns.iter().for_each(|ns| made.record(Duration::from_nanos(*ns)));
        made
    }

    #[test]
    fn no_quantile_is_told_of_too_few() {
        let thousand = of(&(1..=1000).map(|n| n * 1_000_000).collect::<Vec<_>>());
        let near = |a: Option<f64>, b: f64| a.is_some_and(|a| (a / b - 1.0).abs() < 0.002);
        assert!(near(thousand.quantile(0.5), 0.5) && near(thousand.quantile(0.999), 0.999), "{thousand:?}");
        assert_eq!(thousand.quantile(0.9999), None);
        assert!(near(thousand.max(), 1.0));
        let none = Distribution::default();
        assert_eq!((none.quantile(0.5), none.max(), none.mean()), (None, None, None));
        assert_eq!(of(&[5]).quantile(0.5), None);
        assert!(near(of(&[u64::MAX]).max(), 86_400.0));
    }

    #[test]
    fn damaged_histograms_are_refused() {
        let text = of(&[1, 1000, 5_000_000]).text().unwrap();
        assert!(Distribution::of_text(&text).is_ok());
        let bytes = STANDARD.decode(&text).unwrap();
        let mut worst = bytes.clone();
        worst.truncate(HEAD);
        worst.extend([0xff; 9]);
        worst[7] = 9;
        let mut long = bytes.clone();
        long[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        for bad in [&worst, &long, &bytes[..20].to_vec(), &Vec::new()] {
            assert!(Distribution::of_text(&STANDARD.encode(bad)).is_err(), "{bad:?}");
        }
        assert!(Distribution::of_text("no base64!").is_err());
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_and_adds_up(
            a in prop::collection::vec(1_u64..2_000_000_000_000, 0..200),
            b in prop::collection::vec(1_u64..2_000_000_000_000, 0..200),
        ) {
            let read = |ns: &[u64]| Distribution::of_text(&of(ns).text().unwrap()).unwrap();
            let mut sum = read(&a);
            prop_assert_eq!(&sum, &of(&a));
            sum.add(&read(&b));
            prop_assert_eq!(sum, of(&[a, b].concat()));
        }

        #[test]
        fn no_input_panics(at in 0_usize..400, value: u8, tail in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut bytes = STANDARD.decode(of(&[1, 77, 1_000_000, 9_999_999_999]).text().unwrap()).unwrap();
            bytes.extend(&tail);
            let length = (bytes.len() - HEAD) as u32;
            bytes[4..8].copy_from_slice(&length.to_be_bytes());
            let place = at % bytes.len();
            bytes[place] = value;
            if let Ok(read) = Distribution::of_text(&STANDARD.encode(&bytes)) {
                let mut sum = read.clone();
                sum.add(&read);
                _ = (sum.quantile(0.5), sum.mean(), sum.max());
            }
        }
    }
}
