"""A server on FastMCP with the tools of interop/README.md.

`server.py` listens on PORT, `server.py stdio` uses its standard input and output."""

import asyncio
import os
import sys
from collections import Counter

from fastmcp import Context, FastMCP
from mcp_types import SamplingMessage, TextContent, ToolAnnotations
from pydantic import BaseModel

server = FastMCP("fastmcp")
counters: Counter[str | None] = Counter()


class Form(BaseModel):
    answer: str


@server.tool
async def slow(ms: int, text: str) -> str:
    await asyncio.sleep(ms / 1000)
    return text


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def safe_slow(ms: int, text: str) -> str:
    return await slow(ms, text)


@server.tool
async def progress(steps: int, ms: int, ctx: Context) -> str:
    for step in range(1, steps + 1):
        await asyncio.sleep(ms / 1000)
        await ctx.report_progress(step, steps)
    return "done"


@server.tool
async def elicit(question: str, ctx: Context) -> str:
    reply = await ctx.elicit(question, Form)
    return reply.data.answer if reply.action == "accept" else reply.action


@server.tool
async def samples(n: int, ctx: Context) -> str:
    async def sample(i: int) -> str:
        message = SamplingMessage(role="user", content=TextContent(type="text", text=str(i)))
        reply = await ctx.session.create_message([message], max_tokens=10, related_request_id=ctx.request_id)
        return reply.content.text

    return ",".join(await asyncio.gather(*(sample(i) for i in range(1, n + 1))))


@server.tool
async def counter(ctx: Context) -> str:
    session = ctx.session_id
    counters[session] += 1
    return str(counters[session])


@server.tool
async def big(bytes: int) -> str:
    return "x" * bytes


@server.tool
async def log(n: int, ctx: Context) -> str:
    for i in range(1, n + 1):
        await ctx.info(f"line {i}")
    return "logged"


@server.tool
async def crash() -> str:
    os._exit(1)


if __name__ == "__main__":
    if sys.argv[1:] == ["stdio"]:
        server.run("stdio")
    else:
        server.run("http", host="127.0.0.1", port=int(os.environ["PORT"]))
