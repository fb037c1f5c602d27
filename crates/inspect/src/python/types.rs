//! The type of an object, by its type pointer.
//!
//! A word is accepted as a type if its own type is a type of types (its bases lead to `type`), and
//! its name and sizes are plausible. The references of its instances follow from the nearest base
//! with a known structure.

use std::collections::HashMap;
use std::rc::Rc;

use super::TypeId;
use super::heap::Heap;
use super::layout::{HAVE_GC, HEAP_TYPE, INLINE_VALUES, MANAGED_DICT, MANAGED_WEAKREF, TYPE_SUBCLASS};
use crate::memory::Memory;

/// Limit of the bases of a type.
const BASES_MAX: usize = 64;
/// Longest name of a type.
const NAME_BYTES_MAX: usize = 240;
/// Largest structure of an instance; a megabyte is far beyond any known one.
const BASICSIZE_MAX: u64 = 1 << 20;
/// Members of one type.
const MEMBERS_MAX: u64 = 1024;
/// Limit of the types of a process; further ones are not stored.
const TYPES_MAX: usize = 1 << 20;
/// Limit of the remembered words that are not types.
const NOT_TYPES_MAX: usize = 1 << 16;
/// The type is initialised (Include/object.h).
const READY: u64 = 1 << 12;
/// Instances are exceptions.
const EXCEPTION_SUBCLASS: u64 = 1 << 30;
/// Members that are objects: T_OBJECT and T_OBJECT_EX of structmember.h.
const MEMBER_OBJECT: [u32; 2] = [6, 16];
/// Slots of the cache before the map.
const RECENT: usize = 512;

/// How the references of an instance are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Dict,
    OrderedDict,
    List,
    Tuple,
    Set,
    Str,
    Bytes,
    ByteArray,
    Int,
    Float,
    Type,
    Frame,
    Generator,
    Weakref,
    Deque,
    Array,
    Code,
    Module,
    Other,
}

/// A type.
#[derive(Debug, Clone)]
pub(super) struct Type {
    pub id: TypeId,
    pub address: u64,
    pub name: String,
    pub kind: Kind,
    pub flags: u64,
    pub basicsize: u64,
    pub itemsize: u64,
    pub dictoffset: i64,
    pub weaklistoffset: i64,
    pub cached_keys: u64,
    /// The part of an instance's structure in which any word may be a reference.
    pub scan: (u64, u64),
    /// Offset and name of fields that are objects.
    pub members: Vec<(u32, String)>,
    pub is_guessed: bool,
}

impl Type {
    pub fn is_gc(&self) -> bool {
        self.flags & HAVE_GC != 0
    }

    pub fn is_heap(&self) -> bool {
        self.flags & HEAP_TYPE != 0
    }

    pub fn has_managed_dict(&self) -> bool {
        self.flags & MANAGED_DICT != 0
    }

    pub fn has_inline_values(&self) -> bool {
        self.flags & INLINE_VALUES != 0
    }

    pub fn has_managed_weakref(&self) -> bool {
        self.flags & MANAGED_WEAKREF != 0
    }

    /// Whether instances never refer to anything.
    pub fn is_leaf(&self) -> bool {
        matches!(self.kind, Kind::Str | Kind::Bytes | Kind::ByteArray | Kind::Int | Kind::Float)
            && !self.is_heap()
    }
}

/// The types that were found.
pub(super) struct Types {
    all: Vec<Rc<Type>>,
    by_address: HashMap<u64, Option<u32>>,
    not_types: usize,
    recent: Vec<(u64, u32)>,
}

impl Default for Types {
    fn default() -> Self {
        Self { all: Vec::new(), by_address: HashMap::new(), not_types: 0, recent: vec![(0, 0); RECENT] }
    }
}

impl Types {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn get(&self, id: TypeId) -> Option<Rc<Type>> {
        self.all.get(id.0 as usize).cloned()
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn known(&mut self, address: u64) -> Option<Option<Rc<Type>>> {
        let slot = (address >> 4) as usize % RECENT;
        let (recent, id) = self.recent[slot];
        if recent == address {
            return Some(self.all.get(id as usize).cloned());
        }
        let found = *self.by_address.get(&address)?;
        let Some(id) = found else { return Some(None) };
        self.recent[slot] = (address, id);
        Some(self.all.get(id as usize).cloned())
    }

    fn learn(&mut self, mut learned: Type) -> Option<Rc<Type>> {
        if self.all.len() >= TYPES_MAX {
            return None;
        }
        let id = self.all.len() as u32;
        learned.id = TypeId(id);
        self.by_address.insert(learned.address, Some(id));
        let learned = Rc::new(learned);
        self.all.push(learned.clone());
        Some(learned)
    }

    fn refuse(&mut self, address: u64) {
        if self.not_types >= NOT_TYPES_MAX {
            self.by_address.retain(|_, known| known.is_some());
            self.not_types = 0;
        }
        self.not_types += 1;
        self.by_address.insert(address, None);
    }
}

const WEAK_REFERENCES: [&str; 6] = [
    "weakref",
    "weakref.ReferenceType",
    "weakproxy",
    "weakcallableproxy",
    "weakref.ProxyType",
    "weakref.CallableProxyType",
];
/// Types with known structures in which every word that may be an object is one.
const OTHERS: &str = "
    object function method cell builtin_function_or_method method_descriptor
    classmethod_descriptor wrapper_descriptor getset_descriptor member_descriptor method-wrapper
    staticmethod classmethod property slice range super mappingproxy dict_keys dict_values
    dict_items NoneType ellipsis NotImplementedType traceback types.SimpleNamespace
    coroutine_wrapper list_iterator list_reverseiterator tuple_iterator dict_keyiterator
    dict_valueiterator dict_itemiterator set_iterator str_iterator bytes_iterator range_iterator
    callable_iterator iterator enumerate zip map filter reversed types.GenericAlias
    functools.partial
";

/// Built-in types with a known structure, by their names. For those without their own kind, every
/// word that may be an object is one.
fn kind_of(name: &str) -> Option<Kind> {
    Some(match name {
        "dict" => Kind::Dict,
        "collections.OrderedDict" => Kind::OrderedDict,
        "list" => Kind::List,
        "tuple" => Kind::Tuple,
        "set" | "frozenset" => Kind::Set,
        "str" => Kind::Str,
        "bytes" => Kind::Bytes,
        "bytearray" => Kind::ByteArray,
        "int" => Kind::Int,
        "float" | "complex" => Kind::Float,
        "type" => Kind::Type,
        "frame" => Kind::Frame,
        "generator" | "coroutine" | "async_generator" => Kind::Generator,
        name if WEAK_REFERENCES.contains(&name) => Kind::Weakref,
        "collections.deque" => Kind::Deque,
        "array.array" => Kind::Array,
        "code" => Kind::Code,
        "module" => Kind::Module,
        name if OTHERS.split_whitespace().any(|other| other == name) => Kind::Other,
        _ => return None,
    })
}

impl<M: Memory + ?Sized> Heap<'_, M> {
    /// Reference count and type of a possible object; `None` if it cannot be read.
    pub(super) fn head(&self, address: u64) -> Option<(u64, u64)> {
        if address & 7 != 0 || address == 0 {
            return None;
        }
        let mut bytes = [0; 16];
        self.memory.exact(address, &mut bytes)?;
        let (count, kind) = bytes.split_at(8);
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Some((word(count), word(kind)))
    }

    /// Whether a reference count can be that of a living object.
    pub(super) fn is_alive(&self, count: u64) -> bool {
        // Each reference is a word somewhere. Immortal objects have the high bits of a 32-bit
        // number set, and extensions that were built for older versions still change the count;
        // 3.14 has flags above it.
        const IMMORTAL: u64 = 1 << 30;
        const LOW: u64 = 0xffff_ffff;
        // Objects compiled into 3.11 begin with this count (Include/internal/pycore_object.h),
        // which no number of words reaches.
        const COMPILED_IN: u64 = 999_999_999;
        match self.layout.minor {
            ..=10 => count != 0 && count <= self.words_max,
            11 => count != 0 && (count <= self.words_max || count.abs_diff(COMPILED_IN) <= self.words_max),
            12 | 13 => count != 0 && (count <= self.words_max || (IMMORTAL..=2 * LOW).contains(&count)),
            _ => {
                let (low, overflow, flags) = (count & LOW, count >> 32 & 0xffff, count >> 48);
                low != 0 && (low <= self.words_max || low >= IMMORTAL) && overflow < 256 && flags < 256
            }
        }
    }

    /// The type of an object; `None` if there is no object at the address.
    pub(super) fn object_type(&self, address: u64) -> Option<Rc<Type>> {
        let (count, kind) = self.head(address)?;
        if !self.is_alive(count) {
            return None;
        }
        self.resolve(kind)
    }

    /// The type at an address; `None` if there is none.
    pub(super) fn resolve(&self, address: u64) -> Option<Rc<Type>> {
        if address & 7 != 0 || address < 4096 {
            return None;
        }
        if let Some(known) = self.types.borrow_mut().known(address) {
            return known;
        }
        match self.read_type(address) {
            Some(learned) => self.types.borrow_mut().learn(learned),
            None => {
                self.types.borrow_mut().refuse(address);
                None
            }
        }
    }

    /// Whether the bases of `address` lead to `type`.
    fn is_metatype(&self, address: u64) -> bool {
        let mut base = address;
        for _ in 0..BASES_MAX {
            if base == self.type_type {
                return true;
            }
            let flags = self.memory.u64(base.wrapping_add(self.layout.type_flags));
            if base == 0 || flags.is_none_or(|flags| flags & TYPE_SUBCLASS == 0) {
                return false;
            }
            let Some(next) = self.memory.u64(base.wrapping_add(self.layout.type_base)) else { return false };
            base = next;
        }
        false
    }

    fn read_type(&self, address: u64) -> Option<Type> {
        let (count, metatype) = self.head(address)?;
        if !self.is_alive(count) || !self.is_metatype(metatype) {
            return None;
        }
        let layout = &self.layout;
        let word = |offset: u64| self.memory.u64(address.checked_add(offset)?);
        let flags = word(layout.type_flags)?;
        let basicsize = word(layout.type_basicsize)?;
        let itemsize = word(layout.type_itemsize)?;
        if !(16..=BASICSIZE_MAX).contains(&basicsize) || itemsize > BASICSIZE_MAX || flags & READY == 0 {
            return None;
        }
        let short = self.name_of_type(address)?;
        let mut learned = Type {
            id: TypeId(0),
            address,
            name: String::new(),
            kind: Kind::Other,
            flags,
            basicsize,
            itemsize,
            dictoffset: word(layout.type_dictoffset)? as i64,
            weaklistoffset: word(layout.type_weaklistoffset)? as i64,
            cached_keys: 0,
            scan: (16, basicsize),
            members: Vec::new(),
            is_guessed: false,
        };
        if learned.is_heap() {
            learned.cached_keys = word(layout.heap_type_cached_keys)?;
        }
        learned.name = self.full_name(&learned, &short);
        self.classify(&mut learned);
        Some(learned)
    }

    fn name_of_type(&self, address: u64) -> Option<String> {
        let at = self.memory.u64(address.checked_add(self.layout.type_name)?)?;
        let name = self.memory.text(at, NAME_BYTES_MAX)?;
        (!name.is_empty() && !name.chars().any(char::is_control)).then_some(name)
    }

    /// The name with its module. Compiled-in types have the module in the name, types created at
    /// run time have it in their dictionary.
    fn full_name(&self, learned: &Type, short: &str) -> String {
        if !learned.is_heap() {
            return short.to_owned();
        }
        let word = |offset: u64| self.memory.u64(learned.address.checked_add(offset)?);
        let qualified = word(self.layout.heap_type_qualname).and_then(|at| self.string(at, NAME_BYTES_MAX));
        let name = qualified.filter(|name| !name.is_empty());
        let module = word(self.layout.type_dict).and_then(|dict| self.string_under(dict, "__module__"));
        match (module, name) {
            (Some(module), Some(name)) if module == "builtins" => name,
            (Some(module), Some(name)) => format!("{module}.{name}"),
            (None, Some(name)) if !short.contains('.') => name,
            _ => short.to_owned(),
        }
    }

    /// Determines the references of its instances.
    fn classify(&self, learned: &mut Type) {
        let layout = &self.layout;
        let mut base = learned.address;
        let mut known_from = None;
        for _ in 0..BASES_MAX {
            let word = |offset: u64| self.memory.u64(base.checked_add(offset)?);
            let (Some(flags), Some(basicsize)) = (word(layout.type_flags), word(layout.type_basicsize))
            else {
                break;
            };
            self.read_members(base, learned);
            let name = self.name_of_type(base).unwrap_or_default();
            let is_made = flags & HEAP_TYPE != 0;
            // A Python class may have any name, but not with a module, as types that extensions
            // create at run time have.
            let kind = kind_of(&name).filter(|_| !is_made || name.contains('.'));
            if let Some(kind) = kind {
                learned.kind = kind;
                known_from = Some(basicsize);
                break;
            }
            if !is_made && flags & EXCEPTION_SUBCLASS != 0 {
                known_from = Some(basicsize);
                break;
            }
            let Some(next) = word(layout.type_base).filter(|next| *next != 0) else { break };
            base = next;
        }
        let known = known_from.unwrap_or(16).min(learned.basicsize);
        let is_whole = matches!(
            learned.kind,
            Kind::Other | Kind::Type | Kind::Code | Kind::Module | Kind::Frame | Kind::Generator
        );
        let is_var = learned.itemsize != 0;
        let from = match learned.kind {
            _ if is_whole => 16 + 8 * u64::from(is_var && !matches!(learned.kind, Kind::Generator)),
            // The items of a tuple or an int follow its fixed part.
            _ if is_var => learned.basicsize,
            _ => known,
        };
        learned.scan = (from, learned.basicsize);
        learned.is_guessed = (known..learned.basicsize).step_by(8).any(|offset| {
            let is_said = learned.members.iter().any(|(said, _)| u64::from(*said) == offset);
            !is_said && offset as i64 != learned.dictoffset && offset as i64 != learned.weaklistoffset
        });
        self.name_fields(learned, base);
    }

    /// The members that a type declares, as `__slots__` does.
    fn read_members(&self, base: u64, learned: &mut Type) {
        let Some(table) = self.memory.u64(base.wrapping_add(self.layout.type_members)).filter(|at| *at != 0)
        else {
            return;
        };
        for i in 0..MEMBERS_MAX {
            let mut bytes = [0; 24];
            if self.memory.exact(table.wrapping_add(40 * i), &mut bytes).is_none() {
                return;
            }
            let word = |at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let (name, kind, offset) = (word(0), word(8) as u32, word(16));
            if name == 0 {
                return;
            }
            if !MEMBER_OBJECT.contains(&kind) || offset >= learned.basicsize || offset < 16 {
                continue;
            }
            let offset = offset as u32;
            if learned.members.iter().all(|(known, _)| *known != offset)
                && let Some(name) = self.memory.text(name, NAME_BYTES_MAX)
            {
                learned.members.push((offset, name));
            }
        }
    }

    /// Names of fields that are in no member table.
    fn name_fields(&self, learned: &mut Type, base: u64) {
        let layout = &self.layout;
        let name = self.name_of_type(base).unwrap_or_default();
        let fields: &[(u64, &str)] = match name.as_str() {
            "function" => &[
                (layout.function_code, "__code__"),
                (layout.function_globals, "__globals__"),
                (layout.function_builtins.unwrap_or(0), "__builtins__"),
                (layout.function_defaults, "__defaults__"),
                (layout.function_kwdefaults, "__kwdefaults__"),
                (layout.function_closure, "__closure__"),
                (layout.function_doc, "__doc__"),
                (layout.function_name, "__name__"),
                (layout.function_qualname, "__qualname__"),
                (layout.function_dict, "__dict__"),
                (layout.function_module, "__module__"),
                (layout.function_annotations, "__annotations__"),
            ],
            "method" => &[(layout.method_function, "__func__"), (layout.method_self, "__self__")],
            "builtin_function_or_method" => {
                &[(layout.builtin_self, "__self__"), (layout.builtin_module, "__module__")]
            }
            "cell" => &[(layout.cell_value, "cell_contents")],
            "module" => &[(layout.module_dict, "__dict__")],
            "frame" if layout.minor < 11 => &[
                (layout.frame_previous, "f_back"),
                (layout.frame_code, "f_code"),
                (layout.frame_globals.unwrap_or(0), "f_globals"),
            ],
            "generator" | "coroutine" | "async_generator" if layout.minor < 11 => {
                &[(layout.gen_frame, "gi_frame")]
            }
            _ => &[],
        };
        for (offset, name) in fields {
            let offset = *offset as u32;
            if offset != 0 && learned.members.iter().all(|(known, _)| *known != offset) {
                learned.members.push((offset, (*name).to_owned()));
            }
        }
    }
}
