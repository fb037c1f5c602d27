//! Allocators of the Erlang VM as `recon_alloc` and `erlang:system_info({allocator, …})` show them, in Erlang and in
//! Elixir, whole or cut with `...`, with prompts and comments.
//!
//! ```text
//! iex> :recon_alloc.sbcs_to_mbcs(:current)
//! [
//!   {{:eheap_alloc, 0}, 1.7865168539325842}, # 1
//! ...
//! iex> :recon_alloc.cache_hit_rates
//! [
//!   {{:instance, 0},
//!    [hit_rate: 0.6419778480913936, hits: 28810063, calls: 44877036]},
//!
//! [{{eheap_alloc,0},
//!   [{options,[{sbct,524288},{as,aoffcbf}]},
//!    {mbcs,[{blocks,89,89,127},{blocks_size,704544,704544,846400}]},
//!    {sbcs,[{blocks,93,278,390},{carriers,93,278,390}]}]},
//! ```
//!
//! Rows are `eheap_alloc 0`; hit rates are of an instance of all allocators, `instance 0`. Of `system_info`, which does
//! not repeat what it was asked for, the allocator is in its blocks or in the prompt. Three numbers are the current
//! value, the greatest since the last look, and the greatest ever: the first one counts.

use super::terms::{Frame, Terms, Token, Value};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "Erlang allocators",
    "allocators of the Erlang VM: `recon_alloc`, `erlang:system_info`",
    starts,
    read,
);

/// What `erlang:memory()` counts.
const MEMORY: &[&[u8]] = list!("total processes processes_used system atom atom_used binary code ets");
/// A term that is longer than this is not one.
const LINES_MAX: u32 = 100_000;

/// A prompt with one of the calls, or the beginning of a term that has an allocator in it.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let Some(line) = lines.peek() else { return false };
    // Asked for every line that nobody reads: most are turned away by a byte.
    let bracket = matches!(line.trim_ascii_start().first(), Some(b'[' | b'{' | b'.' | b':' | b'e' | b'r'));
    if !bracket && memchr::memchr(b'>', line).is_none() {
        return false;
    }
    lines.at(|l| call(l).is_some() || is_key(l))
        || (lines.at(is_memory) && lines.soon(1, |l| has(l, b"processes")))
        || (lines.at(|l| matches!(l.trim_ascii(), b"[" | b"..." | b"[...")) && lines.soon(3, is_key))
}

/// The allocator that a call asks for, if it names one.
fn call(line: &[u8]) -> Option<Option<String>> {
    const CALLS: &[&[u8]] = list!(
        "recon_alloc: recon_alloc. system_info({allocator system_info({:allocator erlang:memory( :erlang.memory"
    );
    if find!(line, b"alloc").is_none() && find!(line, b"memory").is_none() {
        return None;
    }
    let line = line.trim_ascii();
    let found = CALLS.iter().find(|c| has(line, c))?;
    // A shell: the prompt ends with `>`.
    let prompt = memchr::memchr(b'>', line).is_some_and(|at| at < 60);
    let head = line.trim_ascii_start();
    let bare = head.starts_with(found) || head.starts_with(b"erlang:system_info") || head.starts_with(b":");
    if !prompt && !bare {
        return None;
    }
    let at = memchr::memmem::find(line, b"allocator");
    let rest = at.and_then(|at| line.get(at + 9..)).unwrap_or_default();
    let from = rest.iter().position(u8::is_ascii_lowercase).unwrap_or(rest.len());
    let name: Vec<u8> =
        rest.iter().skip(from).copied().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').collect();
    Some(Some(text(&name)).filter(|n| n.ends_with("_alloc")))
}

/// `{{eheap_alloc,0},…`, `{{:instance, 0},`, `[{instance,0,`, `[{total,…},{processes,`.
fn is_key(line: &[u8]) -> bool {
    if memchr::memchr(b'{', line).is_none() {
        return false;
    }
    let line = without_prompt(line);
    let squeezed: Vec<u8> =
        line.iter().copied().filter(|b| !matches!(b, b' ' | b'\t' | b':')).take(60).collect();
    let Some(at) = squeezed.iter().position(|b| !matches!(b, b'[' | b'{')) else { return false };
    if at == 0 {
        // Elixir's keywords of `:erlang.memory`.
        return false;
    }
    let word: Vec<u8> =
        squeezed.iter().skip(at).copied().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').collect();
    let digit = squeezed.get(at + word.len() + 1).is_some_and(u8::is_ascii_digit);
    let comma = squeezed.get(at + word.len()) == Some(&b',');
    digit && comma && (word.ends_with(b"_alloc") || word == b"instance")
}

/// What stands behind the prompt of a shell that does not show what was typed: `1> [{instance,0,`.
fn without_prompt(line: &[u8]) -> &[u8] {
    const PROMPT_MAX: usize = 40;
    let at = memchr::memmem::find(line, b"> [").filter(|at| *at < PROMPT_MAX);
    at.and_then(|at| line.get(at + 2..)).unwrap_or(line)
}

/// The beginning of what `erlang:memory()` returns.
fn is_memory(line: &[u8]) -> bool {
    without_prompt(line).trim_ascii_start().starts_with(b"[{total,")
}

/// Whether the line can go on with a term: it has a bracket or stands for what was cut.
fn goes_on(line: &[u8], depth: usize) -> bool {
    let line = line.trim_ascii();
    let bracket = line.iter().any(|b| matches!(b, b'{' | b'}' | b'[' | b']'));
    let cut = matches!(line, b"..." | b"(...)" | b"[...]");
    let atom = line.ends_with(b",") && line.len() < 60 && !line.contains(&b' ');
    let keyword = matches!(line.first(), Some(b'a'..=b'z')) && has(line, b": ") && line.ends_with(b",");
    cut || bracket || (depth > 0 && (atom || keyword))
}

/// Reads one or several terms.
fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut state = State { when: import.now(), named: None, key: None, section: None, of_memory: false };
    let mut terms = Terms::default();
    let first = lines.number();
    loop {
        let n = lines.number();
        let Some(line) = lines.peek() else { return };
        if let Some(named) = call(line) {
            if n != first {
                // Another call: a term of its own.
                return;
            }
            state.named = named;
            state.of_memory = has(line, b"memory");
            // The answer of `erl` without a terminal stands behind the prompt.
            lines.advance();
            continue;
        }
        if line.trim_ascii().is_empty() {
            let more = lines.soon(2, |l| goes_on(l, terms.depth()));
            if !more || terms.depth() == 0 {
                return;
            }
        } else if goes_on(line, terms.depth()) {
            if is_memory(line) {
                (state.of_memory, state.key, state.section) = (true, None, None);
            }
            let line = without_prompt(line).to_vec();
            terms.line(&line, |token, frames| state.take(token, frames, n, import));
        } else {
            return;
        }
        lines.advance();
        if n.saturating_sub(first) > LINES_MAX {
            return;
        }
    }
}

struct State {
    when: When,
    /// The allocator that the call named.
    named: Option<String>,
    /// The row that the numbers belong to.
    key: Option<String>,
    section: Option<&'static str>,
    of_memory: bool,
}

impl State {
    fn take(&mut self, token: Token<'_>, frames: &[Frame], line: u32, import: &mut Import) {
        match token {
            Token::Open => self.open(frames),
            Token::Close(frame) => self.close(frame, frames, line, import),
            Token::Keyword(key, value) => self.pair(key, value, line, import),
        }
    }

    /// A list begins: behind `mbcs` or `sbcs` is their section, behind `instance, 0` the data of one instance.
    fn open(&mut self, frames: &[Frame]) {
        let Some(frame) = frames.last() else { return };
        let label = frame.label.as_deref().or_else(|| {
            let parent = frames.get(frames.len().checked_sub(2)?)?;
            match (parent.tuple, parent.values.as_slice()) {
                (true, [Value::Atom(name)]) => Some(name.as_str()),
                (true, [Value::Atom(name), Value::Number(n)]) if name == "instance" => {
                    let allocator = self.named.as_deref().unwrap_or("instance");
                    self.key = Some(format!("{allocator} {n}"));
                    None
                }
                _ => None,
            }
        });
        match label {
            Some("mbcs") => self.section = Some("mbcs"),
            Some("sbcs") => self.section = Some("sbcs"),
            Some("mbcs_pool" | "calls" | "options" | "versions") => self.section = None,
            // `{blocks,[{eheap_alloc,[{count,17,27,27}…`: which allocator it is.
            Some(name) if name.ends_with("_alloc") && self.section.is_some() && self.named.is_none() => {
                if let Some(instance) = self.key.as_deref().and_then(|k| k.strip_prefix("instance ")) {
                    self.key = Some(format!("{name} {instance}"));
                }
            }
            _ => {}
        }
    }

    fn close(&mut self, frame: &Frame, frames: &[Frame], line: u32, import: &mut Import) {
        if !frame.tuple {
            return;
        }
        match frame.values.as_slice() {
            [Value::Atom(name), Value::Number(n)] => {
                let is_key = frames.last().is_some_and(|f| f.tuple && f.values.is_empty());
                if is_key && (name.ends_with("_alloc") || name == "instance") {
                    self.key = Some(format!("{name} {n}"));
                    self.section = None;
                } else {
                    self.pair(name, *n, line, import);
                }
            }
            // `{{eheap_alloc,0},1.78}`: the key was a tuple.
            [Value::Other, Value::Number(n)]
                if self.key.as_deref().is_some_and(|k| !k.starts_with("instance ")) =>
            {
                self.put("allocator.sbcs_to_mbcs", *n, line, import);
            }
            [Value::Atom(name), Value::Number(now), rest @ ..] if rest.len() <= 2 => {
                // Since OTP 23 the blocks have a level more: `{blocks,[{eheap_alloc,[{count,17,27,27},{size,…}]}]}`.
                let inside = frames
                    .iter()
                    .any(|f| f.tuple && matches!(f.values.first(), Some(Value::Atom(a)) if a == "blocks"));
                let name = match (name.as_str(), inside) {
                    ("count", true) => "blocks",
                    ("size", true) => "blocks_size",
                    (name, _) => name,
                };
                self.of_section(name, *now, line, import);
            }
            _ => {}
        }
    }

    /// A name and one number.
    fn pair(&mut self, name: &str, n: f64, line: u32, import: &mut Import) {
        match name {
            "hit_rate" => self.put("allocator.hit_rate", n, line, import),
            "hits" => self.total("allocator.cache_hits", n, line, import),
            "calls" => self.total("allocator.cache_calls", n, line, import),
            "sbct" => self.put("allocator.sbct_bytes", n, line, import),
            name if self.of_memory
                && (name.ends_with("_alloc") || self.key.is_none() && MEMORY.contains(&name.as_bytes())) =>
            {
                let row = format!("erlang {name}");
                import.value("allocator.used_bytes", &row, Form::Level, self.when, line, n);
            }
            name => self.of_section(name, n, line, import),
        }
    }

    fn of_section(&mut self, name: &str, n: f64, line: u32, import: &mut Import) {
        let what = match name {
            "blocks" | "carriers" => name.to_owned(),
            "blocks_size" | "carriers_size" => name.replace("size", "bytes"),
            _ => return,
        };
        if let Some(section) = self.section {
            self.put(&format!("allocator.{section}_{what}"), n, line, import);
        }
    }

    fn put(&self, metric: &str, n: f64, line: u32, import: &mut Import) {
        if let Some(row) = &self.key {
            import.value(metric, row, Form::Level, self.when, line, n);
        }
    }

    fn total(&self, metric: &str, n: f64, line: u32, import: &mut Import) {
        if let Some(row) = &self.key {
            import.value(metric, row, Form::Total, self.when, line, n);
        }
    }
}
