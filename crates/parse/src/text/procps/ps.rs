//! `ps` with any columns that have a header: `aux`, `-ef`, `-eLf`, `-eo …`.
//!
//! ```text
//! USER       PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND
//! root         1  0.5  0.0  51760 20080 ?        Ss   09:52   1:13 /sbin/init splash
//!
//!   PID  PPID STAT WCHAN                            COMMAND           RSS
//!  4242     1 D    rwsem_down_write_slowpath        java         37241856
//! ```

use super::task_names::{has_state, is_header};
use super::tasks::{Style, Table};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format =
    Format::new("ps", "any columns that have a header: `aux`, `-ef`, `-eLf`, `-eo …`", starts, read);

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(is_header)
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let (at, first_line) = (import.now(), lines.number());
    let header = lines.line();
    let states = has_state(header);
    let pid_at = words(header).position(|name| name == b"PID");
    let table = Table::new(header, Style::Ps, false, import);
    let (mut rows, mut waiting, mut all) = (0_u32, 0_u32, false);
    lines.advance();
    lines.each(import, |lines, number, import| {
        let line = lines.line();
        // A header again is another ps.
        if line.trim_ascii().is_empty() || is_header(line) {
            return Took::No;
        }
        let Some(row) = table.row(line, at, number, import) else {
            // With `m` each thread has a line of its own that does not say which one it is.
            let is_thread = pid_at.is_some_and(|at| words(line).nth(at) == Some(b"-"));
            return if is_thread { Took::Yes } else { Took::No };
        };
        rows += 1;
        waiting += u32::from(row.state == Some(b'D'));
        all |= row.pid == 1;
        Took::Yes
    });
    // A list with the first process in it was not filtered, so that those in D state can be counted.
    if all && rows > 1 && states {
        import.value("tasks.uninterruptible", "", Form::Level, at, first_line, f64::from(waiting));
    }
}
