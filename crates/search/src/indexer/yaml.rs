//! The subset of YAML that a configuration needs: maps, lists and single values, each with its line
//! and column.
//!
//! ```yaml
//! log:
//!   file: /tmp/runner.log     # line 2, column 9
//! files: [/etc/hosts, "/etc/fstab"]
//! ```
//!
//! The underlying parser returns events with positions, which are turned into a small tree.
//! Anchors, aliases, multiple documents and duplicate keys are errors, so that a configuration is
//! never ambiguous.

use std::collections::BTreeSet;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, StrInput};

/// Maximum size of a configuration in bytes.
pub const BYTES_MAX: usize = 1 << 20;
/// Maximum number of values.
const NODES_MAX: usize = 100_000;
/// Maximum nesting depth.
const DEPTH_MAX: usize = 16;

/// An error and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// What is wrong, and what was expected.
    pub message: String,
}

/// A position in the text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
}

impl Position {
    /// An error at this position.
    #[must_use]
    pub fn mistake(self, message: impl Into<String>) -> Mistake {
        Mistake { line: self.line, column: self.column, message: message.into() }
    }

    fn of(marker: &Marker) -> Self {
        Self { line: marker.line().max(1), column: marker.col() + 1 }
    }
}

/// A value and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Where the value begins.
    pub at: Position,
    /// The value.
    pub value: Value,
}

/// The value of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Empty, `~` or `null`.
    Nothing,
    /// A single value, uninterpreted.
    Scalar(String),
    /// A list.
    List(Vec<Node>),
    /// Keys and values, in the order of the text.
    Map(Vec<(Key, Node)>),
}

/// A key of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The key.
    pub name: String,
    /// Its position.
    pub at: Position,
}

impl Value {
    /// A description for messages.
    #[must_use]
    pub fn what(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Scalar(_) => "a single value",
            Self::List(_) => "a list",
            Self::Map(_) => "names with values",
        }
    }
}

/// Parses a text. An empty text gives [`Value::Nothing`].
pub fn parse(text: &str) -> Result<Node, Mistake> {
    let begin = Position { line: 1, column: 1 };
    if text.len() > BYTES_MAX {
        return Err(begin.mistake(format!("it has {} bytes, more than {BYTES_MAX}", text.len())));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { parser: Parser::new_from_str(text), nodes: 0 };
    let mut root = None;
    loop {
        let (event, at) = reader.next()?;
        match event {
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            event => {
                if root.is_some() {
                    return Err(at.mistake("a second document begins here, and one is wanted"));
                }
                root = Some(reader.node(event, at, 0)?);
            }
        }
    }
    Ok(root.unwrap_or(Node { at: begin, value: Value::Nothing }))
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Position), Mistake> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, Position::of(&span.start))),
            Some(Err(error)) => Err(Position::of(error.marker()).mistake(error.info())),
            None => Ok((Event::StreamEnd, Position { line: 1, column: 1 })),
        }
    }

    fn node(&mut self, event: Event<'a>, at: Position, depth: usize) -> Result<Node, Mistake> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(at.mistake(format!("more than {NODES_MAX} values")));
        }
        if depth > DEPTH_MAX {
            return Err(at.mistake(format!("nested deeper than {DEPTH_MAX} levels")));
        }
        let value = match event {
            Event::Scalar(text, style, ..) => scalar(&text, style),
            Event::SequenceStart(..) => Value::List(self.list(depth)?),
            Event::MappingStart(..) => Value::Map(self.map(depth)?),
            Event::Alias(_) => return Err(at.mistake("an alias (*name); write the value itself")),
            _ => return Err(at.mistake("wanted a value")),
        };
        Ok(Node { at, value })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Mistake> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd | Event::StreamEnd, _) => return Ok(list),
                (event, at) => list.push(self.node(event, at, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(Key, Node)>, Mistake> {
        let mut map = Vec::new();
        let mut names = BTreeSet::new();
        loop {
            let (event, at) = self.next()?;
            let name = match event {
                Event::MappingEnd | Event::StreamEnd => return Ok(map),
                Event::Scalar(name, ..) => name.into_owned(),
                _ => return Err(at.mistake("wanted a name before the ':'")),
            };
            if !names.insert(name.clone()) {
                return Err(at.mistake(format!("'{name}' stands here a second time")));
            }
            let (event, value_at) = self.next()?;
            let value = self.node(event, value_at, depth + 1)?;
            map.push((Key { name, at }, value));
        }
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    let is_nothing = style == ScalarStyle::Plain && matches!(text, "" | "~" | "null" | "Null" | "NULL");
    if is_nothing { Value::Nothing } else { Value::Scalar(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry<'a>(node: &'a Node, name: &str) -> &'a Node {
        let Value::Map(map) = &node.value else { panic!("{node:?}") };
        map.iter().find(|(key, _)| key.name == name).map(|(_, node)| node).unwrap_or_else(|| panic!("{name}"))
    }

    #[test]
    fn values_have_their_places() {
        let root = parse("log:\n  file: /tmp/a.log\n# no\nfiles: [/etc/hosts, \"~\"]\nempty:\n").unwrap();
        let file = entry(entry(&root, "log"), "file");
        assert_eq!(file.value, Value::Scalar("/tmp/a.log".to_owned()));
        assert_eq!(file.at, Position { line: 2, column: 9 });
        let Value::List(files) = &entry(&root, "files").value else { panic!() };
        assert_eq!(files[1].value, Value::Scalar("~".to_owned()), "in quotes it is a name");
        assert_eq!(files[1].at, Position { line: 4, column: 21 });
        assert_eq!(entry(&root, "empty").value, Value::Nothing);
        assert_eq!(parse("").unwrap().value, Value::Nothing);
        assert_eq!(parse("# only a comment\n").unwrap().value, Value::Nothing);
    }

    #[test]
    fn what_means_two_things_is_refused_with_its_place() {
        let place = |text: &str| parse(text).map_err(|m| (m.line, m.column)).map(|n| n.value);
        assert_eq!(place("a: 1\nb: 2\na: 3\n"), Err((3, 1)));
        assert_eq!(place("a: &x 1\nb: *x\n"), Err((2, 4)));
        assert!(place("a: 1\n---\nb: 2\n").is_err());
        assert!(place("a: [1, 2\n").is_err());
        assert!(place("a: 'open\n").is_err());
        assert!(place(&"[".repeat(100)).is_err());
        assert!(place(&"- ".repeat(200)).is_err());
        assert!(parse(&" ".repeat(BYTES_MAX + 1)).is_err());
    }

    proptest! {
        #[test]
        fn nothing_that_is_read_panics(text in "[-a-z:#'\"\\[\\]{},&*!|>%@` \n\t~?]{0,80}") {
            let _either = parse(&text);
        }

        #[test]
        fn names_and_values_are_read_back(map in proptest::collection::btree_map("[a-z]{1,8}", "[a-z0-9/*. ]{0,12}", 0..8)) {
            let text: String = map.iter().map(|(k, v)| format!("k{k}: \"{v}\"\n")).collect();
            let root = parse(&text).unwrap();
            for (k, v) in &map {
                prop_assert_eq!(&entry(&root, &format!("k{k}")).value, &Value::Scalar(v.clone()));
            }
        }
    }
}
