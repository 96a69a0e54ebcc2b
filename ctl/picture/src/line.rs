//! One line of a picture: parts with colours, cut where the terminal ends.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How a picture is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// With colours.
    pub colour: bool,
    /// With characters beyond ASCII.
    pub unicode: bool,
    /// Columns that a line may take.
    pub width: usize,
    /// How times are shown.
    pub times: Times,
}

/// How times are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// How long ago they are at this moment, in seconds since 1970.
    Ago(i64),
    /// As they are in the machine's time zone, with the offset from UTC.
    Local,
    /// As they are in UTC.
    Utc,
}

/// A part's colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// As all text.
    Plain,
    /// Less important.
    Dim,
    /// The digits by which something can be named.
    Id,
    /// A time.
    Time,
    /// A label.
    Label,
    /// A branch.
    Branch,
    /// What is new, or went well.
    Added,
    /// What is gone, or failed.
    Removed,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Paint::Plain => "",
            Paint::Dim => "\x1b[2m",
            Paint::Id => "\x1b[1;35m",
            Paint::Time => "\x1b[36m",
            Paint::Label => "\x1b[33m",
            Paint::Branch => "\x1b[1;32m",
            Paint::Added => "\x1b[32m",
            Paint::Removed => "\x1b[31m",
        }
    }

    /// Text in this colour.
    pub fn on(self, text: &str, style: Style) -> String {
        match style.colour && self != Paint::Plain && !text.is_empty() {
            true => format!("{}{text}\x1b[0m", self.code()),
            false => text.to_owned(),
        }
    }
}

/// Parts in a line of at most `width` columns; what is cut off is shown as an ellipsis.
pub fn fit(parts: &[(Paint, String)], width: usize, style: Style) -> String {
    let mut line = String::new();
    let mut left = width;
    for (at, (paint, text)) in parts.iter().enumerate() {
        let is_last = parts[at + 1..].iter().all(|(_, text)| text.is_empty());
        let columns = text.width();
        // The last column is needed for the ellipsis where something follows.
        if columns < left || (is_last && columns <= left) {
            line.push_str(&paint.on(text, style));
            left -= columns;
            continue;
        }
        let ellipsis = if style.unicode { '…' } else { '~' };
        let mut shown = beginning(text, left.saturating_sub(1)).to_owned();
        if left > 0 {
            shown.push(ellipsis);
        }
        line.push_str(&paint.on(&shown, style));
        break;
    }
    line
}

/// As much of a text as fits.
fn beginning(text: &str, width: usize) -> &str {
    let mut columns = 0;
    for (at, c) in text.char_indices() {
        columns += c.width().unwrap_or(0);
        // Letters that are drawn as one may take more than each by itself.
        if columns > width || text[..at + c.len_utf8()].width() > width {
            return &text[..at];
        }
    }
    text
}
