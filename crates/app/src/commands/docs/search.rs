//! `docs/fields.md`, from the table of fields.

use mitra_search::collectors::COLLECTORS;
use mitra_search::fields::{ALIASES, FIELDS, Field, KEYWORD_MAX, Type};

use super::{cell, filled, rows};

pub fn fields() -> String {
    let field = |field: &Field| {
        let kind = match field.kind {
            Type::Text => "text",
            Type::Keyword => "keyword",
            Type::Long => "long",
            Type::Double => "double",
            Type::Date => "date",
            Type::Day => "day",
        };
        format!("| `{}` | {kind} | {} |", field.name, cell(field.help))
    };
    let aliases: Vec<String> = ALIASES.iter().map(|(old, new)| format!("`{old}` is `{new}`")).collect();
    filled(
        include_str!("fields.md"),
        &[
            ("keyword_max", &KEYWORD_MAX.to_string()),
            ("fields", &rows(FIELDS, field)),
            ("aliases", &aliases.join(", ")),
            ("collectors", &rows(COLLECTORS, |one| format!("| `{}` | {} |", one.name, cell(one.help)))),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_and_collector_has_its_words() {
        let page = fields();
        assert!(FIELDS.iter().all(|f| !f.help.is_empty() && page.contains(&format!("| `{}` |", f.name))));
        assert!(COLLECTORS.iter().all(|c| !c.help.is_empty() && page.contains(&format!("| `{}` |", c.name))));
    }
}
