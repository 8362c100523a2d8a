//! `cargo xtask COMMAND`: what a developer of `ibv` runs. It builds without any system package, because installing
//! those is one of its jobs.

mod api;
mod bench;
mod cargo;
mod kernel;
mod mutants;
mod pingpong;
mod program;
mod run;
mod setup;
mod shell;
mod test;
mod vm;

use std::ffi::OsString;
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  setup      install the system packages that building and testing need
  vm         run a command in a virtual machine that has an RDMA device
  pingpong   build everything and measure the RC ping-pong
  test       run the whole test suite
  bench      what the crate costs, beside C
  api        that the public API is what its text file says
  mutants    that mistakes in the mlx5 direct path are found

`cargo xtask COMMAND --help` tells more.";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<OsString> = arguments.collect();
    let result = match command.to_str() {
        Some("api") => api::command(rest),
        Some("bench") => bench::command(rest),
        Some("mutants") => mutants::command(rest),
        Some("setup") => setup::command(rest),
        Some("pingpong") => pingpong::command(rest),
        Some("test") => test::command(rest),
        Some("vm") => vm::command(rest),
        Some("--help" | "-h" | "help") => {
            println!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            if !command.is_empty() {
                eprintln!("xtask: unknown command `{}`\n", command.to_string_lossy());
            }
            eprintln!("{HELP}");
            Ok(ExitCode::from(2))
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        if error.is::<lexopt::Error>() {
            eprintln!("`cargo xtask {} --help` tells what it takes.", command.to_string_lossy());
        }
        ExitCode::FAILURE
    })
}
