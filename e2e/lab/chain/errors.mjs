// Names of the SVM's errors. litesvm gives numbers and names them in its type declarations only (const enums leave no trace in the
// JavaScript), so they are read from there.
import fs from 'node:fs';
import { createRequire } from 'node:module';

const declarations = fs.readFileSync(createRequire(import.meta.url).resolve('litesvm/dist/internal.js').replace(/\.js$/, '.d.ts'), 'utf8');

function namesOf(enumeration) {
  const [, body] = declarations.match(new RegExp(`const enum ${enumeration} \\{([^}]*)\\}`));
  return new Map([...body.matchAll(/(\w+) = (\d+)/g)].map(([, name, number]) => [Number(number), name]));
}

const transactionErrors = namesOf('TransactionErrorFieldless');
const instructionErrors = namesOf('InstructionErrorFieldless');

export const transactionErrorName = (number) => transactionErrors.get(number) ?? `Unknown${number}`;
export const instructionErrorName = (number) => instructionErrors.get(number) ?? `Unknown${number}`;
