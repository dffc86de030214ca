# Starts a command, prints its process id, and kills it when the parent of this script is gone: then
# the input of this script ends.
exec 3<&0
"$@" </dev/null >>"$CHAOS_LOG" 2>&1 3<&- &
process=$!
(read -r _ <&3; kill -9 $process) >/dev/null 2>&1 &
reader=$!
echo $process
exec >&-
wait $process
kill $reader 2>/dev/null
