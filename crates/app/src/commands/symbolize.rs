//! Stored captures without symbols. Looking symbols up opens the programs' files, which blocks for
//! ever if a file server is dead, so captures are stored without them first.

use mitra_collect::capture::resolve;
use mitra_inspect::Symbols;
use mitra_model::capture::{Captured, Raw, RawStack};

use crate::redact;

/// Added to captures that stay without symbols.
const NOTE: &str = "it was ended from outside: addresses of programs were not looked up";

pub struct Unsymbolized {
    /// With symbols of the kernel only.
    pub captured: Captured,
    raw: Option<Raw>,
}

impl Unsymbolized {
    pub fn new(raw: Raw, symbols: &mut Symbols) -> Self {
        let mut captured = resolve(raw.clone(), &mut |stack| kernel_names(symbols, stack));
        captured.notes.extend(symbols.notes());
        redact::capture(&mut captured);
        let has_stacks = captured.profile.is_some();
        captured.notes.extend(has_stacks.then(|| NOTE.to_owned()));
        Self { captured, raw: has_stacks.then_some(raw) }
    }

    /// Whether there are symbols to look up.
    pub fn has_stacks(&self) -> bool {
        self.raw.is_some()
    }

    /// The capture with all symbols; `None` if there are none to look up, or it was stopped.
    pub fn symbolized(&mut self, symbols: &mut Symbols, is_stopped: impl Fn() -> bool) -> Option<Captured> {
        let name = &mut |stack: &RawStack| if is_stopped() { Vec::new() } else { symbols.names(stack) };
        let mut captured = resolve(self.raw.take()?, name);
        if is_stopped() {
            return None;
        }
        captured.notes.extend(symbols.notes());
        redact::capture(&mut captured);
        let costs = captured.cost_naming_ns.zip(self.captured.cost_naming_ns);
        captured.cost_naming_ns = costs.map(|(user, kernel)| user.saturating_add(kernel));
        Some(captured)
    }
}

fn kernel_names(symbols: &mut Symbols, stack: &RawStack) -> Vec<String> {
    let kernel = RawStack { user: Vec::new(), functions: Vec::new(), ..stack.clone() };
    let user = stack.user.iter().rev().map(|address| format!("[unknown {address:#x}]"));
    user.chain(symbols.names(&kernel)).collect()
}
