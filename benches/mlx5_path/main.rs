//! `cargo bench --all-features --bench mlx5_path [NAME]`: the data path on an mlx5 device, the software one.
//!
//! | group | ours | theirs |
//! |---|---|---|
//! | `libmlx5` | the loops of `data_path`, through the installed libmlx5 | their C twins, through the same |
//! | `direct` | the direct path, requests built each time | libmlx5, requests built before |
//!
//! The device works between the measurements, never in one. Its memory is ordinary memory: what write-combining, a bus
//! and a NIC's own reading cost is in no number here.

#[cfg(feature = "mlx5")]
mod direct;

use std::process::ExitCode;

use ibv_bench_twins::{Provider, program, with_rows};
use softhca::{Config, Hca};

fn main() -> ExitCode {
    let hca = match Hca::start(Config::new()) {
        Ok(hca) => hca,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let work = || _ = hca.run_until_idle();
    program(|act| {
        with_rows(Provider::Device { device: "mlx5_0", work: &work }, act.with("libmlx5"))??;
        #[cfg(feature = "mlx5")]
        direct::with_rows(&work, act.with("direct"))??;
        Ok(())
    })
}
