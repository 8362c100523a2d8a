//! Compiles the C twins.

const SOURCE: &str = "../c/twins.c";
/// The same variable that `ibv-sys` takes the headers' folders from.
const INCLUDE: &str = "IBV_INCLUDE_DIR";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed={INCLUDE}");
    let mut build = cc::Build::new();
    build.file(SOURCE).warnings(true).extra_warnings(true);
    // What C programs are compiled with, and no two functions become one, since each is counted by its name.
    build.opt_level(2).flag_if_supported("-fno-ipa-icf");
    match std::env::var_os(INCLUDE) {
        Some(folders) => drop(build.includes(std::env::split_paths(&folders))),
        None => {
            if let Ok(library) = pkg_config::Config::new().cargo_metadata(false).probe("libibverbs") {
                build.includes(library.include_paths);
            }
        }
    }
    // A missing header is reported by ibv-sys, with advice.
    build.compile("ibv_bench_twins");
}
