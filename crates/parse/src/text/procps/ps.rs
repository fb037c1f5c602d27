//! `ps` with any columns that have a header: `aux`, `-ef`, `-eLf`, `-eo …`.
//!
//! ```text
//! USER       PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND
//! root         1  0.5  0.0  51760 20080 ?        Ss   09:52   1:13 /sbin/init splash
//!
//!   PID  PPID STAT WCHAN                            COMMAND           RSS
//!  4242     1 D    rwsem_down_write_slowpath        java         37241856
//! ```

use crate::text::import::{Form, Import};
use crate::text::{Context, Format, Lines};

use super::task_names::is_header;
use super::tasks::{Style, Table};

/// See the module.
pub const FORMAT: Format = Format {
    name: "ps",
    what: "any columns that have a header: `aux`, `-ef`, `-eLf`, `-eo …`",
    starts,
    read,
};

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.peek().is_some_and(is_header)
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let Some(header) = lines.peek().map(<[u8]>::to_vec) else { return };
    let at = import.now();
    let first_line = lines.number();
    let table = Table::new(&header, Style::Ps, false, import);
    let (mut rows, mut waiting, mut all) = (0_u32, 0_u32, false);
    lines.advance();
    loop {
        let number = lines.number();
        let Some(line) = lines.peek() else { break };
        // A header again is another ps.
        if line.trim_ascii().is_empty() || is_header(line) {
            break;
        }
        let Some(row) = table.row(line, at, number, import) else { break };
        rows += 1;
        waiting += u32::from(row.state == Some(b'D'));
        all |= row.pid == 1;
        lines.advance();
    }
    // A list with the first process in it was not filtered, so that those in D state can be counted.
    if all && rows > 1 && super::has_state(&header) {
        import.value("tasks.uninterruptible", "", Form::Level, at, first_line, f64::from(waiting));
    }
}
