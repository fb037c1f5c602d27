//! Text to an expression: recursive descent without a table of tokens.
//!
//! ```text
//! rule       = or [ "for" NUMBER UNIT ]
//! or         = and { "or" and }
//! and        = not { "and" not }
//! not        = "not" not | comparison
//! comparison = sum [ ( "<" | "<=" | ">" | ">=" | "==" | "!=" ) sum ]
//! sum        = product { ( "+" | "-" ) product }
//! product    = unary { ( "*" | "/" ) unary }
//! unary      = "-" unary | "(" or ")" | NUMBER [ UNIT ] [ "/s" ]
//!            | FUNCTION "(" or ")" [ "by" ( "pid" | "comm" | "cgroup" ) ] | METRIC [ "{" match { "," match } "}" ]
//!            | "log" "{" ( "file" | "unit" ) "=" ( WORD | "\"" … "\"" ) "}" "=~" "\"" REGEX "\""
//! match      = [ NAME ( "=" | "!=" ) | "!=" ] ( WORD | "\"" … "\"" )
//! ```

use std::ops::Range;

use crate::ast::{
    Expression, Function, GroupBy, Kind, Literal, LogPattern, LogSource, Match, Measures, Node, Operator,
    Place, UNITS, is_bare,
};
use crate::error::Mistake;

/// Longest expression that is read.
pub const BYTES_MAX: usize = 4096;
/// Brackets, signs and `not` inside each other.
const DEPTH_MAX: usize = 64;
/// Parts of one expression. Operators of one rank make a tree as deep as they are many.
const PARTS_MAX: usize = 400;

/// The grammar, as the comment at the top of this file has it.
#[must_use]
pub fn grammar() -> String {
    let page = mitra_model::manual(include_str!("parser.rs"));
    let inside = page.split_once("```text\n").and_then(|(_, rest)| rest.split_once("```"));
    inside.map_or_else(String::new, |(grammar, _)| grammar.to_owned())
}

/// Reads an expression.
pub fn parse(source: &str) -> Result<Expression, Mistake> {
    if source.len() > BYTES_MAX {
        return Err(Mistake::new(BYTES_MAX..source.len(), format!("longer than {BYTES_MAX} bytes")));
    }
    let mut parser = Parser { source, at: 0, depth: 0, parts: 0 };
    let root = parser.or()?;
    let hold = if parser.word("for") { Some(parser.hold()?) } else { None };
    parser.space();
    if parser.at < source.len() {
        return Err(parser.unexpected("an operator, `for` or the end"));
    }
    Ok(Expression { root, hold })
}

/// Reads a number with its unit.
pub fn literal(source: &str) -> Result<Literal, Mistake> {
    let mut parser = Parser { source, at: 0, depth: 0, parts: 0 };
    parser.space();
    if !parser.rest().starts_with(|c: char| c.is_ascii_digit()) {
        return Err(parser.unexpected("a number"));
    }
    let literal = parser.literal()?;
    parser.space();
    if parser.at < source.len() { Err(parser.unexpected("a unit")) } else { Ok(literal) }
}

struct Parser<'a> {
    source: &'a str,
    at: usize,
    depth: usize,
    parts: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        self.source.get(self.at..).unwrap_or("")
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Takes these characters, if they come next.
    fn take(&mut self, text: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    /// The letters, digits, dots and underscores that come next.
    fn peek_name(&mut self) -> &str {
        self.space();
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'));
        &rest[..end.unwrap_or(rest.len())]
    }

    /// Takes this word, if it comes next and ends there.
    fn word(&mut self, word: &str) -> bool {
        let found = self.peek_name() == word;
        self.at += if found { word.len() } else { 0 };
        found
    }

    /// What stands here is not what was wanted.
    fn unexpected(&mut self, wanted: &str) -> Mistake {
        self.space();
        let start = self.at;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Mistake::new(start..start, format!("the expression ends here; wanted {wanted}"));
        };
        let hint = match first {
            '&' => "; write `and`",
            '|' => "; write `or`",
            '!' => "; write `not`",
            '=' => "; compare with `==`",
            _ => "",
        };
        let name = self.peek_name();
        let found = if name.is_empty() { first.to_string() } else { name.to_owned() };
        Mistake::new(start..start + found.len(), format!("`{found}` here; wanted {wanted}{hint}"))
    }

    fn node(&mut self, place: Range<usize>, kind: Kind) -> Result<Node, Mistake> {
        self.parts += 1;
        if self.parts > PARTS_MAX {
            return Err(Mistake::new(place, format!("more than {PARTS_MAX} parts")));
        }
        Ok(Node { place: Place(place), kind })
    }

    fn binary(&mut self, operator: Operator, left: Node, right: Node) -> Result<Node, Mistake> {
        let place = left.place.0.start..right.place.0.end;
        self.node(place, Kind::Binary(operator, Box::new(left), Box::new(right)))
    }

    /// Goes one level deeper, as far as that is allowed.
    fn deeper<T>(&mut self, inside: impl FnOnce(&mut Self) -> Result<T, Mistake>) -> Result<T, Mistake> {
        if self.depth >= DEPTH_MAX {
            return Err(Mistake::new(self.at..self.at, format!("more than {DEPTH_MAX} levels")));
        }
        self.depth += 1;
        let result = inside(self);
        self.depth -= 1;
        result
    }

    fn or(&mut self) -> Result<Node, Mistake> {
        let mut left = self.and()?;
        while self.word("or") {
            let right = self.and()?;
            left = self.binary(Operator::Or, left, right)?;
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Node, Mistake> {
        let mut left = self.not()?;
        while self.word("and") {
            let right = self.not()?;
            left = self.binary(Operator::And, left, right)?;
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Node, Mistake> {
        self.space();
        let start = self.at;
        if !self.word("not") {
            return self.comparison();
        }
        let of = self.deeper(Self::not)?;
        self.node(start..of.place.0.end, Kind::Not(Box::new(of)))
    }

    fn comparison(&mut self) -> Result<Node, Mistake> {
        const OPERATORS: [(&str, Operator); 6] = [
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        let left = self.sum()?;
        let Some((_, operator)) = OPERATORS.into_iter().find(|(text, _)| self.take(text)) else {
            return Ok(left);
        };
        let right = self.sum()?;
        self.binary(operator, left, right)
    }

    fn sum(&mut self) -> Result<Node, Mistake> {
        let mut left = self.product()?;
        loop {
            let operator = match () {
                () if self.take("+") => Operator::Add,
                () if self.take("-") => Operator::Subtract,
                () => return Ok(left),
            };
            let right = self.product()?;
            left = self.binary(operator, left, right)?;
        }
    }

    fn product(&mut self) -> Result<Node, Mistake> {
        let mut left = self.unary()?;
        loop {
            let operator = match () {
                () if self.take("*") => Operator::Multiply,
                () if self.take("/") => Operator::Divide,
                () => return Ok(left),
            };
            let right = self.unary()?;
            left = self.binary(operator, left, right)?;
        }
    }

    fn unary(&mut self) -> Result<Node, Mistake> {
        self.space();
        let start = self.at;
        if self.take("-") {
            let of = self.deeper(Self::unary)?;
            return self.node(start..of.place.0.end, Kind::Negative(Box::new(of)));
        }
        if self.take("(") {
            let mut inside = self.deeper(Self::or)?;
            self.close(")", start)?;
            inside.place = Place(start..self.at);
            return Ok(inside);
        }
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            let literal = self.literal()?;
            return self.node(start..self.at, Kind::Literal(literal));
        }
        self.name(start)
    }

    fn close(&mut self, bracket: &str, opened: usize) -> Result<(), Mistake> {
        if self.take(bracket) {
            return Ok(());
        }
        let column = Mistake::new(opened..opened, "").column(self.source);
        Err(self.unexpected(&format!("`{bracket}` for what column {column} opened")))
    }

    fn literal(&mut self) -> Result<Literal, Mistake> {
        self.space();
        let start = self.at;
        let bytes = self.rest().as_bytes();
        let mut end = 0;
        while let Some(byte) = bytes.get(end) {
            let next = |n: usize| bytes.get(end + n).copied().unwrap_or(0);
            let is_exponent = matches!(byte, b'e' | b'E')
                && (next(1).is_ascii_digit() || (matches!(next(1), b'+' | b'-') && next(2).is_ascii_digit()));
            let is_part =
                byte.is_ascii_digit() || *byte == b'_' || (*byte == b'.' && next(1).is_ascii_digit());
            match (is_part, is_exponent) {
                (true, _) => end += 1,
                (_, true) => end += 2,
                _ => break,
            }
        }
        let text = self.rest()[..end].replace('_', "");
        let number = text.parse::<f64>().ok().filter(|n| n.is_finite());
        let Some(number) = number else {
            return Err(Mistake::new(start..start + end, format!("`{text}` is no number")));
        };
        self.at += end;
        let unit = self.unit();
        let before = self.at;
        let per_second = self.take("/") && self.word("s");
        self.at = if per_second { self.at } else { before };
        Ok(Literal { number, unit, per_second })
    }

    fn unit(&mut self) -> Option<crate::ast::LiteralUnit> {
        const ALIASES: [(&str, &str); 4] = [("µs", "us"), ("μs", "us"), ("page", "pages"), ("m", "min")];
        self.space();
        let rest = self.rest();
        let length = match rest.chars().next()? {
            '%' => 1,
            _ => rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).unwrap_or(rest.len()),
        };
        let word = &rest[..length];
        let word = ALIASES.iter().find(|(alias, _)| *alias == word).map_or(word, |(_, name)| name);
        let unit = UNITS.iter().find(|unit| unit.name == word).copied()?;
        self.at += length;
        Some(unit)
    }

    fn hold(&mut self) -> Result<Literal, Mistake> {
        self.space();
        let start = self.at;
        if !self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.unexpected("a time such as 3s"));
        }
        let literal = self.literal()?;
        let is_time = literal.unit.is_some_and(|unit| unit.measures == Measures::Time);
        if !is_time || literal.per_second {
            return Err(Mistake::new(start..self.at, "no time; wanted one such as 3s, 500ms or 2min"));
        }
        Ok(literal)
    }

    /// A function or a metric.
    fn name(&mut self, start: usize) -> Result<Node, Mistake> {
        let name = self.peek_name().to_owned();
        let is_keyword = ["and", "or", "not", "for", "by"].contains(&name.as_str());
        if name.is_empty() || is_keyword {
            return Err(self.unexpected("a number, a metric, a function or `(`"));
        }
        self.at += name.len();
        let end = self.at;
        if self.take("(") {
            let Some((_, function)) = Function::ALL.iter().find(|(f, _)| *f == name) else {
                let known: Vec<&str> = Function::ALL.iter().map(|(name, _)| *name).collect();
                let message = format!("no function is called `{name}`; there are {}", known.join(", "));
                return Err(Mistake::new(start..end, message));
            };
            let argument = Box::new(self.deeper(Self::or)?);
            self.close(")", end)?;
            let by = if self.word("by") { Some(self.group()?) } else { None };
            return self.node(start..self.at, Kind::Call { function: *function, argument, by });
        }
        if name == "log" {
            let log = self.log()?;
            return self.node(start..self.at, Kind::Log(log));
        }
        if !name.contains('.') {
            return Err(Mistake::new(
                start..end,
                format!("`{name}` is no metric; they are called such as mem.free"),
            ));
        }
        let mut matches = Vec::new();
        let opened = self.at;
        if self.take("{") {
            loop {
                matches.push(self.one_match()?);
                if !self.take(",") {
                    break;
                }
            }
            self.close("}", opened)?;
        } else {
            self.at = end;
        }
        self.node(start..self.at, Kind::Metric { name, matches })
    }

    /// A log and the pattern that is looked for in it, behind the word `log`.
    fn log(&mut self) -> Result<LogPattern, Mistake> {
        const WANTED: &str = "`{file=…}` or `{unit=…}` after `log`";
        let opened = self.at;
        if !self.take("{") {
            return Err(self.unexpected(WANTED));
        }
        let is_file = self.word("file");
        if !is_file && !self.word("unit") {
            return Err(self.unexpected("`file` or `unit`"));
        }
        if !self.take("=") {
            return Err(self.unexpected("`=`"));
        }
        let name = self.pattern()?;
        self.close("}", opened)?;
        if !self.take("=~") {
            return Err(self.unexpected("`=~` and a regular expression in quotes"));
        }
        let pattern = self.regex()?;
        Ok(LogPattern { log: if is_file { LogSource::File(name) } else { LogSource::Unit(name) }, pattern })
    }

    /// A regular expression in quotes. A backslash stays, unless a quote stands behind it.
    fn regex(&mut self) -> Result<String, Mistake> {
        if !self.take("\"") {
            return Err(self.unexpected("a regular expression in quotes"));
        }
        let start = self.at - 1;
        let mut text = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += at + 1;
                    return Ok(text);
                }
                '\\' => match chars.next() {
                    Some((_, '"')) => text.push('"'),
                    Some((_, other)) => text.extend(['\\', other]),
                    None => break,
                },
                c => text.push(c),
            }
        }
        Err(Mistake::new(start..self.source.len(), "the quote does not end"))
    }

    fn group(&mut self) -> Result<GroupBy, Mistake> {
        let name = self.peek_name().to_owned();
        let found = GroupBy::ALL.iter().find(|(n, _)| *n == name).map(|(_, by)| *by);
        self.at += if found.is_some() { name.len() } else { 0 };
        found.ok_or_else(|| self.unexpected("pid, comm or cgroup"))
    }

    fn one_match(&mut self) -> Result<Match, Mistake> {
        self.space();
        if self.take("!=") {
            return Ok(Match { attribute: None, negated: true, pattern: self.pattern()? });
        }
        let start = self.at;
        let name = self.peek_name().to_owned();
        self.at += name.len();
        if !name.is_empty() {
            let negated = self.take("!=");
            if negated || self.take("=") {
                // `==` is what one types after a while of comparisons.
                _ = !negated && self.take("=");
                return Ok(Match { attribute: Some(name), negated, pattern: self.pattern()? });
            }
        }
        self.at = start;
        Ok(Match { attribute: None, negated: false, pattern: self.pattern()? })
    }

    /// A bare word or a text in quotes.
    fn pattern(&mut self) -> Result<String, Mistake> {
        self.space();
        let start = self.at;
        if !self.take("\"") {
            let rest = self.rest();
            let word = rest[..rest.find(|c| !is_bare(c)).unwrap_or(rest.len())].to_owned();
            if word.is_empty() {
                return Err(self.unexpected("a name, or a text in quotes"));
            }
            self.at += word.len();
            return Ok(word);
        }
        let mut text = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += at + 1;
                    return Ok(text);
                }
                '\\' => match chars.next() {
                    Some((_, escaped @ ('"' | '\\'))) => text.push(escaped),
                    _ => {
                        let at = self.at + at;
                        return Err(Mistake::new(at..at + 1, "only \\\" and \\\\ are escaped here"));
                    }
                },
                c => text.push(c),
            }
        }
        Err(Mistake::new(start..self.source.len(), "the quote does not end"))
    }
}
