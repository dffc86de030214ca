"""Runs the script "demo" of interop/README.md with the Python SDK.

Arguments: the URL of the endpoint, the URL of the control endpoint."""

import json
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta

import anyio
import httpx
from mcp import ClientSession, McpError, types
from mcp.client.streamable_http import streamable_http_client

URL, CONTROL = sys.argv[1:]
LIMIT = timedelta(seconds=20)
LIFT_OFF = "Counted down from {}: lift-off!"


class Script:
    """The client under test and the notifications that it has received."""

    def __init__(self, control: httpx.AsyncClient) -> None:
        self.control_client = control
        self.connection = AsyncExitStack()
        self.logs: list[object] = []
        self.session: ClientSession
        self.session_id: Callable[[], str | None]

    async def control(self, verb: str, path: str) -> dict:
        return (await self.control_client.request(verb, CONTROL + path)).json()

    async def call(self, name: str, arguments: dict, progress: Callable | None = None) -> str:
        result = await self.session.call_tool(name, arguments, LIMIT, progress)
        return result.content[0].text

    async def heard(self, message: types.LoggingMessageNotificationParams) -> None:
        self.logs.append(message.data)

    async def fill_in(self, _context: object, _form: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada", "number": 7})

    async def write(self, _context: object, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text=f"I heard: {params.messages[0].content.text}")
        return types.CreateMessageResult(role="assistant", model="none", content=content)

    async def initialize(self) -> str:
        streams = await self.connection.enter_async_context(streamable_http_client(URL))
        read, write, self.session_id = streams
        session = ClientSession(
            read,
            write,
            logging_callback=self.heard,
            elicitation_callback=self.fill_in,
            sampling_callback=self.write,
        )
        self.session = await self.connection.enter_async_context(session)
        answer = await self.session.initialize()
        tools = (await self.session.list_tools()).tools
        expect([tool.name for tool in tools], ["countdown", "chatter", "notebook", "fortune", "council"])
        return f"{answer.serverInfo.name}, revision {answer.protocolVersion}"

    async def progress(self) -> str:
        seen = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            seen.append((done, total, message))

        expect(await self.call("countdown", {"from": 5, "step_ms": 20}, progress), LIFT_OFF.format(5))
        expect(seen, [(done, 5, str(5 - done)) for done in range(5)])
        return f"{len(seen)} in order"

    async def logs_(self) -> str:
        await self.session.set_logging_level("info")
        expect(await self.call("chatter", {"lines": 4}), "Said 4 things.")

        async def complete() -> bool:
            return len(self.logs) >= 4

        await until("the last message", complete)
        expect(self.logs, [f"message {line} of 4" for line in range(1, 5)])
        return f"{len(self.logs)} in order"

    async def notebook(self) -> str:
        expect(await self.call("notebook", {"action": "add", "text": "first"}), "Noted. You have 1 note(s).")
        expect(await self.call("notebook", {"action": "list"}), "first")
        return "added and listed"

    async def parallel(self) -> str:
        async def one(number: int) -> None:
            if number % 2 == 0:
                await self.call("notebook", {"action": "add", "text": f"note {number}"})
            else:
                answer = await self.call("countdown", {"from": number, "step_ms": 5})
                expect(answer, LIFT_OFF.format(number))

        async with anyio.create_task_group() as calls:
            for number in range(20):
                calls.start_soon(one, number)
        notes = (await self.call("notebook", {"action": "list"})).split("\n")
        expect(sorted(notes), sorted(["first"] + [f"note {number}" for number in range(0, 20, 2)]))
        return "20 calls, each with its own answer"

    async def fortune(self) -> str:
        told = await self.call("fortune", {})
        expect(told, "Ada, a person with your very id will come, and be turned away.")
        return "a form was filled in"

    async def council(self) -> str:
        said = (await self.call("council", {"question": "Why?", "advisers": 3})).split("\n")
        heard = "{0}: I heard: You are {0}. Answer in one sentence: Why?"
        expect(said, [heard.format(adviser) for adviser in ("an optimist", "a pessimist", "a pirate")])
        return f"{len(said)} samples, each for its own prompt"

    async def refused(self) -> str:
        expect(await code_of(self.call("nonesuch", {})), -32602)
        return "an unknown tool is -32602"

    async def dropped(self, cuts: str, count: int) -> str:
        """Calls the countdown while the proxy cuts its connection after these numbers of events."""
        await self.control("POST", f"/cut?after={cuts}")
        seen = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            seen.append(done)

        expect(await self.call("countdown", {"from": count, "step_ms": 100}, progress), LIFT_OFF.format(count))
        if "," in cuts:
            # After a second cut this SDK resumes from the first cut, so events in between arrive
            # twice.
            expect(sorted(set(seen)), list(range(count)))
        else:
            expect(seen, list(range(count)))
        verdict = await self.control("GET", "/cut")
        assert verdict["ok"], verdict["detail"]
        return verdict["detail"]

    async def cancelled(self) -> str:
        with anyio.CancelScope() as scope:

            async def progress(done: float, total: float | None, message: str | None) -> None:
                if done == 2:
                    # This SDK does not cancel a request, and does not expose its id.
                    number = (await self.control("GET", "/call"))["id"]
                    params = types.CancelledNotificationParams(requestId=number, reason="enough")
                    notification = types.ClientNotification(types.CancelledNotification(params=params))
                    await self.session.send_notification(notification)
                    scope.cancel()

            with anyio.fail_after(5):
                await self.call("countdown", {"from": 100, "step_ms": 100}, progress)
        assert scope.cancelled_caught, "the call went on"

        async def told() -> bool:
            return (await self.control("GET", "/call"))["cancelled"]

        await until("the cancellation", told)
        expect(await self.call("countdown", {"from": 1, "step_ms": 1}), LIFT_OFF.format(1))
        return "by a cancel scope and a notification; the next call is served"

    async def restarted(self) -> str:
        before = await self.call("notebook", {"action": "list"})
        session = self.session_id()
        restart = await self.control("POST", "/restart")
        assert restart["ok"], restart
        expect(await self.call("notebook", {"action": "list"}), before)
        expect(self.session_id(), session)
        expect(await self.call("countdown", {"from": 2, "step_ms": 10}), LIFT_OFF.format(2))
        return f"the session and its {len(before.splitlines())} notes are still there"

    async def terminated(self) -> str:
        session = self.session_id()
        await self.connection.aclose()
        expect((await self.control("GET", "/call"))["deleted"], 204)
        async with (
            httpx.AsyncClient(headers={"mcp-session-id": session or ""}) as http,
            streamable_http_client(URL, http_client=http) as (read, write, _),
            ClientSession(read, write, LIMIT) as late,
        ):
            # The error of this SDK for a 404.
            expect(await code_of(late.list_tools()), 32600)
        return "DELETE is 204 when the transport closes; then 404"


def expect(got: object, wanted: object) -> None:
    assert got == wanted, f"got {got!r}, wanted {wanted!r}"


async def code_of(request: Awaitable[object]) -> int | None:
    try:
        await request
    except McpError as error:
        return error.error.code
    return None


async def until(what: str, condition: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(100):
        if await condition():
            return
        await anyio.sleep(0.05)
    raise AssertionError(f"{what} did not happen")


async def main() -> int:
    logging.basicConfig(level=logging.INFO)
    failed = 0
    async with httpx.AsyncClient(timeout=60) as control:
        script = Script(control)
        steps: dict[str, Callable[[], Awaitable[str]]] = {
            "initialize": script.initialize,
            "progress": script.progress,
            "logs": script.logs_,
            "notebook": script.notebook,
            "parallel": script.parallel,
            "fortune": script.fortune,
            "council": script.council,
            "refused": script.refused,
            "dropped-early": lambda: script.dropped("1", 4),
            "dropped-midway": lambda: script.dropped("3", 15),
            "dropped-twice": lambda: script.dropped("3,2", 30),
            "cancelled": script.cancelled,
            "restarted": script.restarted,
            "terminated": script.terminated,
        }
        for step, play in steps.items():
            try:
                line = {"step": step, "ok": True, "detail": await play()}
            except Exception as error:  # any error is the result of this step
                line = {"step": step, "ok": False, "detail": f"{type(error).__name__}: {error}"}
                failed += 1
            print(json.dumps(line), flush=True)
    return 1 if failed else 0


sys.exit(anyio.run(main))
