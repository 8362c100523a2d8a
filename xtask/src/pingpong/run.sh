# Runs a ping-pong between two processes of this machine, once for each SIZE:PORT.
#   run.sh PROGRAM LATENCY-OPTION "SIZE:PORT SIZE:PORT…" OPTION...
# Prints `size SIZE` and what the client prints. Used here and in the guest.
program=$1 latency=$2 runs=$3
shift 3
limit=200

# Whether a process listens on a TCP port: state 0A in the kernel's table.
listens() {
    grep -q ":$(printf '%04X' "$1") [0-9A-F]*:0000 0A " /proc/net/tcp /proc/net/tcp6
}

for run in $runs; do
    size=${run%:*} port=${run#*:}
    echo "size $size"
    timeout $limit "$program" "$@" -s "$size" -p "$port" >/dev/null &
    server=$!
    tries=0
    until listens "$port"; do
        kill -0 $server 2>/dev/null || { echo "the server ended before it listened" >&2; exit 1; }
        [ $tries -lt 600 ] || { echo "the server does not listen" >&2; kill $server; exit 1; }
        sleep 0.05
        tries=$((tries + 1))
    done
    timeout $limit "$program" "$@" -s "$size" -p "$port" $latency 127.0.0.1
    status=$?
    if [ $status -ne 0 ]; then
        [ $status -ne 124 ] || echo "size $size: not done within $limit s" >&2
        kill $server 2>/dev/null
        exit 1
    fi
    wait $server || { echo "size $size: the server failed" >&2; exit 1; }
done
