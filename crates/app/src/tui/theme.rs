//! Colours of the screen, as many as the terminal has. It is readable without them.

use ratatui::style::{Color, Modifier, Style};

/// Which colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colors {
    None,
    /// Those that each terminal has. They are the terminal's own, which fit its background.
    Sixteen,
    /// The palette of xterm.
    Indexed,
    True,
}

#[derive(Debug, Clone, Copy)]
pub struct Theme {
    pub colors: Colors,
}

/// A colour of the sixteen, and of the millions one that is as far from black as from white: no terminal tells what its
/// background is.
type Hue = (Color, [u8; 3]);

const GREY: Hue = (Color::DarkGray, [117, 117, 117]);
const CYAN: Hue = (Color::Cyan, [8, 129, 153]);
const BLUE: Hue = (Color::Blue, [36, 114, 224]);
const RED: Hue = (Color::Red, [224, 46, 39]);
const AMBER: Hue = (Color::Yellow, [163, 105, 4]);
const GREEN: Hue = (Color::Green, [34, 135, 59]);
/// What the bars of a curve become as they grow.
const MAGENTA: [u8; 3] = [207, 37, 179];

impl Theme {
    /// What a terminal shows, by its variables `TERM` and `COLORTERM`. Without `color` none are wanted.
    pub fn of(color: bool, term: &str, colorterm: &str) -> Self {
        let colors = match (color, colorterm) {
            (false, _) => Colors::None,
            (true, "truecolor" | "24bit") => Colors::True,
            _ if term.ends_with("-direct") => Colors::True,
            _ if term.contains("256color") => Colors::Indexed,
            _ => Colors::Sixteen,
        };
        Theme { colors }
    }

    fn ink(self, (named, rgb): Hue) -> Style {
        let [red, green, blue] = rgb;
        match self.colors {
            Colors::None => Style::new(),
            Colors::Sixteen => Style::new().fg(named),
            Colors::Indexed => Style::new().fg(Color::Indexed(index(rgb))),
            Colors::True => Style::new().fg(Color::Rgb(red, green, blue)),
        }
    }

    pub fn heading(self) -> Style {
        self.ink(CYAN).add_modifier(Modifier::BOLD)
    }

    /// Labels of numbers.
    pub fn faint(self) -> Style {
        if self.colors == Colors::None { Style::new().add_modifier(Modifier::DIM) } else { self.ink(GREY) }
    }

    /// Names of lines.
    pub fn label(self) -> Style {
        self.ink(CYAN)
    }

    /// A bar of a curve, of this height from 0 to 1.
    pub fn curve(self, height: f64) -> Style {
        let (named, low) = BLUE;
        let mix = |i: usize| {
            let (from, to) = (f64::from(low[i]), f64::from(MAGENTA[i]));
            (from + (to - from) * height.clamp(0.0, 1.0)).round() as u8
        };
        self.ink((named, [mix(0), mix(1), mix(2)]))
    }

    pub fn bad(self) -> Style {
        self.ink(RED).add_modifier(Modifier::BOLD)
    }

    pub fn warn(self) -> Style {
        self.ink(AMBER)
    }

    pub fn good(self) -> Style {
        self.ink(GREEN)
    }
}

/// The levels of the colour cube in the palette of xterm.
const CUBE: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// The nearest colour of the palette: of its cube from 16 on, or of its greys from 232 on.
fn index(rgb: [u8; 3]) -> u8 {
    let apart = |a: u8, b: u8| u32::from(a.abs_diff(b)).pow(2);
    let distance =
        |[red, green, blue]: [u8; 3]| apart(red, rgb[0]) + apart(green, rgb[1]) + apart(blue, rgb[2]);
    let level = |value: u8| (0..6u8).min_by_key(|i| apart(CUBE[usize::from(*i)], value)).unwrap_or(0);
    let [red, green, blue] = rgb.map(level);
    let in_cube = [red, green, blue].map(|i| CUBE[usize::from(i)]);
    let grey = (0..24u8).min_by_key(|i| distance([8 + 10 * i; 3])).unwrap_or(0);
    if distance([8 + 10 * grey; 3]) < distance(in_cube) {
        232 + grey
    } else {
        16 + 36 * red + 6 * green + blue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_colours_as_the_terminal_says() {
        let of = |term, colorterm| Theme::of(true, term, colorterm).colors;
        assert_eq!(of("xterm-256color", "truecolor"), Colors::True);
        assert_eq!(of("xterm", "24bit"), Colors::True);
        assert_eq!(of("foot-direct", ""), Colors::True);
        assert_eq!(of("screen-256color", "yes"), Colors::Indexed);
        assert_eq!([of("linux", ""), of("", "")], [Colors::Sixteen; 2]);
        assert_eq!(Theme::of(false, "xterm-256color", "truecolor").colors, Colors::None);
    }

    #[test]
    fn the_nearest_colour_of_the_palette_is_found() {
        assert_eq!([[0, 0, 0], [255, 255, 255], [215, 0, 175]].map(index), [16, 231, 163]);
        assert_eq!([[118, 118, 118], [117, 119, 117], [95, 95, 95]].map(index), [243, 243, 59]);
    }

    /// Relative luminance as WCAG 2 defines it.
    fn luminance(rgb: [u8; 3]) -> f64 {
        let [red, green, blue] = rgb.map(|value| {
            let value = f64::from(value) / 255.0;
            if value <= 0.03928 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    fn rgb(style: Style) -> [u8; 3] {
        match style.fg {
            Some(Color::Rgb(red, green, blue)) => [red, green, blue],
            Some(Color::Indexed(i @ 232..)) => [8 + 10 * (i - 232); 3],
            Some(Color::Indexed(i @ 16..)) => {
                [(i - 16) / 36, (i - 16) / 6 % 6, (i - 16) % 6].map(|level| CUBE[usize::from(level)])
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn colours_are_read_on_a_black_and_on_a_white_terminal() {
        for colors in [Colors::True, Colors::Indexed] {
            let theme = Theme { colors };
            let texts = [theme.heading(), theme.faint(), theme.bad(), theme.warn(), theme.good()];
            let curves = (0..=7).map(|level| theme.curve(f64::from(level) / 7.0));
            for style in texts.into_iter().chain(curves) {
                let light = luminance(rgb(style)) + 0.05;
                let contrast = (1.05 / light).min(light / 0.05);
                assert!(contrast >= 3.5, "{style:?}: {contrast}");
            }
        }
    }
}
