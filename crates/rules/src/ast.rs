//! An expression as a tree, and back as text.

use std::fmt;
use std::ops::Range;

/// Where a part of an expression stands. Two expressions are the same wherever they stand.
#[derive(Debug, Clone, Default)]
pub struct Place(pub Range<usize>);

impl PartialEq for Place {
    fn eq(&self, _: &Place) -> bool {
        true
    }
}

/// An expression, and for how long it has to hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    /// The condition.
    pub root: Node,
    /// `for 2s`.
    pub hold: Option<Literal>,
}

/// A part of an expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its bytes in the text.
    pub place: Place,
    /// What it is.
    pub kind: Kind,
}

/// What a part of an expression is.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A number with its unit.
    Literal(Literal),
    /// A metric, of some rows.
    Metric {
        /// As it was written.
        name: String,
        /// Which rows: all of these have to match.
        matches: Vec<Match>,
    },
    /// Lines of a log that match.
    Log(LogPattern),
    /// `-x`.
    Negative(Box<Node>),
    /// `not x`.
    Not(Box<Node>),
    /// Two parts with an operator between them.
    Binary(Operator, Box<Node>, Box<Node>),
    /// A function over one part: `max(x)`, `sum(x) by pid`.
    Call {
        /// Which.
        function: Function,
        /// Of what.
        argument: Box<Node>,
        /// For each what.
        by: Option<GroupBy>,
    },
}

/// A pattern and the log in which it is looked for. Its text is the name of its row in recordings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPattern {
    /// The log.
    pub log: LogSource,
    /// A regular expression in the syntax of the crate `regex`.
    pub pattern: String,
}

/// A log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogSource {
    /// A file, by its path.
    File(String),
    /// What a unit of systemd says to journald.
    Unit(String),
}

/// A number as it was written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Literal {
    /// The number, without its unit.
    pub number: f64,
    /// The unit, an entry of [`UNITS`].
    pub unit: Option<LiteralUnit>,
    /// `/s` follows.
    pub per_second: bool,
}

impl Literal {
    /// The number in base units.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.number * self.unit.map_or(1.0, |unit| unit.worth)
    }
}

/// A unit of a literal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LiteralUnit {
    /// As it is written.
    pub name: &'static str,
    /// In base units.
    pub worth: f64,
    /// What it measures.
    pub measures: Measures,
}

/// What a unit measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measures {
    /// A share of one.
    Share,
    /// Bytes.
    Bytes,
    /// Seconds.
    Time,
    /// Pages of memory.
    Pages,
}

const fn unit(name: &'static str, worth: f64, measures: Measures) -> LiteralUnit {
    LiteralUnit { name, worth, measures }
}

/// The units of literals. The first of those that are the same is how it is printed.
pub const UNITS: &[LiteralUnit] = &[
    unit("%", 0.01, Measures::Share),
    unit("B", 1.0, Measures::Bytes),
    unit("KB", 1e3, Measures::Bytes),
    unit("MB", 1e6, Measures::Bytes),
    unit("GB", 1e9, Measures::Bytes),
    unit("TB", 1e12, Measures::Bytes),
    unit("KiB", 1024.0, Measures::Bytes),
    unit("MiB", 1_048_576.0, Measures::Bytes),
    unit("GiB", 1_073_741_824.0, Measures::Bytes),
    unit("TiB", 1_099_511_627_776.0, Measures::Bytes),
    unit("ns", 1e-9, Measures::Time),
    unit("us", 1e-6, Measures::Time),
    unit("ms", 1e-3, Measures::Time),
    unit("s", 1.0, Measures::Time),
    unit("min", 60.0, Measures::Time),
    unit("h", 3600.0, Measures::Time),
    unit("pages", 1.0, Measures::Pages),
];

/// The row of a selector has to match this: `vda`, `comm="nginx"`, `type!="tmpfs"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// What of the row; its name where none is given.
    pub attribute: Option<String>,
    /// `!=`: it must not.
    pub negated: bool,
    /// A text in which `*` stands for any text and `?` for one character.
    pub pattern: String,
}

/// An operator between two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words are their own explanation")]
pub enum Operator {
    Or,
    And,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Operator {
    /// As it is written.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Operator::Or => "or",
            Operator::And => "and",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
            Operator::Equal => "==",
            Operator::NotEqual => "!=",
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
        }
    }

    /// How tightly it binds.
    fn binds(self) -> u8 {
        match self {
            Operator::Or => 1,
            Operator::And => 2,
            Operator::Add | Operator::Subtract => 5,
            Operator::Multiply | Operator::Divide => 6,
            _ => COMPARISON,
        }
    }

    /// Whether it compares two numbers.
    #[must_use]
    pub fn is_comparison(self) -> bool {
        self.binds() == COMPARISON
    }
}

const NOT: u8 = 3;
const COMPARISON: u8 = 4;
const NEGATIVE: u8 = 7;
const ATOM: u8 = 8;

/// A function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// All rows added up.
    Sum,
    /// The largest row.
    Max,
    /// The smallest row.
    Min,
    /// The mean of the rows.
    Avg,
    /// For how many rows it holds.
    Count,
    /// Whether it holds for any row.
    Any,
    /// Whether it holds for every row.
    All,
    /// How fast a level changes, per second. Of a counter it is what the counter means anyway.
    Rate,
    /// Pages as bytes.
    Bytes,
    /// Without the sign.
    Abs,
}

impl Function {
    /// Every function with its name.
    pub const ALL: &[(&'static str, Function)] = &[
        ("sum", Function::Sum),
        ("max", Function::Max),
        ("min", Function::Min),
        ("avg", Function::Avg),
        ("count", Function::Count),
        ("any", Function::Any),
        ("all", Function::All),
        ("rate", Function::Rate),
        ("bytes", Function::Bytes),
        ("abs", Function::Abs),
    ];

    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        Function::ALL.iter().find(|(_, f)| *f == self).map_or("", |(name, _)| name)
    }

    /// What it makes of what.
    #[must_use]
    pub fn help(self) -> &'static str {
        match self {
            Function::Sum => "all rows added up",
            Function::Max => "the largest row",
            Function::Min => "the smallest row",
            Function::Avg => "the mean of the rows",
            Function::Count => "for how many rows a condition holds",
            Function::Any => "whether it holds for any row",
            Function::All => "whether it holds for every row",
            Function::Rate => "how fast a level changes, per second",
            Function::Bytes => "pages as bytes",
            Function::Abs => "without the sign",
        }
    }

    /// Whether it makes one value of many rows.
    #[must_use]
    pub fn is_over_rows(self) -> bool {
        !matches!(self, Function::Rate | Function::Bytes | Function::Abs)
    }
}

/// What tasks are put together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupBy {
    /// The threads of one process.
    Pid,
    /// Tasks of one name.
    Comm,
    /// Tasks of one control group.
    Cgroup,
}

impl GroupBy {
    /// Every one with its name.
    pub const ALL: &[(&'static str, GroupBy)] =
        &[("pid", GroupBy::Pid), ("comm", GroupBy::Comm), ("cgroup", GroupBy::Cgroup)];

    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        GroupBy::ALL.iter().find(|(_, g)| *g == self).map_or("", |(name, _)| name)
    }
}

impl Node {
    fn binds(&self) -> u8 {
        match &self.kind {
            Kind::Binary(operator, ..) => operator.binds(),
            Kind::Not(_) => NOT,
            Kind::Negative(_) => NEGATIVE,
            _ => ATOM,
        }
    }

    /// Prints it, in brackets where it binds less tightly than its place needs.
    fn print(&self, f: &mut fmt::Formatter<'_>, needs: u8) -> fmt::Result {
        if self.binds() < needs { write!(f, "({self})") } else { write!(f, "{self}") }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.root)?;
        self.hold.map_or(Ok(()), |hold| write!(f, " for {hold}"))
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Literal(literal) => write!(f, "{literal}"),
            Kind::Metric { name, matches } => {
                f.write_str(name)?;
                for (i, one) in matches.iter().enumerate() {
                    write!(f, "{}{one}", if i == 0 { "{" } else { ", " })?;
                }
                if matches.is_empty() { Ok(()) } else { f.write_str("}") }
            }
            Kind::Log(log) => write!(f, "{log}"),
            Kind::Negative(of) => {
                f.write_str("-")?;
                of.print(f, NEGATIVE)
            }
            Kind::Not(of) => {
                f.write_str("not ")?;
                of.print(f, NOT)
            }
            Kind::Binary(operator, left, right) => {
                let own = operator.binds();
                // A comparison of comparisons needs brackets on both sides.
                left.print(f, if own == COMPARISON { own + 1 } else { own })?;
                write!(f, " {} ", operator.text())?;
                right.print(f, own + 1)
            }
            Kind::Call { function, argument, by } => {
                write!(f, "{}({argument})", function.name())?;
                by.map_or(Ok(()), |by| write!(f, " by {}", by.name()))
            }
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.number, self.unit.map_or("", |unit| unit.name))?;
        f.write_str(if self.per_second { "/s" } else { "" })
    }
}

impl fmt::Display for LogPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (attribute, name) = match &self.log {
            LogSource::File(path) => ("file", path),
            LogSource::Unit(unit) => ("unit", unit),
        };
        write!(f, "log{{{attribute}=")?;
        text(f, name)?;
        // A backslash is the regular expression's own.
        write!(f, "}} =~ \"{}\"", self.pattern.replace('"', "\\\""))
    }
}

/// A name as it stands in a selector, in quotes where it needs them.
fn text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    if !text.is_empty() && text.chars().all(is_bare) {
        return f.write_str(text);
    }
    write!(f, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.attribute, self.negated) {
            (Some(attribute), false) => write!(f, "{attribute}=")?,
            (Some(attribute), true) => write!(f, "{attribute}!=")?,
            (None, true) => f.write_str("!=")?,
            (None, false) => {}
        }
        text(f, &self.pattern)
    }
}

/// Whether a character may stand in a selector without quotes.
#[must_use]
pub(crate) fn is_bare(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:@*?%".contains(c)
}
