//! The argument of a role: words separated by spaces.

use std::io;
use std::net::SocketAddr;

/// The words that are numbers.
pub fn numbers(argument: &str) -> Vec<u64> {
    argument.split_whitespace().filter_map(|w| w.parse().ok()).collect()
}

/// The numbers, and the last word if it is a path or a name.
pub fn split(argument: &str) -> (Vec<u64>, &str) {
    (numbers(argument), argument.split_whitespace().last().unwrap_or_default())
}

/// The number at an index, or 0.
pub fn at(numbers: &[u64], i: usize) -> u64 {
    numbers.get(i).copied().unwrap_or(0)
}

/// The leading address, and the words after it.
pub fn address(argument: &str) -> io::Result<(SocketAddr, Vec<&str>)> {
    let mut all = argument.split_whitespace();
    let address = all.next().and_then(|w| w.parse().ok());
    Ok((address.ok_or_else(|| io::Error::other("no address"))?, all.collect()))
}

/// The number at an index of the words, or the default.
pub fn number(words: &[&str], at: usize, usual: u64) -> u64 {
    words.get(at).and_then(|w| w.parse().ok()).unwrap_or(usual)
}
