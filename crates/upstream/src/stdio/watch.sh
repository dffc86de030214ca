# Outlives whoever started programs, and ends those that are left.
#
# Each line of the input is +GROUP when a process group begins and -GROUP when it has ended. The input ends when its
# writer does, in whatever way; then the groups that are left have $1 seconds to end by themselves (their input is
# closed as well), $1 more after SIGTERM, and then it is SIGKILL.

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
