//! One column of one row: its values over the samples in which the row was present.
//!
//! The first value is stored apart. What follows takes the smallest of three forms: changes only (how many samples
//! were equal, then the cell), the difference to the sample before, or the difference of that difference. Unavailable cells do
//! not move the reference, so a value that comes back is small again.

use mitra_model::NA;

use crate::varint::{Corrupt, Got, Input, difference_len, put_cell, put_difference, reference};

/// How the values after the first are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Form {
    Changes = 0,
    Difference = 1,
    Second = 2,
}

impl Form {
    pub(crate) fn from_number(number: u64) -> Got<Form> {
        match number {
            0 => Ok(Form::Changes),
            1 => Ok(Form::Difference),
            2 => Ok(Form::Second),
            _ => Err(Corrupt("a known form of a column")),
        }
    }
}

/// What a byte of an unchanged sample is worth after packing, in 64ths.
const RUN_COST: usize = 8;

/// The smallest form for `values`, whose changes take `changes_bytes`.
pub(crate) fn choose(values: &[i64], changes_bytes: usize) -> Form {
    let (mut first, mut second) = (0, 0);
    let mut at = values.first().copied().map_or(0, reference);
    let mut step = 0_i64;
    for &value in values.get(1..).unwrap_or_default() {
        if value == NA {
            first += 64;
            second += 64;
            continue;
        }
        let now = value.wrapping_sub(at);
        first += if now == 0 { RUN_COST } else { 64 * difference_len(now) };
        let turn = now.wrapping_sub(step);
        second += if turn == 0 { RUN_COST } else { 64 * difference_len(turn) };
        at = value;
        step = now;
    }
    let changes = changes_bytes * 64;
    if changes <= first && changes <= second {
        Form::Changes
    } else if first <= second {
        Form::Difference
    } else {
        Form::Second
    }
}

/// Writes the values after the first as differences or second differences.
pub(crate) fn put_values(out: &mut Vec<u8>, values: &[i64], form: Form) {
    let mut at = values.first().copied().map_or(0, reference);
    let mut step = 0_i64;
    for &value in values.get(1..).unwrap_or_default() {
        if value == NA {
            out.push(0);
            continue;
        }
        match form {
            Form::Changes | Form::Difference => put_cell(out, value, at),
            Form::Second => {
                let now = value.wrapping_sub(at);
                put_difference(out, now.wrapping_sub(step));
                step = now;
            }
        }
        at = value;
    }
}

/// Reads `samples` values, the first one given, into `out`.
pub(crate) fn read(form: Form, first: i64, samples: usize, bytes: &[u8], out: &mut Vec<i64>) -> Got<()> {
    let end = out.len() + samples;
    out.reserve(samples);
    out.push(first);
    let mut input = Input::new(bytes);
    match form {
        Form::Changes => {
            let mut at = first;
            while !input.is_empty() {
                let equal = usize::try_from(input.varint()?).unwrap_or(usize::MAX);
                if equal >= end - out.len() {
                    return Err(Corrupt("changes inside the column"));
                }
                out.resize(out.len() + equal, at);
                at = input.cell(reference(at))?;
                out.push(at);
            }
            out.resize(end, at);
        }
        Form::Difference => {
            let mut at = reference(first);
            while out.len() < end {
                match input.difference()? {
                    Some(step) => {
                        at = at.wrapping_add(step);
                        out.push(at);
                    }
                    None => out.push(NA),
                }
            }
        }
        Form::Second => {
            let mut at = reference(first);
            let mut step = 0_i64;
            while out.len() < end {
                match input.difference()? {
                    Some(turn) => {
                        step = step.wrapping_add(turn);
                        at = at.wrapping_add(step);
                        out.push(at);
                    }
                    None => out.push(NA),
                }
            }
        }
    }
    if input.is_empty() { Ok(()) } else { Err(Corrupt("a column of the right length")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cell() -> impl Strategy<Value = i64> {
        prop_oneof![Just(NA), Just(0), any::<i64>(), 0_i64..50, -300_i64..1_000_000]
    }

    proptest! {
        #[test]
        fn both_dense_forms_bring_the_values_back(values in proptest::collection::vec(cell(), 1..80)) {
            for form in [Form::Difference, Form::Second] {
                let mut bytes = Vec::new();
                put_values(&mut bytes, &values, form);
                let mut back = Vec::new();
                prop_assert_eq!(read(form, values[0], values.len(), &bytes, &mut back), Ok(()));
                prop_assert_eq!(&back, &values);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, first in cell(), samples in 1_usize..50, form in 0_u64..3) {
            let form = Form::from_number(form).unwrap();
            let mut out = Vec::new();
            if read(form, first, samples, &bytes, &mut out).is_ok() {
                prop_assert_eq!(out.len(), samples);
            }
        }
    }

    #[test]
    fn a_steady_counter_takes_second_differences_and_a_rare_one_changes() {
        let steady: Vec<i64> = (0..600).map(|i| 1000 * i + i % 3).collect();
        assert_eq!(choose(&steady, 2400), Form::Second);
        let mut rare = vec![5; 600];
        rare[300..].fill(6);
        assert_eq!(choose(&rare, 3), Form::Changes);
    }
}
