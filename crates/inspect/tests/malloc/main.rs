//! The C heap of programs that are compiled here, counted from outside and from inside. Skipped
//! without a C compiler.

mod captured;
mod detected;
mod support;
mod truth;
