//! Healthy machines, idle and busy. Mitra must have nothing to say about them.

use crate::incident::Control;

/// By file.
const FILES: &[&[Control]] = &[IDLE];

const IDLE: &[Control] = &[Control {
    name: "idle",
    what: "nothing goes on",
    needs: &[],
    make: |stage| {
        stage.healthy()?;
        stage.trouble_starts();
        stage.trouble()
    },
}];

/// All controls.
pub fn all() -> impl Iterator<Item = &'static Control> {
    FILES.iter().copied().flatten()
}
