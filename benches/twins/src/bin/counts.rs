//! Runs every row so many operations, under callgrind: see `cargo xtask bench counts`.

use std::process::ExitCode;

use ibv_bench_twins::{Row, Use, with_rows};

/// Prints the rows: name, requests or completions in an operation.
struct List;

impl Use for List {
    type Result = bool;

    fn rows(self, rows: Vec<Row<'_>>) -> bool {
        for row in rows {
            println!("{} {}", row.name, row.per_operation);
        }
        true
    }
}

/// Runs each row once, with so many operations.
struct Run(u64);

impl Use for Run {
    type Result = bool;

    fn rows(self, rows: Vec<Row<'_>>) -> bool {
        rows.into_iter().all(|mut row| (row.ours)(self.0) && (row.theirs)(self.0))
    }
}

fn main() -> ExitCode {
    let done = match std::env::args().nth(1).as_deref() {
        Some("list") => with_rows(true, List),
        Some(operations) => match operations.parse() {
            Ok(operations) => with_rows(true, Run(operations)),
            Err(error) => {
                eprintln!("counts: {operations}: {error}");
                return ExitCode::FAILURE;
            }
        },
        None => {
            eprintln!("counts list | counts OPERATIONS (cargo xtask bench counts runs it)");
            return ExitCode::FAILURE;
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("counts: a call failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("counts: {error}");
            ExitCode::FAILURE
        }
    }
}
