# Checks on an emulated eRDMA device of 40,000 entries, with the unmodified driver.

check_bind() {
    rmmod erdma 2>/dev/null
    load_erdma || bad "no $DEVICE: $(dmesg | grep -i erdma | tail -n 1)"
    bound=$(ls -d /sys/bus/pci/drivers/erdma/0000:* 2>/dev/null)
    [ "$bound" ] || bad "no PCI device bound to erdma"
    ok "$(basename "$bound") bound by erdma, loaded a second time; $DEVICE is there"
}
sabotage_bind() {
    # the driver looks for the net device with its MAC
    rmmod erdma
    rmmod virtio_net
}

check_devinfo() {
    ibv_devinfo -v -d $DEVICE >/tmp/info || bad "ibv_devinfo: exit status $?"
    cat /tmp/info
    same max_mr_size "$(field max_mr_size </tmp/info)" 68719476736
    same max_mr "$(field max_mr </tmp/info)" 32768
    same state "$(awk '$1 == "state:" { print $2 }' /tmp/info)" PORT_ACTIVE
    ok "64 GiB a region, 32,768 regions, active"
}
sabotage_devinfo() {
    rm /etc/libibverbs.d/erdma.driver
}

check_probe_2m() {
    mr-probe dev=$DEVICE total=64 chunk=16 pages=2m | tee /tmp/probe
    grep -q '^registered 4 MRs of 64 MiB' /tmp/probe || bad "$(tail -n 1 /tmp/probe)"
    ok "$(tail -n 1 /tmp/probe)"
}
sabotage_probe_2m() {
    echo 0 >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
}

check_too_long() {
    mr-probe dev=$DEVICE total=32 pages=4k length=${length:-68719476737} | tee /tmp/probe
    same "64 GiB + 1" "$(tail -n 1 /tmp/probe)" "failed MR 0 errno 22 EINVAL"
    ok "64 GiB + 1 byte: EINVAL"
}
sabotage_too_long() {
    # not too long for the device, but more than is mapped
    length=68719476736
}

check_budget() {
    mr-probe dev=$DEVICE total=192 chunk=64 pages=${pages:-4k} | tee /tmp/probe
    # 16,384 entries each
    same "third MR of 64 MiB" "$(tail -n 1 /tmp/probe)" "failed MR 2 errno 5 EIO"
    ok "two MRs of 16,384 entries, the third: EIO"
}
sabotage_budget() {
    # huge pages need few entries
    pages=2m
    echo 100 >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
}
