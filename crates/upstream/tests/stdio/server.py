"""An MCP server on standard input and output that misbehaves in the way it is told."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

MODE = sys.argv[1] if len(sys.argv) > 1 else "good"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
lock = threading.Lock()
answers = {}
seen = []
starts = 0


def write(text):
    with lock:
        sys.stdout.write(text)
        sys.stdout.flush()


def send(message):
    write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def notify(method, params):
    send({"method": method, "params": params})


def ask(ask_id, method, params):
    answers[ask_id] = threading.Event(), []
    send({"id": ask_id, "method": method, "params": params})
    event, box = answers[ask_id]
    return box[0] if event.wait(10) else {"error": "no answer"}


def die(status, words):
    sys.stderr.write(words + "\n")
    sys.stderr.flush()
    os._exit(status)


def call(message):
    request, params = message["id"], message.get("params", {})
    tool, arguments = params.get("name"), params.get("arguments", {})
    token = params.get("_meta", {}).get("progressToken")
    result = {"id": request, "pid": os.getpid(), "token": token, "arguments": arguments}
    if tool == "slow":
        time.sleep(arguments["ms"] / 1000)
    elif tool == "wait":
        while not os.path.exists(arguments["for"]):
            time.sleep(0.01)
    elif tool == "hang":
        return
    elif tool == "seen":
        result["seen"] = list(seen)
    elif tool == "progress":
        for step in (1, 2):
            notify("notifications/progress", {"progressToken": token, "progress": step})
            if arguments.get("ms"):
                time.sleep(arguments["ms"] / 1000)
    elif tool == "log":
        notify("notifications/message", {"level": "info", "data": arguments.get("data")})
    elif tool == "announce":
        for _ in range(arguments.get("times", 1)):
            notify("notifications/tools/list_changed", {})
    elif tool == "ask":
        while not os.path.exists(arguments.get("after", "/")):
            time.sleep(0.01)
        result["answer"] = ask(arguments.get("id", "ask-1"), "elicitation/create", {"message": "really?"})
    elif tool == "asks":
        ids = [f"ask-{n}" for n in range(arguments["count"])]
        for ask_id in ids:
            answers[ask_id] = threading.Event(), []
            send({"id": ask_id, "method": "elicitation/create", "params": {"message": ask_id}})
        result["refused"] = sum(
            1 for ask_id in ids if answers[ask_id][0].wait(arguments.get("wait", 0.3)) and "error" in answers[ask_id][1][0]
        )
    elif tool == "ping":
        result["answer"] = ask(77, "ping", {})
    elif tool == "garbage":
        write("this is no JSON\n\n[]\n\x1b[31mred\n" + '{"id":1}\n' + '{"jsonrpc":"2.0","id":999,"result":{}}\n')
    elif tool == "flood":
        write("rubbish\n" * 2000)
        return
    elif tool == "long":
        write("x" * arguments["bytes"] + "\n")
    elif tool == "crash":
        die(7, arguments.get("words", "a bug was hit"))
    elif tool == "half":
        write('{"jsonrpc":"2.0","id":%d,"result":{"ha' % request)
        os._exit(0)
    elif tool == "last":
        write(json.dumps({"jsonrpc": "2.0", "id": request, "result": {"last": True}}))
        os._exit(0)
    elif tool == "unmarked":
        write(json.dumps({"id": request, "result": {}}) + "\n")
        return
    elif tool == "chatter":
        sys.stderr.write("chatter\n" * 20000)
        sys.stderr.flush()
    elif tool == "grandchild":
        trap = ["sh", "-c", "trap '' TERM HUP; while :; do sleep 1; done"]
        result["grandchild"] = subprocess.Popen(trap, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid
    elif tool == "environment":
        result["value"], result["folder"] = os.environ.get("GIVEN"), os.getcwd()
        result["names"] = sorted(os.environ)
    send({"id": request, "result": result})


def listen(message):
    meta = {"_meta": {SUBSCRIPTION: message["id"]}}
    notify("notifications/subscriptions/acknowledged", {"notifications": {"toolsListChanged": True}, **meta})
    notify("notifications/tools/list_changed", meta)
    if MODE == "modern-ends":
        send({"id": message["id"], "result": {"resultType": "complete", **meta}})
    elif MODE == "modern-cancels":
        notify("notifications/cancelled", {"requestId": message["id"]})


def serve(message):
    method = message.get("method")
    if method is None:
        event, box = answers.get(message.get("id"), (None, None))
        if event:
            box.append({name: message[name] for name in ("result", "error") if name in message})
            event.set()
        return
    seen.append(message if method.startswith("notifications/") else method)
    if method == "initialize":
        global starts
        starts += 1
        if MODE == "slow-start":
            time.sleep(0.3)
        params = message["params"]
        if MODE == "modern-only":
            return send({"id": message["id"], "error": {"code": -32601, "message": "unknown"}})
        send({"id": message["id"], "result": {
            "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "misbehaving", "version": "1"}, "_starts": starts, "_client": params["clientInfo"],
        }})
        if MODE == "deaf":
            time.sleep(1000)
    elif method == "server/discover" and MODE.startswith("modern"):
        send({"id": message["id"], "result": {
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "misbehaving", "version": "1"},
        }})
    elif method == "server/discover" and MODE == "touchy":
        die(1, "what is server/discover?")
    elif method == "server/discover" and MODE == "mute":
        pass
    elif method == "subscriptions/listen":
        listen(message)
    elif method == "tools/call":
        threading.Thread(target=call, args=(message,), daemon=True).start()
    elif "id" in message:
        send({"id": message["id"], "error": {"code": -32601, "message": "unknown"}})


if os.environ.get("STARTS"):
    with open(os.environ["STARTS"], "a") as starts_file:
        starts_file.write("x" if MODE == "exit" else f"{os.getpid()}\n")
if MODE == "exit":
    die(3, "first words\nno configuration was found")
if MODE == "late":
    subprocess.Popen(["sh", "-c", "sleep 0.1; echo late words >&2"], stdout=subprocess.DEVNULL)
    os._exit(3)
if MODE == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
if MODE == "polite":
    signal.signal(signal.SIGTERM, lambda *_: die(0, "was told to go"))
for line in sys.stdin:
    serve(json.loads(line))
if MODE in ("stubborn", "polite"):
    while True:
        time.sleep(1)
os._exit(0)
