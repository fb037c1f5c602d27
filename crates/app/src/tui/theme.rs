//! Colours of the screen: the sixteen that each terminal has. It is readable without them.

use ratatui::style::{Color, Modifier, Style};

#[derive(Debug, Clone, Copy)]
pub struct Theme {
    pub color: bool,
}

impl Theme {
    fn ink(self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    pub fn heading(self) -> Style {
        self.ink(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// Labels of numbers.
    pub fn faint(self) -> Style {
        if self.color { Style::new().fg(Color::DarkGray) } else { Style::new().add_modifier(Modifier::DIM) }
    }

    /// Names of lines.
    pub fn label(self) -> Style {
        self.ink(Color::Cyan)
    }

    pub fn curve(self) -> Style {
        self.ink(Color::Blue)
    }

    pub fn bad(self) -> Style {
        self.ink(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub fn warn(self) -> Style {
        self.ink(Color::Yellow)
    }

    pub fn good(self) -> Style {
        self.ink(Color::Green)
    }
}
