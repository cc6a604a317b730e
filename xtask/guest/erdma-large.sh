# 5 GiB of physically contiguous 1 GiB pages: where the old page-size rule fails.

insmod /modules/hugemr_old_rule.ko override=0 || echo "GUEST hugemr_old_rule has not loaded"
parameter=/sys/module/hugemr_old_rule/parameters/override

# register: one MR over all five pages in physical order
register() {
    dmesg -c >/dev/null
    mr-probe dev=$DEVICE total=5120 pages=1g sorted=${sorted:-1} >/tmp/probe 2>&1
    cat /tmp/probe
    dmesg | sed -n 's/.*\(old rule: iova\)/\1/p' | tee /tmp/rule
}

check_large_new_rule() {
    echo N >$parameter
    register
    same "run" "$(sed -n 's/^longest run \([0-9]*\) .*/\1/p' /tmp/probe)" 5120
    same "rule" "$(sed 's/.* new/new/' /tmp/rule)" "new 0x40000000 old 0x1000"
    grep -q '^registered 1 MRs' /tmp/probe || bad "$(tail -n 1 /tmp/probe)"
    ok "a run of 5 GiB: 1 GiB pages by the new rule, 4 KiB by the old"
}
sabotage_large_new_rule() {
    sorted=0
}

check_large_old_rule() {
    echo Y >$parameter
    register
    grep -q 'old 0x1000$' /tmp/rule || bad "the return probe says '$(cat /tmp/rule)'"
    case $(uname -r) in
    # one block of memory for 1,310,720 entries is more than it can ask for
    6.1.*) expected="failed MR 0 errno 12 ENOMEM" ;;
    *) expected="registered 1 MRs of 5120 MiB" ;;
    esac
    same "registration" "$(tail -n 1 /tmp/probe | sed 's/ in .*//')" "$expected"
    ok "$expected"
}
sabotage_large_old_rule() {
    rmmod hugemr_old_rule
}
