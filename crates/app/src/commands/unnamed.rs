//! What probes saw, before the functions of programs have names. For these the files of programs are opened, which takes
//! for ever where a server has gone: so it is kept without them first.

use mitra_collect::capture::resolve;
use mitra_inspect::Symbols;
use mitra_model::capture::{Captured, Raw, RawStack};

use crate::withheld;

/// Said of what was kept and not named since.
const NOTE: &str = "it was ended from outside: addresses of programs were not looked up";

pub struct Unnamed {
    /// With names of the kernel's functions alone.
    pub captured: Captured,
    raw: Option<Raw>,
}

impl Unnamed {
    pub fn new(raw: Raw, symbols: &mut Symbols) -> Self {
        let mut captured = resolve(raw.clone(), &mut |stack| kernel_names(symbols, stack));
        captured.notes.extend(symbols.notes());
        withheld::in_capture(&mut captured);
        let has_stacks = captured.profile.is_some();
        captured.notes.extend(has_stacks.then(|| NOTE.to_owned()));
        Self { captured, raw: has_stacks.then_some(raw) }
    }

    /// Whether anything in it has a name to be looked up.
    pub fn has_stacks(&self) -> bool {
        self.raw.is_some()
    }

    /// The same with all names; nothing, if there is none to look up or no time for it.
    pub fn named(&mut self, symbols: &mut Symbols, is_stopped: impl Fn() -> bool) -> Option<Captured> {
        let name = &mut |stack: &RawStack| if is_stopped() { Vec::new() } else { symbols.names(stack) };
        let mut captured = resolve(self.raw.take()?, name);
        if is_stopped() {
            return None;
        }
        captured.notes.extend(symbols.notes());
        withheld::in_capture(&mut captured);
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
