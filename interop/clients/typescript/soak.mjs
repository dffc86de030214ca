// Makes mixed calls while gateways are killed. Arguments: the URL of the endpoint, the seconds.
// Exits with 0 if every call got its own result or, if it is not idempotent, an explicit error, and
// if there were enough results. Calls that were cut before the first byte of the response are
// counted; chaos/src/soak.rs knows how many restarts explain them.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [url, seconds] = process.argv.slice(2);
const SESSIONS = 2, WORKERS = 4;
const TOOLS = [['echo', 0], ['slow', 300], ['look', 300], ['progress', 500], ['ask', 200], ['counter', 0]];
const SAFE = new Set(['look']);
// The minimum. A client makes about 40 calls per second without faults.
const ANSWERS_PER_SECOND = 4;
const end = Date.now() + Number(seconds) * 1000;
// The balancer responds with 502 if a gateway dies before the first byte of its response. The
// balancer must not send such a request again, because it may have been executed.
const seen = { calls: 0, answers: 0, 'explicit errors': 0, 'cut before the first word': 0 };
const wrong = [];

const work = async (client, name) => {
  for (let number = 0; Date.now() < end; number++) {
    const [tool, ms] = TOOLS[number % TOOLS.length];
    const call = `${name}.${number}`;
    seen.calls++;
    try {
      const result = await client.callTool({ name: tool, arguments: { call, ms } }, undefined, { timeout: 40_000 });
      const text = result.content[0].text;
      if (text.split(' ')[0] === `call=${call}`) seen.answers++;
      else wrong.push(`${tool} ${call} got ${text}`);
    } catch (error) {
      if (error.data?.reason === 'outcome_unknown' && !SAFE.has(tool)) seen['explicit errors']++;
      else if (error.code === 502) seen['cut before the first word']++;
      else wrong.push(`${tool} ${call}: ${error.code ?? ''} ${error.message} ${JSON.stringify(error.data ?? null)}`);
    }
  }
};

const live = async name => {
  const reconnectionOptions = { initialReconnectionDelay: 200, maxReconnectionDelay: 2000, reconnectionDelayGrowFactor: 1.5, maxRetries: 20 };
  const transport = new StreamableHTTPClientTransport(new URL(url), { reconnectionOptions });
  const client = new Client({ name: 'steadfast-soak', version: '1' }, { capabilities: { elicitation: {} } });
  client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { answer: 'yes' } }));
  // Errors of connections that the SDK opens again are not errors of a call.
  client.onerror = () => {};
  await client.connect(transport);
  await Promise.all([...Array(WORKERS).keys()].map(worker => work(client, `ts${name}.${worker}`)));
  await client.close();
};

const fail = name => error => wrong.push(`session ${name}: ${error.message}`);
await Promise.all([...Array(SESSIONS).keys()].map(name => live(name).catch(fail(name))));
if (seen.answers < seconds * ANSWERS_PER_SECOND) wrong.push(`${seen.answers} answers in ${seconds} seconds`);
console.log(JSON.stringify({ client: 'TypeScript', ...seen, wrong: wrong.length, first: wrong.slice(0, 5) }));
process.exit(wrong.length ? 1 : 0);
