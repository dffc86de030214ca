"""Runs the script "eras" of interop/README.md with version 2 of the Python SDK.

Arguments: the URL of the endpoint, the URL of the control endpoint."""

import json
import logging
import sys
import urllib.request
import warnings
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import anyio
import mcp_types as types
from mcp import Client
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError

URL, CONTROL = sys.argv[1:]
WATCHED = "test://watched-resource"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SAMPLES = 5


class Player:
    """A client of one era, and the notifications and server requests that it has received."""

    def __init__(self, era: str, mode: str) -> None:
        self.era = era
        self.logs: list[object] = []
        self.news: set[str] = set()
        self.forms: list[str] = []
        self.running, self.peak = 0, 0
        self.action = "accept"
        self.client = Client(
            URL,
            mode=mode,
            read_timeout_seconds=20,
            elicitation_callback=self.fill_in,
            sampling_callback=self.write,
            list_roots_callback=self.roots,
            logging_callback=self.log,
            message_handler=self.hear,
        )

    async def fill_in(self, _context: object, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        self.forms.append(params.message)
        if self.action != "accept":
            return types.ElicitResult(action=self.action)
        fields = params.requested_schema["properties"]
        return types.ElicitResult(action="accept", content={field: f"my {field}" for field in fields})

    async def write(self, _context: object, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        text = params.messages[0].content.text
        self.running += 1
        self.peak = max(self.peak, self.running)
        if text.startswith("Question"):
            await anyio.sleep(0.5)
        self.running -= 1
        content = types.TextContent(text=f"answer to {text}")
        return types.CreateMessageResult(role="assistant", model="none", content=content)

    async def roots(self, _context: object) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///here", name="here")])

    async def log(self, message: types.LoggingMessageNotificationParams) -> None:
        self.logs.append(message.data)

    async def hear(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.news.add("tools")
        if isinstance(message, types.ResourceUpdatedNotification):
            self.news.add(message.params.uri)

    async def say(self, name: str, arguments: dict | None = None, **options: object) -> str:
        result = await self.client.call_tool(name, arguments or {}, **options)
        return result.content[0].text


class Script:
    """Both clients run each step at the same time."""

    def __init__(self) -> None:
        self.legacy, self.modern = Player("legacy", "legacy"), Player("modern", "auto")
        self.open = AsyncExitStack()

    async def both(self, play: Callable[[Player], Awaitable[object]]) -> list:
        results: dict[str, object] = {}

        async def one(player: Player) -> None:
            results[player.era] = await play(player)

        async with anyio.create_task_group() as eras:
            eras.start_soon(one, self.legacy)
            eras.start_soon(one, self.modern)
        return [results["legacy"], results["modern"]]

    async def connect(self) -> str:
        for player in (self.legacy, self.modern):
            await self.open.enter_async_context(player.client)

        async def tools(player: Player) -> list[str]:
            return [tool.name for tool in (await player.client.list_tools()).tools]

        legacy, modern = await self.both(tools)
        expect(legacy, modern)
        revisions = [player.client.protocol_version for player in (self.legacy, self.modern)]
        expect(revisions, ["2025-11-25", "2026-07-28"])
        return f"{' and '.join(revisions)}, {len(legacy)} tools each"

    async def elicitation(self) -> str:
        async def play(player: Player) -> None:
            said = await player.say("test_elicitation", {"message": f"Who is {player.era}?"})
            expect(said, 'User response: action=accept, content={"email":"my email","username":"my username"}')
            expect(player.forms, [f"Who is {player.era}?"])

        await self.both(play)
        return "a form each, filled in"

    async def declined(self) -> str:
        async def play(player: Player) -> None:
            player.action = "decline"
            said = await player.say("test_elicitation", {"message": "Again?"})
            expect(said, "User response: action=decline, content=null")
            player.action = "accept"

        await self.both(play)
        return "the server hears it"

    async def sampling(self) -> str:
        async def play(player: Player) -> None:
            said = await player.say("test_sampling", {"prompt": player.era})
            expect(said, f"LLM response: answer to {player.era}")

        await self.both(play)
        return "a sample each"

    async def roots(self) -> str:
        said = await self.both(lambda player: player.say("test_input_required_result_list_roots"))
        expect(said, ["1 root(s): file:///here"] * 2)
        return "the roots are known"

    async def rounds(self) -> str:
        async def play(player: Player) -> None:
            player.forms = []
            said = await player.say("test_input_required_result_multi_round")
            expect(said, "Hello, my name! Your colour is my color.")
            expect(player.forms, ["Step 1: What is your name?", "Step 2: What is your favorite color?"])

        await self.both(play)
        return "two questions, one after the other"

    async def parallel_requests(self) -> str:
        async def play(player: Player) -> str:
            player.peak = 0
            begun = anyio.current_time()
            said = await player.say("parallel_samples", {"n": SAMPLES})
            took = anyio.current_time() - begun
            expect(said, "".join(f"answer to Question {number}\n" for number in range(SAMPLES)))
            expect(player.peak, SAMPLES)
            return f"{player.era}: {player.peak} of {SAMPLES} at once, {took:.2f} s"

        return "; ".join(await self.both(play))

    async def together(self) -> str:
        async def play(player: Player) -> None:
            async def one(number: int) -> None:
                prompt = f"{player.era} {number}"
                expect(await player.say("test_sampling", {"prompt": prompt}), f"LLM response: answer to {prompt}")

            async with anyio.create_task_group() as calls:
                for number in range(10):
                    calls.start_soon(one, number)

        await self.both(play)
        return "10 calls each, every one with a question of its own"

    async def progress(self) -> str:
        async def play(player: Player) -> None:
            seen = []

            async def progress(done: float, total: float | None, message: str | None) -> None:
                seen.append((done, total))

            await player.say("test_tool_with_progress", progress_callback=progress)
            expect(seen, [(0, 100), (50, 100), (100, 100)])

        await self.both(play)
        return "complete and in order"

    async def logs(self) -> str:
        await self.legacy.client.set_logging_level("info")

        async def play(player: Player) -> None:
            meta = {LOG_LEVEL: "info"} if player is self.modern else None
            await player.say("test_tool_with_logging", meta=meta)
            await until("the last message", lambda: len(player.logs) >= 3)
            expect(player.logs, ["Tool execution started", "Tool processing data", "Tool execution completed"])

        await self.both(play)
        await self.modern.say("test_tool_with_logging")
        expect(len(self.modern.logs), 3)
        return "to those who want them"

    async def changes(self) -> str:
        await self.legacy.client.subscribe_resource(WATCHED)

        async def cause(player: Player) -> None:
            await player.say("test_trigger_tool_change")
            await player.say("test_trigger_resource_update")

        listen = self.modern.client.listen(tools_list_changed=True, resource_subscriptions=[WATCHED])
        async with listen as news:
            await self.both(cause)
            seen = set()
            with anyio.fail_after(5):
                async for event in news:
                    seen.add(type(event))
                    if seen >= {ToolsListChanged, ResourceUpdated}:
                        break
        await until("news for legacy", lambda: self.legacy.news == {"tools", WATCHED})
        return "of the list of tools and of a resource"

    async def cancelled(self) -> str:
        async def play(player: Player) -> None:
            label = f"of {player.era}"
            with anyio.move_on_after(0.2) as scope:
                await player.say("slow_compute", {"seconds": 60, "label": label})
            assert scope.cancelled_caught, "the call came to an end"
            for _ in range(100):
                if await player.say("was_stopped", {"label": label}) == "yes":
                    return
                await anyio.sleep(0.05)
            raise AssertionError(f"the work {label} goes on")

        await self.both(play)
        return "by a cancel scope"

    async def reconnection(self) -> str:
        said = await self.both(lambda player: player.say("test_reconnection"))
        expect(said, ["The connection was closed; here is the answer.", "The connection stayed open."])
        return "the legacy client was sent away and came back"

    async def refused(self) -> str:
        async def play(player: Player) -> int | None:
            try:
                await player.say("nonesuch")
            except MCPError as error:
                return error.code
            return None

        expect(await self.both(play), [-32602, -32602])
        return "an unknown tool is -32602"

    async def closed(self) -> str:
        # The control endpoint reports on the session of the last call.
        for player in (self.modern, self.legacy):
            expect(await player.say("test_simple_text"), "This is a simple text response for testing.")
        await self.open.aclose()
        expect((await anyio.to_thread.run_sync(control, "/call"))["deleted"], 204)
        return "the session is deleted when its client is closed"


def control(path: str) -> dict:
    with urllib.request.urlopen(CONTROL + path, timeout=10) as response:
        return json.load(response)


def expect(got: object, wanted: object) -> None:
    assert got == wanted, f"got {got!r}, wanted {wanted!r}"


async def until(what: str, condition: Callable[[], bool]) -> None:
    for _ in range(100):
        if condition():
            return
        await anyio.sleep(0.05)
    raise AssertionError(f"{what} did not happen")


def told(error: BaseException) -> str:
    """Returns the first error inside an exception of a task group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


async def main() -> int:
    logging.basicConfig(level=logging.INFO)
    # Deprecated features are used on purpose.
    warnings.simplefilter("ignore")
    failed = 0
    script = Script()
    steps: dict[str, Callable[[], Awaitable[str]]] = {
        "connect": script.connect,
        "elicitation": script.elicitation,
        "declined": script.declined,
        "sampling": script.sampling,
        "roots": script.roots,
        "rounds": script.rounds,
        "parallel-requests": script.parallel_requests,
        "together": script.together,
        "progress": script.progress,
        "logs": script.logs,
        "changes": script.changes,
        "cancelled": script.cancelled,
        "reconnection": script.reconnection,
        "refused": script.refused,
        "closed": script.closed,
    }
    for step, play in steps.items():
        try:
            line = {"step": step, "ok": True, "detail": await play()}
        except Exception as error:  # any error is the result of this step
            line = {"step": step, "ok": False, "detail": told(error)}
            failed += 1
        print(json.dumps(line), flush=True)
    return 1 if failed else 0


sys.exit(anyio.run(main))
