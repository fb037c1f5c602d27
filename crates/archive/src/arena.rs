//! Byte streams that grow by a few bytes at a time, thousands of them side by side.
//!
//! A `Vec<u8>` for each changing cell would cost a header, an allocation now and then, and half of its capacity
//! unused. Here a stream is a chain of small chunks out of one pool: what is unused is at most one chunk for each
//! stream, and the pool is kept from one segment to the next.

/// Bytes of a chunk that hold data; with the link it fills half a cache line.
const CHUNK_BYTES: usize = 28;
/// Chunks that are allocated at once: 64 KiB.
const PAGE_CHUNKS: usize = 2048;

#[derive(Clone, Copy)]
struct Chunk {
    next: u32,
    data: [u8; CHUNK_BYTES],
}

const _: () = assert!(size_of::<Chunk>() == 32);

/// The pool.
#[derive(Default)]
pub(crate) struct Arena {
    pages: Vec<Box<[Chunk]>>,
    used: usize,
}

/// One stream in the pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    head: u32,
    tail: u32,
    fill: u32,
}

impl Arena {
    /// A new, empty stream.
    pub(crate) fn stream(&mut self) -> Stream {
        let chunk = self.chunk();
        Stream { head: chunk, tail: chunk, fill: 0 }
    }

    fn chunk(&mut self) -> u32 {
        if self.used == self.pages.len() * PAGE_CHUNKS {
            let empty = Chunk { next: u32::MAX, data: [0; CHUNK_BYTES] };
            self.pages.push(vec![empty; PAGE_CHUNKS].into_boxed_slice());
        }
        self.used += 1;
        (self.used - 1) as u32
    }

    fn at(&mut self, chunk: u32) -> &mut Chunk {
        &mut self.pages[chunk as usize / PAGE_CHUNKS][chunk as usize % PAGE_CHUNKS]
    }

    /// Appends to a stream.
    pub(crate) fn push(&mut self, stream: &mut Stream, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if stream.fill as usize == CHUNK_BYTES {
                let next = self.chunk();
                self.at(stream.tail).next = next;
                stream.tail = next;
                stream.fill = 0;
            }
            let fill = stream.fill as usize;
            let now = bytes.len().min(CHUNK_BYTES - fill);
            self.at(stream.tail).data[fill..fill + now].copy_from_slice(&bytes[..now]);
            stream.fill += now as u32;
            bytes = &bytes[now..];
        }
    }

    /// Copies a stream out.
    pub(crate) fn copy(&self, stream: Stream, out: &mut Vec<u8>) {
        let mut at = stream.head;
        loop {
            let chunk = &self.pages[at as usize / PAGE_CHUNKS][at as usize % PAGE_CHUNKS];
            if at == stream.tail {
                out.extend_from_slice(&chunk.data[..stream.fill as usize]);
                return;
            }
            out.extend_from_slice(&chunk.data);
            at = chunk.next;
        }
    }

    /// Forgets all streams and keeps the memory of about as many.
    pub(crate) fn clear(&mut self) {
        self.pages.truncate(self.used.div_ceil(PAGE_CHUNKS) + 1);
        self.used = 0;
    }

    /// Bytes held by streams.
    pub(crate) fn bytes(&self) -> usize {
        self.used * size_of::<Chunk>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_grow_together_stay_apart() {
        let mut arena = Arena::default();
        for _ in 0..2 {
            let mut streams: Vec<_> = (0..300).map(|_| arena.stream()).collect();
            let mut wanted = vec![Vec::new(); streams.len()];
            for round in 0..100_usize {
                for (i, stream) in streams.iter_mut().enumerate() {
                    let bytes = vec![(i + round) as u8; (i * 7 + round) % 11];
                    arena.push(stream, &bytes);
                    wanted[i].extend_from_slice(&bytes);
                }
            }
            for (stream, wanted) in streams.iter().zip(&wanted) {
                let mut got = Vec::new();
                arena.copy(*stream, &mut got);
                assert_eq!(&got, wanted);
            }
            arena.clear();
        }
    }
}
