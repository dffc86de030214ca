"""Mixed calls for a while, through whatever comes. Arguments: the endpoint's URL, the seconds.

Ends with 0 if every call had its own answer or, if it may not be made twice, an explicit error, and there were as many answers
as there should be. Calls that were cut before the first word, and what this SDK loses with them, are counted for whoever knows
how often a gateway was restarted (chaos/src/soak.rs)."""

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
# Less is no work. A client makes some 40 calls in a second where nothing is slow.
ANSWERS_PER_SECOND = 4
# What this SDK says of calls whose session it has ended.
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
        except Exception as error:  # whatever it is, it is not an explicit error
            wrong.append(f"{tool} {call}: {type(error).__name__}: {error}")


async def live(name: str, end: float) -> None:
    """One session after the other: this SDK ends its session with the first 5xx, which a balancer answers where a gateway dies
    before its first word. It does not send such a request again, and rightly so."""
    number = 0
    while anyio.current_time() < end:
        try:
            await session(f"{name}.{number}", end)
            if anyio.current_time() < end:
                # Cut, too: it was an answer to an ask that got the 502, of which this SDK writes in its log alone.
                seen["ended without a word"] += 1
        except* httpx.HTTPStatusError as errors:
            for error in leaves(errors):
                if error.response.status_code == 502:
                    seen["cut before the first word"] += 1
                else:
                    wrong.append(f"session {name}: {error}")
            # Whoever is refused at once does not come back at once.
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
