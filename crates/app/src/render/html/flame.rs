//! Stacks as a flame graph in one self-contained page. Its script zooms and searches; nothing is
//! loaded.

use std::collections::BTreeMap;

use mitra_model::Captured;
use mitra_model::capture::Profile;
use serde_json::{Value, json};

use super::escape;
use crate::render::style::{Style, clean};

const STYLE: &str = include_str!("flame.css");
const SCRIPT: &str = include_str!("flame.js");
/// Narrower frames are invisible.
const SHARE_MIN: f64 = 1e-5;
/// More than the kernel records.
const DEPTH_MAX: usize = 300;

#[derive(Default)]
struct Node {
    weight: f64,
    children: BTreeMap<u32, Node>,
}

pub fn page(captured: &Captured, profile: &Profile, style: &Style) -> String {
    let mut names = profile.names.clone();
    let root = tree(profile, &mut names);
    let title = format!("{} on {}", captured.kind, captured.host);
    let about = format!(
        "{} from {} for {:.1} s; {}. The width of a frame is {}.",
        captured.kind,
        style.date_clock(captured.since_real),
        captured.seconds,
        captured.ended.words(),
        if profile.weight.is_empty() { "its weight" } else { &profile.weight },
    );
    let names: Vec<_> = names.iter().map(|name| clean(name)).collect();
    let data =
        json!({ "unit": profile.unit, "names": names, "root": node(&root, 0, root.weight * SHARE_MIN) });
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

/// All stacks as one tree, with the thread names below the root.
fn tree(profile: &Profile, names: &mut Vec<String>) -> Node {
    let mut root = Node::default();
    let mut comms: BTreeMap<&str, u32> = BTreeMap::new();
    for stack in profile.stacks.iter().filter(|stack| stack.weight > 0.0) {
        let comm = *comms.entry(&stack.comm).or_insert_with(|| {
            names.push(stack.comm.clone());
            u32::try_from(names.len() - 1).unwrap_or(u32::MAX)
        });
        root.weight += stack.weight;
        let mut node = &mut root;
        for frame in std::iter::once(&comm).chain(&stack.frames).take(DEPTH_MAX) {
            node = node.children.entry(*frame).or_default();
            node.weight += stack.weight;
        }
    }
    root
}

/// `[name, weight, [children]]`.
fn node(from: &Node, name: u32, weight_min: f64) -> Value {
    let drawn = from.children.iter().filter(|(_, child)| child.weight >= weight_min);
    let children: Vec<Value> = drawn.map(|(name, child)| node(child, *name, weight_min)).collect();
    json!([name, from.weight, children])
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
        let mut names = profile.names.clone();
        let root = tree(&profile, &mut names);
        assert_eq!(
            node(&root, 0, 1e-5),
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
