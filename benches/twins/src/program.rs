//! What a program does with its rows.

use std::process::ExitCode;

use ibv::Error;

use crate::row::{Row, Use};
use crate::time::{self, Timed};

/// What the arguments ask for.
#[derive(Debug, Clone)]
enum What {
    /// Each row so often, to be counted by callgrind.
    Count(u64),
    Time,
}

/// What is to be done with the rows of a group.
#[derive(Debug, Clone)]
pub struct Act {
    what: What,
    filter: Option<String>,
    group: &'static str,
}

impl Act {
    /// The same for rows of that group.
    #[must_use]
    pub fn with(&self, group: &'static str) -> Self {
        Self { group, ..self.clone() }
    }
}

impl Use for Act {
    type Result = Result<(), Error>;

    fn rows(self, rows: Vec<Row<'_>>) -> Self::Result {
        let wanted = |row: &Row<'_>| self.filter.as_deref().is_none_or(|filter| row.name.contains(filter));
        let rows = rows.into_iter().filter(wanted);
        match self.what {
            What::Count(operations) => rows.into_iter().try_for_each(|row| count(row, operations)),
            What::Time => {
                let mut timed = Vec::new();
                for mut row in rows {
                    let row = Timed::measure(self.group, &mut row)?;
                    println!("{row}");
                    timed.push(row);
                }
                match time::report(&timed) {
                    Ok(path) => println!("-> {}", path.display()),
                    Err(error) => eprintln!("the report's data are not written: {error}"),
                }
                Ok(())
            }
        }
    }
}

fn count(mut row: Row<'_>, operations: u64) -> Result<(), Error> {
    let name = row.name;
    for side in [&mut row.ours, &mut row.theirs] {
        let mut left = operations;
        while left > 0 {
            let now = left.min(row.limit);
            side.run(now, |run| assert!(run(), "{name}: a call failed"))?;
            left -= now;
        }
    }
    Ok(())
}

/// The `main` of a benchmark: `[NAME]` times the rows whose name contains NAME, `--count N` runs each N times.
pub fn program(act: impl FnOnce(&Act) -> Result<(), Error>) -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut what, mut filter) = (What::Time, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--count" => match arguments.next().map(|operations| operations.parse()) {
                Some(Ok(operations)) => what = What::Count(operations),
                _ => {
                    eprintln!("--count OPERATIONS");
                    return ExitCode::FAILURE;
                }
            },
            // cargo passes it
            "--bench" => {}
            _ => filter = Some(argument),
        }
    }
    if matches!(what, What::Time) {
        println!("{}", time::head());
    }
    match act(&Act { what, filter, group: "" }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
