// Runs the script "eras" of interop/README.md with version 2 of the TypeScript SDK. Arguments: the
// URL of the endpoint, the URL of the control endpoint.
import assert from 'node:assert/strict';
import { Client, LOG_LEVEL_META_KEY, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [url, controlUrl] = process.argv.slice(2);
const WATCHED = 'test://watched-resource';
const SAMPLES = 5;
const sleep = time => new Promise(resolve => setTimeout(resolve, time));
const countingTo = count => [...Array(count).keys()];
const control = async path => (await fetch(controlUrl + path)).json();
const until = async (what, condition) => {
  for (let tries = 0; !(await condition()); tries++) {
    assert(tries < 100, `${what} did not happen`);
    await sleep(50);
  }
};

// A client of one era, and the notifications and server requests that it has received.
class Player {
  constructor(era, versionNegotiation) {
    this.era = era;
    this.heard = { logs: [], tools: 0, resources: [] };
    this.forms = [];
    this.running = { now: 0, peak: 0 };
    this.action = 'accept';
    const capabilities = { elicitation: { form: {} }, sampling: {}, roots: {} };
    this.client = new Client({ name: 'steadfast-interop', version: '1' }, { capabilities, versionNegotiation });
    this.client.onerror = error => console.error(`${era}: onerror:`, error.message);
    this.client.setRequestHandler('elicitation/create', ({ params }) => this.fillIn(params));
    this.client.setRequestHandler('sampling/createMessage', ({ params }) => this.write(params));
    this.client.setRequestHandler('roots/list', () => ({ roots: [{ uri: 'file:///here', name: 'here' }] }));
    this.client.setNotificationHandler('notifications/message', ({ params }) => void this.heard.logs.push(params.data));
    this.client.setNotificationHandler('notifications/tools/list_changed', () => void this.heard.tools++);
    this.client.setNotificationHandler('notifications/resources/updated', ({ params }) => void this.heard.resources.push(params.uri));
  }

  fillIn({ message, requestedSchema }) {
    this.forms.push(message);
    const content = Object.fromEntries(Object.keys(requestedSchema.properties).map(field => [field, `my ${field}`]));
    return this.action === 'accept' ? { action: 'accept', content } : { action: this.action };
  }

  async write({ messages }) {
    const { text } = messages[0].content;
    this.running.peak = Math.max(this.running.peak, ++this.running.now);
    if (text.startsWith('Question')) await sleep(500);
    this.running.now--;
    return { role: 'assistant', model: 'none', content: { type: 'text', text: `answer to ${text}` } };
  }

  connect() {
    this.transport = new StreamableHTTPClientTransport(new URL(url));
    return this.client.connect(this.transport);
  }

  call(name, args = {}, options = {}) {
    const { meta, ...rest } = options;
    const params = { name, arguments: args, ...(meta && { _meta: meta }) };
    return this.client.callTool(params, { timeout: 20_000, ...rest });
  }

  async say(name, args, options) {
    return (await this.call(name, args, options)).content[0].text;
  }
}

const legacy = new Player('legacy', { mode: 'legacy' });
const modern = new Player('modern', { mode: { pin: '2026-07-28' } });
// Both clients run each step at the same time.
const both = play => Promise.all([legacy, modern].map(play));

const steps = {
  connect: async () => {
    await both(player => player.connect());
    const tools = await both(async ({ client }) => (await client.listTools()).tools.map(tool => tool.name));
    assert.deepEqual(tools[0], tools[1]);
    const revisions = [legacy, modern].map(({ client }) => client.getNegotiatedProtocolVersion());
    assert.deepEqual(revisions, ['2025-11-25', '2026-07-28']);
    return `${revisions.join(' and ')}, ${tools[0].length} tools each`;
  },
  elicitation: async () => {
    await both(async player => {
      const said = await player.say('test_elicitation', { message: `Who is ${player.era}?` });
      assert.equal(said, 'User response: action=accept, content={"email":"my email","username":"my username"}');
      assert.deepEqual(player.forms, [`Who is ${player.era}?`]);
    });
    return 'a form each, filled in';
  },
  declined: async () => {
    await both(async player => {
      player.action = 'decline';
      assert.equal(await player.say('test_elicitation', { message: 'Again?' }), 'User response: action=decline, content=null');
      player.action = 'accept';
    });
    return 'the server hears it';
  },
  sampling: async () => {
    await both(async player => {
      assert.equal(await player.say('test_sampling', { prompt: player.era }), `LLM response: answer to ${player.era}`);
    });
    return 'a sample each';
  },
  roots: async () => {
    await both(async player => {
      assert.equal(await player.say('test_input_required_result_list_roots'), '1 root(s): file:///here');
    });
    return 'the roots are known';
  },
  rounds: async () => {
    await both(async player => {
      player.forms = [];
      const said = await player.say('test_input_required_result_multi_round');
      assert.equal(said, 'Hello, my name! Your colour is my color.');
      assert.deepEqual(player.forms, ['Step 1: What is your name?', 'Step 2: What is your favorite color?']);
    });
    return 'two questions, one after the other';
  },
  'parallel-requests': async () => {
    const told = await both(async player => {
      player.running.peak = 0;
      const begun = Date.now();
      const said = await player.say('parallel_samples', { n: SAMPLES });
      const took = ((Date.now() - begun) / 1000).toFixed(2);
      assert.equal(said, countingTo(SAMPLES).map(number => `answer to Question ${number}\n`).join(''));
      assert.equal(player.running.peak, SAMPLES);
      return `${player.era}: ${player.running.peak} of ${SAMPLES} at once, ${took} s`;
    });
    return told.join('; ');
  },
  together: async () => {
    await both(player => Promise.all(countingTo(10).map(async number => {
      const prompt = `${player.era} ${number}`;
      assert.equal(await player.say('test_sampling', { prompt }), `LLM response: answer to ${prompt}`);
    })));
    return '10 calls each, every one with a question of its own';
  },
  progress: async () => {
    await both(async player => {
      const seen = [];
      await player.say('test_tool_with_progress', {}, { onprogress: ({ progress, total }) => seen.push([progress, total]) });
      assert.deepEqual(seen, [[0, 100], [50, 100], [100, 100]]);
    });
    return 'complete and in order';
  },
  logs: async () => {
    await legacy.client.setLoggingLevel('info');
    await both(async player => {
      const meta = player === modern ? { [LOG_LEVEL_META_KEY]: 'info' } : undefined;
      await player.say('test_tool_with_logging', {}, { meta });
      await until('the last message', () => player.heard.logs.length >= 3);
      assert.deepEqual(player.heard.logs, ['Tool execution started', 'Tool processing data', 'Tool execution completed']);
    });
    await modern.say('test_tool_with_logging');
    assert.equal(modern.heard.logs.length, 3);
    return 'to those who want them';
  },
  changes: async () => {
    await legacy.client.subscribeResource({ uri: WATCHED });
    const listening = await modern.client.listen({ toolsListChanged: true, resourceSubscriptions: [WATCHED] });
    await both(async player => {
      await player.say('test_trigger_tool_change');
      await player.say('test_trigger_resource_update');
    });
    await both(player => until(`news for ${player.era}`, () => player.heard.tools > 0 && player.heard.resources.length > 0));
    assert.equal(modern.heard.resources[0], WATCHED);
    await listening.close();
    return 'of the list of tools and of a resource';
  },
  cancelled: async () => {
    await both(async player => {
      const abort = new AbortController();
      setTimeout(() => abort.abort('enough'), 200);
      const label = `of ${player.era}`;
      await assert.rejects(player.call('slow_compute', { seconds: 60, label }, { signal: abort.signal }));
      await until(`the end of the work ${label}`, async () => (await player.say('was_stopped', { label })) === 'yes');
    });
    return 'by an AbortSignal';
  },
  reconnection: async () => {
    const said = await both(player => player.say('test_reconnection'));
    assert.deepEqual(said, ['The connection was closed; here is the answer.', 'The connection stayed open.']);
    return 'the legacy client was sent away and came back';
  },
  refused: async () => {
    await both(player => assert.rejects(player.call('nonesuch'), { code: -32602 }));
    return 'an unknown tool is -32602';
  },
  closed: async () => {
    // The control endpoint reports on the session of the last call.
    await legacy.say('test_simple_text');
    await legacy.transport.terminateSession();
    assert.equal((await control('/call')).deleted, 204);
    assert.equal(await modern.say('test_simple_text'), 'This is a simple text response for testing.');
    await both(player => player.client.close());
    return 'the end of a session concerns no other client';
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
