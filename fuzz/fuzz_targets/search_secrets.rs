//! Any text is looked through for secrets: its lines stay, and what is withheld is counted.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mitra_search::secrets::Policy;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let (clean, found) = Policy::default().clean_text(&text);
    assert_eq!(text.matches('\n').count(), clean.matches('\n').count(), "lines");
    assert_eq!(found.count == 0, clean == text, "{} withheld", found.count);
    assert_eq!(found.count == 0, found.reasons.is_empty(), "{:?}", found.reasons);
});
