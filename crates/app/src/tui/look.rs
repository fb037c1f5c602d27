//! Colours of the screen, which has to say as much without them.

use ratatui::style::{Color, Modifier, Style};

/// Colours or none.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Whether colours are wanted.
    pub color: bool,
}

impl Look {
    fn ink(self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    /// A heading.
    pub fn heading(self) -> Style {
        self.ink(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// Words around numbers.
    pub fn faint(self) -> Style {
        if self.color { Style::new().fg(Color::DarkGray) } else { Style::new().add_modifier(Modifier::DIM) }
    }

    /// Trouble.
    pub fn bad(self) -> Style {
        self.ink(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Worth a look.
    pub fn warn(self) -> Style {
        self.ink(Color::Yellow)
    }

    /// Healthy.
    pub fn good(self) -> Style {
        self.ink(Color::Green)
    }

    /// A share of something that should be low.
    pub fn share(self, share: f64, worrying: f64) -> Style {
        match share {
            s if s >= worrying => self.bad(),
            s if s >= worrying / 2.0 => self.warn(),
            _ => Style::new(),
        }
    }
}
