//! Whether something is installed, by looking at files only: quick, and right whatever package brought them.

use crate::program;
use std::fs;
use std::path::{Path, PathBuf};

/// How to see that something is installed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Probe {
    /// One of these programs can be run.
    Program(&'static [&'static str]),
    /// This program can be run, and needs no libraries.
    StaticProgram(&'static str),
    /// Each of these files is there. `*` in a path stands for any characters but `/`.
    Files(&'static [&'static str]),
    /// One of these files is there.
    AnyFile(&'static [&'static str]),
}

impl Probe {
    pub(super) fn found(self) -> bool {
        match self {
            Self::Program(names) => names.iter().any(|name| program::find(name).is_some()),
            Self::StaticProgram(name) => program::find(name).is_some_and(|path| program::is_static(&path)),
            Self::Files(patterns) => patterns.iter().all(|pattern| exists(pattern)),
            Self::AnyFile(patterns) => patterns.iter().any(|pattern| exists(pattern)),
        }
    }
}

fn exists(pattern: &str) -> bool {
    let mut places = vec![PathBuf::from("/")];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        places = match part.contains('*') {
            false => places.into_iter().map(|place| place.join(part)).collect(),
            true => places.iter().flat_map(|place| matching(place, part)).collect(),
        };
    }
    places.iter().any(|place| place.exists())
}

fn matching(folder: &Path, part: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| matches(part, &entry.file_name().to_string_lossy()))
        .map(|entry| entry.path())
        .collect()
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            name.char_indices()
                .map(|(at, _)| at)
                .chain([name.len()])
                .any(|at| matches(rest, name.get(at..).unwrap_or("")))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_any_characters() {
        assert!(matches("libclang-*.so*", "libclang-14.so.1"));
        assert!(matches("libclang*.so*", "libclang.so"));
        assert!(matches("*", ""));
        assert!(matches("a*b*c", "a-b-b-c"));
        assert!(!matches("libclang-*.so", "libclang-14.so.1"));
        assert!(!matches("a*b", "ab2"));
        assert!(!matches("a", "ab"));
    }

    #[test]
    fn files_and_programs_are_looked_up() {
        assert!(Probe::AnyFile(&["/nothing/here", "/pr*c/self/sta*"]).found());
        assert!(!Probe::Files(&["/nothing/*", "/proc/self/stat"]).found());
        assert!(Probe::Program(&["no-such-program", "sh"]).found());
        assert!(!Probe::Program(&["no-such-program"]).found());
    }
}
