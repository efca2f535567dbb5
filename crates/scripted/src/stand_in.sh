#!/bin/sh
# A stand-in for the CLI: it calls a tool over either transport, and prints the outcome.
[ "$1" = --version ] && { echo 2.1.326; exit; }
cd "${0%/*}" || exit 9
for argument; do case $argument in --mcp-config=*) config=${argument#*=} ;; esac; done
answer() {
    read -r question || exit 3
    id=${question#*'"request_id":"'}
    echo '{"type":"control_response","response":{"subtype":"success","request_id":"'"${id%%\"*}"'","response":'"$1"'}}'
}
answer '{}'
answer '{"mcpServers":[{"name":"tools","status":"connected"}]}'
read -r prompt || exit 4
hello='{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}'
call='{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":40,"b":2}}}'
if grep -q '"command"' "$config"; then
    mkfifo in out
    eval "$(sed 's/.*"args":\[\([^]]*\)\].*"command":\("[^"]*"\).*/\2,\1/; s/,/ /g' "$config") <in >out &"
    exec 5>in 6<out
    echo "$hello" >&5; read -r said <&6
    echo "$call" >&5; read -r said <&6
    exec 5>&-
    wait
else
    message() {
        echo '{"type":"control_request","request_id":"'$1'","request":{"subtype":"mcp_message","server_name":"tools","message":'"$2"'}}'
        read -r said || exit 5
    }
    message a "$hello"
    message b "$call"
fi
case $said in
    *'"text":"42"'*) text='The sum is 42.' ;;
    *) text='The tool has failed.' ;;
esac
echo '{"type":"assistant","message":{"content":[{"type":"text","text":"'"$text"'"}]}}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"'"$text"'","session_id":"s"}'
cat >/dev/null
