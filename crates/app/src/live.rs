//! `mitra live`: record and watch.

use anyhow::{Result, bail};

use crate::cli::LiveArgs;
use crate::render::style::Color;

/// Records and watches.
pub fn run(_args: &LiveArgs, _color: Color) -> Result<()> {
    bail!("not there yet")
}
