# Outlives the gateway, and ends the process groups that it has left behind.
#
# Each line of the input is +GROUP when a process group starts and -GROUP when it has ended. The
# input ends when the gateway ends, in whichever way. Then the groups that are left have $1 seconds
# to end by themselves (their input is closed as well). After that they get SIGTERM, and after $1
# more seconds SIGKILL.

trap '' HUP INT QUIT TERM

groups=' '
while read -r word; do
    id=${word#?}
    case $word in
        +*) groups="$groups$id " ;;
        -*) case $groups in *" $id "*) groups="${groups%% "$id" *} ${groups#* "$id" }" ;; esac ;;
    esac
done

end() {
    for id in $groups; do
        kill -s "$1" -- "-$id" 2>/dev/null
    done
}

any() {
    for id in $groups; do
        kill -s 0 -- "-$id" 2>/dev/null && return 0
    done
    return 1
}

any || exit 0
sleep "$1"
any || exit 0
end TERM
sleep "$1"
end KILL
