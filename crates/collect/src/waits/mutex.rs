//! Who holds a mutex of glibc, by its bytes in the memory of the process.
//!
//! `struct __pthread_mutex_s` of glibc 2.17 and later on 64-bit machines: `int lock; unsigned count; int owner; unsigned nusers;
//! int kind; short spins; short elision; list`. Of one with priority inheritance the word `lock` names the owner too (futex(2)).
//! The word that a thread sleeps on may be that of another kind of lock, so all fields have to make sense. The bytes are
//! the process's own to write: the caller takes none but its own threads for an owner.

use super::call::CONTENDED;

pub const MUTEX_BYTES: usize = 40;
/// `FUTEX_TID_MASK` of `include/uapi/linux/futex.h`.
const TID_MASK: u32 = 0x3fff_ffff;
/// `kind`: two bits of the type, and flags for robust, inheritance, ceiling, shared, elision and no elision.
const KIND_TYPE: u32 = 3;
const KIND_ROBUST: u32 = 16;
const KIND_PI: u32 = 32;
const KIND_MAX: u32 = 1023;
const KIND_UNUSED: u32 = 12;
const RECURSIVE: u32 = 1;
/// The thread that holds it and those that wait for a condition with it.
const USERS_MAX: u32 = 65_536;

/// The thread that the bytes at the word name, by its id in the process's own PID namespace.
pub fn owner(bytes: &[u8; MUTEX_BYTES], is_pi: bool) -> Option<u32> {
    let at = |i: usize| Some(u32::from_ne_bytes(bytes.get(i..i + 4)?.try_into().ok()?));
    let (lock, count, owner, users, kind) = (at(0)?, at(4)?, at(8)?, at(12)?, at(16)?);
    let is_list_empty = bytes.get(24..)?.iter().all(|byte| *byte == 0);
    let is_held = if is_pi { lock & TID_MASK == owner } else { u64::from(lock) == CONTENDED };
    let is_kind = kind <= KIND_MAX
        && kind & KIND_UNUSED == 0
        && (kind & KIND_PI != 0) == is_pi
        // A robust one without inheritance has the owner in its word, and is not waited for with `CONTENDED`.
        && (is_pi || kind & KIND_ROBUST == 0)
        && (kind & KIND_ROBUST != 0 || is_list_empty);
    let is_count = (kind & KIND_TYPE == RECURSIVE) == (count > 0);
    (owner > 0 && is_held && is_kind && is_count && (1..=USERS_MAX).contains(&users)).then_some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: [u32; 5]) -> [u8; MUTEX_BYTES] {
        let mut bytes = [0; MUTEX_BYTES];
        let all = words.into_iter().flat_map(u32::to_ne_bytes);
        bytes.iter_mut().zip(all).for_each(|(to, from)| *to = from);
        bytes
    }

    #[test]
    fn the_owner_is_named_by_the_mutex() {
        assert_eq!(owner(&bytes([2, 0, 77, 1, 0]), false), Some(77));
        assert_eq!(owner(&bytes([2, 1, 77, 1, 1]), false), Some(77), "recursive");
        assert_eq!(owner(&bytes([0x8000_0000 | 78, 0, 78, 1, 32]), true), Some(78));
        let refused = [
            ([0, 0, 77, 1, 0], false, "it was released"),
            ([2, 0, 0, 1, 0], false, "nobody"),
            ([2, 0, 77, 0, 0], false, "nobody uses it"),
            ([2, 1, 77, 1, 0], false, "a count that is none of its kind"),
            ([2, 0, 77, 1, 0x1000], false, "no such kind"),
            ([2, 0, 77, 1, 16], false, "robust ones are not waited for so"),
            ([0x8000_0000 | 78, 0, 77, 1, 32], true, "two owners"),
        ];
        for (words, is_pi, why) in refused {
            assert_eq!(owner(&bytes(words), is_pi), None, "{why}");
        }
        let mut other = bytes([2, 0, 77, 1, 0]);
        other[30] = 1;
        assert_eq!(owner(&other, false), None, "something else follows the word");
    }
}
