# A server that hangs the first time that it is started, and answers one request after that.
if mkdir "$MARK" 2>/dev/null; then
    echo $$ >"$MARK/pid"
    exec sleep 1000
fi
read -r _
echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}'
exec cat >/dev/null
