//! What the file of nearly every format needs.

pub(crate) use super::context::{self, Context};
pub(crate) use super::import::{Column, DAY, Form, GroupId, Import, When};
pub(crate) use super::lines::{Lines, Took};
pub(crate) use super::list::{Pairs, find as find_pair, list, pairs};
pub(crate) use super::number::{
    begins, behind, first, has, integer, leading, number, text, with_suffix, words,
};
pub(crate) use super::{Format, clock};
pub(crate) use crate::find::find;
pub(crate) use mitra_model::time::SECOND;
