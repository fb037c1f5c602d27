//! Interned texts: task names, cgroup paths, kernel stacks.

use std::collections::HashMap;
use std::sync::Arc;

/// The id of an interned text. The cells of text columns hold it.
pub type StrId = u32;

/// A table of texts, each stored once.
///
/// Ids stay valid while [`Strings::generation`] does not change. A collector with too many texts calls
/// [`Strings::clear`] and interns the live ones again. Code that caches ids has to compare the generation.
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

    /// An empty table of that generation, to replace one of the generation before.
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

    /// The text of a cell: `None` for an unavailable cell or an unknown id.
    #[must_use]
    pub fn cell(&self, cell: i64) -> Option<&str> {
        self.get(StrId::try_from(cell).ok()?)
    }

    /// The number of texts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Changes when earlier ids become invalid.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Removes all texts and invalidates all ids.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.texts.clear();
        self.generation = self.generation.wrapping_add(1);
    }
}
