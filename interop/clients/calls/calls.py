"""Makes the calls that the driver asks for, with the Python SDKs and the frameworks on them.

Arguments: the name of the SDK, "modern" or "legacy", then the URL of the endpoint or the words of
a command that serves MCP on its standard input and output. `interop/README.md` describes the lines
that this program reads and writes."""

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

LIMIT = 60

Call = Callable[[str, dict], Awaitable[str]]


async def python_1(stack: AsyncExitStack, _era: str, target: list[str]) -> Call:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    if len(target) > 1:
        transport = stdio_client(StdioServerParameters(command=target[0], args=target[1:]))
    else:
        transport = streamable_http_client(target[0])
    read, write, *_ = await stack.enter_async_context(transport)
    session = await stack.enter_async_context(ClientSession(read, write))
    await session.initialize()

    async def call(tool: str, arguments: dict) -> str:
        result = await session.call_tool(tool, arguments)
        return text_of(result.content[0].text, result.isError)

    return call


async def python_2(stack: AsyncExitStack, era: str, target: list[str]) -> Call:
    from mcp import Client

    mode = "legacy" if era == "legacy" else "auto"
    client = await stack.enter_async_context(Client(target[0], mode=mode))

    async def call(tool: str, arguments: dict) -> str:
        result = await client.call_tool(tool, arguments)
        return text_of(result.content[0].text, result.is_error)

    return call


async def fastmcp(stack: AsyncExitStack, era: str, target: list[str]) -> Call:
    from fastmcp import Client

    client = Client(target[0], mode="legacy") if era == "legacy" else Client(target[0])
    await stack.enter_async_context(client)

    async def call(tool: str, arguments: dict) -> str:
        return (await client.call_tool(tool, arguments)).content[0].text

    return call


async def langchain(_stack: AsyncExitStack, _era: str, target: list[str]) -> Call:
    from langchain_mcp_adapters.client import MultiServerMCPClient

    client = MultiServerMCPClient({"server": {"transport": "streamable_http", "url": target[0]}})
    tools = {tool.name: tool for tool in await client.get_tools()}

    async def call(tool: str, arguments: dict) -> str:
        answer = await tools[tool].ainvoke(arguments)
        return answer if isinstance(answer, str) else answer[0]["text"]

    return call


async def openai_agents(stack: AsyncExitStack, _era: str, target: list[str]) -> Call:
    from agents.mcp import MCPServerStreamableHttp

    # The default limit of a call is 5 seconds.
    server = MCPServerStreamableHttp(params={"url": target[0]}, client_session_timeout_seconds=LIMIT)
    await stack.enter_async_context(server)

    async def call(tool: str, arguments: dict) -> str:
        result = await server.call_tool(tool, arguments)
        return text_of(result.content[0].text, result.is_error)

    return call


async def pydantic_ai(stack: AsyncExitStack, _era: str, target: list[str]) -> Call:
    from pydantic_ai.mcp import MCPToolset

    toolset = await stack.enter_async_context(MCPToolset(target[0]))

    async def call(tool: str, arguments: dict) -> str:
        return str(await toolset.direct_call_tool(tool, arguments))

    return call


def text_of(text: str, is_error: bool) -> str:
    if is_error:
        raise RuntimeError(text)
    return text


def say(line: dict) -> None:
    print(json.dumps(line), flush=True)


def lines() -> asyncio.Queue[str | None]:
    """Returns the lines of the standard input, then None. The thread does not keep the process alive."""
    queue, loop = asyncio.Queue(), asyncio.get_running_loop()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(queue.put_nowait, line)
        loop.call_soon_threadsafe(queue.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    return queue


async def make(call: Call, request: dict) -> None:
    key = request["key"]
    try:
        say({"key": key, "text": await call(request["tool"], {"key": key})})
    except BaseException as error:
        say({"key": key, "error": f"{type(error).__name__}: {error}"})
        if not isinstance(error, Exception):
            raise


async def main() -> None:
    sdk, era, *target = sys.argv[1:]
    async with AsyncExitStack() as stack:
        call = await globals()[sdk](stack, era, target)
        say({"ready": True})
        queue, running = lines(), set()
        while (line := await queue.get()) is not None:
            running.add(asyncio.create_task(make(call, json.loads(line))))


logging.basicConfig(level=logging.WARNING)
asyncio.run(main())
