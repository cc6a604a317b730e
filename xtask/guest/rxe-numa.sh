# A software device in a guest with two NUMA nodes of memory, each with a pool of its own.
. /t/lib.sh

ip addr add 10.77.0.1/24 dev dummy0
ip link set dummy0 up
rdma link add rxe0 type rxe netdev dummy0 || exit 1

DEVICE=rxe0

numa() {
    cat "/sys/devices/system/node/node$1/hugepages/hugepages-2048kB/$2"
}
pool_of() {
    echo "$2" >"/sys/devices/system/node/node$1/hugepages/hugepages-2048kB/nr_hugepages"
}

# maps_of PID: policy and pages by node of its huge mappings; each stretch of chunks is one
maps_of() {
    grep ' huge ' "/proc/$1/numa_maps"
}

check_numa_two_nodes() {
    same "nodes with memory" "$(cat /sys/devices/system/node/has_memory)" "${nodes:-0-1}"
    pool_of 0 64
    pool_of 1 64
    same "pages of node 0" "$(numa 0 nr_hugepages)" 64
    same "pages of node 1" "$(numa 1 nr_hugepages)" 64
    ok "64 pages of 2 MiB on each of two nodes"
}
sabotage_numa_two_nodes() {
    nodes=0
}

# 128 MiB in MRs of 48 MiB on nodes with 64 pages each: two MRs of 24 pages and a rest of 16 on two nodes.
check_numa_no_straddle() {
    need_hugemr
    pool_of 0 64
    pool_of 1 64
    start_hugemr 4 ${size:-176MiB} --pages 2MiB --chunk 48MiB $flag
    maps_of $holder | tee /tmp/maps
    used0=$((64 - $(numa 0 free_hugepages)))
    used1=$((64 - $(numa 1 free_hugepages)))
    end_hugemr
    # two whole chunks of 24 pages on the one, one and the rest of 16 on the other
    same "pages of node 0" $used0 48
    same "pages of node 1" $used1 40
    same "mappings bound to a node" "$(grep -c ' bind:' /tmp/maps)" 2
    [ "$(grep ' bind:' /tmp/maps | grep -c 'N0=.*N1=')" = 0 ] || bad "a stretch has pages of both nodes"
    ok "3 MRs of 24 pages and one of 16: $used0 pages on node 0, $used1 on node 1, no mapping has both"
}
sabotage_numa_no_straddle() {
    flag=--interleave
}

check_numa_straddle_refused() {
    need_hugemr
    pool_of 0 40
    pool_of 1 40
    hugemr register 160MiB --device "$DEVICE" --pages 2MiB --chunk ${chunk:-64MiB} >/tmp/out 2>&1
    status=$?
    cat /tmp/out
    same "exit status" $status 1
    grep -q 'straddle' /tmp/out && grep -q -- '--chunk' /tmp/out || bad "no way out: $(head -n 1 /tmp/out)"
    hugemr register 160MiB --device "$DEVICE" --pages 2MiB --chunk 64MiB --interleave >/tmp/out 2>&1 ||
        bad "--interleave: $(head -n 2 /tmp/out)"
    ok "40 pages on each node: 64 MiB chunks are refused with a way out, and done with --interleave"
}
sabotage_numa_straddle_refused() {
    chunk=16MiB
}

check_numa_node() {
    need_hugemr
    pool_of 0 64
    pool_of 1 64
    start_hugemr 2 64MiB --pages 2MiB --chunk 32MiB --node ${node:-1}
    used1=$((64 - $(numa 1 free_hugepages)))
    used0=$((64 - $(numa 0 free_hugepages)))
    end_hugemr
    same "pages of node 1" $used1 32
    same "pages of node 0" $used0 0
    ok "--node 1: 32 pages of node 1, none of node 0"
}
sabotage_numa_node() {
    node=0
}

# The host promises pages for the whole host: a bound mapping on an empty node would be killed by SIGBUS when touched.
check_numa_empty_node() {
    need_hugemr
    pool_of 0 64
    pool_of 1 ${there:-0}
    # past the plan as well, so that mapping and populating have to notice
    for way in "" --force; do
        hugemr register 64MiB --device "$DEVICE" --pages 2MiB --node 1 $way >/tmp/out 2>&1
        status=$?
        cat /tmp/out
        [ $status = 1 ] || [ $status = 3 ] || bad "exit status $status with '$way' (135 is SIGBUS)"
    done
    hugemr register 64MiB --device "$DEVICE" --pages 2MiB --node 7 >/tmp/out 2>&1
    same "exit status of node 7" $? 2
    grep -q 'it has 0, 1' /tmp/out || bad "$(cat /tmp/out)"
    ok "an empty node and a node that is not there: an error each, no SIGBUS"
}
sabotage_numa_empty_node() {
    there=64
}

check_numa_reserve() {
    need_hugemr
    pool_of 0 3
    pool_of 1 5
    hugemr register 160MiB --device "$DEVICE" --pages 2MiB --chunk 32MiB --reserve $flag --json >/tmp/register 2>/tmp/err ||
        bad "exit status $?: $(tail -n 3 /tmp/err)"
    same "pages of node 0 afterwards" "$(numa 0 nr_hugepages)" 3
    same "pages of node 1 afterwards" "$(numa 1 nr_hugepages)" 5
    [ "$(grep -c '"node": [01]' /tmp/register)" -ge ${least:-2} ] || bad "$(grep '"node"' /tmp/register)"
    ok "both pools raised for whole MRs, and back to 3 and 5"
}
sabotage_numa_reserve() {
    least=9
}

# 8 MRs on each node, populated by a thread each. Keys of rxe count up, so they tell the order of registration.
check_numa_order() {
    need_hugemr
    pool_of 0 64
    pool_of 1 64
    hugemr register 256MiB --device "$DEVICE" --pages 2MiB --chunk 16MiB --threads ${threads:-2} --json \
        >/tmp/register 2>/tmp/err || bad "exit status $?: $(tail -n 3 /tmp/err)"
    keys=$(sed -n 's/.*"lkey": "\(0x[0-9a-f]*\)".*/\1/p' /tmp/register)
    echo $keys
    count=0 last=0 before=0
    for key in $keys; do
        key=$((key)) count=$((count + 1))
        if [ $count -le 8 ]; then
            [ $key -lt $last ] || last=$key
        else
            [ $key -gt $last ] || before=$((before + 1))
        fi
    done
    same "MRs" $count 16
    [ $before -ge 4 ] || bad "$before of 8 MRs of node 1 were registered before the last of node 0"
    ok "$before of 8 MRs of node 1 were registered before the last of node 0"
}
sabotage_numa_order() {
    threads=1
}
