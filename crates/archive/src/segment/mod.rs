//! Sealed segments. The format is described in [`crate::writer`].

pub(crate) mod column;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod file;
pub(crate) mod index;
