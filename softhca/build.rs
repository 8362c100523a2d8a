//! The shared library knows by this, whatever its file is called, that it is one (see `src/run/start.rs`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-init,softhca_preloaded");
}
