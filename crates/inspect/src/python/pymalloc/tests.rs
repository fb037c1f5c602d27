use super::*;
use crate::memory::{Image, Word};

const VARIABLES: u64 = 0x5600_0000_0000;
const ARRAY: u64 = 0x5610_0000_0010;
const ARENA: u64 = 0x7f00_0000_0000;

/// The header of a pool.
fn pool(at: u64, pool_bytes: u64, arena: u32, class: u32, step: u32, in_use: u32, cut: u32) -> [u8; HEADER] {
    let block = (class + 1) * step;
    let mut bytes = [0; HEADER];
    bytes[0..4].copy_from_slice(&in_use.to_le_bytes());
    bytes[8..16].copy_from_slice(&(at + 48).to_le_bytes());
    for (i, value) in [arena, class, 48 + cut * block, pool_bytes as u32 - block].into_iter().enumerate() {
        bytes[32 + 4 * i..][..4].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// Two arenas in an array of sixteen. No pool was cut from the second one.
fn image(arena_bytes: u64, pool_bytes: u64) -> Image {
    let mut image = Image::new(Word::Eight);
    image.add(VARIABLES - 0x1000, &[0; 0x1000], "/usr/bin/python3.9");
    let mut variables = vec![0; 0x3000];
    // First a pointer into the array, as in some other variable.
    variables[0x100..0x108].copy_from_slice(&(ARRAY + 48).to_le_bytes());
    variables[0x2100..0x2108].copy_from_slice(&ARRAY.to_le_bytes());
    image.add(VARIABLES, &variables, "");
    let fit = (arena_bytes / pool_bytes) as u32;
    let mut array = Vec::new();
    for i in 0..16_u64 {
        let (address, end, free) = match i {
            0 => (ARENA, ARENA + 3 * pool_bytes, fit - 2),
            1 => (ARENA + arena_bytes, ARENA + arena_bytes, fit),
            _ => (0, 0, 0),
        };
        array.extend(address.to_le_bytes());
        array.extend(end.to_le_bytes());
        array.extend(free.to_le_bytes());
        array.extend(fit.to_le_bytes());
        array.extend(0_u64.to_le_bytes());
        let next = if i == 15 { 0 } else { ARRAY + 48 * (i + 1) };
        array.extend(next.to_le_bytes());
        array.extend(0_u64.to_le_bytes());
    }
    // The following memory does not belong to the array, although it is all zero.
    array.extend([0; 0x2000]);
    image.add(ARRAY - 16, &[&[0; 16][..], &array].concat(), "[heap]");
    let mut arenas = vec![0; 2 * arena_bytes as usize];
    let step = if pool_bytes == 4096 { 8 } else { 16 };
    let pools = [(0, 3, 5, 20), (1, 31, 1, 3), (2, 0, 0, 2)];
    for (i, class, in_use, cut) in pools {
        let at = i * pool_bytes;
        arenas[at as usize..][..HEADER].copy_from_slice(&pool(
            ARENA + at,
            pool_bytes,
            0,
            class,
            step,
            in_use,
            cut,
        ));
    }
    image.add(ARENA, &arenas, "");
    image
}

#[test]
fn arenas_are_found_by_what_a_variable_points_to() {
    for (arena_bytes, pool_bytes, step) in [(256 << 10, 4 << 10, 8), (1 << 20, 16 << 10, 16)] {
        let image = image(arena_bytes, pool_bytes);
        let found = Pymalloc::read(&image).unwrap();
        assert_eq!((found.arenas, found.arena_bytes), (2, 2 * arena_bytes));
        assert_eq!(found.resident_bytes, 2 * arena_bytes);
        assert_eq!((found.pool_bytes, found.pools_used), (pool_bytes, 2));
        assert_eq!(found.pools_free, 2 * (arena_bytes / pool_bytes) - 2);
        assert!(!found.is_estimate);
        assert_eq!(found.doubts, Doubts::default());
        let of = |class_bytes: u64, in_use| SizeClass {
            class_bytes,
            pools: 1,
            blocks_in_use: in_use,
            blocks_free: (pool_bytes - 48) / class_bytes - in_use,
        };
        assert_eq!(found.classes, [of(4 * step, 5), of(32 * step, 1)]);
        assert_eq!(found.bytes_in_use, 4 * step * 5 + 32 * step);
        let arenas = find(&image).unwrap();
        assert!(arenas.has(ARENA) && arenas.has(ARENA + 2 * arena_bytes - 1));
        assert!(!arenas.has(ARENA - 1) && !arenas.has(ARENA + 2 * arena_bytes));
    }
}

#[test]
fn pools_are_recognised_where_no_variable_leads_to_them() {
    let mut image = image(1 << 20, 16 << 10);
    image.write(VARIABLES + 0x2100, &[0; 8]);
    assert_eq!(Pymalloc::read(&image), None, "three pools might be chance");
    for i in 3..9 {
        let at = ARENA + (i << 14);
        image.write(at, &pool(at, 16 << 10, 0, 7, 16, 100, 120));
    }
    let found = Pymalloc::read(&image).unwrap();
    assert!(found.is_estimate);
    assert_eq!((found.arenas, found.pools_used, found.pools_free), (1, 8, 1));
    assert_eq!(found.bytes_in_use, 5 * 64 + 512 + 6 * 100 * 128);
}

#[test]
fn a_torn_pool_is_counted_as_a_doubt() {
    let mut image = image(256 << 10, 4 << 10);
    // Its arena was freed, and another one has its place.
    image.write(ARENA + (1 << 12) + 32, &7_u32.to_le_bytes());
    let found = Pymalloc::read(&image).unwrap();
    assert_eq!((found.pools_used, found.doubts.pools_torn), (1, 1));
}

#[test]
fn nothing_in_memory_can_upset_it() {
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let odd = [0, 1, 0x30, u64::MAX, u64::MAX - 4095, 1 << 55, ARRAY, ARENA, 1 << 63];
    for round in 0..2000 {
        let mut image = image(256 << 10, 4 << 10);
        for _ in 0..1 + round % 40 {
            let at = match random() % 3 {
                // Mostly a field.
                0 => ARRAY + random() % 200 * 4 + random() % 9 / 8,
                1 => ARENA + ((random() % 3) << 12) + random() % 48,
                _ => VARIABLES + random() % 0x3000,
            };
            let value = odd[random() as usize % odd.len()];
            image.write(at, &value.to_le_bytes()[..1 + random() as usize % 8]);
        }
        if let Some(found) = Pymalloc::read(&image) {
            assert!(found.arenas <= 4096 && found.bytes_in_use <= found.arena_bytes.max(1 << 20));
        }
    }
}
