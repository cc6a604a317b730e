# Checks with the page-size rule of older kernels put back by a return probe.

# runs are treated as if a table entry ended at 4 MiB - 4 KiB, not at 4 GiB - 4 KiB
insmod /modules/hugemr_old_rule.ko segment=4190208 override=0 ||
    echo "GUEST hugemr_old_rule has not loaded"

parameter=/sys/module/hugemr_old_rule/parameters/override

# register WHICH: the log line of one registration of 64 MiB in physical order
register() {
    dmesg -c >/dev/null
    mr-probe dev=$DEVICE total=64 pages=2m sorted=1 >/tmp/probe 2>&1
    cat /tmp/probe
    dmesg | sed -n 's/.*\(old rule: iova\)/\1/p' | tee /tmp/rule
    [ "$(wc -l </tmp/rule)" = 1 ] || bad "$1: $(wc -l </tmp/rule) log lines, expected 1"
}

check_rule_seen() {
    echo N >$parameter
    register "without override"
    new=$(sed -n 's/.* new \(0x[0-9a-f]*\) .*/\1/p' /tmp/rule)
    old=$(sed -n 's/.* old \(0x[0-9a-f]*\)$/\1/p' /tmp/rule)
    [ $((new)) -ge 2097152 ] || bad "new rule gives $new"
    same "old rule" $((old)) 4096
    ok "new $new, old $old, not replaced"
}
sabotage_rule_seen() {
    rmmod hugemr_old_rule
}

check_rule_replaced() {
    echo Y >$parameter
    register "with override"
    ok "$(sed 's/.*length/length/' /tmp/rule)"
}
sabotage_rule_replaced() {
    rmmod hugemr_old_rule
}
