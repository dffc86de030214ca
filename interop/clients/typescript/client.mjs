// Runs the script "demo" of interop/README.md with the TypeScript SDK. Arguments: the URL of the
// endpoint, the URL of the control endpoint.
import assert from 'node:assert/strict';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema, ElicitRequestSchema, LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

const [url, controlUrl] = process.argv.slice(2);
const info = { name: 'steadfast-interop', version: '1' };
const transport = new StreamableHTTPClientTransport(new URL(url));
const client = new Client(info, { capabilities: { elicitation: {}, sampling: {} } });
client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { name: 'Ada', number: 7 } }));
client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => {
  const text = `I heard: ${params.messages[0].content.text}`;
  return { role: 'assistant', model: 'none', content: { type: 'text', text } };
});
client.onerror = error => console.error('onerror:', error.message);

const control = async (method, path) => {
  const response = await fetch(controlUrl + path, { method });
  return response.json();
};
const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, { timeout: 20_000, ...options });
const text = result => result.content[0].text;
const countingTo = count => [...Array(count).keys()];
const until = async (what, condition) => {
  for (let tries = 0; !(await condition()); tries++) {
    assert(tries < 100, `${what} did not happen`);
    await new Promise(resolve => setTimeout(resolve, 50));
  }
};

// Calls the countdown while the proxy cuts its connection after these numbers of events.
const dropped = async (cuts, from) => {
  await control('POST', `/cut?after=${cuts}`);
  const progress = [];
  const onprogress = ({ progress: done }) => progress.push(done);
  const result = await call('countdown', { from, step_ms: 100 }, { onprogress });
  assert.equal(text(result), `Counted down from ${from}: lift-off!`);
  assert.deepEqual(progress, countingTo(from));
  const verdict = await control('GET', '/cut');
  assert(verdict.ok, verdict.detail);
  return verdict.detail;
};

const steps = {
  initialize: async () => {
    await client.connect(transport);
    const { tools } = await client.listTools();
    assert.deepEqual(tools.map(tool => tool.name), ['countdown', 'chatter', 'notebook', 'fortune', 'council']);
    return `${client.getServerVersion().name}, revision ${transport.protocolVersion}`;
  },
  progress: async () => {
    const progress = [];
    const result = await call('countdown', { from: 5, step_ms: 20 }, { onprogress: step => progress.push(step) });
    assert.equal(text(result), 'Counted down from 5: lift-off!');
    assert.deepEqual(progress, countingTo(5).map(done => ({ progress: done, total: 5, message: `${5 - done}` })));
    return `${progress.length} in order`;
  },
  logs: async () => {
    const logs = [];
    client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => void logs.push(params));
    await client.setLoggingLevel('info');
    assert.equal(text(await call('chatter', { lines: 4 })), 'Said 4 things.');
    await until('the last message', () => logs.length >= 4);
    assert.deepEqual(logs.map(log => log.data), countingTo(4).map(line => `message ${line + 1} of 4`));
    return `${logs.length} in order`;
  },
  notebook: async () => {
    assert.equal(text(await call('notebook', { action: 'add', text: 'first' })), 'Noted. You have 1 note(s).');
    assert.equal(text(await call('notebook', { action: 'list' })), 'first');
    return 'added and listed';
  },
  parallel: async () => {
    const calls = countingTo(20).map(async number => {
      const from = number + 1;
      if (number % 2 === 0) return call('notebook', { action: 'add', text: `note ${number}` });
      const result = await call('countdown', { from, step_ms: 5 });
      assert.equal(text(result), `Counted down from ${from}: lift-off!`);
    });
    await Promise.all(calls);
    const notes = text(await call('notebook', { action: 'list' })).split('\n').sort();
    const expected = ['first', ...countingTo(10).map(half => `note ${half * 2}`)].sort();
    assert.deepEqual(notes, expected);
    return '20 calls, each with its own answer';
  },
  fortune: async () => {
    const told = text(await call('fortune', {}));
    assert.equal(told, 'Ada, a person with your very id will come, and be turned away.');
    return 'a form was filled in';
  },
  council: async () => {
    const said = text(await call('council', { question: 'Why?', advisers: 3 })).split('\n');
    const heard = adviser => `${adviser}: I heard: You are ${adviser}. Answer in one sentence: Why?`;
    assert.deepEqual(said, ['an optimist', 'a pessimist', 'a pirate'].map(heard));
    return `${said.length} samples, each for its own prompt`;
  },
  refused: async () => {
    await assert.rejects(call('nonesuch', {}), { code: -32602 });
    return 'an unknown tool is -32602';
  },
  'dropped-early': () => dropped([1], 4),
  'dropped-midway': () => dropped([3], 15),
  'dropped-twice': () => dropped([3, 1], 30),
  cancelled: async () => {
    const abort = new AbortController();
    const onprogress = ({ progress }) => progress === 2 && abort.abort('enough');
    // Longer than a step may take, unless the call is cancelled.
    await assert.rejects(call('countdown', { from: 1000, step_ms: 100 }, { onprogress, signal: abort.signal }));
    await until('the cancellation', async () => (await control('GET', '/call')).cancelled);
    assert.equal(text(await call('countdown', { from: 1, step_ms: 1 })), 'Counted down from 1: lift-off!');
    return 'by an AbortSignal; the next call is served';
  },
  restarted: async () => {
    const before = text(await call('notebook', { action: 'list' }));
    const session = transport.sessionId;
    const restart = await control('POST', '/restart');
    assert(restart.ok, restart.detail);
    assert.equal(text(await call('notebook', { action: 'list' })), before);
    assert.equal(transport.sessionId, session);
    const result = await call('countdown', { from: 2, step_ms: 10 });
    assert.equal(text(result), 'Counted down from 2: lift-off!');
    return `the session and its ${before.split('\n').length} notes are still there`;
  },
  terminated: async () => {
    const session = transport.sessionId;
    await transport.terminateSession();
    assert.equal((await control('GET', '/call')).deleted, 204);
    await assert.rejects(client.listTools(), { code: 400 });
    await client.close();
    const late = new Client(info);
    await late.connect(new StreamableHTTPClientTransport(new URL(url), { sessionId: session }));
    await assert.rejects(late.listTools(), { code: 404 });
    await late.close();
    return 'DELETE is 204; then 400 without the session id, 404 with it';
  },
};

let failed = false;
for (const [step, play] of Object.entries(steps)) {
  const line = await play().then(
    detail => ({ step, ok: true, detail }),
    error => ({ step, ok: false, detail: String(error.message ?? error) }),
  );
  failed ||= !line.ok;
  console.log(JSON.stringify(line));
}
process.exit(failed ? 1 : 0);
