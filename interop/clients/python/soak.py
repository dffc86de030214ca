"""Makes mixed calls while gateways are killed. Arguments: the URL of the endpoint, the seconds.

Exits with 0 if every call got its own result or, if it is not idempotent, an explicit error, and if there
were enough results. Calls that were cut before the first byte of the response, and sessions that this SDK
ends because of that, are counted; chaos/src/soak.rs knows how many restarts explain them."""

import json
import logging
import sys
from collections import Counter
from datetime import timedelta

import anyio
import httpx
from mcp import ClientSession, McpError, types
from mcp.client.streamable_http import streamable_http_client

URL, SECONDS = sys.argv[1], float(sys.argv[2])
SESSIONS, WORKERS = 2, 4
TOOLS = [("echo", 0), ("slow", 300), ("look", 300), ("progress", 500), ("ask", 200), ("counter", 0)]
SAFE = {"look"}
# The minimum. A client makes about 40 calls per second without faults.
ANSWERS_PER_SECOND = 4
# The error of this SDK for calls whose session it has ended.
CLOSED = -32000

seen: Counter[str] = Counter({"calls": 0, "answers": 0})
wrong: list[str] = []


async def reply(_context: object, _params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"answer": "yes"})


async def work(client: ClientSession, name: str, end: float) -> None:
    number = 0
    while anyio.current_time() < end:
        tool, ms = TOOLS[number % len(TOOLS)]
        call, number = f"{name}.{number}", number + 1
        seen["calls"] += 1
        try:
            result = await client.call_tool(tool, {"call": call, "ms": ms}, timedelta(seconds=40))
            text = result.content[0].text
            if text.split(" ")[0] == f"call={call}":
                seen["answers"] += 1
            else:
                wrong.append(f"{tool} {call} got {text!r}")
        except anyio.ClosedResourceError:
            seen["lost with the SDK's session"] += 1
            return
        except anyio.get_cancelled_exc_class():
            seen["lost with the SDK's session"] += 1
            raise
        except McpError as error:
            if error.error.code == CLOSED:
                seen["lost with the SDK's session"] += 1
                return
            reason = (error.error.data or {}).get("reason") if isinstance(error.error.data, dict) else None
            if reason == "outcome_unknown" and tool not in SAFE:
                seen["explicit errors"] += 1
            else:
                wrong.append(f"{tool} {call}: {error.error.code} {error.error.message} {error.error.data}")
        except Exception as error:  # any other error is not an explicit error
            wrong.append(f"{tool} {call}: {type(error).__name__}: {error}")


async def live(name: str, end: float) -> None:
    """Opens one session after the other. This SDK ends its session at the first 5xx. The balancer responds
    with 502 if a gateway dies before the first byte of its response. The balancer must not send such a
    request again, because it may have been executed."""
    number = 0
    while anyio.current_time() < end:
        try:
            await session(f"{name}.{number}", end)
            if anyio.current_time() < end:
                # The response to a server request got the 502. This SDK only logs that.
                seen["ended without a word"] += 1
        except* httpx.HTTPStatusError as errors:
            for error in leaves(errors):
                if error.response.status_code == 502:
                    seen["cut before the first word"] += 1
                else:
                    wrong.append(f"session {name}: {error}")
            # A pause, so that a client that is refused does not retry at once.
            await anyio.sleep(0.2)
        number += 1


def leaves(errors: BaseExceptionGroup) -> list[BaseException]:
    return [leaf for error in errors.exceptions for leaf in (leaves(error) if isinstance(error, BaseExceptionGroup) else [error])]


async def session(name: str, end: float) -> None:
    async with (
        streamable_http_client(URL) as (read, write, _),
        ClientSession(read, write, elicitation_callback=reply) as client,
    ):
        await client.initialize()
        async with anyio.create_task_group() as workers:
            for worker in range(WORKERS):
                workers.start_soon(work, client, f"py{name}.{worker}", end)


async def main() -> int:
    logging.disable(logging.CRITICAL)
    end = anyio.current_time() + SECONDS
    async with anyio.create_task_group() as sessions:
        for session in range(SESSIONS):
            sessions.start_soon(live, str(session), end)
    if seen["answers"] < SECONDS * ANSWERS_PER_SECOND:
        wrong.append(f"{seen['answers']} answers in {SECONDS:.0f} seconds")
    print(json.dumps({"client": "Python", **seen, "wrong": len(wrong), "first": wrong[:5]}), flush=True)
    return 1 if wrong else 0


sys.exit(anyio.run(main))
