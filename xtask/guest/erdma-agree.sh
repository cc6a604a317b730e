# Random layouts, predicted by core, computed by the simulator, registered by the real driver. The host compares.

check_new_rule() {
    count=${count:-50}
    agree $DEVICE ${seed:-20261129} 4294963200 new 2m=$count 4k=$count thp=$count mixed=$count unaligned=$count \
        shuffled=$count sorted=$count >/tmp/agree || bad "$(tail -n 1 /tmp/agree)"
    cat /tmp/agree
    same "layouts" "$(grep -c '^AGREE {' /tmp/agree)" $((7 * 50))
    ok "350 layouts by the rule of this kernel"
}
sabotage_new_rule() {
    count=3
}

# The rule of older kernels, with a table entry that ends at 4 MiB - 4 KiB: small memory crosses it.
check_old_rule() {
    insmod /modules/hugemr_old_rule.ko segment=4190208 override=1 || bad "hugemr_old_rule has not loaded"
    agree $DEVICE ${seed:-20261130} ${cap:-4190208} old 2m=50 4k=20 thp=50 mixed=50 unaligned=50 sorted=50 \
        >/tmp/agree || bad "$(tail -n 1 /tmp/agree)"
    cat /tmp/agree
    rmmod hugemr_old_rule
    same "layouts" "$(grep -c '^AGREE {' /tmp/agree)" 270
    ok "270 layouts by the rule of older kernels, segments of 4 MiB - 4 KiB"
}
sabotage_old_rule() {
    agree() { echo "AGREE-SEED 0"; }
}
