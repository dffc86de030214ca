// A server on the TypeScript SDK, version 2, with the tools of interop/README.md. `node server.mjs`
// listens on PORT, `node server.mjs stdio` uses its standard input and output.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { NodeStreamableHTTPServerTransport } from '@modelcontextprotocol/node';
import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const int = z.number().int();
const say = text => ({ content: [{ type: 'text', text }] });

/** Each session has its own server, so this state belongs to one session. */
function session() {
  const server = new McpServer({ name: 'typescript-2', version: '1' }, { capabilities: { logging: {} } });
  let counter = 0;

  const slow = async ({ ms, text }) => {
    await sleep(ms);
    return say(text);
  };
  const slowInput = z.object({ ms: int, text: z.string() });
  server.registerTool('slow', { inputSchema: slowInput }, slow);
  server.registerTool('safe_slow', { inputSchema: slowInput, annotations: { readOnlyHint: true } }, slow);

  server.registerTool('progress', { inputSchema: z.object({ steps: int, ms: int }) }, async ({ steps, ms }, call) => {
    const progressToken = call.mcpReq._meta?.progressToken;
    for (let progress = 1; progress <= steps; progress++) {
      await sleep(ms);
      if (progressToken !== undefined) {
        await call.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: steps } });
      }
    }
    return say('done');
  });

  server.registerTool('elicit', { inputSchema: z.object({ question: z.string() }) }, async ({ question }, call) => {
    const requestedSchema = { type: 'object', properties: { answer: { type: 'string' } }, required: ['answer'] };
    const reply = await call.mcpReq.elicitInput({ message: question, requestedSchema });
    return say(reply.content?.answer ?? reply.action);
  });

  server.registerTool('samples', { inputSchema: z.object({ n: int }) }, async ({ n }, call) => {
    const sample = i => call.mcpReq.requestSampling({ messages: [{ role: 'user', content: { type: 'text', text: `${i}` } }], maxTokens: 10 });
    const replies = await Promise.all(Array.from({ length: n }, (_, i) => sample(i + 1)));
    return say(replies.map(reply => reply.content.text).join(','));
  });

  server.registerTool('counter', {}, () => say(`${++counter}`));
  server.registerTool('big', { inputSchema: z.object({ bytes: int }) }, ({ bytes }) => say('x'.repeat(bytes)));

  server.registerTool('log', { inputSchema: z.object({ n: int }) }, async ({ n }, call) => {
    for (let i = 1; i <= n; i++) {
      await call.mcpReq.log('info', `line ${i}`);
    }
    return say('logged');
  });

  server.registerTool('crash', {}, () => process.exit(1));
  return server;
}

const transports = new Map();

async function serve(request, response) {
  const id = request.headers['mcp-session-id'];
  let transport = transports.get(id);
  if (!transport && id) {
    response.writeHead(404, { 'Content-Type': 'application/json' });
    response.end(JSON.stringify({ jsonrpc: '2.0', error: { code: -32001, message: 'Session not found' }, id: null }));
    return;
  }
  if (!transport) {
    transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: id => transports.set(id, transport),
    });
    transport.onclose = () => transports.delete(transport.sessionId);
    await session().connect(transport);
  }
  await transport.handleRequest(request, response);
}

if (process.argv[2] === 'stdio') {
  await session().connect(new StdioServerTransport());
} else {
  createServer(serve).listen(process.env.PORT, '127.0.0.1', () => console.log('ready'));
}
