//! The pages about the index.

use std::fmt::Write;

use mitra_search::collectors::COLLECTORS;
use mitra_search::fields::{ALIASES, FIELDS, KEYWORD_MAX, Type};

use super::cell;

/// `docs/fields.md`, from the table of fields.
pub fn fields() -> String {
    let mut out = format!(
        "# Fields\n\n\
         The fields of a document, for `mitra search` and for the indices of OpenSearch. This page is written by `make docs`\n\
         from `crates/search/src/fields.rs`; the syntax of queries is in [search.md](search.md).\n\n\
         The type of a field is decided by its name: *text* is cut into words without case; a *keyword* is one word as a\n\
         whole, with case, of {KEYWORD_MAX} bytes at most; *long* and *double* are numbers (`size:>4k` means 4096 bytes); *date* is a\n\
         moment to the millisecond, *day* a day of UTC. A value that is not of the type of its name stays in the content.\n\n\
         | field | type | what it is |\n|---|---|---|\n"
    );
    for field in FIELDS {
        let kind = match field.kind {
            Type::Text => "text",
            Type::Keyword => "keyword",
            Type::Long => "long",
            Type::Double => "double",
            Type::Date => "date",
            Type::Day => "day",
        };
        _ = writeln!(out, "| `{}` | {kind} | {} |", field.name, cell(field.help));
    }
    out.push_str("\nOlder names still work: ");
    let names: Vec<String> = ALIASES.iter().map(|(old, new)| format!("`{old}` is `{new}`")).collect();
    out.push_str(&names.join(", "));
    out.push_str(
        ".\n\n## Collectors\n\n\
         What a machine says of itself beside its files. All of them are on unless `collectors:` of the configuration names\n\
         others. They read and change nothing, and start no program but `rpm` where there is a database of rpm.\n\n\
         | name | what it says |\n|---|---|\n",
    );
    for collector in COLLECTORS {
        _ = writeln!(out, "| `{}` | {} |", collector.name, cell(collector.help));
    }
    out
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
