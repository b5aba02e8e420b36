// A TCP gate in front of a part: the address that everybody knows. It can be shut while the part itself, its state and its log
// live on, so a test can see "server down" and "node hangs" and ask afterwards what really happened behind it.
import net from 'node:net';

export class Gate {
  #port = 0;
  #open; // a promise of the part's own port; connections wait for it
  #opened;
  #server = null;
  #pairs = new Set(); // [outside, inside] sockets of each connection
  #hanging = false;

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
