// Runs the script "demo-eras" of interop/README.md with version 2 of the TypeScript SDK. Arguments:
// the URL of the endpoint, the URL of the control endpoint (not used).
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const url = new URL(process.argv[2]);

const connect = async mode => {
  const capabilities = { elicitation: { form: {} }, sampling: {} };
  const client = new Client({ name: 'steadfast-interop', version: '1' }, { capabilities, versionNegotiation: { mode } });
  client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { name: 'Ada', number: 7 } }));
  client.setRequestHandler('sampling/createMessage', ({ params }) => {
    const text = `I heard: ${params.messages[0].content.text}`;
    return { role: 'assistant', model: 'none', content: { type: 'text', text } };
  });
  await client.connect(new StreamableHTTPClientTransport(url));
  return client;
};

let clients;
// Both clients run each step at the same time.
const both = async (name, args, expected) => {
  const said = await Promise.all(clients.map(async client => (await client.callTool({ name, arguments: args })).content[0].text));
  assert.deepEqual(said, [expected, expected]);
};
const heard = adviser => `${adviser}: I heard: You are ${adviser}. Answer in one sentence: Why?`;

const steps = {
  connect: async () => {
    clients = await Promise.all(['legacy', 'auto'].map(connect));
    const revisions = clients.map(client => client.getNegotiatedProtocolVersion());
    assert.deepEqual(revisions, ['2025-11-25', '2026-07-28']);
    return revisions.join(' and ');
  },
  countdown: async () => {
    await both('countdown', { from: 3, step_ms: 10 }, 'Counted down from 3: lift-off!');
    return 'to the end';
  },
  fortune: async () => {
    await both('fortune', {}, 'Ada, a person with your very id will come, and be turned away.');
    return 'a form was filled in';
  },
  council: async () => {
    await both('council', { question: 'Why?' }, ['an optimist', 'a pessimist', 'a pirate'].map(heard).join('\n'));
    return '3 samples, each for its own prompt';
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
