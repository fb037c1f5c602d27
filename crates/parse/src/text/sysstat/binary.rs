//! The data files of sadc, `/var/log/sysstat/saDD` and `/var/log/sa/saDD`. Their layout changes with the version and
//! with what the machine has, so they are recognised and left to the `sadf` that belongs to them.

/// Which versions of sysstat write and read a file that begins with these bytes; `None` when it is no data file of
/// sadc. Eight bytes are enough. Both byte orders occur: files are carried from one machine to another.
#[must_use]
pub fn is_binary_sa(first_bytes: &[u8]) -> Option<&'static str> {
    const SYSSTAT: u16 = 0xd596;
    let [a, b, c, d, ..] = *first_bytes else { return None };
    let format = if u16::from_le_bytes([a, b]) == SYSSTAT {
        u16::from_le_bytes([c, d])
    } else if u16::from_be_bytes([a, b]) == SYSSTAT {
        u16::from_be_bytes([c, d])
    } else {
        return None;
    };
    match format {
        0x2175 => Some("12"),
        0x2173 => Some("11.7 to 12.1"),
        0x2171 => Some("9.1.6 to 11.6"),
        0x2170 => Some("8.1 to 9.1.5"),
        _ => Some("another version"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_files_of_both_byte_orders() {
        assert_eq!(is_binary_sa(b"\x96\xd5\x75\x21\x0c\x06\x01\x00"), Some("12"));
        assert_eq!(is_binary_sa(b"\xd5\x96\x21\x73\x0b\x07"), Some("11.7 to 12.1"));
        assert_eq!(is_binary_sa(b"\x96\xd5\x71\x21"), Some("9.1.6 to 11.6"));
        assert_eq!(is_binary_sa(b"\x96\xd5\x99\x21"), Some("another version"));
        for other in [&b"Linux 6.1"[..], b"", b"\x96\xd5\x75", b"\x7fELF", b"\xd5\x95\x75\x21"] {
            assert_eq!(is_binary_sa(other), None);
        }
    }
}
