// All MCP sellers over streamable HTTP, and the reference payers, in one process. usage: shop.mjs '{facilitator, payTo: {evm, svm}, log}'
// Prints one JSON line, {"sellers": {"result-v2": URL, "result-v2+bait": URL, …}, "pay": URL}, and ends with its standard input.
// POST pay {payer, target, tool, args, key} pays as a reference client does and answers {challenge, result, error}.
import fs from 'node:fs';
import { answerJson, listen, options, readBody } from '../lib/serve.mjs';
import { journal } from './goods.mjs';
import { payWith } from './payers.mjs';
import { DIALECTS, httpSeller } from './sellers.mjs';

const { log, ...rest } = options();
fs.appendFileSync(log, '');

const modes = ['ask-again', 'bait', 'take-and-ask', 'no-receipt'].map((mode) => ['result-v2', mode]);
const sellers = {};
for (const [dialect, mode] of [...Object.keys(DIALECTS).map((name) => [name]), ...modes]) {
  const note = (event, data) => journal(log)(event, { seller: dialect, ...data });
  const handler = await httpSeller({ ...rest, dialect, mode, note });
  const port = await listen((request, response) => handler(request, response).catch((error) => {
    if (!response.headersSent) response.writeHead(500);
    response.end(String(error?.stack));
  }));
  sellers[mode ? `${dialect}+${mode}` : dialect] = `http://127.0.0.1:${port}/mcp`;
}

const pay = await listen(async (request, response) => {
  try {
    const { payer, ...call } = JSON.parse(await readBody(request));
    const { error, ...paid } = await payWith(payer, call);
    answerJson(response, 200, { ...paid, error: error && { code: error.code, message: error.message, data: error.data } });
  } catch (error) { answerJson(response, 500, { error: { message: String(error?.stack) } }); }
});

process.stdin.on('end', () => process.exit(0)).resume();
console.log(JSON.stringify({ sellers, pay: `http://127.0.0.1:${pay}` }));
