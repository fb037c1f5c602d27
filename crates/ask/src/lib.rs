//! The languages of those who ask from outside: hostile text to questions, values to answers. Nothing here does any I/O.
//!
//! [`mcp`] reads the messages of assistants, [`promql`] evaluates the queries of Prometheus' clients over whatever has series.

pub mod mcp;
pub mod promql;
