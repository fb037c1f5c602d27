//! placeholder
use mitra_model::SeriesSet;
use mitra_model::report::Comparison;

/// Runs side by side.
#[must_use]
pub fn comparison(_set: &SeriesSet) -> Option<Comparison> {
    None
}
