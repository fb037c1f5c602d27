//! Functions by address, with their names in one buffer.

/// More functions than any kernel or JIT compiler has.
const FUNCTIONS_MAX: usize = 4 << 20;

/// Of functions at one address, the first one added counts.
#[derive(Debug, Default)]
pub(crate) struct NameTable {
    /// Start, end, and where the name begins and ends in `text`; sorted by start.
    functions: Vec<(u64, u64, u32, u32)>,
    text: String,
}

impl NameTable {
    /// Adds a function. `false` if there is no room left.
    pub(crate) fn push(&mut self, start: u64, end: u64, name: &str) -> bool {
        let (Ok(from), Ok(until)) =
            (u32::try_from(self.text.len()), u32::try_from(self.text.len() + name.len()))
        else {
            return false;
        };
        if self.functions.len() >= FUNCTIONS_MAX {
            return false;
        }
        self.text.push_str(name);
        self.functions.push((start, end, from, until));
        true
    }

    /// Sorts what was added. Names are found afterwards.
    pub(crate) fn finish(&mut self) {
        self.functions.sort_by_key(|(start, ..)| *start);
        self.functions.dedup_by_key(|(start, ..)| *start);
        self.functions.shrink_to_fit();
        self.text.shrink_to_fit();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The memory that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let functions = self.functions.capacity() * size_of::<(u64, u64, u32, u32)>();
        (functions + self.text.capacity()) as u64
    }

    pub(crate) fn name(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|(start, ..)| *start <= address);
        let (_, end, from, until) = self.functions.get(after.checked_sub(1)?)?;
        (address < *end).then(|| self.text.get(*from as usize..*until as usize))?
    }

    /// Where a function begins.
    #[cfg(test)]
    pub(crate) fn address(&self, wanted: &str) -> Option<u64> {
        self.functions.iter().map(|(start, ..)| *start).find(|start| self.name(*start) == Some(wanted))
    }
}
