//! The words of the whole of Unicode, as the grammar of Lucene's standard tokenizer has them: UAX #29 with these additions.
//!
//! ```text
//! letters    [_]* (katakana | (letter | digit)…)… [_]*   joined by . ' : between letters, . ' , ; between digits, and by _
//! hebrew     ' after a letter, " between two
//! thai, lao, khmer, myanmar …                            a whole run: there are no spaces to part it
//! ideograph, hiragana                                    each alone
//! pictures   sequences of emoji, flags of two letters, keys (#, * and U+20E3)
//! ```
//!
//! Marks, formats and joiners belong to the character before them; before anything they are no word. Where several of these
//! begin, the longest counts. A word is looked for in the next [`WORD_MAX`] units of UTF-16 and ends there at the latest.

use super::WORD_MAX;
use super::class::{Class, class};

/// The characters that a word may have, as their classes, with the end of each in bytes.
#[derive(Clone)]
struct Window<'a> {
    chars: std::str::Chars<'a>,
    units: usize,
    end: usize,
}

impl<'a> Window<'a> {
    fn new(text: &'a str) -> Self {
        Self { chars: text.chars(), units: 0, end: 0 }
    }
}

impl Iterator for Window<'_> {
    type Item = (Class, usize);

    fn next(&mut self) -> Option<(Class, usize)> {
        let c = self.chars.next()?;
        self.units += c.len_utf16();
        self.end += c.len_utf8();
        (self.units <= WORD_MAX).then(|| (class(c), self.end))
    }
}

/// The bytes of the word that a text begins with.
#[must_use]
pub fn word(text: &str) -> Option<usize> {
    let window = Window::new(text);
    let (first, _) = window.clone().next()?;
    let letters = || letters(window.clone());
    let picture = || picture(window.clone());
    match first {
        Class::Letter | Class::Hebrew | Class::Digit | Class::Katakana | Class::Joiner => letters(),
        Class::PictureLetter => letters().max(picture()),
        Class::Picture | Class::Modifier | Class::ZeroWidthJoiner => picture(),
        Class::Complex | Class::ComplexMark => complex(window),
        Class::Ideograph => alone(window),
        Class::Flag => flag(window),
        Class::Key => key(window),
        _ => None,
    }
}

/// What was read of a word of letters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Letters {
    /// Only `_` so far: no word yet.
    Joiners,
    Letter,
    /// A letter of Hebrew after which a quote may stand.
    Hebrew,
    Digit,
    Katakana,
    /// A `_` after something.
    Joined,
    /// A quote of Hebrew with what belongs to it; nothing between letters may follow.
    Quoted,
    /// A `.`, say: a letter has to follow.
    LetterNext,
    DigitNext,
    HebrewNext,
}

fn letters(window: Window) -> Option<usize> {
    use Class as C;
    use Letters as L;
    let mut end = None;
    let mut state = L::Joiners;
    for (class, at) in window {
        state = match (state, class) {
            (_, class) if class.is_mark() => state,
            (L::HebrewNext, C::Hebrew) => L::Quoted,
            (L::LetterNext, C::Letter | C::PictureLetter | C::Hebrew) => L::Letter,
            (L::DigitNext, C::Digit) => L::Digit,
            (L::LetterNext | L::DigitNext | L::HebrewNext, _) => break,
            (L::Joiners, C::Joiner) => L::Joiners,
            (_, C::Joiner) => L::Joined,
            (L::Joiners | L::Joined | L::Katakana, C::Katakana) => L::Katakana,
            (_, C::Katakana) => break,
            (L::Katakana, _) => break,
            (_, C::Letter | C::PictureLetter) => L::Letter,
            (_, C::Hebrew) => L::Hebrew,
            (_, C::Digit) => L::Digit,
            (L::Hebrew, C::Quote) => L::Quoted,
            (L::Hebrew, C::DoubleQuote) => L::HebrewNext,
            (L::Letter | L::Hebrew, C::MidLetter | C::MidBoth | C::Quote) => L::LetterNext,
            (L::Digit, C::MidDigit | C::MidBoth | C::Quote) => L::DigitNext,
            _ => break,
        };
        if !matches!(state, L::Joiners | L::LetterNext | L::DigitNext | L::HebrewNext) {
            end = Some(at);
        }
    }
    end
}

/// What was read of a sequence of pictures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Picture {
    Start,
    /// Joiners before the first picture, or more than one between two.
    Joiners,
    /// A picture and marks; another picture may follow a joiner.
    Shown {
        joined: bool,
    },
    /// The mark that makes it a picture in colour.
    Coloured,
    /// That mark and one joiner.
    ColouredJoined,
    /// A modifier that stands for a picture, and marks.
    Modifier {
        joined: bool,
    },
    /// Tags after the mark, which have to end.
    Tags,
    Tagged,
}

fn picture(window: Window) -> Option<usize> {
    use Picture as P;
    let mut end = None;
    let mut state = P::Start;
    let mut several = false;
    for (class, at) in window {
        let picture = matches!(class, Class::Picture | Class::PictureLetter);
        let joined = class == Class::ZeroWidthJoiner;
        let mark = class.is_mark() && !matches!(class, Class::ColourMark | Class::TextMark);
        state = match state {
            P::Start | P::Joiners if picture => P::Shown { joined: false },
            P::Start if class == Class::Modifier => P::Modifier { joined: false },
            P::Start | P::Joiners if joined => P::Joiners,
            P::Shown { joined: true } | P::ColouredJoined | P::Modifier { joined: true } if picture => {
                several = true;
                P::Shown { joined: false }
            }
            P::ColouredJoined if class == Class::Modifier => {
                several = true;
                P::Modifier { joined: false }
            }
            P::Shown { .. } if class == Class::ColourMark => P::Coloured,
            P::Shown { .. } if mark => P::Shown { joined },
            P::Modifier { .. } if mark => P::Modifier { joined },
            P::Coloured if joined => P::ColouredJoined,
            P::ColouredJoined if joined => P::Joiners,
            P::Coloured if class == Class::Tag && !several => P::Tags,
            P::Tags if class == Class::Tag => P::Tags,
            P::Tags if class == Class::TagEnd => P::Tagged,
            _ => break,
        };
        if matches!(state, P::Shown { .. } | P::Coloured | P::Modifier { .. } | P::Tagged) {
            end = Some(at);
        }
    }
    end
}

/// A run of a script without spaces.
fn complex(window: Window) -> Option<usize> {
    window.take_while(|(class, _)| *class == Class::Complex || class.is_mark()).last().map(|(_, at)| at)
}

/// One character with its marks.
fn alone(window: Window) -> Option<usize> {
    let mut end = None;
    for (class, at) in window {
        if end.is_some() && !class.is_mark() {
            break;
        }
        end = Some(at);
    }
    end
}

/// Two letters of a flag.
fn flag(window: Window) -> Option<usize> {
    let mut letters = 0;
    let mut end = None;
    for (class, at) in window {
        match class {
            Class::Flag if letters < 2 => letters += 1,
            class if class.is_mark() => {}
            _ => break,
        }
        end = Some(at);
    }
    end.filter(|_| letters == 2)
}

/// `#` or `*` with the frame of a key, before which the mark for colour may stand.
fn key(window: Window) -> Option<usize> {
    let mut end = None;
    let (mut coloured, mut frame_next) = (false, false);
    for (class, at) in window.skip(1) {
        match class {
            Class::KeyCap => {
                end = Some(at);
                frame_next = false;
            }
            _ if frame_next => break,
            Class::ColourMark if !coloured => (coloured, frame_next) = (true, true),
            Class::ColourMark | Class::TextMark => break,
            class if class.is_mark() => end = end.map(|_| at),
            _ => break,
        }
    }
    end
}
