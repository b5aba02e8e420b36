// What the reference makes of declarations for discovery. usage: bazaar.mjs '{declared: {name: extension}, shop, facilitator}'; prints
// {judged: {name: {valid, errors, spec, info}}, own: [pages], facilitators: items} and ends with its standard input.
//   own            the shop's list, as the reference's client reads it, one item a page
//   facilitators   what the reference facilitator lists since somebody paid
import { HTTPFacilitatorClient } from '@x402/core/http';
import { validateAndExtract, validateDiscoveryExtension, validateDiscoveryExtensionSpec, withBazaar } from '@x402/extensions/bazaar';
import { options } from '../lib/serve.mjs';

const { declared, shop, facilitator } = options();
const judged = {};
for (const [name, extension] of Object.entries(declared)) {
  judged[name] = { ...validateDiscoveryExtension(extension), spec: validateDiscoveryExtensionSpec(extension), info: validateAndExtract(extension).info };
}

const list = (url, query) => withBazaar(new HTTPFacilitatorClient({ url })).extensions.bazaar.listResources(query);
const own = [];
for (let page, offset = 0; !page || offset < page.pagination.total; offset++) own.push(page = await list(shop, { limit: 1, offset }));
console.log(JSON.stringify({ judged, own, facilitators: (await list(facilitator)).items }));
process.stdin.resume().on('end', () => process.exit());
