#!/bin/busybox sh
# First program of the guest, in the initrd: puts a scratch layer over the host's files and goes on there with guest.sh.
b=/bin/busybox

fail() {
    echo "ibv-vm: $*" >/dev/console
    $b poweroff -f
}

$b mkdir -p /proc /sys /dev /host /scratch /new
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
for module in $($b cat /modules); do
    $b insmod "/$module" || fail "cannot load $module"
done

$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576,cache=loose,ro host /host || fail "cannot mount the host's files over 9p"
$b mount -t tmpfs tmpfs /scratch
$b mkdir /scratch/upper /scratch/work
$b mount -t overlay -o lowerdir=/host,upperdir=/scratch/upper,workdir=/scratch/work overlay /new || fail "cannot mount the scratch layer"
for d in proc sys dev; do
    $b mount --move /$d /new/$d || fail "cannot move /$d"
done
$b mount -t tmpfs tmpfs /new/run
$b cp -r /ibv /new/run/ibv-vm
$b cp $b /new/run/ibv-vm/busybox
exec $b switch_root /new /run/ibv-vm/busybox sh /run/ibv-vm/guest.sh
