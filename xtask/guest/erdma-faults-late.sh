# A fault that takes the driver's 15 s once more, and so is not in the usual run.

check_fault_late_for_the_driver() {
    free=$(pool 2048 free_hugepages)
    fault ${action:-late=17s} 3
    register $FOUR
    same "exit status" $status 3
    says ETIME "reload the .*driver"
    sleep 4
    nothing_held "$free"
    emu clear-faults
    register $FOUR
    same "exit status on a dead queue" $status 3
    reload
    works
    ok "an answer after 17 s comes too late: ETIME, and the queue stays dead until the reload"
}
sabotage_fault_late_for_the_driver() {
    action=late=10ms
}
