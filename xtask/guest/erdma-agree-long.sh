# Random MRs over five 1 GiB pages in physical order: runs of 4 GiB and more, by the new and by the old rule.

check_long_new_rule() {
    agree $DEVICE 20261129 4294963200 new 1g=20 long=${count:-20} >/tmp/agree || bad "$(tail -n 1 /tmp/agree)"
    cat /tmp/agree
    same "layouts" "$(grep -c '^AGREE {' /tmp/agree)" 40
    ok "20 layouts of 1 GiB pages, 20 across a long run"
}
sabotage_long_new_rule() {
    count=2
}

check_long_old_rule() {
    insmod /modules/hugemr_old_rule.ko override=1 || bad "hugemr_old_rule has not loaded"
    agree $DEVICE 20261130 4294963200 old 1g=20 long=${count:-20} >/tmp/agree || bad "$(tail -n 1 /tmp/agree)"
    cat /tmp/agree
    rmmod hugemr_old_rule
    same "layouts" "$(grep -c '^AGREE {' /tmp/agree)" 40
    ok "20 layouts of 1 GiB pages, 20 across a long run"
}
sabotage_long_old_rule() {
    count=2
}
