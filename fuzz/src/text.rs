//! What holds for everything that is read from text, whatever the bytes.

use mitra_parse::text::{self, Format, Import};

/// Reads the bytes as the formats and looks at what came out.
pub fn read(formats: &[&[Format]], data: &[u8]) {
    // The first byte says whether files without a date have one.
    let Some((first, mut data)) = data.split_first() else { return };
    let mut import = Import::new((first & 1 == 1).then_some(20_000));
    text::read_as(formats, &mut data, "fuzzed", &mut import).unwrap();
    let imported = import.finish();
    for (name, rows) in imported.set.metrics() {
        for (row, series) in rows {
            let axis = &series.axis;
            assert!(axis.t.is_sorted_by(|a, b| a < b), "{name} {row}: times go back");
            assert_eq!(axis.t.len(), axis.dt.len());
            assert!(
                axis.dt.iter().all(|dt| dt.is_nan() || *dt > 0.0),
                "{name} {row}: an interval of nothing"
            );
            assert!(series.values.iter().all(|v| !v.is_infinite()), "{name} {row}: no number");
        }
    }
    for file in &imported.files {
        assert!(file.unread <= file.lines, "more lines unread than read");
    }
}
