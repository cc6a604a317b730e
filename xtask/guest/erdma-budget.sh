# The table of the device, filled by hugemr at 4 KiB pages: 3,000,000 entries are 11 MRs of 1 GiB and not a twelfth. One
# small piece of memory, mapped again and again, stands for all; its pages are an odd number, so that no repetition
# continues the one before with larger pages.
SMALL="--pages 4KiB --alias-pages 15999 --threads 1"

# The plan says it first, where it is told the budget; without being told, the device does.
check_budget_4k() {
    register 12GiB $SMALL --chunk 1GiB --budget ${budget:-3000000}
    same "exit status with --budget" $status 1
    says "3,145,728" "3,000,000" "EIO at MR 11 (counted from 0) of 12"
    same "MRs at the device" "$(total live)" 0
    register 12GiB $SMALL --chunk 1GiB
    same "exit status without it" $status 3
    says EIO "11 of 12" "rolled back"
    same "entries at most at once" "$(total peak)" 2883584
    same "MRs at the device after it" "$(total live)" 0
    same "MRs left" "$(mrs)" 0
    ok "refused by the plan (EIO at MR 11 of 0 to 11); without --budget eleven MRs of 262,144 entries, the twelfth: EIO, all taken back ($took s)"
}
sabotage_budget_4k() {
    budget=3145728
}

check_budget_fits() {
    register ${size:-11GiB} $SMALL --chunk 1GiB --budget 3000000
    same "exit status" $status 0
    same "entries at most at once" "$(total peak)" 2883584
    same "MRs left" "$(mrs)" 0
    ok "11 GiB fit: 2,883,584 entries ($took s)"
}
sabotage_budget_fits() {
    size=10GiB
}

# On 6.1 the table of an MR is one block of kernel memory: 524,288 entries. Later drivers build it of pages.
check_one_table() {
    register 2GiB $SMALL --one-mr
    same "exit status at 2 GiB" $status 0
    before=$(total reg_mrs)
    register ${size:-2147487744} $SMALL --one-mr
    planned=$status
    register ${size:-2147487744} $SMALL --one-mr --force
    case $(uname -r) in
    6.1.*)
        same "plan of 2 GiB + 4 KiB" $planned 1
        same "2 GiB + 4 KiB" $status 3
        says ENOMEM "524,288"
        same "commands to the device" $(($(total reg_mrs) - before)) 0
        ok "524,288 entries in one MR; one more: refused by the plan, and ENOMEM before the device is asked"
        ;;
    *)
        same "plan of 2 GiB + 4 KiB" $planned 0
        same "2 GiB + 4 KiB" $status 0
        same "commands to the device" $(($(total reg_mrs) - before)) 2
        ok "524,288 entries in one MR, and 524,289"
        ;;
    esac
}
sabotage_one_table() {
    case $(uname -r) in
    6.1.*) size=1GiB ;;
    *) size=64GiB+1 ;;
    esac
}

# 100,000 entries: 256 MiB of one process (65,536), of the next two MRs of 64 MiB and not a third.
check_budget_shared() {
    emu budget ${budget:-100000}
    start_hugemr 4 256MiB $SMALL --chunk 64MiB
    first=$holder
    register 256MiB $SMALL --chunk 64MiB
    refused=$status
    says EIO "2 of 4" "rolled back"
    same "MRs of the first" "$(mrs $first)" 4
    same "entries of the first" "$(total used)" 65536
    holder=$first
    end_hugemr
    register 256MiB $SMALL --chunk 64MiB
    emu budget 3000000
    same "exit status beside the first" $refused 3
    same "exit status after it" $status 0
    ok "beside a process with 65,536 of 100,000 entries: EIO at the third MR, the other untouched; after its end it fits"
}
sabotage_budget_shared() {
    budget=200000
}

# stamps PAGES SIZE CHUNK: hugemr's own MRs, each block stamped from outside, as the device reads it
stamps() {
    hugemr register "$2" --pages "$1" --chunk "$3" --device $DEVICE --hold --json >/tmp/hold.out 2>&1 &
    holder=$!
    stamped_mrs $holder 4096
    end_hugemr
    same "MRs" $seen 4
    same "blocks with their own address" $stamped $4
    same "wrong stamps" $wrong 0
}

check_stamps_4k() {
    stamps 4KiB 128MiB 32MiB 32768
    ok "32,768 blocks of 4 KiB pages, each found by the device where the program sees it"
}
sabotage_stamps_4k() {
    off=4096
}

check_stamps_2m() {
    stamps 2MiB 64MiB 16MiB 16384
    ok "16,384 blocks of 2 MiB pages, each found by the device where the program sees it"
}
sabotage_stamps_2m() {
    off=4096
}
