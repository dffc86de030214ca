"""The script "asks" of interop/README.md with the Python SDK. Arguments: the endpoint's URL, the control URL (not used)."""

import json
import sys
from datetime import timedelta

import anyio
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client

URL = sys.argv[1]
ASKS = 5


async def parallel_asks() -> str:
    """A tool asks for several samples at once, each of which takes half a second to write."""
    asked, peak = 0, 0

    async def write(_context: object, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        nonlocal asked, peak
        asked += 1
        peak = max(peak, asked)
        await anyio.sleep(0.5)
        asked -= 1
        content = types.TextContent(type="text", text=f"answer to {params.messages[0].content.text}")
        return types.CreateMessageResult(role="assistant", model="none", content=content)

    async with (
        streamable_http_client(URL) as (read, write_stream, _),
        ClientSession(read, write_stream, sampling_callback=write) as session,
    ):
        await session.initialize()
        begun = anyio.current_time()
        result = await session.call_tool("parallel_asks", {"n": ASKS}, timedelta(seconds=20))
        took = anyio.current_time() - begun
    said, wanted = result.content[0].text, "".join(f"answer to Question {number}\n" for number in range(ASKS))
    assert said == wanted, f"got {said!r}, wanted {wanted!r}"
    # How many at once is for this SDK to decide, so it is told and not judged.
    return f"{peak} of {ASKS} at once, {took:.2f} s"


async def main() -> int:
    try:
        line = {"step": "parallel-asks", "ok": True, "detail": await parallel_asks()}
    except Exception as error:  # whatever it is, it is this step's result
        line = {"step": "parallel-asks", "ok": False, "detail": f"{type(error).__name__}: {error}"}
    print(json.dumps(line), flush=True)
    return 0 if line["ok"] else 1


sys.exit(anyio.run(main))
