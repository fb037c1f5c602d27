//! The log of the open segment. The format is described in [`crate::writer`].

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod record;
