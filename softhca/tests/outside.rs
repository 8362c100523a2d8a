//! A crate outside this workspace that uses softhca as a dev-dependency.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::fs;
use std::process::Command;

const LIB: &str = r#"
//! Counts RDMA devices with bindings of its own.
use std::ffi::{c_int, c_void};
#[link(name = "ibverbs")]
unsafe extern "C" {
    fn ibv_get_device_list(n: *mut c_int) -> *mut *mut c_void;
    fn ibv_open_device(device: *mut c_void) -> *mut c_void;
    fn ibv_alloc_pd(context: *mut c_void) -> *mut c_void;
    fn ibv_dealloc_pd(pd: *mut c_void) -> c_int;
    fn ibv_close_device(context: *mut c_void) -> c_int;
}
pub fn devices() -> i32 {
    let mut n = 0;
    // SAFETY: the count is ours to write.
    unsafe { ibv_get_device_list(&mut n) };
    n
}
pub fn open_and_close() -> bool {
    // SAFETY: the list has a device, as `devices` says; each object is used before it is given back.
    unsafe {
        let list = ibv_get_device_list(std::ptr::null_mut());
        let ctx = ibv_open_device(*list);
        let pd = ibv_alloc_pd(ctx);
        !pd.is_null() && ibv_dealloc_pd(pd) == 0 && ibv_close_device(ctx) == 0
    }
}
#[cfg(test)]
mod tests {
    #[test]
    fn works_without_hardware() {
        softhca::Hca::start(softhca::Config::new().devices(2, softhca::Link::RoCE)).unwrap();
        assert_eq!(super::devices(), 2);
        assert!(super::open_and_close());
    }
}
"#;

#[test]
fn cargo_test_just_works_for_others() {
    let dir = std::env::temp_dir().join(format!("softhca-outside-{}", std::process::id()));
    fs::create_dir_all(dir.join("src")).unwrap();
    let here = env!("CARGO_MANIFEST_DIR");
    let manifest = format!(
        "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dev-dependencies]\nsofthca = {{ path = {here:?} }}\n"
    );
    fs::write(dir.join("Cargo.toml"), manifest).unwrap();
    fs::write(dir.join("src/lib.rs"), LIB).unwrap();
    // The lock file of this workspace knows versions that are there.
    fs::copy(format!("{here}/../Cargo.lock"), dir.join("Cargo.lock")).unwrap();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    for profile in [&[][..], &["--release"]] {
        let out = Command::new(&cargo)
            .args(["test", "--quiet", "--offline"])
            .args(profile)
            .current_dir(&dir)
            .env("CARGO_TARGET_DIR", dir.join("target"))
            .env_remove("LD_PRELOAD")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && text.contains("1 passed"), "{text}");
    }
    fs::remove_dir_all(&dir).unwrap();
}
