# Ordinary memory of a program in 4 KiB pages, collapsed in place, then registered with 2 MiB pages.

# MADV_COLLAPSE does not ask for the mode; with this one the program's memory is in 4 KiB pages for certain
echo never >/sys/kernel/mm/transparent_hugepage/enabled

check_collapse() {
    agree $DEVICE collapse ${bytes:-134217728} >/tmp/collapse || bad "$(tail -n 1 /tmp/collapse)"
    cat /tmp/collapse
    value() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" /tmp/collapse; }
    same "refused bytes" "$(value refused)" 0
    same "collapsed bytes" "$(value huge)" 134217728
    same "data intact" "$(value intact)" true
    ok "128 MiB collapsed, $(value seconds_per_gib) s/GiB in software emulation"
}
sabotage_collapse() {
    # half of it is no answer to the question
    bytes=67108864
}
