// Makes the calls that the driver asks for, with programs that make one request and end. Arguments:
// the name of the program, the URL of the endpoint, the command that starts the program.
// interop/README.md describes the lines that this program reads and writes.
import { execFile } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const [name, url, command, ...words] = process.argv.slice(2);
const say = line => console.log(JSON.stringify(line));
const run = args =>
  new Promise((resolve, reject) => {
    const env = { ...process.env, NO_COLOR: '1' };
    const child = execFile(command, [...words, ...args], { env, timeout: 60_000 }, (error, stdout, stderr) => {
      console.error(stdout, stderr);
      if (error) reject(new Error(`${stderr || stdout || error.message}`.trim()));
      else resolve(stdout + stderr);
    });
    child.stdin.end();
  });
const found = (output, pattern) => {
  if (!pattern.test(output)) throw new Error(output.trim());
  return output;
};

const programs = {
  inspector: {
    call: async (tool, key) => {
      const request = ['--method', 'tools/call', '--tool-name', tool, '--tool-arg', `key=${key}`];
      return JSON.parse(await run(['--cli', url, '--transport', 'http', ...request])).content[0].text;
    },
  },
  // These two call tools only for a language model. Their health check connects.
  claude: {
    setup: () => run(['mcp', 'add', '--transport', 'http', '--scope', 'user', 'server', url]),
    check: async () => found(await run(['mcp', 'list']), /server:.*Connected/),
  },
  gemini: {
    setup: () => {
      // It connects only in folders that the user trusts.
      mkdirSync(join(homedir(), '.gemini'), { recursive: true });
      writeFileSync(join(homedir(), '.gemini/trustedFolders.json'), JSON.stringify({ [process.cwd()]: 'TRUST_FOLDER' }));
      return run(['mcp', 'add', '--transport', 'http', '--scope', 'user', 'server', url]);
    },
    check: async () => found(await run(['mcp', 'list']), /server:.*- Connected/),
  },
};

const program = programs[name];
await program.setup?.();
say({ ready: true });
for await (const line of createInterface({ input: process.stdin })) {
  const { key, tool } = JSON.parse(line);
  const made = program.call?.(tool, key) ?? program.check().then(() => key);
  made.then(text => say({ key, text }), error => say({ key, error: error.message }));
}
process.exit();
