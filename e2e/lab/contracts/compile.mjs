// Compiles TestUSDC.sol with npm solc into TestUSDC.json: {abi, code}. `code` is the runtime code, because anvil_setCode places it
// without running a constructor.
import fs from 'node:fs';
import { createRequire } from 'node:module';

const solc = createRequire(new URL('../solc/package.json', import.meta.url))('solc');
const source = new URL('TestUSDC.sol', import.meta.url);

const input = {
  language: 'Solidity',
  sources: { 'TestUSDC.sol': { content: fs.readFileSync(source, 'utf8') } },
  settings: {
    viaIR: true, // nine arguments and a few locals are more than the plain code generator's stack holds
    optimizer: { enabled: true },
    outputSelection: { '*': { '*': ['abi', 'evm.deployedBytecode.object'] } },
  },
};
const { errors = [], contracts } = JSON.parse(solc.compile(JSON.stringify(input)));

const fatal = errors.filter(({ severity }) => severity === 'error');
if (fatal.length) {
  console.error(fatal.map(({ formattedMessage }) => formattedMessage).join('\n'));
  process.exit(1);
}
const { abi, evm } = contracts['TestUSDC.sol'].TestUSDC;
fs.writeFileSync(new URL('TestUSDC.json', import.meta.url), `${JSON.stringify({ abi, code: `0x${evm.deployedBytecode.object}` })}\n`);
