//! The meaning of a query by the rules of Lucene's classic parser, which has no operator
//! precedence.
//!
//! Every clause of a group is required, prohibited or optional. `AND` makes its own clause and the
//! previous one required, unless the latter is prohibited. `OR` has no effect, except with the
//! default operator AND, where it makes both clauses optional. A group matches the intersection of
//! its required clauses or, if there are none, the union of the optional ones, without the
//! prohibited ones.
//!
//! ```text
//! a OR b AND c            b and c; a has no effect
//! a AND b OR c            a and b; c has no effect
//! NOT a                   everything but a
//! a b AND "…"             a or b: the text has no token, but still makes b required
//! ```

use super::ast::{Group, Joint, Node, Part, Sign};
use super::leaves::Leaves;
use super::names;
use super::rewrite::EXISTS;
use super::set::Set;
use super::{Settings, leaves};
use crate::error::QueryError;
use crate::fields::{self, DEFAULT};

/// The meaning of a query.
#[derive(Debug)]
pub struct Folded {
    /// The matching documents.
    pub set: Set,
    /// Probable mistakes that are valid queries.
    pub warnings: Vec<QueryError>,
    /// The fields that the query names, without duplicates, in the order of the text.
    pub fields: Vec<String>,
}

/// Evaluates the meaning of a query.
pub fn fold(group: &Group, settings: Settings) -> Result<Folded, QueryError> {
    let mut fold = Fold { leaves: Leaves::new(settings), all_words: settings.all_words, fields: Vec::new() };
    let set = fold.group(group, DEFAULT)?;
    let mut warnings = fold.leaves.warnings;
    if set.is_none() {
        let (first, last) = (group.clauses.first(), group.clauses.last());
        let at = first.map_or(0, |c| c.node.at.start)..last.map_or(0, |c| c.node.at.end);
        warnings.push(QueryError::new(at, "there is no word in it that could be looked for"));
    }
    Ok(Folded { set: set.unwrap_or(Set::Nothing), warnings, fields: fold.fields })
}

struct Fold {
    leaves: Leaves,
    all_words: bool,
    fields: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occur {
    Should,
    Must,
    Not,
}

impl Fold {
    /// The set of a group; `None` if none of its clauses has a token.
    fn group(&mut self, group: &Group, field: &str) -> Result<Option<Set>, QueryError> {
        let mut clauses: Vec<(Occur, Set)> = Vec::new();
        for clause in &group.clauses {
            let found = self.node(&clause.node, field)?;
            if matches!(clause.node.part, Part::Words(_)) {
                // A run of words becomes one clause per token.
                let occur = if self.all_words { Occur::Must } else { Occur::Should };
                clauses.extend(found.into_iter().map(|set| (occur, set)));
                continue;
            }
            let previous = clauses.last_mut().map(|(occur, _)| occur).filter(|occur| **occur != Occur::Not);
            match (clause.joint, previous) {
                (Joint::And, Some(occur)) => *occur = Occur::Must,
                (Joint::Or, Some(occur)) if self.all_words => *occur = Occur::Should,
                _ => {}
            }
            let Some(set) = self.together(found) else { continue };
            let required = match clause.joint {
                Joint::And => true,
                Joint::Beside => self.all_words,
                Joint::Or => false,
            };
            let occur = match clause.sign {
                Sign::Not => Occur::Not,
                Sign::Must if !self.all_words => Occur::Must,
                _ if required => Occur::Must,
                _ => Occur::Should,
            };
            clauses.push((occur, set));
        }
        Ok(if clauses.is_empty() { None } else { Some(combined(clauses)) })
    }

    /// The sets of one node: none, one, or one per token.
    fn node(&mut self, node: &Node, inherited: &str) -> Result<Vec<Set>, QueryError> {
        let field = node.field.as_ref().map_or(inherited, |name| &name.text);
        if let Some(asked) = &node.asked {
            self.note(asked);
        } else if node.field.is_some() && field != EXISTS && field != "*" {
            self.note(fields::resolve(field));
        }
        if let Part::Group(group) = &node.part {
            return Ok(self.group(group, field)?.into_iter().collect());
        }
        match &node.part {
            Part::Words(text) | Part::Term(text) | Part::Quoted { text, .. } if field == EXISTS => {
                self.note(fields::resolve(text));
                self.leaves.exists(text, &node.at)
            }
            Part::Wildcard(pattern) if pattern == "*" && field == "*" => Ok(vec![Set::All]),
            Part::Wildcard(pattern) if pattern == "*" => self.leaves.exists(field, &node.at),
            part => {
                let ask = leaves::ask(part, &node.part_at)?;
                let targets = names::targets(field);
                if targets.is_empty() {
                    return self.leaves.unknown(field, &node.at);
                }
                let quiet = targets.len() > 1;
                let mut found = Vec::new();
                for target in &targets {
                    let sets = self.leaves.of(target, &ask, &node.part_at, quiet)?;
                    if !quiet {
                        return Ok(sets);
                    }
                    found.extend(self.together(sets));
                }
                Ok(if found.is_empty() { found } else { vec![or(found)] })
            }
        }
    }

    fn note(&mut self, field: &str) {
        if !self.fields.iter().any(|f| f == field) {
            self.fields.push(field.to_owned());
        }
    }

    /// Combines the tokens of one text with the default operator.
    fn together(&self, mut sets: Vec<Set>) -> Option<Set> {
        match sets.len() {
            0 | 1 => sets.pop(),
            _ if self.all_words => Some(and(sets)),
            _ => Some(or(sets)),
        }
    }
}

fn combined(clauses: Vec<(Occur, Set)>) -> Set {
    let mut all = Vec::new();
    let mut any = Vec::new();
    let mut without = Vec::new();
    for (occur, set) in clauses {
        match occur {
            Occur::Must => all.push(set),
            Occur::Should => any.push(set),
            Occur::Not => without.push(not(set)),
        }
    }
    if all.is_empty() && !any.is_empty() {
        all.push(or(any));
    }
    all.extend(without);
    and(all)
}

/// The intersection.
pub fn and(sets: Vec<Set>) -> Set {
    let mut parts = Vec::new();
    for set in sets {
        match set {
            Set::All => {}
            Set::Nothing => return Set::Nothing,
            Set::And(inner) => parts.extend(inner),
            other => parts.push(other),
        }
    }
    match parts.len() {
        0 => Set::All,
        1 => parts.remove(0),
        _ => Set::And(parts),
    }
}

/// The union.
pub fn or(sets: Vec<Set>) -> Set {
    let mut parts = Vec::new();
    for set in sets {
        match set {
            Set::All => return Set::All,
            Set::Nothing => {}
            Set::Or(inner) => parts.extend(inner),
            other => parts.push(other),
        }
    }
    match parts.len() {
        0 => Set::Nothing,
        1 => parts.remove(0),
        _ => Set::Or(parts),
    }
}

fn not(set: Set) -> Set {
    match set {
        Set::All => Set::Nothing,
        Set::Nothing => Set::All,
        Set::Not(inner) => *inner,
        other => Set::Not(Box::new(other)),
    }
}
