//! `vm.swappiness = 1`: a setting with its value, as `sysctl` prints it and its files hold it.

/// The key and the value of a line of `sysctl`, or of its file; an empty key for what it says of keys it may not read.
pub(super) fn assignment(line: &[u8]) -> Option<(&str, &[u8])> {
    const FIRST: &[&str] =
        &["abi", "crypto", "debug", "dev", "fs", "fscache", "kernel", "net", "sunrpc", "user", "vm", "xen"];
    let line = line.trim_ascii();
    if line.starts_with(b"sysctl: ") {
        return Some(("", &[]));
    }
    let line = line.strip_prefix(b"-").unwrap_or(line);
    let mark = line.iter().position(|b| matches!(b, b'=' | b':'))?;
    let (key, value) = line.split_at_checked(mark)?;
    let (sign, value) = value.split_first()?;
    if *sign == b':' && !value.starts_with(b" ") {
        return None;
    }
    let key = std::str::from_utf8(key.trim_ascii_end()).ok()?;
    let key = key.strip_prefix("/proc/sys/").unwrap_or(key);
    let (first, rest) = key.split_once(['.', '/'])?;
    let is_key = rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./:@*".contains(&b));
    (FIRST.contains(&first) && !rest.is_empty() && is_key).then(|| (key, value.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments() {
        for (line, key, value) in [
            ("vm.swappiness = 1", "vm.swappiness", "1"),
            ("vm.swappiness=1", "vm.swappiness", "1"),
            ("net/ipv4/tcp_mem = 1\t2\t3", "net/ipv4/tcp_mem", "1\t2\t3"),
            ("fs.file-max: 9", "fs.file-max", "9"),
            ("-net.ipv4.conf.eth0/1.x = 9", "net.ipv4.conf.eth0/1.x", "9"),
            ("kernel.core_pattern = |/bin/x %p", "kernel.core_pattern", "|/bin/x %p"),
            ("sysctl: permission denied on key 'fs.x'", "", ""),
        ] {
            assert_eq!(assignment(line.as_bytes()), Some((key, value.as_bytes())), "{line}");
        }
        for no in ["user=x", "Tcp: 1", "vm = 3", "netstat = 3", "12:00:01 vm.x", "fs.x:9", "vm.a b = 1"] {
            assert_eq!(assignment(no.as_bytes()), None, "{no}");
        }
    }
}
