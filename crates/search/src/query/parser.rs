//! Parses tokens into a syntax tree, by the grammar of Lucene's classic parser.
//!
//! ```text
//! query  = [ "+" | "-" | "NOT" ] clause
//!          { [ "AND" | "OR" ] [ "+" | "-" | "NOT" ] clause | words }
//! words  = TERM TERM { TERM }      all but the first are not followed by  : * ~ ^ AND OR
//! clause = [ ( TERM | "*" ) ":" ] ( part | "(" query ")" [ "^" NUMBER ] )
//! part   = ( TERM | PREFIX | WILDCARD | REGEX | QUOTED | "*" | LONE ) [ "~…" ] [ "^" NUMBER ]
//!        | ( "[" | "{" ) END "TO" END ( "]" | "}" ) [ "^" NUMBER ]
//! ```
//!
//! `words` takes precedence: `a b c AND d` is the words `a b`, then `c AND d`.

use std::ops::Range;

use super::ast::{Clause, End, Group, Joint, Name, Node, Part, Sign};
use super::escape::unescape;
use super::lexer::{Kind, Token, tokens};
use super::{DEPTH_MAX, numbers, path};
use crate::error::QueryError;

/// The syntax tree, and warnings about probable mistakes.
pub type Parsed = (Group, Vec<QueryError>);

/// Parses a query.
pub fn parse(text: &str) -> Result<Parsed, QueryError> {
    let read = tokens(text);
    let mut parser = Parser {
        text,
        tokens: read.list,
        mistake: read.mistake,
        at: 0,
        open: Vec::new(),
        warnings: Vec::new(),
    };
    let group = parser.group()?;
    if parser.kind(0) != Kind::End {
        return Err(parser.unexpected("a word or the end"));
    }
    Ok((group, parser.warnings))
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    mistake: Option<QueryError>,
    at: usize,
    /// The open brackets.
    open: Vec<Range<usize>>,
    warnings: Vec<QueryError>,
}

impl<'a> Parser<'a> {
    fn token(&self, ahead: usize) -> Token {
        let end = Token { kind: Kind::End, start: self.text.len(), end: self.text.len() };
        self.tokens.get(self.at + ahead).copied().unwrap_or(end)
    }

    fn kind(&self, ahead: usize) -> Kind {
        self.token(ahead).kind
    }

    fn image(&self, token: Token) -> &'a str {
        self.text.get(token.at()).unwrap_or_default()
    }

    /// Takes the next token if it is of this kind.
    fn take(&mut self, kind: Kind) -> Option<Token> {
        let token = self.token(0);
        if token.kind != kind {
            return None;
        }
        self.at += 1;
        Some(token)
    }

    fn group(&mut self) -> Result<Group, QueryError> {
        let mut clauses = Vec::new();
        let mut joints = [None, None];
        while clauses.is_empty() || self.goes_on() {
            let joint_token = self.token(0);
            let joint = match joint_token.kind {
                Kind::And if !clauses.is_empty() => Joint::And,
                Kind::Or if !clauses.is_empty() => Joint::Or,
                _ => Joint::Beside,
            };
            match joint {
                Joint::Beside => {}
                Joint::And => joints[0] = Some(joint_token),
                Joint::Or => joints[1] = Some(joint_token),
            }
            if joint == Joint::Beside && self.starts_words() {
                clauses.push(Clause { joint, sign: Sign::Plain, node: self.words()? });
                continue;
            }
            if joint != Joint::Beside {
                self.at += 1;
            }
            let sign = match self.kind(0) {
                Kind::Plus => Sign::Must,
                Kind::Minus | Kind::Not => Sign::Not,
                _ => Sign::Plain,
            };
            if sign != Sign::Plain {
                self.at += 1;
            }
            clauses.push(Clause { joint, sign, node: self.clause()? });
        }
        if let [Some(and), Some(or)] = joints {
            let at = and.start.min(or.start)..and.end.max(or.end);
            let warning = QueryError::new(
                at,
                "AND and OR side by side: AND requires both of its neighbours, OR nothing",
            );
            self.warnings.push(warning.hint("Brackets say what belongs together: a OR (b AND c)."));
        }
        Ok(Group { clauses })
    }

    /// Whether the group has another clause.
    fn goes_on(&self) -> bool {
        use Kind::{
            After, And, From, Lone, Minus, Not, Open, Or, Plus, Prefix, Quoted, Regex, Star, Term, Wildcard,
        };
        let starts_clause =
            matches!(self.kind(0), Lone | Open | Star | Quoted | Term | Prefix | Wildcard | Regex);
        starts_clause || matches!(self.kind(0), And | Or | Not | Plus | Minus | From | After)
    }

    /// Whether the next token is a word, and the one after it another word without an operator.
    fn starts_words(&self) -> bool {
        self.kind(0) == Kind::Term && self.goes_on_with_word(1)
    }

    fn goes_on_with_word(&self, ahead: usize) -> bool {
        self.kind(ahead) == Kind::Term
            && !matches!(
                self.kind(ahead + 1),
                Kind::Colon | Kind::Star | Kind::Tilde | Kind::Caret | Kind::And | Kind::Or
            )
    }

    fn words(&mut self) -> Result<Node, QueryError> {
        let first = self.token(0);
        let mut text = self.word(first)?;
        let mut end = first.end;
        self.at += 1;
        while self.goes_on_with_word(0) {
            let next = self.token(0);
            text.push(' ');
            text.push_str(&self.word(next)?);
            end = next.end;
            self.at += 1;
        }
        let at = first.start..end;
        Ok(Node { field: None, part: Part::Words(text), at: at.clone(), part_at: at, asked: None })
    }

    /// Unescapes a bare word. Warns of lower-case operators.
    fn word(&mut self, token: Token) -> Result<String, QueryError> {
        let image = self.image(token).to_owned();
        if matches!(image.as_str(), "and" | "or" | "not") {
            let warning = QueryError::new(token.at(), format!("'{image}' is a word to look for"));
            self.warnings.push(warning.hint(format!("The operator is written {}.", image.to_uppercase())));
        }
        unescape(&image, token.start)
    }

    fn clause(&mut self) -> Result<Node, QueryError> {
        let first = self.token(0);
        let mut field = None;
        if matches!(first.kind, Kind::Term | Kind::Star) && self.kind(1) == Kind::Colon {
            let text = unescape(self.image(first), first.start)?;
            field = Some(Name { text, at: first.at() });
            self.at += 2;
        }
        let start = self.token(0).start;
        let mut end = start;
        let part = match self.take(Kind::Open) {
            Some(open) => self.brackets(open, &mut end)?,
            None => self.part(field.is_some(), &mut end)?,
        };
        Ok(Node { field, part, at: first.start..end, part_at: start..end, asked: None })
    }

    fn brackets(&mut self, open: Token, end: &mut usize) -> Result<Part, QueryError> {
        if self.open.len() >= DEPTH_MAX {
            return Err(QueryError::new(
                open.at(),
                format!("more than {DEPTH_MAX} brackets inside each other"),
            ));
        }
        self.open.push(open.at());
        let group = self.group()?;
        let Some(close) = self.take(Kind::Close) else { return Err(self.unexpected("a word or ')'")) };
        self.open.pop();
        *end = close.end;
        self.boost()?;
        Ok(Part::Group(group))
    }

    fn part(&mut self, of_field: bool, end: &mut usize) -> Result<Part, QueryError> {
        let token = self.token(0);
        *end = token.end;
        match token.kind {
            Kind::From | Kind::After => return self.range(end),
            Kind::Term
            | Kind::Star
            | Kind::Prefix
            | Kind::Wildcard
            | Kind::Regex
            | Kind::Lone
            | Kind::Quoted => {}
            _ => return Err(self.unexpected("a word")),
        }
        self.at += 1;
        let mut tilde = None;
        if self.kind(0) == Kind::Caret {
            self.boost()?;
            tilde = self.take(Kind::Tilde);
        } else if let Some(token) = self.take(Kind::Tilde) {
            tilde = Some(token);
            self.boost()?;
        }
        let image = self.image(token).to_owned();
        if token.kind == Kind::Quoted {
            let inside = image.get(1..image.len().saturating_sub(1)).unwrap_or_default();
            let text = unescape(inside, token.start + 1)?;
            return Ok(Part::Quoted { text, slop: tilde.map_or(0, |t| self.slop(t)) });
        }
        // Wildcards and regular expressions keep their backslashes, but they are checked as well.
        let text = if token.kind == Kind::Term && !of_field {
            self.word(token)?
        } else {
            unescape(&image, token.start)?
        };
        Ok(match token.kind {
            Kind::Star | Kind::Wildcard => Part::Wildcard(image),
            Kind::Prefix => Part::Prefix(text.strip_suffix('*').unwrap_or(&text).to_owned()),
            Kind::Regex => {
                self.warn_of_path(token);
                Part::Regex(image.get(1..image.len().saturating_sub(1)).unwrap_or_default().to_owned())
            }
            kind => {
                // A lone token includes the white space, but only the sign is the word.
                let text = if kind == Kind::Lone { text.chars().take(1).collect() } else { text };
                match tilde {
                    Some(tilde) => {
                        let like = self.image(tilde).get(1..).unwrap_or_default().to_owned();
                        Part::Fuzzy { text, like, like_at: tilde.at() }
                    }
                    None => Part::Term(text),
                }
            }
        })
    }

    /// Warns if a regular expression is adjacent to a word, because it is probably a path.
    fn warn_of_path(&mut self, token: Token) {
        use Kind::{Prefix, Regex, Term, Wildcard};
        let is_word = |t: &Token| matches!(t.kind, Term | Prefix | Wildcard | Regex);
        let before = self.at.checked_sub(2).and_then(|i| self.tokens.get(i));
        let touches_before = before.is_some_and(|t| is_word(t) && t.end == token.start);
        let touches_behind = is_word(&self.token(0)) && self.token(0).start == token.end;
        if !touches_before && !touches_behind {
            return;
        }
        let around = path::around(self.text, token.at());
        let word = self.text.get(around.clone()).unwrap_or_default();
        let warning =
            QueryError::new(around, format!("{} is a regular expression and not a path", self.image(token)));
        self.warnings.push(warning.hint(format!("A path is quoted: \"{word}\".")));
    }

    fn slop(&self, tilde: Token) -> i32 {
        let number = self.image(tilde).get(1..).and_then(numbers::double).unwrap_or(0.0);
        // The cast saturates, and turns NaN into 0, as in Java.
        number as i32
    }

    fn boost(&mut self) -> Result<(), QueryError> {
        let Some(caret) = self.take(Kind::Caret) else { return Ok(()) };
        let Some(number) = self.take(Kind::Number) else {
            return Err(self.mistake.take().unwrap_or_else(|| {
                QueryError::new(caret.at(), "wanted a number right after ^")
                    .hint("Write \\^ for the character itself.")
            }));
        };
        let fits = numbers::double(self.image(number)).is_some_and(|n| n <= f64::from(f32::MAX));
        if fits { Ok(()) } else { Err(QueryError::new(number.at(), "the number after ^ is too large")) }
    }

    fn range(&mut self, end: &mut usize) -> Result<Part, QueryError> {
        let open = self.token(0);
        self.at += 1;
        let mut low = self.range_end(open)?;
        if self.take(Kind::To).is_none() {
            return Err(self.no_range(open, "TO"));
        }
        let mut high = self.range_end(open)?;
        low.with = open.kind == Kind::From;
        let close = self.token(0);
        if !matches!(close.kind, Kind::Until | Kind::Before) {
            return Err(self.no_range(open, "']' or '}'"));
        }
        self.at += 1;
        high.with = close.kind == Kind::Until;
        *end = close.end;
        self.boost()?;
        Ok(Part::Range { low, high })
    }

    fn range_end(&mut self, open: Token) -> Result<End, QueryError> {
        let token = self.token(0);
        let image = self.image(token);
        let value = match token.kind {
            Kind::WordEnd if image == "*" => None,
            Kind::WordEnd | Kind::To => Some(unescape(image, token.start)?),
            Kind::QuotedEnd => Some(unescape(
                image.get(1..image.len().saturating_sub(1)).unwrap_or_default(),
                token.start + 1,
            )?),
            _ => return Err(self.no_range(open, "an end of the range")),
        };
        self.at += 1;
        Ok(End { value, with: true, at: token.at() })
    }

    fn no_range(&self, open: Token, wanted: &str) -> QueryError {
        let found = self.token(0);
        let at = if found.kind == Kind::End { open.at() } else { found.at() };
        let message = match found.kind {
            Kind::End => format!("the range is never closed; wanted {wanted}"),
            _ => format!("wanted {wanted}, found {}", self.image(found)),
        };
        QueryError::new(at, message)
            .hint("A range is written [1 TO 5], {1 TO 5} without its ends, [1 TO *] without an upper end.")
    }

    /// The error for the next token.
    fn unexpected(&mut self, wanted: &str) -> QueryError {
        let token = self.token(0);
        let before = self.at.checked_sub(1).and_then(|i| self.tokens.get(i)).copied();
        let image = self.image(token);
        match (token.kind, before) {
            (Kind::Mistake, _) => {
                self.mistake.take().unwrap_or_else(|| QueryError::new(token.at(), "cannot be read"))
            }
            (Kind::End, Some(last)) if joins(last.kind) => {
                let hint = match last.kind {
                    Kind::Colon => {
                        "A value that is asked for follows the name of its field, field:* for any."
                    }
                    _ => "In quotes it is a word to look for.",
                };
                QueryError::new(last.at(), format!("nothing follows '{}'", self.image(last))).hint(hint)
            }
            (Kind::End, last) => match self.open.last() {
                Some(open) => QueryError::new(open.clone(), "the bracket is never closed")
                    .hint("Write \\( for the character itself."),
                None => QueryError::new(last.map_or(0..0, Token::at), format!("wanted {wanted}")),
            },
            (Kind::And | Kind::Or, _) => {
                QueryError::new(token.at(), format!("nothing stands before '{image}' that it could join"))
                    .hint("In quotes it is a word to look for.")
            }
            (Kind::Close, Some(last)) if joins(last.kind) || last.kind == Kind::Open => {
                QueryError::new(last.start..token.end, format!("wanted {wanted} before ')'"))
            }
            (Kind::Close, _) => QueryError::new(token.at(), "the bracket was never opened")
                .hint("Write \\) for the character itself."),
            (Kind::Colon, _) => QueryError::new(token.at(), format!("wanted {wanted}, found ':'"))
                .hint("A value with a colon is quoted: time:\"2026-11-21T10:30:00\"."),
            (Kind::Plus | Kind::Minus | Kind::Not, Some(last)) if last.kind == Kind::Colon => {
                QueryError::new(token.at(), format!("wanted {wanted} after ':', found '{image}'")).hint(
                    "Write -field:value for documents without a value, and quote a negative number: \"-1\".",
                )
            }
            _ => QueryError::new(token.at(), format!("wanted {wanted}, found '{image}'")),
        }
    }
}

/// Whether something has to follow.
fn joins(kind: Kind) -> bool {
    matches!(kind, Kind::And | Kind::Or | Kind::Not | Kind::Plus | Kind::Minus | Kind::Colon)
}
