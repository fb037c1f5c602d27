//! The languages of those who ask from outside: hostile text to questions, values to answers. Nothing here does any I/O.
//!
//! [`mcp`] reads the messages of assistants.

pub mod mcp;
