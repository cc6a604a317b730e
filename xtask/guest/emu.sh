# The device's control socket is this guest's second serial line: the checks tell the device what to do, and read what it
# has counted. See the control module of erdma-emulator.

stty -F /dev/ttyS1 raw -echo
exec 5<>/dev/ttyS1

# emu LINE: a command to the device; its answer, one line of JSON
emu() {
    echo "$*" >&5
    read -r answer <&5
    echo "$answer"
    case $answer in *'"ok":true'*) ;; *) return 1 ;; esac
}

# total NAME: one of the device's counts
total() {
    emu status | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"
}

# fault ACTION N: what the device does at the Nth REG_MR from now
fault() {
    emu fault "$1@$(($(total reg_mrs) + $2))" || bad "the device takes no fault"
}

# four MRs on 2 MiB pages, one after the other
FOUR="64MiB --pages 2MiB --chunk 16MiB --threads 1"

# register ARGUMENT...: hugemr, all said in /tmp/out; its status in $status, its seconds in $took
register() {
    begun=$(uptime_now)
    hugemr register "$@" --device "$DEVICE" >/tmp/out 2>&1
    status=$?
    took=$(awk "BEGIN{printf \"%.1f\", $(uptime_now) - $begun}")
    echo "+ hugemr register $* (status $status, $took s)"
    cat /tmp/out
}

# says WORD...: hugemr has said each of them
says() {
    for word in "$@"; do
        grep -qi -e "$word" /tmp/out || bad "hugemr does not say '$word': $(head -n 3 /tmp/out)"
    done
}

# stamped_mrs PID STRIDE: stamps the MRs that hugemr lists in /tmp/hold.out from outside, and asks the device what it finds
# through its tables: how many MRs ($seen), blocks with their own address ($stamped) and with another ($wrong)
stamped_mrs() {
    listed() { grep -q '"released"' /tmp/hold.out || ! kill -0 $1 2>/dev/null; }
    wait_for 120 listed "$1" || bad "hugemr lists no MRs: $(tail -n 2 /tmp/hold.out)"
    seen=0 stamped=0 wrong=0
    # the first document of two, one a line
    grep '"mrs":\[' /tmp/hold.out | head -n 1 | tr ',{' '\n\n' | grep -E '^"(addr|len|lkey)":' |
        sed 's/.*://; s/"//g' | paste -d ' ' - - - >/tmp/mrs
    while read -r addr len lkey; do
        mr-stamp "$1" "$addr" "$len" "$2" $off
        answer=$(emu stamp "$lkey")
        echo "$answer"
        seen=$((seen + 1))
        stamped=$((stamped + $(echo "$answer" | sed -n 's/.*"ok":\([0-9][0-9]*\).*/\1/p')))
        wrong=$((wrong + $(echo "$answer" | sed -n 's/.*"bad":\([0-9]*\).*/\1/p')))
    done </tmp/mrs
}

# nothing_held FREE: no MR in the kernel, and as many free 2 MiB pages as before
nothing_held() {
    back() { [ "$(pool 2048 free_hugepages)" = "$1" ]; }
    wait_for 40 back "$1" || bad "$(pool 2048 free_hugepages) pages of 2 MiB free, $1 before"
    [ ! -e /sys/class/infiniband/$DEVICE ] || same "MRs left" "$(mrs)" 0
}

# reload: the driver anew, as the way out says
reload() {
    rmmod erdma || bad "erdma cannot be removed"
    load_erdma || bad "no $DEVICE after a reload: $(dmesg | grep -i erdma | tail -n 1)"
}

# works: the device takes an MR again
works() {
    register 16MiB --pages 2MiB
    same "exit status after it" $status 0
}
