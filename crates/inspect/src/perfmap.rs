//! What a JIT compiler says of its code: `/tmp/perf-PID.map`, one function on each line.
//!
//! ```text
//! 7f52c0d00000 1a0 py::handle:/srv/app.py
//! ```

/// More functions than these are not kept.
const FUNCTIONS_MAX: usize = 1 << 20;

/// The functions of a process that were compiled while it ran.
#[derive(Debug, Default)]
pub(crate) struct PerfMap {
    /// Start, end, where the name begins and ends in `text`; by start.
    functions: Vec<(u64, u64, u32, u32)>,
    text: String,
}

impl PerfMap {
    /// Reads the file. Of two functions at one address the later line counts: code is compiled anew.
    pub(crate) fn parse(text: &str) -> PerfMap {
        let mut map = PerfMap::default();
        for line in text.lines() {
            let mut words = line.splitn(3, ' ');
            let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
            let (Some(start), Some(size)) = (words.next().and_then(hex), words.next().and_then(hex)) else {
                continue;
            };
            let Some(name) = words.next().map(str::trim).filter(|name| !name.is_empty()) else { continue };
            if map.functions.len() >= FUNCTIONS_MAX {
                break;
            }
            let Ok(from) = u32::try_from(map.text.len()) else { break };
            map.text.push_str(name);
            let Ok(until) = u32::try_from(map.text.len()) else { break };
            map.functions.push((start, start.saturating_add(size), from, until));
        }
        // The order of the lines is kept where the starts are equal.
        map.functions.sort_by_key(|(start, ..)| *start);
        map.functions.shrink_to_fit();
        map.text.shrink_to_fit();
        map
    }

    /// The memory that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let functions = self.functions.capacity() * size_of::<(u64, u64, u32, u32)>();
        (functions + self.text.capacity()) as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    pub(crate) fn name(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|(start, ..)| *start <= address);
        let (_, end, from, until) = self.functions.get(after.checked_sub(1)?)?;
        if address >= *end {
            return None;
        }
        self.text.get(*from as usize..*until as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_by_its_address() {
        let map =
            PerfMap::parse("1000 10 first one\n2000 8 old\n\nbad\n0x3000 4 c\n2000 8 new\nzz 1 d\n4000 4 \n");
        assert_eq!(map.name(0x1000), Some("first one"));
        assert_eq!(map.name(0x100f), Some("first one"));
        assert_eq!(map.name(0x1010), None);
        assert_eq!(map.name(0x2004), Some("new"));
        assert_eq!(map.name(0x3001), Some("c"));
        assert_eq!(map.name(0x4001), None);
        assert_eq!(map.name(0), None);
    }
}
