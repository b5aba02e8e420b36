// A TCP gate in front of a part: the address that everybody knows. It can be shut while the part itself, its state and its log
// live on, so a test can see "server down" and "node hangs" and ask afterwards what really happened behind it.
import { once } from 'node:events';
import net from 'node:net';

let nowhere; // a promise of a port that takes connections and does nothing with them

export class Gate {
  #port = 0;
  #open; // a promise of the part's own port; connections wait for it
  #opened;
  #server = null;
  #pairs = new Set(); // [outside, inside] sockets of each connection
  #hanging = false;
  #keeping = null; // while it is down: a connection from the gate's port, so that the system gives it to nobody else

  /** A gate on a free loopback port. Whoever connects before open() waits. */
  static async create() {
    const gate = new Gate();
    gate.#open = new Promise((done) => { gate.#opened = done; });
    await gate.up();
    return gate;
  }

  get url() { return `http://127.0.0.1:${this.#port}`; }

  /** Leads to this port from now on. */
  open(port) { this.#opened(port); }

  /** Accepts connections (again). */
  async up() {
    if (this.#hanging) this.#dropAll(); // what hung does not come back to life
    this.#hanging = false;
    if (this.#server) return;
    if (this.#keeping) {
      const closed = once(this.#keeping, 'close');
      this.#keeping.resetAndDestroy();
      this.#keeping = null;
      await closed;
    }
    const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => this.#lead(socket));
    await new Promise((done, fail) => server.on('error', fail).listen(this.#port, '127.0.0.1', done));
    this.#port = server.address().port;
    this.#server = server;
  }

  /** Refuses connections and breaks those there are. */
  async down() {
    const server = this.#server;
    this.#server = null;
    this.#hanging = false;
    const closed = server && new Promise((done) => server.close(done));
    this.#dropAll();
    await closed;
    if (!server) return;
    nowhere ??= new Promise((done) => {
      const there = net.createServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1', () => done(there.address().port));
    });
    this.#keeping = net.connect({ port: await nowhere, host: '127.0.0.1', localAddress: '127.0.0.1', localPort: this.#port });
    await once(this.#keeping.on('error', () => {}), 'connect');
  }

  /** Accepts connections and never answers; those there are fall silent. */
  async hang() {
    await this.up();
    this.#hanging = true;
    for (const [outside, inside] of this.#pairs) {
      outside.unpipe();
      inside?.unpipe();
    }
  }

  #dropAll() {
    for (const pair of this.#pairs) for (const socket of pair) socket?.resetAndDestroy();
    this.#pairs.clear();
  }

  async #lead(outside) {
    const pair = [outside];
    this.#pairs.add(pair);
    outside.on('error', () => {}).on('close', () => { this.#pairs.delete(pair); pair[1]?.destroySoon(); });
    const port = await this.#open;
    if (this.#hanging || outside.destroyed) return;
    const inside = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
    pair.push(inside);
    inside.on('error', () => {}).on('close', () => outside.destroySoon());
    outside.pipe(inside);
    inside.pipe(outside);
  }
}
