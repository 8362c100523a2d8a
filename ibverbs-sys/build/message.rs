//! The one message for a missing library, header or tool.

/// What is wrong, and then what to install on each of the usual distributions.
pub(crate) fn missing(what: &str) -> String {
    format!(
        "{what}\n\
         ibv-sys needs rdma-core {minimum} or newer with its headers, libclang, pkg-config and a C compiler:\n\
         \x20 Debian, Ubuntu: apt install libibverbs-dev librdmacm-dev libclang-dev pkg-config gcc\n\
         \x20 Fedora, RHEL:   dnf install rdma-core-devel clang-devel pkgconf-pkg-config gcc\n\
         \x20 SUSE:           zypper install rdma-core-devel clang-devel pkg-config gcc\n\
         \x20 Arch:           pacman -S rdma-core clang pkgconf gcc\n\
         \x20 Alpine:         apk add rdma-core-dev clang-dev pkgconf gcc musl-dev linux-headers\n\
         For another place: IBV_INCLUDE_DIR and IBV_LIB_DIR, LIBCLANG_PATH, CC (see the README of ibv-sys).",
        minimum = crate::locate::MINIMUM,
    )
}
