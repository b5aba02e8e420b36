// The processes of the lab: started, waited for, stopped by their id, and tied to this process, so that none is left behind.
import { spawn } from 'node:child_process';
import fs from 'node:fs';

const START_MS = 90_000; // under a second each on an idle machine, many on a busy one
const STOP_MS = 2_000;

// Parts of ours end with their standard input. anvil does not look at it, so where setpriv exists the kernel is asked to see to it.
const SETPRIV = '/usr/bin/setpriv';
const tie = fs.existsSync(SETPRIV) ? [SETPRIV, '--pdeathsig', 'KILL'] : [];

export class Part {
  #child;
  #stopping = false;

  /**
   * Starts a process and waits until `portsIn` finds its ports in what it prints. `onEnd(message)` is called if it ends before
   * stop().
   */
  static async start(name, command, { portsIn, onEnd }) {
    const part = new Part();
    part.name = name;
    const [program, ...args] = [...tie, ...command];
    const child = part.#child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'] });
    let out = '', errors = '';
    child.stderr.on('data', (data) => { errors = (errors + data).slice(-4000); });
    part.ports = await new Promise((done, fail) => {
      const timer = setTimeout(() => fail(new Error(`${name}: not ready within ${START_MS / 1000} s: ${errors}`)), START_MS);
      const read = (data) => {
        out += data;
        const ports = portsIn(out);
        if (!ports) return;
        clearTimeout(timer);
        child.stdout.off('data', read).resume();
        done(ports);
      };
      child.stdout.on('data', read);
      child.on('error', fail);
      child.on('exit', (code, signal) => {
        const message = `${name}: ended with ${code ?? signal}: ${errors}`;
        fail(new Error(message));
        if (part.ports && !part.#stopping) onEnd(message);
      });
    });
    return part;
  }

  /** A part written in JavaScript, which says {"ready":true,"ports":[…]}. */
  static script(name, file, options, { onEnd }) {
    const portsIn = (out) => (out.includes('\n') ? JSON.parse(out.split('\n', 1)[0]).ports : null);
    return Part.start(name, [process.execPath, file, JSON.stringify(options)], { portsIn, onEnd });
  }

  get pid() { return this.#child.pid; }

  /** The part's own address, behind its gate. */
  url(i = 0) { return `http://127.0.0.1:${this.ports[i]}`; }

  async stop() {
    this.#stopping = true;
    const child = this.#child;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((done) => child.once('exit', done));
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
    await ended;
    clearTimeout(timer);
  }
}
