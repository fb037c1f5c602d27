//! zstd, where memory that is not to be had is an error: the library's own constructors panic.

use std::io;

use zstd::zstd_safe::{CCtx, CParameter, DCtx, ErrorCode, compress_bound, get_error_name};

fn no_memory() -> io::Error {
    io::ErrorKind::OutOfMemory.into()
}

fn said(code: ErrorCode) -> io::Error {
    io::Error::other(get_error_name(code))
}

/// Compresses one piece after the other.
pub(crate) struct Compressor(CCtx<'static>);

impl Compressor {
    pub(crate) fn new(level: i32) -> io::Result<Self> {
        let mut context = CCtx::try_create().ok_or_else(no_memory)?;
        context.set_parameter(CParameter::CompressionLevel(level)).map_err(said)?;
        Ok(Self(context))
    }

    pub(crate) fn compress(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut packed = Vec::with_capacity(compress_bound(bytes.len()));
        self.0.compress2(&mut packed, bytes).map_err(said)?;
        Ok(packed)
    }
}

/// Compresses one piece.
pub(crate) fn compress(bytes: &[u8], level: i32) -> io::Result<Vec<u8>> {
    Compressor::new(level)?.compress(bytes)
}

/// Decompresses a piece that becomes no larger than `most`.
pub(crate) fn decompress(packed: &[u8], most: usize) -> io::Result<Vec<u8>> {
    let mut context = DCtx::try_create().ok_or_else(no_memory)?;
    let mut bytes = Vec::with_capacity(most);
    context.decompress(&mut bytes, packed).map_err(said)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compressed_is_decompressed_within_bounds() {
        let bytes = b"a frame is much as the one before it ".repeat(50);
        let packed = compress(&bytes, 1).unwrap();
        assert!(packed.len() < bytes.len() / 4);
        assert_eq!(decompress(&packed, bytes.len()).unwrap(), bytes);
        assert!(decompress(&packed, bytes.len() - 1).is_err());
        assert!(decompress(b"neither", 100).is_err());
    }
}
