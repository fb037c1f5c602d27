//! Ids of incidents that begin with the same sample.

/// The id, or the first of `ID-2`, `ID-3` and so on that is not taken.
#[must_use]
pub fn free_id(id: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let (mut free, mut nth) = (id.to_owned(), 1_u32);
    while is_taken(&free) {
        nth += 1;
        free = format!("{id}-{nth}");
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_is_free() {
        let free = |taken: &[&str]| free_id("T", |id| taken.contains(&id));
        assert_eq!([free(&[]), free(&["T-2"]), free(&["T"])], ["T", "T", "T-2"]);
        assert_eq!([free(&["T", "T-3"]), free(&["T-2", "T"])], ["T-2", "T-3"]);
    }
}
