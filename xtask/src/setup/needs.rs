//! What building and testing need, and how each distribution calls it. The only place with package names.

use super::probe::Probe;

/// What a developer does, by what it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Building, and running on a device of this machine or on the software HCA.
    Build,
    /// Booting virtual machines; wants kernels too.
    Vm,
    /// Running the test suite.
    Test,
}

impl Part {
    pub(crate) const ALL: &[Self] = &[Self::Build, Self::Vm, Self::Test];
}

/// Something that must be installed.
#[derive(Debug)]
pub(super) struct Need {
    /// What it is and what needs it.
    pub(super) what: &'static str,
    /// What can't be done without it.
    pub(super) part: Part,
    pub(super) probe: Probe,
    /// Packages of Debian and Ubuntu.
    pub(super) apt: &'static [&'static str],
    /// Packages of Fedora and RHEL.
    pub(super) dnf: &'static [&'static str],
}

pub(super) const NEEDS: &[Need] = &[
    Need {
        what: "headers and libraries of libibverbs and librdmacm (build)",
        part: Part::Build,
        probe: Probe::Files(&[
            "/usr/include/infiniband/verbs.h",
            "/usr/include/infiniband/mlx5dv.h",
            "/usr/include/rdma/rdma_cma.h",
            "/usr/include/rdma/rdma_verbs.h",
        ]),
        apt: &["libibverbs-dev", "librdmacm-dev"],
        dnf: &["rdma-core-devel"],
    },
    Need {
        what: "the providers of libibverbs, those of mlx5 and rxe among them (pingpong, test)",
        part: Part::Build,
        probe: Probe::AnyFile(&[
            "/usr/lib*/libibverbs/librxe-rdmav*.so",
            "/usr/lib/*/libibverbs/librxe-rdmav*.so",
        ]),
        apt: &["ibverbs-providers"],
        dnf: &["libibverbs"],
    },
    Need {
        what: "libclang (build: bindgen)",
        part: Part::Build,
        probe: Probe::AnyFile(&[
            "/usr/lib/llvm*/lib/libclang*.so*",
            "/usr/lib/*/libclang*.so*",
            "/usr/lib*/libclang*.so*",
            "/usr/lib*/llvm*/lib*/libclang*.so*",
        ]),
        apt: &["libclang-dev"],
        dnf: &["clang-devel"],
    },
    Need {
        what: "clang's own headers (build: bindgen)",
        part: Part::Build,
        probe: Probe::AnyFile(&[
            "/usr/lib*/llvm*/lib*/clang/*/include/stddef.h",
            "/usr/lib*/clang/*/include/stddef.h",
        ]),
        apt: &["libclang-dev"],
        dnf: &["clang-devel"],
    },
    Need {
        what: "pkg-config (build)",
        part: Part::Build,
        probe: Probe::Program(&["pkg-config", "pkgconf"]),
        apt: &["pkg-config"],
        dnf: &["pkgconf-pkg-config"],
    },
    Need {
        what: "a C compiler (build)",
        part: Part::Build,
        probe: Probe::Program(&["cc", "gcc", "clang"]),
        apt: &["gcc"],
        dnf: &["gcc"],
    },
    Need {
        what: "headers of the C library (build)",
        part: Part::Build,
        probe: Probe::Files(&["/usr/include/stdlib.h"]),
        apt: &["libc6-dev"],
        dnf: &["glibc-devel"],
    },
    Need {
        what: "QEMU (vm)",
        part: Part::Vm,
        probe: Probe::Program(&["qemu-system-x86_64"]),
        apt: &["qemu-system-x86"],
        dnf: &["qemu-system-x86-core"],
    },
    Need {
        what: "a static busybox (vm)",
        part: Part::Vm,
        probe: Probe::StaticProgram("busybox"),
        apt: &["busybox-static"],
        dnf: &["busybox"],
    },
    Need {
        what: "modprobe and depmod (vm)",
        part: Part::Vm,
        probe: Probe::Program(&["modprobe"]),
        apt: &["kmod"],
        dnf: &["kmod"],
    },
    Need {
        what: "rdma (vm, test)",
        part: Part::Vm,
        probe: Probe::Program(&["rdma"]),
        apt: &["iproute2"],
        dnf: &["iproute"],
    },
    Need {
        what: "setpriv (vm)",
        part: Part::Vm,
        probe: Probe::Program(&["setpriv"]),
        apt: &["util-linux"],
        dnf: &["util-linux"],
    },
    Need {
        what: "xz, for compressed kernels (vm)",
        part: Part::Vm,
        probe: Probe::Program(&["xz"]),
        apt: &["xz-utils"],
        dnf: &["xz"],
    },
    Need {
        what: "zstd, for compressed kernels (vm)",
        part: Part::Vm,
        probe: Probe::Program(&["zstd"]),
        apt: &["zstd"],
        dnf: &["zstd"],
    },
    Need {
        what: "rdma-core (test)",
        part: Part::Test,
        probe: Probe::AnyFile(&[
            "/etc/rdma/modules/*.conf",
            "/usr/lib/udev/rules.d/*rdma*",
            "/lib/udev/rules.d/*rdma*",
        ]),
        apt: &["rdma-core"],
        dnf: &["rdma-core"],
    },
    Need {
        what: "ibv_rc_pingpong and the like (test: interop, softhca)",
        part: Part::Test,
        probe: Probe::Program(&["ibv_rc_pingpong"]),
        apt: &["ibverbs-utils"],
        dnf: &["libibverbs-utils"],
    },
    Need {
        what: "ib_send_lat and the like (test: softhca)",
        part: Part::Test,
        probe: Probe::Program(&["ib_send_lat"]),
        apt: &["perftest"],
        dnf: &["perftest"],
    },
    Need {
        what: "pyverbs for the system's Python (test: softhca)",
        part: Part::Test,
        probe: Probe::AnyFile(&[
            "/usr/lib/python3*/dist-packages/pyverbs/device*.so",
            "/usr/lib*/python3*/site-packages/pyverbs/device*.so",
        ]),
        apt: &["python3-pyverbs"],
        dnf: &["python3-pyverbs"],
    },
    Need {
        what: "valgrind (test: instruction counts, softhca)",
        part: Part::Test,
        probe: Probe::Program(&["valgrind"]),
        apt: &["valgrind"],
        dnf: &["valgrind"],
    },
    Need {
        what: "objdump (test: assembly checks)",
        part: Part::Test,
        probe: Probe::Program(&["objdump"]),
        apt: &["binutils"],
        dnf: &["binutils"],
    },
];

/// A kernel for the guests.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WantedKernel {
    /// None: any with `rdma_rxe`.
    pub(super) series: Option<&'static str>,
    /// The package that depends on the newest of the series.
    pub(super) package: &'static str,
}

/// The kernels that the guests boot on a distribution (`ID`, `ID_LIKE` and `VERSION_ID` of os-release).
pub(super) fn wanted_kernels(id: &str, version: &str) -> &'static [WantedKernel] {
    match (id, version) {
        // The oldest and the newest that Debian 12 has.
        ("debian", "12") => &[
            WantedKernel { series: Some("6.1"), package: "linux-image-amd64" },
            WantedKernel { series: Some("6.12"), package: "linux-image-6.12-amd64" },
        ],
        ("debian", _) => &[WantedKernel { series: None, package: "linux-image-amd64" }],
        // It depends on linux-modules-extra, which has rdma_rxe.
        ("ubuntu", _) => &[WantedKernel { series: None, package: "linux-image-generic" }],
        // Of Fedora's packages, the running kernel's modules.
        _ => &[WantedKernel { series: None, package: "kernel-modules" }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_need_can_be_installed_everywhere() {
        for need in NEEDS {
            assert!(!need.apt.is_empty() && !need.dnf.is_empty(), "{}", need.what);
        }
    }

    #[test]
    fn debian_12_tests_two_kernels() {
        let series: Vec<_> = wanted_kernels("debian", "12").iter().map(|kernel| kernel.series).collect();
        assert_eq!(series, [Some("6.1"), Some("6.12")]);
        assert_eq!(wanted_kernels("debian", "13").len(), 1);
    }
}
