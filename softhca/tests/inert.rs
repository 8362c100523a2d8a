//! Linking the crate changes nothing as long as the device isn't started.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use softhca::{Config, Hca, Link, Mode};
use std::fs;
use std::io::{Read, Write};

#[expect(unsafe_code, reason = "a C call")]
fn devices() -> i32 {
    let mut n = -1;
    // SAFETY: room for the number; the list is freed.
    unsafe {
        let list = ibv_sys::ibv_get_device_list(&raw mut n);
        if list.is_null() {
            return 0;
        }
        ibv_sys::ibv_free_device_list(list);
    }
    n
}

/// Runs `f` in a forked child; true if it returned true.
#[expect(unsafe_code, reason = "C calls")]
fn in_child(f: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `f` and ends without returning.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            let ok = f();
            libc::_exit(i32::from(!ok));
        }
        let mut status = -1;
        libc::waitpid(pid, &raw mut status, 0);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }
}

#[expect(unsafe_code, reason = "C calls")]
fn open_alloc_close() -> bool {
    // SAFETY: objects that are made and freed here.
    unsafe {
        let list = ibv_sys::ibv_get_device_list(std::ptr::null_mut());
        let ctx = ibv_sys::ibv_open_device(*list);
        let pd = ibv_sys::ibv_alloc_pd(ctx);
        !pd.is_null() && ibv_sys::ibv_dealloc_pd(pd) == 0 && ibv_sys::ibv_close_device(ctx) == 0
    }
}

#[test]
fn files_are_files_and_devices_come_only_when_started() {
    let dir = std::env::temp_dir().join(format!("softhca-inert-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let exercise = || {
        let path = dir.join("file");
        fs::File::create(&path).unwrap().write_all(b"text").unwrap();
        let mut s = String::new();
        fs::File::open(&path).unwrap().read_to_string(&mut s).unwrap();
        assert_eq!(s, "text");
        assert_eq!(fs::metadata(&path).unwrap().len(), 4);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        assert!(fs::File::open(dir.join("none")).is_err());
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_ne!(socket.local_addr().unwrap().port(), 0);
    };
    exercise();
    let host = fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count);
    assert_eq!(devices(), i32::try_from(host).unwrap());

    let hca = Hca::start(Config::new().devices(3, Link::RoCE)).unwrap();
    exercise();
    assert_eq!(devices(), 3);
    assert!(!hca.step());
    // A forked child has a device of its own, and its closing of descriptors is no business of the parent's.
    assert!(open_alloc_close());
    #[expect(unsafe_code, reason = "C calls")]
    // SAFETY: an open device of this test.
    unsafe {
        let list = ibv_sys::ibv_get_device_list(std::ptr::null_mut());
        let ctx = ibv_sys::ibv_open_device(*list);
        let fd = (*ctx).cmd_fd;
        assert!(in_child(|| libc::close(fd) == 0 && open_alloc_close()));
        assert_eq!(ibv_sys::ibv_dealloc_pd(ibv_sys::ibv_alloc_pd(ctx)), 0);
        assert_eq!(ibv_sys::ibv_close_device(ctx), 0);
    }
    // The same again is fine, another one is not.
    assert!(Hca::start(Config::new().devices(3, Link::RoCE)).is_ok());
    assert!(Hca::start(Config::new().mode(Mode::Thread)).is_err());
    assert!(Hca::start(Config::new().fabric("with/slash")).is_err());
    fs::remove_dir_all(&dir).unwrap();
}
