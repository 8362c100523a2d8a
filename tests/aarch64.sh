#!/bin/sh
# Builds the mlx5 direct path for aarch64, without linking it, and checks its barriers in the machine code:
#     tests/aarch64.sh
# It needs gcc for aarch64-linux-gnu, and a rustc with the standard library of aarch64-unknown-linux-gnu: rustup's with
# that target, or Debian's packages rustc-web and libstd-rust-web-dev:arm64 and RUSTC=/usr/bin/rustc. The headers, which
# are the same on all machines, are those in IBV_INCLUDE_DIR, else the installed ones.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# in a folder of their own, since beside them are those of this machine's C library
include=$(realpath "${CARGO_TARGET_DIR:-target}")/aarch64-include
mkdir -p "$include"
for name in infiniband rdma; do cp -Rpu "${IBV_INCLUDE_DIR:-/usr/include}/$name" "$include/"; done
export IBV_INCLUDE_DIR="$include"
export BINDGEN_EXTRA_CLANG_ARGS_aarch64_unknown_linux_gnu="-isystem /usr/aarch64-linux-gnu/include"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=true
cargo rustc --release --target aarch64-unknown-linux-gnu --package ibv-bench-twins --features mlx5 --bin mlx5_path \
    -- --emit=obj="$work/direct.o" -Ccodegen-units=1
aarch64-linux-gnu-objdump --disassemble --no-show-raw-insn "$work/direct.o" >"$work/code"


# FUNCTION BARRIER...: that these kinds, by name, are in its code, and no others
expect() {
    function=$1
    shift
    found=$(awk -v heading="<$function>:" '
        /^[0-9a-f]+ </ { inside = $2 == heading }
        inside && $2 ~ /^(dmb|dsb)$/ { print $2 "-" $3 }' "$work/code" | sort | uniq | tr '\n' ' ')
    if [ "$found" != "$* " ]; then
        echo "$function: FAIL: the barriers are '$found', not '$*'"
        exit 1
    fi
    echo "$function: $found ok"
}
for name in write inline list_16; do expect "ours_direct_$name" dmb-oshst dsb-st; done
for name in recv recv_list_16; do expect "ours_direct_$name" dmb-oshst; done
for name in poll_1 poll_16 poll_empty poll_data_16; do expect "ours_direct_$name" dmb-oshld; done
# a line that was copied to the register is flushed before anything branches
unflushed=$(awk '
    /^[0-9a-f]+ </ { inside = $2 == "<ours_direct_write>:" }
    inside && $2 == "str" && $3 ~ /^q/ && /#48\]/ { lines++; open = 1 }
    inside && $2 == "dsb" { open = 0 }
    inside && $2 ~ /^(b|b\..*|bl|cbn?z|tbn?z|ret)$/ && open { unflushed++; open = 0 }
    END { print (lines ? unflushed + 0 : "no line found") }' "$work/code")
[ "$unflushed" = 0 ] || { echo "ours_direct_write: FAIL: copied and not flushed: $unflushed"; exit 1; }
echo "ours_direct_write: each line is flushed ok"
