//! Demangles names of C++ and Rust within a limit. A mangled name can refer to its own parts: one
//! of three hundred characters can stand for a terabyte.

use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// Longer than any name that is displayed.
const WRITTEN_MAX: usize = 2048;
/// Longer names are not demangled.
const MANGLED_MAX: usize = 4096;

/// A writer with a limit.
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = WRITTEN_MAX.saturating_sub(self.0.len());
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        let fits = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= room).last();
        self.0.push_str(text.get(..fits.unwrap_or(0)).unwrap_or_default());
        Err(fmt::Error)
    }
}

/// The demangled name, or the unchanged name.
pub(crate) fn demangled(name: &str) -> Cow<'_, str> {
    if name.len() > MANGLED_MAX {
        return Cow::Borrowed(name);
    }
    let mut written = Bounded::default();
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // Returns an error at the limit, after writing the beginning.
        _ = write!(written, "{rust:#}");
    } else if let Ok(symbol) = Symbol::new(name) {
        let all = symbol.structured_demangle(&mut written, &DemangleOptions::default());
        if all.is_err() && written.0.len() < WRITTEN_MAX {
            return Cow::Borrowed(name);
        }
    }
    if written.0.is_empty() { Cow::Borrowed(name) } else { Cow::Owned(written.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_people_wrote() {
        assert_eq!(demangled("main"), "main");
        assert_eq!(
            demangled("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"),
            "core::fmt::Write::write_fmt"
        );
        assert_eq!(demangled("_RNvC6_123foo3bar"), "123foo::bar");
        assert_eq!(
            demangled("_ZNSt6vectorIiSaIiEE9push_backERKi"),
            "std::vector<int, std::allocator<int> >::push_back(int const&)"
        );
        assert_eq!(demangled("_Znonsense"), "_Znonsense");
    }

    /// A type with two of a type with two of a type.
    #[test]
    fn no_name_becomes_a_terabyte() {
        let mut name = "_Z1f1AIiiE1BIS0_S0_E".to_owned();
        for i in 2..34_u32 {
            let digit = std::char::from_digit(i, 36).unwrap().to_ascii_uppercase();
            name.push_str(&format!("S1_IS{digit}_S{digit}_E"));
        }
        // The intended structure, while it is still short.
        let short = demangled(name.get(..31).unwrap());
        assert!(short.starts_with("f(A<int, int>, B<A<int, int>, A<int, int> >"), "{short}");
        let long = demangled(&name);
        assert!(long.starts_with("f(A<int, int>, ") && long.len() == WRITTEN_MAX, "{} bytes", long.len());
    }
}
