# Checks on a software device (rxe) over a dummy interface, with real huge pages.
. /t/lib.sh

ip addr add 10.77.0.1/24 dev dummy0
ip link set dummy0 up
rdma link add rxe0 type rxe netdev dummy0 || exit 1

DEVICE=rxe0
small=2048
large=1048576

# --- the guest itself, without hugemr -----------------------------------------------------------

check_device_present() {
    ibv_devinfo -d rxe0 | grep -E 'state|max_mtu'
    ibv_devinfo -d rxe0 | grep -q PORT_ACTIVE || bad "rxe0 is not there or has no active port"
    [ -c /dev/infiniband/uverbs0 ] || bad "no /dev/infiniband/uverbs0"
    ok "rxe0 with an active port"
}
sabotage_device_present() {
    ip link set dummy0 down
}

check_pool_grows() {
    before=$(pool $small nr_hugepages)
    echo $((before + 8)) >/sys/kernel/mm/hugepages/hugepages-${small}kB/nr_hugepages
    after=$(pool $small nr_hugepages)
    echo "$before" >/sys/kernel/mm/hugepages/hugepages-${small}kB/nr_hugepages
    same "2 MiB pages" "$after" $((before + 8))
    ok "$before + 8 pages, and back"
}
sabotage_pool_grows() {
    mount -o remount,ro /sys
}

check_probe_2m() {
    same "free 1 GiB pages" "$(pool $large free_hugepages)" 1
    mr-probe dev=rxe0 total=64 chunk=16 pages=2m hold=1 >/tmp/probe &
    wait_for 20 grep -q -E 'registered|failed|stopped' /tmp/probe
    cat /tmp/probe
    seen=$(mrs $!)
    used=$(($(pool $small nr_hugepages) - $(pool $small free_hugepages)))
    killed $!
    same "MRs" "$seen" 4
    same "2 MiB pages in use" $used 32
    ok "4 MRs of 16 MiB, 32 pages in use"
}
sabotage_probe_2m() {
    echo 0 >/sys/kernel/mm/hugepages/hugepages-${small}kB/nr_hugepages
}

check_probe_1g() {
    mr-probe dev=rxe0 total=1024 pages=1g | tee /tmp/probe
    grep -q 'registered 1 MRs of 1024 MiB' /tmp/probe || bad "$(tail -n 1 /tmp/probe)"
    ok "$(tail -n 1 /tmp/probe)"
}
sabotage_probe_1g() {
    echo 0 >/sys/kernel/mm/hugepages/hugepages-${large}kB/nr_hugepages
}

check_probe_64tib() {
    $as mr-probe dev=rxe0 total=32 pages=4k length=70368744177664 | tee /tmp/probe
    same "64 TiB over 32 MiB" "$(cat /tmp/probe)" "failed MR 0 errno 22 EINVAL"
    ok "EINVAL"
}
sabotage_probe_64tib() {
    # who may pin nothing is refused before the length is looked at
    as="as_nobody 0"
}

check_probe_memlock() {
    as_nobody ${memlock:-1048576} mr-probe dev=rxe0 total=4 pages=2m | tee /tmp/probe
    same "4 MiB with memlock 1 MiB" "$(tail -n 1 /tmp/probe)" "failed MR 0 errno 12 ENOMEM"
    ok "ENOMEM for nobody with memlock 1 MiB"
}
sabotage_probe_memlock() {
    memlock=unlimited
}

# --- hugemr, where only this device can show it -------------------------------------------------

check_hugemr_64tib() {
    need_hugemr
    hugemr register 64TiB --device rxe0 --pages 2MiB >/tmp/out 2>&1
    status=$?
    cat /tmp/out
    same "exit status" $status 1
    grep -q 'needs 33,554,432 huge pages' /tmp/out || bad "$(head -n 1 /tmp/out)"
    ok "refused by the plan: $(head -n 1 /tmp/out)"
}
sabotage_hugemr_64tib() {
    rdma link del rxe0
}

# One page of 1 GiB mapped 65,536 times makes such a range real. The plan refuses it as one MR; past the plan it is
# the kernel that does.
check_hugemr_64tib_force() {
    need_hugemr
    echo 100000 >/proc/sys/vm/max_map_count
    for way in "" --force; do
        hugemr register ${size:-64TiB} --one-mr --device rxe0 --pages 1GiB --alias-pages 1 $way >/tmp/out 2>&1
        status=$?
        cat /tmp/out
        case $way in --force) expected=3 ;; *) expected=1 ;; esac
        same "exit status with '$way'" $status $expected
        grep -q 'longer than the limit of 16 TiB - 4 KiB' /tmp/out || bad "the limit is not named with '$way'"
    done
    grep -q 'ibv_reg_mr.*EINVAL' /tmp/out || bad "$(tail -n 1 /tmp/out)"
    same "MRs left" "$(mrs)" 0
    ok "one MR of 64 TiB: refused by the plan, with --force by the kernel (EINVAL)"
}
sabotage_hugemr_64tib_force() {
    size=1GiB
}

check_hugemr_verify() {
    need_hugemr
    hugemr register 512MiB --device rxe0 --pages 2MiB --max-mr-size 64MiB --verify >/tmp/out 2>&1
    status=$?
    cat /tmp/out
    same "exit status" $status 0
    # a device that cannot loop back is no error to hugemr, but here it is one
    grep -q '^proved: RDMA write and read at both ends of 8 MRs and across 7 borders' /tmp/out ||
        bad "$(grep -iE 'prove|proof' /tmp/out)"
    ok "$(grep '^proved' /tmp/out)"
}
sabotage_hugemr_verify() {
    # one PD and eight MRs, but no queues to move data with
    few_objects 9
}

# few_objects COUNT: what this shell starts may have so many PDs, MRs and queues on rxe0
few_objects() {
    mkdir -p /tmp/cgroup
    mount -t cgroup2 none /tmp/cgroup
    echo +rdma >/tmp/cgroup/cgroup.subtree_control
    mkdir /tmp/cgroup/few
    echo "rxe0 hca_handle=4 hca_object=$1" >/tmp/cgroup/few/rdma.max
    echo 0 >/tmp/cgroup/few/cgroup.procs
}

# --- the tests of the backend on this device ----------------------------------------------------

# suite ARGUMENT...: ends the check as failed unless all tests chosen have passed, and at least one
suite() {
    need_hugemr
    HUGEMR_TEST_DEVICE=rxe0 verbs-suite --include-ignored --test-threads=1 "$@" >/tmp/suite 2>&1
    status=$?
    cat /tmp/suite
    same "exit status of the suite ($(grep -c ' FAILED$' /tmp/suite) tests failed)" $status 0
    grep -q '^test result: ok. [1-9]' /tmp/suite || bad "no test ran"
}

# The same checks on three backends; the harness makes a table of what they say.
check_conformance() {
    suite --show-output rigs::
    for backend in simulator fake_verbs real_device; do
        count=$(grep -c "^test rigs::$backend::.* ok\$" /tmp/suite)
        [ "$count" -gt 0 ] || bad "nothing was checked on $backend"
        said="$said $count on $backend"
    done
    ok "passed:$said"
}
sabotage_conformance() {
    # too few for all that eight threads keep
    few_objects 40
}

check_from_raw() {
    suite from_raw::
    ok "context and PD of the program's own are usable after ours is dropped"
}
sabotage_from_raw() {
    # the context, the PD, and no MR
    few_objects 1
}

# 512 MiB of huge pages in 8 MRs. Proved as it is; then with keys and borders that are wrong, each of which must be caught.
check_proof_catches() {
    suite --show-output proof::
    ok "$(sed -n 's/^caught: //p' /tmp/suite | tail -n 1)"
}
sabotage_proof_catches() {
    echo 0 >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
}
