package history

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
)

// What is kept of a payment only to be read again as a whole (what was asked for, what was signed, what the
// chain is asked by, what the seller claims) is packed: DEFLATE (RFC 1951) with a preset dictionary, because
// most of such a text is the same in every payment. It takes little more than a third of the room.

// dictionary is what these texts are mostly made of, the most common last. It is a part of the ledger's
// format: another one reads nothing that was packed with this one.
const dictionary = `"expiresAt":"2026-","lastValidBlockHeight":,"blockhash":"","feePayer":"","memo":"","destination":"",` +
	`"source":"","signature":"","validBefore":1,"nonce":"0x","errorReason":"","amount":"10000",` +
	`{"network":"solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1","asset":"4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU",` +
	`{"network":"solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp","asset":"EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGkZwyTDt1v",` +
	`{"network":"eip155:8453","asset":"0x833589fcd6edb6e08f4c7c32d4f71b54bda02913","payer":"0x","payTo":"0x",` +
	`{"network":"eip155:84532","asset":"0x036cbd53842c5426634e7929541ec2318f3dcf7e","payer":"0x","payTo":"0x",` +
	`"amount":"1000","nonce":"0x","validBefore":17,"expiresAt":"20` +
	`{"network":"eip155:8453","payer":"0x","success":true,"transaction":"0x` +
	`{"success":true,"transaction":"0x","network":"eip155:84532","payer":"0x"}` +
	`{"x402Version":1,"scheme":"exact","network":"base","payload":{"signature":"0x","authorization":{"from":"0x` +
	`{"x402Version":2,"payload":{"transaction":"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA` +
	`AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAACA` +
	`Bt324ddloZPZy+FGzut5rBy0he1fWzeROoz1hX7/AKkDBkZv5SEXMv/srbpyw5vnvIzlu8X3EmssQ5s6QAAAAAVKU1qZKSEGTSTocWDa` +
	`OHx8NbXdvJK7geQfqEBBBUSNBAAFAiBOAAAEAAkDAQAAAAAAAAAGBAIHAwEKDAAAAAAAAAA="},"resource":{"url":"https://` +
	`","description":"","mimeType":"application/json","maxAmountRequired":"10000","outputSchema":null,"extensions":{` +
	`{"scheme":"exact","network":"eip155:84532","amount":"10000","asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e",` +
	`"payTo":"0x","maxTimeoutSeconds":300,"extra":{"name":"USD Coin","version":"2","feePayer":"` +
	`{"x402Version":2,"payload":{"authorization":{"from":"0x","to":"0x","value":"10000","validAfter":"0",` +
	`"validBefore":"17","nonce":"0x"},"signature":"0x1b"},"resource":{"description":"","mimeType":"application/json",` +
	`"url":"https://"},"accepted":{"amount":"1000","asset":"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",` +
	`"extra":{"name":"USDC","version":"2"},"maxTimeoutSeconds":60,"network":"eip155:8453","payTo":"0x","scheme":"exact"}}`

// maxPacked bounds what is unpacked: a payment's texts are far shorter.
const maxPacked = 16 << 20

// packer is a compressor, which is used again: making one takes ten times as long as packing.
type packer struct {
	out  bytes.Buffer
	into *flate.Writer
}

var packers = sync.Pool{New: func() any {
	p := &packer{}
	into, err := flate.NewWriterDict(&p.out, flate.DefaultCompression, []byte(dictionary))
	if err != nil {
		panic(err) // the level is flate's own
	}
	p.into = into
	return p
}}

// pack compresses texts into one; which of them are nil is kept.
func pack(texts ...[]byte) []byte {
	p := packers.Get().(*packer)
	defer packers.Put(p)
	p.out.Reset()
	p.into.Reset(&p.out)
	_, err := p.into.Write(joined(texts))
	if err := errors.Join(err, p.into.Close()); err != nil {
		panic(err) // a buffer takes all
	}
	return bytes.Clone(p.out.Bytes())
}

// packPlain is pack in stored blocks: for what is packed again, with more, a moment later. Preparing the
// compressor takes longer than all else that is done about a payment before its money is held.
func packPlain(texts ...[]byte) (packed []byte) {
	for block := range slices.Chunk(joined(texts), math.MaxUint16) {
		packed = appendStored(packed, 0, block)
	}
	const last = 1
	return appendStored(packed, last, nil)
}

// appendStored appends a block that is not compressed (RFC 1951, 3.2.4).
func appendStored(to []byte, head byte, block []byte) []byte {
	size := uint16(len(block))
	to = binary.LittleEndian.AppendUint16(append(to, head), size)
	return append(binary.LittleEndian.AppendUint16(to, ^size), block...)
}

// joined is texts one behind the other, each with its size before it.
func joined(texts [][]byte) (all []byte) {
	for _, text := range texts {
		size := uint64(0) // nil
		if text != nil {
			size = uint64(len(text)) + 1
		}
		all = append(binary.AppendUvarint(all, size), text...)
	}
	return all
}

var unpackers = sync.Pool{New: func() any { return flate.NewReader(strings.NewReader("")) }}

// errNotPacked is about bytes that pack did not make.
var errNotPacked = errors.New("what is packed cannot be read")

// unpack is what was packed: as many texts. Of nothing it leaves all as they are.
func unpack(packed []byte, texts ...*[]byte) error {
	if len(packed) == 0 {
		return nil
	}
	from := unpackers.Get().(io.ReadCloser)
	defer unpackers.Put(from)
	err := from.(flate.Resetter).Reset(bytes.NewReader(packed), []byte(dictionary))
	if err != nil {
		return err
	}
	all, err := io.ReadAll(io.LimitReader(from, maxPacked))
	if err != nil {
		return fmt.Errorf("%w: %w", errNotPacked, err)
	}
	for _, text := range texts {
		size, n := binary.Uvarint(all)
		if n <= 0 || size > uint64(len(all)-n)+1 {
			return errNotPacked
		}
		all = all[n:]
		if size > 0 {
			*text, all = all[:size-1:size-1], all[size-1:]
		}
	}
	return nil
}
