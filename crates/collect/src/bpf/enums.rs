//! The names of a kernel enumeration, out of the kernel's type information (BTF).
//!
//! See `Documentation/bpf/btf.rst`. Drop reasons are many, differ between kernels, and are named nowhere else.

const MAGIC: u16 = 0xeb9f;
const KIND_ENUM: u32 = 6;

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn usize_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32_at(bytes, at)?).ok()
}

fn text(strings: &[u8], at: usize) -> Option<&str> {
    let tail = strings.get(at..)?;
    let end = tail.iter().position(|b| *b == 0)?;
    std::str::from_utf8(tail.get(..end)?).ok()
}

/// How many bytes follow the 12 of a type: what its kind says, see `include/uapi/linux/btf.h`.
fn bytes_behind(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // Pointers, forwards, typedefs, volatile, const, restrict, functions, floats, type tags.
        2 | 7..=12 | 16 | 18 => 0,
        // Integers, variables, declaration tags.
        1 | 14 | 17 => 4,
        3 => 12,
        // Structures, unions, sections, 64-bit enumerations.
        4 | 5 | 15 | 19 => members.checked_mul(12)?,
        // Enumerations, prototypes.
        KIND_ENUM | 13 => members.checked_mul(8)?,
        _ => return None,
    })
}

/// Calls `f` with each value of the enumeration `name` and what it is called. Returns whether there is one.
pub(super) fn each_value(btf: &[u8], name: &str, mut f: impl FnMut(u32, &str)) -> bool {
    find(btf, name, &mut f).is_some()
}

fn find(btf: &[u8], name: &str, f: &mut impl FnMut(u32, &str)) -> Option<()> {
    let magic = u16::from_ne_bytes(btf.get(..2)?.try_into().ok()?);
    if magic != MAGIC {
        return None;
    }
    let header = usize_at(btf, 4)?;
    let section = |at: usize| {
        let start = header.checked_add(usize_at(btf, at)?)?;
        btf.get(start..start.checked_add(usize_at(btf, at + 4)?)?)
    };
    let (types, strings) = (section(8)?, section(16)?);
    let mut at = 0;
    while at < types.len() {
        let info = u32_at(types, at + 4)?;
        let (kind, members) = (info >> 24 & 0x1f, usize::try_from(info & 0xffff).ok()?);
        let behind = bytes_behind(kind, members)?;
        if kind == KIND_ENUM && text(strings, usize_at(types, at)?) == Some(name) {
            for member in 0..members {
                let place = at + 12 + member * 8;
                if let Some(label) = text(strings, usize_at(types, place)?) {
                    f(u32_at(types, place + 4)?, label);
                }
            }
            return Some(());
        }
        at += 12 + behind;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A blob with an integer, a pointer to it and an enumeration of two values.
    fn blob() -> Vec<u8> {
        let strings = b"\0colour\0RED\0BLUE\0";
        let types: &[u32] = &[0, 1 << 24, 4, 32, 0, 2 << 24, 1, 1, KIND_ENUM << 24 | 2, 4, 8, 0, 12, 7];
        let mut out = Vec::new();
        out.extend(MAGIC.to_ne_bytes());
        out.extend([1, 0]);
        let types_len = u32::try_from(types.len() * 4).unwrap();
        let strings_len = u32::try_from(strings.len()).unwrap();
        for word in [24, 0, types_len, types_len, strings_len].iter().chain(types) {
            out.extend(word.to_ne_bytes());
        }
        out.extend(strings);
        out
    }

    #[test]
    fn values_have_names_and_damage_has_none() {
        let whole = blob();
        let mut found = Vec::new();
        assert!(each_value(&whole, "colour", |value, name| found.push((value, name.to_owned()))));
        assert_eq!(found, [(0, "RED".to_owned()), (7, "BLUE".to_owned())]);
        assert!(!each_value(&whole, "taste", |_, _| {}));
        for end in 0..whole.len() {
            each_value(&whole[..end], "colour", |_, _| {});
        }
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] = 0xff;
            each_value(&bad, "colour", |_, _| {});
        }
    }

    #[test]
    fn this_kernel_has_reasons() {
        let Ok(btf) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            return println!("skipped: no type information");
        };
        let mut names = Vec::new();
        if !each_value(&btf, "skb_drop_reason", |value, name| names.push((value, name.to_owned()))) {
            return println!("skipped: a kernel without reasons");
        }
        assert!(names.iter().any(|(_, name)| name == "SKB_DROP_REASON_NOT_SPECIFIED"), "{names:?}");
    }
}
