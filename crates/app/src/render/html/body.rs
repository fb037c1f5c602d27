//! The body of a page: sections, and the list of them.

use super::{document, escape};

#[derive(Default)]
pub struct Body {
    html: String,
    /// The entries of the contents list.
    contents: String,
    /// Where the list stands.
    list_at: usize,
    ids: usize,
}

impl Body {
    pub fn push(&mut self, html: &str) {
        self.html.push_str(html);
    }

    /// The contents list stands here. A wide window shows it beside the page.
    pub fn place_list(&mut self) {
        if self.list_at == 0 {
            self.list_at = self.html.len();
        }
    }

    /// A section with its heading. An empty one is left out.
    pub fn section(&mut self, title: &str, html: &str) {
        if !html.is_empty() {
            let id = self.entry(short(title));
            let title = escape(title);
            self.push(&format!(
                "<section aria-labelledby=\"{id}\"><h2 id=\"{id}\">{title}</h2>\n{html}</section>\n"
            ));
        }
    }

    /// The same, closed until it is asked for. A link to an id inside of it opens it.
    pub fn closed(&mut self, title: &str, html: &str) {
        if !html.is_empty() {
            let id = self.entry(short(title));
            let title = escape(title);
            self.push(&format!(
                "<details><summary>{title}</summary>\n<div id=\"{id}\">{html}</div></details>\n"
            ));
        }
    }

    /// An entry of the list; returns the id that it leads to.
    pub fn entry(&mut self, title: &str) -> String {
        self.ids += 1;
        let id = format!("s{}", self.ids);
        self.contents.push_str(&format!("<li><a href=\"#{id}\">{}</a></li>\n", escape(title)));
        id
    }

    /// The whole page.
    pub fn finish(mut self, title: &str) -> String {
        if self.ids > 1 {
            let list = format!("<nav aria-label=\"Contents\"><ol>\n{}</ol></nav>\n", self.contents);
            self.html.insert_str(self.list_at, &list);
        }
        document(title, &self.html)
    }
}

/// A heading without what it explains or counts.
fn short(title: &str) -> &str {
    title.split(':').next().unwrap_or(title)
}
