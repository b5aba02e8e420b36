#!/usr/bin/env node
// The Nuwa parties: a simulated Rooch node in this process, the npm MCP and HTTP servers as children, all on loopback.
// Prints one JSON line when everything is ready, then lives until its standard input ends or it gets SIGTERM.
//   {rooch, mcp, http, asset}    POST <rooch>admin/restart {kind}: that server's memory is gone
import { spawn } from 'node:child_process';
import net from 'node:net';
import { fileURLToPath } from 'node:url';
import { startFakeRooch } from './fake-rooch.mjs';
import { RGAS, party } from './keys.mjs';

const children = {}, ports = {};
process.on('exit', () => { for (const child of Object.values(children)) child.kill('SIGKILL'); });
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));
process.stdin.on('end', () => process.exit(0)).resume();

const freePort = () => new Promise((done) => {
  const server = net.createServer().listen(0, '127.0.0.1', () => { const { port } = server.address(); server.close(() => done(port)); });
});

async function run(kind) {
  const service = fileURLToPath(new URL('service.mjs', import.meta.url));
  const child = spawn(process.execPath, [service, kind, String(ports[kind]), rooch.url], { stdio: ['ignore', 'ignore', 'pipe', 'ipc'] });
  let stderr = '';
  child.stderr.on('data', (data) => { stderr = (stderr + data).slice(-2000); });
  children[kind] = child;
  await new Promise((done, fail) => {
    child.on('message', done);
    child.on('exit', (code) => fail(new Error(`the ${kind} server ended with ${code}: ${stderr.slice(-400)}`)));
  });
}

async function restart({ kind }) {
  const child = children[kind];
  const ended = new Promise((done) => child.on('exit', done));
  child.kill('SIGKILL');
  await ended;
  await run(kind);
}

const rooch = await startFakeRooch({ more: { '/admin/restart': restart } });
const kinds = ['mcp', 'http'];
for (const kind of kinds) {
  const { did, vms } = await party(`service-${kind}`);
  await fetch(`${rooch.url}admin/did`, { method: 'POST', body: JSON.stringify({ did, vms }) });
  ports[kind] = await freePort();
}
await Promise.all(kinds.map(run));
console.log(JSON.stringify({ rooch: rooch.url, mcp: `http://127.0.0.1:${ports.mcp}/mcp`, http: `http://127.0.0.1:${ports.http}`, asset: RGAS }));
