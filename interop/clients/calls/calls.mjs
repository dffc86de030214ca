// Makes the calls that the driver asks for, with the TypeScript SDKs. Arguments: the name of the
// SDK, "modern" or "legacy", then the URL of the endpoint or the words of a command that serves MCP
// on its standard input and output. interop/README.md describes the lines that this program reads
// and writes.
import { createInterface } from 'node:readline';

const [sdk, era, ...target] = process.argv.slice(2);
const info = { name: 'steadfast-interop', version: '1' };
const say = line => console.log(JSON.stringify(line));
const transport = (Http, Stdio) =>
  target.length > 1 ? new Stdio({ command: target[0], args: target.slice(1) }) : new Http(new URL(target[0]));

const connect = {
  typescript_1: async () => {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
    const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
    const client = new Client(info);
    client.onerror = error => console.error('onerror:', error.message);
    await client.connect(transport(StreamableHTTPClientTransport, StdioClientTransport));
    return params => client.callTool(params);
  },
  typescript_2: async () => {
    const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
    const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
    const client = new Client(info, { versionNegotiation: { mode: era === 'legacy' ? 'legacy' : 'auto' } });
    client.onerror = error => console.error('onerror:', error.message);
    await client.connect(transport(StreamableHTTPClientTransport, StdioClientTransport));
    return params => client.callTool(params);
  },
};

const call = await connect[sdk]();
say({ ready: true });
for await (const line of createInterface({ input: process.stdin })) {
  const { key, tool } = JSON.parse(line);
  call({ name: tool, arguments: { key } }).then(
    ({ content, isError }) => say(isError ? { key, error: content[0].text } : { key, text: content[0].text }),
    error => say({ key, error: `${error.name}: ${error.message}` }),
  );
}
process.exit();
