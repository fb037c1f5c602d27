//! What the README counts: the number in front of some words, and what it is.

use anyhow::{Result, anyhow};

use crate::recording::all_metrics;
use crate::render::units;

/// Words that follow a number, and the number that the code has.
fn counts() -> Vec<(&'static str, String)> {
    vec![
        (" conditions (`mitra conditions`)", mitra_diagnose::conditions().len().to_string()),
        (" built-in triggers that run probes", mitra_diagnose::suspicions().len().to_string()),
        (" of them), Parquet export", units::grouped(all_metrics().count() as f64)),
        // The look into a heap is what rules arm; by hand it is `mitra inspect`.
        (" probes by hand ", crate::escalation::probes::all().len().saturating_sub(1).to_string()),
    ]
}

/// The README with the numbers of the code in it.
pub fn filled(readme: &str) -> Result<String> {
    let mut text = readme.to_owned();
    for (words, count) in counts() {
        let end =
            text.find(words).ok_or_else(|| anyhow!("README.md: wanted a number in front of '{words}'"))?;
        let digits = |c: char| c.is_ascii_digit() || c == ',';
        let start = text[..end].trim_end_matches(digits).len();
        text.replace_range(start..end, &count);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_the_numbers_of_the_code() {
        let readme = include_str!("../../../../../README.md");
        assert_eq!(filled(readme).unwrap(), readme, "run make docs");
        let old = readme.replacen("1,", "77,1,", 1);
        assert!(filled(&old).is_ok() && filled("no numbers").is_err());
    }
}
