// A server on the TypeScript SDK, version 1, with the tools of interop/README.md. `node server.mjs`
// listens on PORT, `node server.mjs stdio` uses its standard input and output.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { z } from 'zod';

const int = z.number().int();
const say = text => ({ content: [{ type: 'text', text }] });

/** Each session has its own server, so this state belongs to one session. */
function session() {
  const server = new McpServer({ name: 'typescript', version: '1' }, { capabilities: { logging: {} } });
  let counter = 0;

  const slow = async ({ ms, text }) => {
    await sleep(ms);
    return say(text);
  };
  const slowInput = { ms: int, text: z.string() };
  server.registerTool('slow', { inputSchema: slowInput }, slow);
  server.registerTool('safe_slow', { inputSchema: slowInput, annotations: { readOnlyHint: true } }, slow);

  server.registerTool('progress', { inputSchema: { steps: int, ms: int } }, async ({ steps, ms }, call) => {
    const progressToken = call._meta?.progressToken;
    for (let progress = 1; progress <= steps; progress++) {
      await sleep(ms);
      if (progressToken !== undefined) {
        await call.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, total: steps } });
      }
    }
    return say('done');
  });

  server.registerTool('elicit', { inputSchema: { question: z.string() } }, async ({ question }, call) => {
    const requestedSchema = { type: 'object', properties: { answer: { type: 'string' } }, required: ['answer'] };
    const reply = await server.server.elicitInput({ message: question, requestedSchema }, { relatedRequestId: call.requestId });
    return say(reply.content?.answer ?? reply.action);
  });

  server.registerTool('samples', { inputSchema: { n: int } }, async ({ n }, call) => {
    const sample = i => server.server.createMessage(
      { messages: [{ role: 'user', content: { type: 'text', text: `${i}` } }], maxTokens: 10 },
      { relatedRequestId: call.requestId },
    );
    const replies = await Promise.all(Array.from({ length: n }, (_, i) => sample(i + 1)));
    return say(replies.map(reply => reply.content.text).join(','));
  });

  server.registerTool('counter', {}, () => say(`${++counter}`));
  server.registerTool('big', { inputSchema: { bytes: int } }, ({ bytes }) => say('x'.repeat(bytes)));

  server.registerTool('log', { inputSchema: { n: int } }, async ({ n }, call) => {
    for (let i = 1; i <= n; i++) {
      await call.sendNotification({ method: 'notifications/message', params: { level: 'info', data: `line ${i}` } });
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
    transport = new StreamableHTTPServerTransport({
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
