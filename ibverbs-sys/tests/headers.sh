#!/bin/sh
# Builds ibv-sys against the headers of an unpacked rdma-core and runs its tests:
#     tests/headers.sh RDMA_CORE_FOLDER [CARGO TEST ARGUMENTS]
# Such a folder is a git checkout (any tag), a release's archive, or vendor/rdma-core of the package ibverbs-sys
# from crates.io. The libraries stay the installed ones, so the test that needs them is ignored.
set -eu
source=$1
shift
include=$(mktemp -d)
trap 'rm -rf "$include"' EXIT
mkdir "$include/infiniband" "$include/rdma"
for name in verbs verbs_api tm_types sa; do cp "$source/libibverbs/$name.h" "$include/infiniband/"; done
for name in ib mlx5; do cp "$source/kernel-headers/rdma/${name}_user_ioctl_verbs.h" "$include/infiniband/"; done
for name in mlx5dv mlx5_api; do cp "$source/providers/mlx5/$name.h" "$include/infiniband/"; done
for name in rdma_cma rdma_verbs; do cp "$source/librdmacm/$name.h" "$include/rdma/"; done
export IBV_INCLUDE_DIR="$include"
cargo test --package ibv-sys --all-features "$@"
