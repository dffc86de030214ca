# Starts what it is told, says which process that is, and ends it when nobody holds this script's input any more.
exec 3<&0
"$@" </dev/null >>"$CHAOS_LOG" 2>&1 3<&- &
process=$!
(read -r _ <&3; kill -9 $process) >/dev/null 2>&1 &
reader=$!
echo $process
exec >&-
wait $process
kill $reader 2>/dev/null
