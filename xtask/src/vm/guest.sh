# Second program of the guest, on the host's own files: makes the RDMA device, runs the command, reports.
# `settings` (written by xtask) defines: link, modules_base, kernel, directory, marker.
#
# Three virtio ports lead to xtask: ibv.ctl carries lines (`ready UPTIME`, `fail REASON`, `exit STATUS`), ibv.out and ibv.err
# the command's output, each ended by the marker. The ports allow one opener, so the command gets pipes instead:
# then `>/dev/stderr` works as anywhere.
#
# Starting one of the host's programs costs a tenth of a second here, hence busybox and the shell's own commands.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
here=/run/ibv-vm
b=$here/busybox
. $here/settings

# Prints the path of the port of that name.
port() {
    tries=0
    while [ $tries -lt 200 ]; do
        for p in /sys/class/virtio-ports/*; do
            read -r name <"$p/name" 2>/dev/null
            if [ "$name" = "$1" ] && [ -e "/dev/${p##*/}" ]; then
                echo "/dev/${p##*/}"
                return
            fi
        done
        $b sleep 0.02
        tries=$((tries + 1))
    done
}

say() {
    echo "$*" >&3
}

# Stays alive: xtask ends the machine once it has read everything, and init must never return.
rest() {
    while :; do $b sleep 1000; done
}

fail() {
    say "fail $*"
    rest
}

exec 3>"$(port ibv.ctl)" 4>"$(port ibv.out)" 5>"$(port ibv.err)"

# A kernel that xtask unpacked has its modules elsewhere; the programs of the guest look for them here.
if [ -n "$modules_base" ]; then
    $b mkdir -p "/lib/modules/$kernel"
    $b mount --bind "$modules_base/lib/modules/$kernel" "/lib/modules/$kernel" || fail "cannot find the kernel's modules in $modules_base"
fi
case $link in
rxe) driver=rdma_rxe ;;
siw) driver=siw ;;
esac
modprobe -a dummy $driver rdma_ucm &
modules=$!

# What udev would do.
$b mkdir -p /dev/shm /dev/pts
$b mount -t tmpfs tmpfs /dev/shm
$b mount -t devpts devpts /dev/pts
$b ln -sf /proc/self/fd /dev/fd
$b ln -sf /proc/self/fd/0 /dev/stdin
$b ln -sf /proc/self/fd/1 /dev/stdout
$b ln -sf /proc/self/fd/2 /dev/stderr
echo localhost >/proc/sys/kernel/hostname
ulimit -l unlimited

# RDMA CM refuses loopback; a dummy with an IPv4 address is served. No duplicate address detection: it costs a second.
$b ip link set lo up
wait $modules || fail "cannot load $driver"
$b ip link add d0 type dummy || fail "cannot make a network interface"
echo 0 >/proc/sys/net/ipv6/conf/d0/accept_dad
$b ip addr add 10.8.0.1/24 dev d0
$b ip link set d0 up
rdma link add ${link}0 type $link netdev d0 || fail "cannot make the device ${link}0"

# The address tables are filled by a work queue.
gid=/sys/class/infiniband/${link}0/ports/1/gids/1
tries=0
while [ $link = rxe ] && read -r address <$gid && [ "$address" = 0000:0000:0000:0000:0000:0000:0000:0000 ]; do
    [ $tries -lt 500 ] || fail "${link}0 has no GID with the IPv4 address"
    $b sleep 0.02
    tries=$((tries + 1))
done

cd "$directory" || fail "the folder $directory cannot be seen in the guest (/proc, /sys, /dev and /run are its own)"
$b mkfifo $here/out $here/err
$b cat <$here/out >&4 &
out=$!
$b cat <$here/err >&5 &
err=$!
read -r uptime _ </proc/uptime
say "ready $uptime"
(exec /bin/sh $here/command) </dev/null >$here/out 2>$here/err 3>&- 4>&- 5>&-
status=$?

# A process that the command left behind keeps the pipes open: don't wait for that for long.
tries=0
while { kill -0 $out || kill -0 $err; } 2>/dev/null && [ $tries -lt 150 ]; do
    $b sleep 0.02
    tries=$((tries + 1))
done
printf '\001%s' "$marker" >&4
printf '\001%s' "$marker" >&5
say "exit $status"
rest
