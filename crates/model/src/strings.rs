//! Interned texts: task names, cgroup paths, kernel stacks.

use std::collections::HashMap;
use std::sync::Arc;

/// The id of an interned text. It is what a text column of a frame stores.
pub type StrId = u32;

/// A table of texts, each stored once.
///
/// Ids stay valid while [`Strings::generation`] does not change. A collector that has seen too many texts calls
/// [`Strings::clear`] and interns what is still alive again; whoever caches ids watches the generation.
#[derive(Debug, Default, Clone)]
pub struct Strings {
    ids: HashMap<Arc<str>, StrId>,
    texts: Vec<Arc<str>>,
    generation: u32,
}

impl Strings {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty table that says of its ids that they are of this generation: for tables that follow each other.
    #[must_use]
    pub fn of_generation(generation: u32) -> Self {
        Strings { generation, ..Self::default() }
    }

    /// The id of the text, which is added if it is new. A known text allocates nothing.
    pub fn intern(&mut self, text: &str) -> StrId {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = StrId::try_from(self.texts.len()).unwrap_or(StrId::MAX);
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.ids.insert(text, id);
        id
    }

    /// The id of a text, if the table has it.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<StrId> {
        self.ids.get(text).copied()
    }

    /// The text of an id, if the table has it.
    #[must_use]
    pub fn get(&self, id: StrId) -> Option<&str> {
        self.texts.get(id as usize).map(AsRef::as_ref)
    }

    /// The text of a stored cell: `None` for an unavailable cell or an id that is not known.
    #[must_use]
    pub fn cell(&self, cell: i64) -> Option<&str> {
        self.get(StrId::try_from(cell).ok()?)
    }

    /// How many texts there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Changes whenever ids given out before are no longer valid.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Forgets all texts; ids given out before are no longer valid.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.texts.clear();
        self.generation = self.generation.wrapping_add(1);
    }
}
