//! A crate's public API as lines.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// The format of rustdoc's JSON that can be read: that of the crate `public-api` in the version that this package has.
pub const FORMAT: u64 = 57;

/// Each item of rustdoc's JSON on a line, without what the compiler derives or implements for all.
///
/// # Errors
///
/// Text that is not rustdoc's JSON of [`FORMAT`].
pub fn lines(json: &Path) -> Result<String, public_api::Error> {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    Ok(api.items().map(|item| format!("{item}\n")).collect())
}

/// The lines that came and went, as `diff` shows them.
pub fn difference(old: &str, new: &str) -> String {
    let (before, after): (BTreeSet<_>, BTreeSet<_>) = (old.lines().collect(), new.lines().collect());
    let mut text = String::new();
    for (mark, [of, not_of]) in [('-', [&before, &after]), ('+', [&after, &before])] {
        for line in of.difference(not_of) {
            // a string takes all
            let _ = writeln!(text, "{mark}{line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_lines_that_came_and_went() {
        assert_eq!(difference("a\nb\nc\n", "a\nc\nd\n"), "-b\n+d\n");
    }
}
