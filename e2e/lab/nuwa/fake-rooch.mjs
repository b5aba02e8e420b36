// A stand-in for a Rooch node: the six JSON-RPC methods that @nuwa-ai/payment-kit 0.7.0 uses, with object states in real BCS.
// Strict where it counts: it verifies the authenticator of every transaction (DID validator), sequence number and chain id, and the
// SubRAV signature of every claim, and moves the hub's balance. Layouts after payment_channel.move and did_validator.move.
//   POST /            JSON-RPC
//   POST /admin/did   {did, vms: [{fragment, type, publicKeyMultibase}]}      POST /admin/hub {did, asset, amount}
//   GET  /admin/state {calls, txs, channels, hubs}
import http from 'node:http';
import { CryptoUtils, MultibaseCodec } from '@nuwa-ai/identity-kit';
import { RoochAddress, Serializer, bcs, fromHEX, normalizeRoochAddress, sha3_256 } from '@roochnetwork/rooch-sdk';

// ---- BCS layouts ----------------------------------------------------------------------------------------------------

const text = bcs.string(), address = bcs.Address;
const map = (key, value) => bcs.struct('SimpleMap', { data: bcs.vector(bcs.struct('Entry', { key, value })) });
const Did = bcs.struct('DID', { method: text, identifier: text });
const VmId = bcs.struct('VMID', { did: Did, fragment: text });
const Vm = bcs.struct('VM', { id: VmId, type: text, controller: Did, public_key_multibase: text });
const Service = bcs.struct('Service', { id: VmId, type: text, service_endpoint: text, properties: map(text, text) });
const fragments = bcs.vector(text);
const DidDocument = bcs.struct('DIDDocument', {
  id: Did, controller: bcs.vector(Did), verification_methods: map(text, Vm), authentication: fragments, assertion_method: fragments,
  capability_invocation: fragments, capability_delegation: fragments, key_agreement: fragments, services: map(text, Service),
  also_known_as: fragments, account_cap: bcs.struct('AccountCap', { addr: address }),
});
const ChannelKey = bcs.struct('ChannelKey', { sender: address, receiver: address, coin_type: text });
const Channel = bcs.struct('PaymentChannel', {
  sender: address, receiver: address, coin_type: text, sub_channels: bcs.ObjectId, status: bcs.u8(), channel_epoch: bcs.u64(),
  cancellation_info: bcs.option(bcs.struct('Cancellation', { initiated_time: bcs.u64(), pending_amount: bcs.u256() })),
});
const SubChannel = bcs.struct('Field', { name: text, value: bcs.struct('SubChannel', { pk_multibase: text, method_type: text, last_claimed_amount: bcs.u256(), last_confirmed_nonce: bcs.u64() }) });
const Hub = bcs.struct('PaymentHub', { multi_coin_store: bcs.ObjectId, active_channels: bcs.ObjectId });
const Coin = bcs.struct('Field', { name: text, value: bcs.struct('CoinStore', { coin_type: text, balance: bcs.struct('Balance', { value: bcs.u256() }), frozen: bcs.bool() }) });
const Counter = bcs.struct('Field', { name: text, value: bcs.u64() });

// ---- ids --------------------------------------------------------------------------------------------------------------

const utf8 = (value) => Buffer.from(value, 'utf8');
const hex = (bytes) => `0x${Buffer.from(bytes).toString('hex')}`;
const idOf = (...parts) => hex(sha3_256(new Uint8Array(Buffer.concat(parts.map((part) => Buffer.from(part))))));
const typeName = (module, name) => `0x${'0'.repeat(63)}3::${module}::${name}`;
const fieldKey = (name) => idOf(text.serialize(name).toBytes(), utf8(`0x${'0'.repeat(63)}1::string::String`));
const canonical = (coin) => Serializer.structTagToCanonicalString(Serializer.typeTagParseFromStr(coin, true).struct);
const addressOf = (identifier) => new RoochAddress(identifier).toHexAddress();
const identifierOf = (did) => did.split(':')[2];
const documentId = (identifier) => idOf(text.serialize(identifier).toBytes(), utf8(typeName('did', 'DIDDocument')));
const hubIdOf = (owner) => idOf(fromHEX(owner), utf8(typeName('payment_channel', 'PaymentHub')));
const channelIdOf = (sender, receiver, coin_type) => idOf(ChannelKey.serialize({ sender, receiver, coin_type }).toBytes(), utf8(typeName('payment_channel', 'PaymentChannel')));
const childOf = (id, name) => idOf(fromHEX(id), utf8(name)); // tables below an object; any unique id will do

/** Starts the node on a loopback port. */
export function startFakeRooch({ port = 0, chainId = 4, more = {} } = {}) {
  const documents = new Map(); // object id -> {identifier, vms}
  const channels = new Map();  // channel id -> {sender, receiver, coin, status, epoch, subs: Map(fragment -> {pk, type, claimed, nonce})}
  const hubs = new Map();      // hub id -> {owner, coins: Map(coin -> amount)}
  const sequences = new Map(), txs = [], calls = {};

  const registerDid = (did, vms) => documents.set(documentId(identifierOf(did)), { identifier: identifierOf(did), vms });
  const deposit = (owner, coin, amount) => {
    const hub = hubs.get(hubIdOf(owner)) ?? { owner, coins: new Map() };
    hub.coins.set(coin, (hub.coins.get(coin) ?? 0n) + BigInt(amount));
    hubs.set(hubIdOf(owner), hub);
  };

  // ---- reading ----

  const view = (id, type, bytes) => ({ created_at: '0', flag: 0, id, object_type: type, owner: '0x0', size: '0', updated_at: '0', value: hex(bytes) });

  function objectState(given) {
    const id = normalizeRoochAddress(given);
    const document = documents.get(id), channel = channels.get(id), hub = hubs.get(id);
    if (document) return view(id, typeName('did', 'DIDDocument'), documentBytes(document));
    if (channel) {
      return view(id, typeName('payment_channel', 'PaymentChannel'), Channel.serialize({
        sender: channel.sender, receiver: channel.receiver, coin_type: channel.coin, sub_channels: childOf(id, 'subs'),
        status: channel.status, channel_epoch: channel.epoch, cancellation_info: null,
      }).toBytes());
    }
    if (hub) return view(id, typeName('payment_channel', 'PaymentHub'), Hub.serialize({ multi_coin_store: childOf(hub.owner, 'coins'), active_channels: childOf(hub.owner, 'active') }).toBytes());
    return null;
  }

  function documentBytes({ identifier, vms }) {
    const did = { method: 'rooch', identifier }, names = vms.map(({ fragment }) => fragment);
    const methods = vms.map(({ fragment, type, publicKeyMultibase }) => ({ key: fragment, value: { id: { did, fragment }, type, controller: did, public_key_multibase: publicKeyMultibase } }));
    return DidDocument.serialize({
      id: did, controller: [did], verification_methods: { data: methods }, authentication: names, assertion_method: [], capability_invocation: names,
      capability_delegation: names, key_agreement: [], services: { data: [] }, also_known_as: [], account_cap: { addr: addressOf(identifier) },
    }).toBytes();
  }

  function fieldState(given, key) {
    const table = normalizeRoochAddress(given);
    for (const [id, { subs }] of channels) {
      if (childOf(id, 'subs') !== table) continue;
      for (const [name, sub] of subs) {
        if (fieldKey(name) === key) return view(key, 'field', SubChannel.serialize({ name, value: { pk_multibase: sub.pk, method_type: sub.type, last_claimed_amount: sub.claimed, last_confirmed_nonce: sub.nonce } }).toBytes());
      }
    }
    for (const { owner, coins } of hubs.values()) {
      if (childOf(owner, 'coins') !== table) continue;
      for (const [name, value] of coins) if (fieldKey(name) === key) return view(key, 'field', Coin.serialize({ name, value: { coin_type: name, balance: { value }, frozen: false } }).toBytes());
    }
    return null;
  }

  function listFields(given) {
    const table = normalizeRoochAddress(given);
    for (const { owner, coins } of hubs.values()) {
      if (childOf(owner, 'coins') === table) return [...coins.keys()].map((coin) => ({ field_key: fieldKey(coin), state: fieldState(table, fieldKey(coin)) }));
      if (childOf(owner, 'active') !== table) continue;
      const open = [...channels.values()].filter(({ sender }) => sender === owner).map(({ coin }) => coin);
      return [...new Set(open)].map((coin) => ({ field_key: fieldKey(coin), state: view(fieldKey(coin), 'field', Counter.serialize({ name: coin, value: open.filter((other) => other === coin).length }).toBytes()) }));
    }
    return [];
  }

  // ---- transactions ----

  /** RoochTransaction = data, then authenticator, with nothing between. */
  async function execute(raw) {
    const bytes = fromHEX(raw), data = bcs.RoochTransactionData.parse(bytes), signed = bcs.RoochTransactionData.serialize(data).toBytes();
    const { authValidatorId, payload } = bcs.Authenticator.parse(bytes.slice(signed.length));
    const { envelope, vmFragment, signature } = bcs.DIDAuthPayload.parse(new Uint8Array(payload));
    if (Number(authValidatorId) !== 4 || envelope !== 0) throw new Error('only the DID validator with a raw transaction hash is known here');
    const sender = normalizeRoochAddress(data.sender);
    const vms = [...documents.values()].find(({ identifier }) => addressOf(identifier) === sender)?.vms ?? [];
    const vm = vms.find(({ fragment }) => fragment === vmFragment);
    if (!vm) throw new Error(`${sender} has no verification method ${vmFragment}`);
    if (!(await verified(sha3_256(signed), signature, vm.publicKeyMultibase, vm.type))) throw new Error('bad transaction signature');
    if (BigInt(data.chainId) !== BigInt(chainId)) throw new Error(`chain id ${data.chainId}, this is ${chainId}`);
    const sequence = sequences.get(sender) ?? 0n;
    if (BigInt(data.sequenceNumber) !== sequence) throw new Error(`sequence number ${data.sequenceNumber}, next is ${sequence}`);
    sequences.set(sender, sequence + 1n);

    const { functionId, typeArgs, args } = data.action, name = `${functionId.moduleId.name}::${functionId.name}`;
    let status = { type: 'executed' };
    try {
      const entry = entries[name];
      if (!entry) throw new Error(`no entry function ${name}`);
      if (BigInt(data.maxGas) < gasOf(name)) throw new Error(`${data.maxGas} are too little gas`);
      const coin = typeArgs[0] && canonical(typeof typeArgs[0] === 'string' ? typeArgs[0] : Serializer.tagToString(typeArgs[0]));
      await entry({ sender, vms, coin, args: args.map((arg) => new Uint8Array(arg)) });
    } catch (error) {
      status = { type: 'moveabort', location: name, abort_code: '1', message: error.message };
    }
    const tx_hash = hex(sha3_256(signed));
    txs.push({ name, sender, status, tx_hash });
    return {
      sequence_info: null, execution_info: { tx_hash, state_root: '0x0', event_root: '0x0', gas_used: '1', status },
      output: { events: [], changeset: {}, status, gas_used: '1', is_upgrade: false, is_gas_upgrade: false },
    };
  }

  /** What a transaction takes; a channel costs more than what is done in it. */
  const gasOf = (name) => (name.includes('open_channel') ? 20_000_000n : 1_000_000n);

  /** Takes the data alone: nobody has signed it. */
  function dryRun(raw) {
    const data = bcs.RoochTransactionData.parse(fromHEX(raw)), { functionId } = data.action;
    if (BigInt(data.chainId) !== BigInt(chainId)) throw new Error(`chain id ${data.chainId}, this is ${chainId}`);
    const sequence = sequences.get(normalizeRoochAddress(data.sender)) ?? 0n;
    if (BigInt(data.sequenceNumber) !== sequence) throw new Error(`sequence number ${data.sequenceNumber}, next is ${sequence}`);
    const name = `${functionId.moduleId.name}::${functionId.name}`;
    const status = entries[name] ? { type: 'executed' } : { type: 'moveabort', location: name, abort_code: '1' };
    return { raw_output: { tx_hash: hex(sha3_256(fromHEX(raw))), state_root: '0x0', status, gas_used: String(gasOf(name)), is_upgrade: false }, vm_error_info: { error_message: '', execution_state: [] } };
  }

  const verified = (message, signature, key, type) => CryptoUtils.verify(message, new Uint8Array(signature), MultibaseCodec.decodeBase58btc(key), type);

  function authorize(channel, fragment, vms) {
    const vm = vms.find((each) => each.fragment === fragment);
    if (!vm) throw new Error(`no verification method ${fragment}`);
    channel.subs.set(fragment, { pk: vm.publicKeyMultibase, type: vm.type, claimed: 0n, nonce: 0n });
  }

  function open({ sender, coin, args: [to] }, existing) {
    const receiver = address.parse(to), id = channelIdOf(sender, receiver, coin);
    if (!channels.has(id)) channels.set(id, { sender, receiver, coin, status: 0, epoch: 0n, subs: new Map() });
    else if (existing === 'refuse') throw new Error('channel exists (18)');
    return channels.get(id);
  }

  const entries = {
    'payment_channel::open_channel_entry': (call) => { open(call, 'refuse'); },
    'payment_channel::open_channel_with_sub_channel_entry': (call) => { // idempotent, as the Move code is
      const channel = open(call), fragment = text.parse(call.args[1]);
      if (!channel.subs.has(fragment)) authorize(channel, fragment, call.vms);
    },
    'payment_channel::authorize_sub_channel_entry': ({ args, vms }) => {
      const channel = channels.get(bcs.ObjectId.parse(args[0])), fragment = text.parse(args[1]);
      if (!channel || channel.subs.has(fragment)) throw new Error('no such channel, or sub-channel exists');
      authorize(channel, fragment, vms);
    },
    'payment_channel::deposit_to_hub_entry': ({ coin, args }) => deposit(address.parse(args[0]), coin, bcs.u256().parse(args[1])),
    'payment_channel::claim_from_channel_entry': async ({ args }) => {
      const channel = channels.get(bcs.ObjectId.parse(args[0])), sub = channel.subs.get(text.parse(args[1]));
      const amount = BigInt(bcs.u256().parse(args[2])), nonce = BigInt(bcs.u64().parse(args[3]));
      const subRav = Buffer.concat([bcs.u8().serialize(1).toBytes(), bcs.u64().serialize(chainId).toBytes(), args[0], bcs.u64().serialize(channel.epoch).toBytes(), args[1], args[2], args[3]]);
      if (!(await verified(new Uint8Array(subRav), bcs.vector(bcs.u8()).parse(args[4]), sub.pk, sub.type))) throw new Error('bad SubRAV signature');
      if (nonce < sub.nonce || amount < sub.claimed) throw new Error('claim does not increase');
      const hub = hubs.get(hubIdOf(channel.sender)), balance = hub?.coins.get(channel.coin) ?? 0n;
      if (balance < amount - sub.claimed) throw new Error('hub balance too low');
      hub.coins.set(channel.coin, balance - (amount - sub.claimed));
      Object.assign(sub, { claimed: amount, nonce });
    },
  };

  // ---- JSON-RPC and admin ----

  const methods = {
    rooch_getChainID: () => String(chainId),
    rooch_getObjectStates: ([ids]) => ids.split(',').map(objectState),
    rooch_getFieldStates: ([table, keys]) => keys.map((key) => fieldState(table, key)),
    rooch_listFieldStates: ([table]) => ({ data: listFields(table), next_cursor: null, has_next_page: false }),
    rooch_dryRunRawTransaction: ([raw]) => dryRun(raw),
    rooch_executeRawTransaction: ([raw]) => execute(raw),
    rooch_executeViewFunction: ([{ function_id, args }]) => {
      if (!function_id.endsWith('::account::sequence_number')) throw new Error(`no view function ${function_id}`);
      return { vm_status: 'Executed', return_values: [{ value: {}, decoded_value: String(sequences.get(normalizeRoochAddress(args[0])) ?? 0n) }] };
    },
  };
  const admin = {
    ...more,
    '/admin/did': ({ did, vms }) => { registerDid(did, vms); },
    '/admin/hub': ({ did, asset, amount }) => deposit(addressOf(identifierOf(did)), canonical(asset), amount),
    '/admin/state': () => ({
      calls, txs,
      channels: [...channels].map(([id, channel]) => ({ id, ...channel, subs: Object.fromEntries(channel.subs) })),
      hubs: [...hubs].map(([id, { owner, coins }]) => ({ id, owner, coins: Object.fromEntries(coins) })),
    }),
  };

  async function answer(url, body) {
    if (admin[url]) return (await admin[url](body && JSON.parse(body))) ?? {};
    const { id, method, params } = JSON.parse(body);
    calls[method] = (calls[method] ?? 0) + 1;
    try {
      if (!methods[method]) throw new Error(`no method ${method}`);
      return { jsonrpc: '2.0', id, result: await methods[method](params) };
    } catch (error) { return { jsonrpc: '2.0', id, error: { code: -32000, message: error.message } }; }
  }

  const server = http.createServer(async (req, res) => {
    const parts = [];
    for await (const part of req) parts.push(part);
    const reply = await answer(req.url, Buffer.concat(parts).toString()).catch((error) => ({ error: error.message }));
    res.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(reply, (_, value) => (typeof value === 'bigint' ? String(value) : value)));
  });
  return new Promise((done) => server.listen(port, '127.0.0.1', () => done({ url: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() })));
}
