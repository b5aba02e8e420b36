// Compiles the contracts with npm solc.
//   node compile.mjs batch    TestBatchSettlement.sol into TestBatchSettlement.json: {name: code} of its contracts, for anvil_setCode
//   node compile.mjs          TestUSDC.sol into TestUSDC.json: {abi, code}. `code` is the runtime code, because anvil_setCode places
//                             it without running a constructor; TestPermit2.sol into TestPermit2.json: that of each contract by its name
//   node compile.mjs vault    the vault of chain/evm/vault, whose build is committed beside it: prints it
//   node compile.mjs vaults   prints the list of builds of a JSON list of its sources on standard input, not optimized, which is faster
import fs from 'node:fs';
import { createRequire } from 'node:module';

const solc = createRequire(new URL('../solc/package.json', import.meta.url))('solc');
const inLab = (file) => new URL(`../${file}`, import.meta.url);

/** What of the settings decides on the code. */
const SETTINGS = {
  viaIR: true, // nine arguments and a few locals are more than the plain code generator's stack holds
  optimizer: { enabled: true },
};

/** The vault's: they are committed with its code, so nothing in them is left to a default that may change. */
const VAULT_SETTINGS = {
  viaIR: true,
  optimizer: { enabled: true, runs: 200 },
  evmVersion: 'paris', // no instruction that a chain of the registry might not have
  metadata: { bytecodeHash: 'none' }, // else the code would end in a hash of this source, comments and all
};
const QUICK_SETTINGS = { ...VAULT_SETTINGS, viaIR: false, optimizer: { enabled: false } };

function compile(file, content, settings, wanted) {
  const outputSelection = { '*': { '*': wanted, '': ['ast'] } };
  const input = { language: 'Solidity', sources: { [file]: { content } }, settings: { ...settings, outputSelection } };
  const { errors = [], contracts, sources } = JSON.parse(solc.compile(JSON.stringify(input)));
  const fatal = errors.filter(({ severity }) => severity === 'error');
  if (fatal.length) throw new Error(fatal.map(({ formattedMessage }) => formattedMessage).join('\n'));
  return { ...contracts[file][file.replace('.sol', '')], all: contracts[file], ast: sources[file].ast };
}

/** Where the runtime code has zeros until the constructor fills in the immutable variables: {name: offsets of 32 bytes}. */
function immutablesOf({ evm, ast }) {
  const variables = ast.nodes.flatMap(({ nodes = [] }) => nodes);
  const nameOf = (id) => variables.find((variable) => variable.id === Number(id)).name;
  const places = Object.entries(evm.deployedBytecode.immutableReferences);
  return Object.fromEntries(places.map(([id, at]) => [nameOf(id), at.map(({ start }) => start)]));
}

function vault(source, settings) {
  const wanted = ['evm.bytecode.object', 'evm.deployedBytecode', 'evm.methodIdentifiers'];
  const built = compile('AgentVault.sol', source, settings, wanted);
  return {
    compiler: solc.version().replace(".Emscripten.clang", ""),
    settings,
    methods: built.evm.methodIdentifiers,
    immutables: immutablesOf(built),
    bytecode: `0x${built.evm.bytecode.object}`,
    runtime: `0x${built.evm.deployedBytecode.object}`,
  };
}

function token() {
  const { abi, evm } = compile('TestUSDC.sol', fs.readFileSync(inLab('contracts/TestUSDC.sol'), 'utf8'), SETTINGS,
    ['abi', 'evm.deployedBytecode.object']);
  fs.writeFileSync(inLab('contracts/TestUSDC.json'), `${JSON.stringify({ abi, code: `0x${evm.deployedBytecode.object}` })}\n`);
}

function permit2() {
  const source = fs.readFileSync(inLab('contracts/TestPermit2.sol'), 'utf8');
  const { all } = compile('TestPermit2.sol', source, SETTINGS, ['abi', 'evm.deployedBytecode.object']);
  const built = Object.entries(all).map(([name, { abi, evm }]) => [name, { abi, code: `0x${evm.deployedBytecode.object}` }]);
  fs.writeFileSync(inLab('contracts/TestPermit2.json'), `${JSON.stringify(Object.fromEntries(built))}\n`);
}

function batch() {
  const source = fs.readFileSync(inLab('contracts/TestBatchSettlement.sol'), 'utf8');
  const { all } = compile('TestBatchSettlement.sol', source, SETTINGS, ['evm.deployedBytecode.object']);
  const built = Object.entries(all).map(([name, { evm }]) => [name, `0x${evm.deployedBytecode.object}`]);
  fs.writeFileSync(inLab('contracts/TestBatchSettlement.json'), `${JSON.stringify(Object.fromEntries(built))}\n`);
}

const vaultSource = () => fs.readFileSync(inLab('../../chain/evm/vault/AgentVault.sol'), 'utf8');
const print = (built) => console.log(JSON.stringify(built, null, 2));
const tasks = {
  token: () => { token(); permit2(); batch(); },
  vault: () => print(vault(vaultSource(), VAULT_SETTINGS)),
  vaults: () => print(JSON.parse(fs.readFileSync(0, 'utf8')).map((source) => vault(source, QUICK_SETTINGS))),
};
try {
  tasks[process.argv[2] ?? 'token']();
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
