// What every part of the lab does alike: listen on a free loopback port, say so, keep a log, end with the lab.
import http from 'node:http';

/** The JSON object that the lab passed to this part. */
export const options = () => JSON.parse(process.argv[2]);

/** Serves a handler (a function or an express app) on a free loopback port; gives the port. */
export const listen = (handler) => new Promise((done, fail) => {
  const server = http.createServer(handler).on('error', fail);
  server.listen(0, '127.0.0.1', () => done(server.address().port));
});

/** Serves each handler on a port of its own and tells the lab the ports. */
export async function serve(...handlers) {
  const ports = await Promise.all(handlers.map(listen));
  // The lab holds the other end of the input: a part cannot outlive it, whatever kills the lab.
  process.stdin.on('end', () => process.exit(0)).resume();
  console.log(JSON.stringify({ ready: true, ports }));
}

export async function readBody(request) {
  let body = '';
  for await (const chunk of request.setEncoding('utf8')) body += chunk;
  return body;
}

/** Answers with JSON; big integers become decimal strings. */
export function answerJson(response, status, value) {
  const text = JSON.stringify(value, (_, field) => (typeof field === 'bigint' ? String(field) : field));
  response.writeHead(status, { 'content-type': 'application/json' }).end(text);
}

/** Serves JSON-RPC 2.0 over HTTP, batches included. Methods get their params; `unknown` makes the error for others. */
export function serveRpc(methods, unknown) {
  const answer = async ({ id, method, params = [] }) => {
    try {
      if (!Object.hasOwn(methods, method)) throw unknown(method);
      return { jsonrpc: '2.0', id, result: await methods[method](params) };
    } catch ({ code, message, data }) {
      return { jsonrpc: '2.0', id, error: { code: Number.isInteger(code) ? code : -32603, message, data } };
    }
  };
  return serve(async (request, response) => {
    let query;
    try { query = JSON.parse(await readBody(request)); } catch { return answerJson(response, 400, { error: 'not JSON' }); }
    return answerJson(response, 200, Array.isArray(query) ? await Promise.all(query.map(answer)) : await answer(query));
  });
}

/** Makes an express app remember what it was asked: GET /lab/log [{method, url, path, headers, status}], POST /lab/reset. */
export function keepLog(app) {
  let log = [];
  app.get('/lab/log', (_, response) => response.json(log));
  app.post('/lab/reset', (_, response) => { log = []; response.json({}); });
  app.use((request, response, next) => {
    const entry = { method: request.method, url: request.originalUrl, path: request.path, headers: request.headers, status: 0 };
    log.push(entry);
    response.on('finish', () => { entry.status = response.statusCode; }); // stays 0 when the asker left before
    next();
  });
}
