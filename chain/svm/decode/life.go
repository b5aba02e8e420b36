package decode

// BlockhashLife is for how many blocks after its own a blockhash is good (Solana: MAX_PROCESSING_AGE).
const BlockhashLife = 150

// HintMargin is how many blocks are added to the life of a blockhash that the seller chose. Our
// node's height is asked after its word that the hash is valid, but behind one URL there may be
// several nodes: one may be this far behind.
const HintMargin = 150

// MaxLife is for how many blocks from now on a payment can be good, whoever chose its blockhash.
const MaxLife = BlockhashLife + HintMargin
