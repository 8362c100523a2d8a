//! What is measured.

use ibv::Error;

/// What is done between measurements, for so many operations.
pub type Hook<'r> = &'r (dyn Fn(u64) -> Result<(), Error> + 'r);

/// The [`Hook`] of where there is nothing to do.
pub const NOTHING: Hook<'static> = &|_| Ok(());

/// One side of a row.
pub struct Loop<'r> {
    run: Box<dyn FnMut(u64) -> bool + 'r>,
    before: Box<dyn Fn(u64) -> Result<(), Error> + 'r>,
    after: Box<dyn Fn(u64) -> Result<(), Error> + 'r>,
}

impl<'r> Loop<'r> {
    /// What is measured; whether it succeeded.
    pub fn new(run: impl FnMut(u64) -> bool + 'r) -> Self {
        Self { run: Box::new(run), before: Box::new(NOTHING), after: Box::new(NOTHING) }
    }

    /// What makes it possible, and what clears up behind it.
    #[must_use]
    pub fn between(
        self,
        before: impl Fn(u64) -> Result<(), Error> + 'r,
        after: impl Fn(u64) -> Result<(), Error> + 'r,
    ) -> Self {
        Self { before: Box::new(before), after: Box::new(after), ..self }
    }

    /// So many operations, of which `measure` runs the part that counts.
    ///
    /// # Errors
    ///
    /// Those of what is done before and behind it.
    pub fn run(
        &mut self,
        operations: u64,
        measure: impl FnOnce(&mut dyn FnMut() -> bool),
    ) -> Result<(), Error> {
        (self.before)(operations)?;
        measure(&mut || (self.run)(operations));
        (self.after)(operations)
    }
}

impl std::fmt::Debug for Loop<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loop").finish_non_exhaustive()
    }
}

/// A loop in both languages.
pub struct Row<'r> {
    /// The functions are `ours_NAME` and `c_NAME`, where `cargo xtask bench counts` doesn't say otherwise.
    pub name: &'static str,
    /// How many requests or completions an operation is about.
    pub per_operation: u32,
    /// The most operations at a time.
    pub limit: u64,
    /// Nanoseconds of ours, as a part of theirs, that were aimed at.
    pub expected: Option<f64>,
    /// Ours.
    pub ours: Loop<'r>,
    /// The twin in C.
    pub theirs: Loop<'r>,
}

impl std::fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Row").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What is to be done with the rows. (A trait, since the rows borrow from where they are made.)
pub trait Use {
    /// What comes of it.
    type Result;

    /// The rows.
    fn rows(self, rows: Vec<Row<'_>>) -> Self::Result;
}
