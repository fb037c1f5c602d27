//! How output looks: text, tables, HTML.

pub mod capture;
pub mod card;
pub mod changed;
pub mod compare;
#[cfg(test)]
pub mod examples;
pub mod experiment;
pub mod html;
pub mod inspect;
pub mod ledger;
pub mod page;
pub mod pprof;
pub mod proof;
pub mod repeats;
pub mod sources;
pub mod style;
pub mod table;
pub mod text;
pub mod units;
