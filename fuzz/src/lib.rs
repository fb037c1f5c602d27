//! Everything that reads bytes from outside, as functions of bytes. What must hold whatever they are is asserted there; that
//! nothing panics, overflows or takes for ever holds for all.
//!
//! cargo-fuzz runs one target for as long as one likes (`make fuzz`); the tests here run all of them for a moment ([`short`]).

mod ask;
mod proc_parsers;
mod replies;
mod rules;
mod search;
pub mod short;
mod text;

use mitra_parse::text as formats;

/// Something that reads bytes.
pub struct Target {
    /// Its name, and that of its folder in `corpus/`.
    pub name: &'static str,
    /// Reads the bytes. Returning at all is the test.
    pub run: fn(&[u8]),
}

/// The targets, and a test for each.
macro_rules! targets {
    ($($name:ident: $run:expr,)+) => {
        /// All targets.
        pub const TARGETS: &[Target] = &[$(Target { name: stringify!($name), run: $run }),+];

        #[cfg(test)]
        mod tests {
            $(
                #[test]
                fn $name() {
                    super::short::test(stringify!($name));
                }
            )+
        }
    };
}

targets! {
    archive_captures: mitra_archive::fuzzing::capture,
    archive_reader: mitra_archive::fuzzing::all,
    inspect_elf: mitra_inspect::fuzzing::elf,
    inspect_looks: mitra_inspect::fuzzing::snapshots,
    inspect_memory: mitra_inspect::fuzzing::all,
    inspect_parsers: mitra_inspect::fuzzing::parser,
    inspect_resolver: mitra_inspect::fuzzing::resolver,
    proc_parsers: proc_parsers::run,
    rules: rules::run,
    search_config: search::config,
    search_query: search::query,
    search_replies: replies::run,
    search_secrets: search::secrets,
    search_spool: mitra_search::opensearch::fuzzing::spool,
    text_heaps: |bytes| text::read(&[formats::heaps::FORMATS, formats::bench::FORMATS], bytes),
    text_logs: |bytes| text::read(&[formats::logs::FORMATS], bytes),
    text_monitors: |bytes| text::read(&[formats::monitors::FORMATS], bytes),
    text_procfs: |bytes| text::read(&[formats::procps::FORMATS, formats::net::FORMATS, formats::snapshots::FORMATS], bytes),
    text_sysstat: |bytes| text::read(&[formats::sysstat::FORMATS], bytes),
    text_tracing: |bytes| text::read(&[formats::tracing::FORMATS], bytes),
    ask_mcp: ask::message,
    ask_promql: ask::query,
}
