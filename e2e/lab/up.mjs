#!/usr/bin/env node
// The lab: real chains and reference parties on this machine's loopback, on free ports. Needs prep.sh once.
// Prints one JSON line when everything is ready, then lives until its standard input ends or it gets SIGTERM.
// By hand: node up.mjs, and Ctrl-D ends it.
//
//   evm                         anvil as Base Sepolia, with TestUSDC at USDC's address
//   svm                         LiteSVM as Solana's devnet, with mints at USDC's (SPL Token) and PYUSD's (Token-2022) addresses
//   facilitator0, facilitator1  the reference facilitator at two doors, which fail on request
//   seller, sellerV1            the reference sellers of x402 V2 and V1, which settle at facilitator0
//   sellerOzskr                 a strict seller of the X-Payment-Required dialects, where the payer settles
//
// Everybody outside knows these by their gates, which can be shut. The facilitator, sellerOzskr and the control operations reach
// the chains behind the gates, so shutting "evm" or "svm" takes a node from the wallet alone.
import fs from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Gate } from './lib/gate.mjs';
import { Part } from './lib/part.mjs';
import { listen } from './lib/serve.mjs';

const started = performance.now();
const inLab = (file) => fileURLToPath(new URL(file, import.meta.url));

/** Throws a plain sentence when prep.sh has not done its work for these very lock files. */
function requirePrep() {
  const read = (file) => (fs.existsSync(inLab(file)) ? fs.readFileSync(inLab(file), 'utf8') : '');
  const stale = ['chain', 'parties', 'v1', 'solc'].filter((set) => read(`${set}/node_modules/.prepared`) !== read(`${set}/package-lock.json`));
  const contracts = ['TestUSDC', 'TestPermit2'].map((name) => inLab(`contracts/${name}.json`));
  if (!contracts.every((file) => fs.existsSync(file))) stale.push('contracts');
  if (stale.length) throw new Error(`the lab is not prepared (${stale.join(', ')}): run make test (or e2e/lab/prep.sh) first`);
}

const parts = [];

async function stop(code) {
  await Promise.all(parts.map((part) => part.stop()));
  process.exit(code);
}

function onEnd(message) {
  console.error(message);
  stop(1);
}

async function script(name, file, options) {
  const part = await Part.script(name, inLab(file), options, { onEnd });
  parts.push(part);
  return part;
}

async function anvil() {
  // The binary itself: the package's own command is a Node program around it, 44 MB more.
  const arch = { x64: 'amd64' }[process.arch] ?? process.arch;
  const binary = inLab(`chain/node_modules/@foundry-rs/anvil-${process.platform}-${arch}/bin/anvil`);
  const command = [binary, '--host', '127.0.0.1', '--port', '0', '--chain-id', '84532'];
  const part = await Part.start('anvil', command, { portsIn: (out) => out.match(/Listening on 127\.0\.0\.1:(\d+)/)?.slice(1), onEnd });
  parts.push(part);
  return part;
}

/** A part that lives in this process. */
async function serveHere(handler) {
  const port = await listen(handler);
  return { ports: [port], url: () => `http://127.0.0.1:${port}` };
}

/** The gates of all parts and, once placed, the parts' own addresses behind them. */
async function makePlaces() {
  const names = ['evm', 'svm', 'facilitator0', 'facilitator1', 'seller', 'sellerV1', 'sellerOzskr'];
  const gates = Object.fromEntries(await Promise.all(names.map(async (name) => [name, await Gate.create()])));
  const behind = {};
  const place = (...doors) => (part) => doors.forEach((name, i) => {
    behind[name] = part.url(i);
    gates[name].open(part.ports[i]);
  });
  return { gates, behind, place };
}

/**
 * Starts everything as early as it can: who asks a part that is not there yet waits at its gate, as the sellers do, which ask their
 * facilitator what it supports.
 */
async function start() {
  requirePrep();
  const { gates, behind, place } = await makePlaces();

  const anvilPlaced = anvil().then(place('evm'));
  // Imported only here, because they need what prep.sh installs, and one after the other as they are needed, because they are slow.
  const { EVM, EVM_ACCOUNTS, SVM, solanaSigner } = await import('./parties/world.mjs');
  const { SvmChain, mints } = await import('./parties/svm.mjs');
  const addressOf = async (name) => (await solanaSigner(name)).address;
  const payTo = { evm: EVM_ACCOUNTS.payTo.address, svm: await addressOf('pay-to') };
  const ozskrPayTo = { evm: EVM_ACCOUNTS.ozskrPayTo.address, svm: await addressOf('ozskr-pay-to') };

  const svmPlaced = script('svm', 'chain/node.mjs', { mints: await mints() }).then(place('svm'));
  const selling = { facilitator: gates.facilitator0.url, evmPayTo: payTo.evm, svmPayTo: payTo.svm };
  const sellersPlaced = Promise.all([
    script('sellerV1', 'v1/seller-v1.mjs', selling).then(place('sellerV1')),
    script('seller', 'parties/seller-v2.mjs', selling).then(place('seller')),
  ]);
  await Promise.all([anvilPlaced, svmPlaced]);
  const facilitatorPlaced = script('facilitator', 'parties/facilitator.mjs', { doors: 2, evm: behind.evm, svm: behind.svm })
    .then(place('facilitator0', 'facilitator1'));

  const { EvmChain } = await import('./parties/evm.mjs');
  const { ozskrSeller } = await import('./parties/seller-ozskr.mjs');
  const { operations, controlHandler } = await import('./parties/control.mjs');
  const evm = new EvmChain(behind.evm), svm = new SvmChain(behind.svm);
  place('sellerOzskr')(await serveHere(ozskrSeller({ evm, svm, evmPayTo: ozskrPayTo.evm, svmPayTo: ozskrPayTo.svm })));
  const ops = operations({ evm, svm, gates, behind });
  const control = await serveHere(controlHandler(ops));
  await Promise.all([evm.deploy(), svm.seed(), sellersPlaced, facilitatorPlaced]);

  // A seller's first challenge takes it to the facilitator. Let that be over, so that no log shows it.
  await Promise.all([`${behind.seller}/evm`, `${behind.sellerV1}/v1/evm`, `${behind.sellerV1}/v1/svm`].map((at) => fetch(at)));
  await ops.resetLogs();

  const urlOf = (name) => gates[name].url;
  return {
    control: control.url(),
    evm: {
      ...EVM, url: urlOf('evm'), payTo: payTo.evm, ozskrPayTo: ozskrPayTo.evm,
      client: EVM_ACCOUNTS.client, facilitator: EVM_ACCOUNTS.facilitator.address,
    },
    svm: {
      ...SVM, url: urlOf('svm'), payTo: payTo.svm, ozskrPayTo: ozskrPayTo.svm,
      client: { address: await addressOf('client') }, facilitator: await addressOf('facilitator'),
    },
    facilitators: [urlOf('facilitator0'), urlOf('facilitator1')],
    seller: urlOf('seller'),
    sellerV1: urlOf('sellerV1'),
    sellerOzskr: urlOf('sellerOzskr'),
    pids: Object.fromEntries([['lab', process.pid], ...parts.map(({ name, pid }) => [name, pid])]),
    startMs: Math.round(performance.now() - started),
  };
}

process.on('unhandledRejection', (error) => onEnd(error.message)); // a part that failed before anybody waited for it
process.stdin.on('end', () => stop(0)).resume();
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => stop(0));
try {
  console.log(JSON.stringify(await start()));
} catch (error) {
  console.error(error.message);
  await stop(1);
}
