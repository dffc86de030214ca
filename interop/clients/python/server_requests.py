"""Runs the script "server-requests" of interop/README.md with the Python SDK.

Arguments: the URL of the endpoint, the URL of the control endpoint (not used)."""

import json
import sys
from datetime import timedelta

import anyio
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client

URL = sys.argv[1]
SAMPLES = 5


async def parallel_requests() -> str:
    """Calls a tool that requests several samples at once. Each response takes half a second."""
    running, peak = 0, 0

    async def write(_context: object, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await anyio.sleep(0.5)
        running -= 1
        content = types.TextContent(type="text", text=f"answer to {params.messages[0].content.text}")
        return types.CreateMessageResult(role="assistant", model="none", content=content)

    async with (
        streamable_http_client(URL) as (read, write_stream, _),
        ClientSession(read, write_stream, sampling_callback=write) as session,
    ):
        await session.initialize()
        begun = anyio.current_time()
        result = await session.call_tool("parallel_samples", {"n": SAMPLES}, timedelta(seconds=20))
        took = anyio.current_time() - begun
    said, wanted = result.content[0].text, "".join(f"answer to Question {number}\n" for number in range(SAMPLES))
    assert said == wanted, f"got {said!r}, wanted {wanted!r}"
    # The SDK decides how many run at once, so the number is reported and not checked.
    return f"{peak} of {SAMPLES} at once, {took:.2f} s"


async def main() -> int:
    try:
        line = {"step": "parallel-requests", "ok": True, "detail": await parallel_requests()}
    except Exception as error:  # any error is the result of this step
        line = {"step": "parallel-requests", "ok": False, "detail": f"{type(error).__name__}: {error}"}
    print(json.dumps(line), flush=True)
    return 0 if line["ok"] else 1


sys.exit(anyio.run(main))
