//! Stacks as a flame graph in one self-contained page. Its script zooms and searches; nothing is
//! loaded.

use mitra_model::Captured;
use mitra_model::capture::{Profile, StackTree};
use serde_json::{Value, json};

use super::escape;
use crate::render::style::{Style, clean};

const STYLE: &str = include_str!("flame.css");
const SCRIPT: &str = include_str!("flame.js");
/// Narrower frames are invisible.
const SHARE_MIN: f64 = 1e-5;

pub fn page(captured: &Captured, profile: &Profile, style: &Style) -> String {
    let tree = StackTree::of(profile);
    let whole = tree.nodes.first().map_or(0.0, |root| root.weight);
    let title = format!("{} on {}", captured.kind, captured.host);
    let about = format!(
        "{} from {} for {:.1} s; {}. The width of a frame is {}.",
        captured.kind,
        style.date_clock(captured.since_real),
        captured.seconds,
        captured.ended.words(),
        if tree.weight.is_empty() { "its weight" } else { &tree.weight },
    );
    let names: Vec<_> = tree.names.iter().map(|name| clean(name)).collect();
    let data = json!({ "unit": tree.unit, "names": names, "root": node(&tree, 0, whole * SHARE_MIN) });
    let notes: String = captured.notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{about}</p>\n\
         <ul>\n{notes}</ul>\n\
         <p class=\"bar\"><label>Search <input id=\"search\" type=\"search\" placeholder=\"part of a name\"></label> \
         <button id=\"reset\" type=\"button\">Whole</button> <output id=\"found\"></output></p>\n\
         <div id=\"graph\" role=\"tree\" aria-label=\"stacks\"></div>\n<p id=\"detail\" aria-live=\"polite\">&nbsp;</p>\n\
         <noscript><p>The drawing needs the script in this page; nothing is loaded from elsewhere.</p></noscript>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        title = escape(&title),
        about = escape(&about),
        data = inert(&data),
    )
}

/// `[name, weight, [children]]`.
fn node(tree: &StackTree, at: usize, weight_min: f64) -> Value {
    let Some(from) = tree.nodes.get(at) else { return Value::Null };
    let is_drawn = |child: &&usize| tree.nodes.get(**child).is_some_and(|node| node.weight >= weight_min);
    let children: Vec<Value> =
        from.children.iter().filter(is_drawn).map(|child| node(tree, *child, weight_min)).collect();
    json!([from.name, from.weight, children])
}

/// JSON that cannot end its script element.
fn inert(data: &Value) -> String {
    data.to_string().replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use mitra_model::capture::Stack;

    use super::*;

    #[test]
    fn stacks_become_a_tree_and_names_stay_text() {
        let stack = |frames: &[u32], weight| Stack {
            comm: "</script><b>".into(),
            frames: frames.to_vec(),
            weight,
            ..Stack::default()
        };
        let profile = Profile {
            unit: "s".into(),
            names: vec!["main".into(), "<i>read".into(), "tiny".into()],
            stacks: vec![stack(&[0, 1], 2.0), stack(&[0], 1.0), stack(&[2], 1e-9)],
            ..Profile::default()
        };
        assert_eq!(
            node(&StackTree::of(&profile), 0, 1e-5),
            json!([0, 3.000000001, [[3, 3.000000001, [[0, 3.0, [[1, 2.0, []]]]]]]])
        );
        let html = page(&Captured::default(), &profile, &Style::plain(80));
        assert!(!html.contains("</script><b>") && !html.contains("<i>read"));
        assert_eq!(html.matches("</script>").count(), 2);
        for outside in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
