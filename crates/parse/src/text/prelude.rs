//! What the file of nearly every format needs.

pub(in crate::text) use super::context::{self, Context};
pub(in crate::text) use super::import::{Column, DAY, Form, GroupId, Import, When};
pub(in crate::text) use super::lines::{AHEAD_MAX, Lines, MEMINFO, Took};
pub(in crate::text) use super::list::{Pairs, find as find_pair, list, pairs};
pub(in crate::text) use super::number::{
    begins, behind, first, has, hexadecimal, integer, leading, number, text, with_suffix, words,
};
pub(in crate::text) use super::{Format, begins_other, clock};
pub(in crate::text) use crate::find::find;
pub(in crate::text) use mitra_model::time::SECOND;
