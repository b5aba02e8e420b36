package keystore_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/keystore/keytest"
	"x402-wallet/wallet/internal/strictjson"
)

// edit is one change of the golden file.
type edit struct{ old, new string }

func TestParseRefuses(t *testing.T) {
	data, _ := keytest.Golden(t)
	for name, e := range map[string]edit{
		"version 0":         {`"version": 1`, `"version": 0`},
		"version 2":         {`"version": 1`, `"version": 2`},
		"version 999":       {`"version": 1`, `"version": 999`},
		"version as text":   {`"version": 1`, `"version": "1"`},
		"version null":      {`"version": 1`, `"version": null`},
		"version 1.0":       {`"version": 1`, `"version": 1.0`},
		"version 1e0":       {`"version": 1`, `"version": 1e0`},
		"version negative":  {`"version": 1`, `"version": -1`},
		"another format":    {keystore.Format, "x402-wallet-keystorf"},
		"format null":       {`"format": "x402-wallet-keystore"`, `"format": null`},
		"unknown kdf":       {`"scrypt"`, `"argon2id"`},
		"kdf in capitals":   {`"scrypt"`, `"Scrypt"`},
		"unknown cipher":    {"aes-256-gcm", "aes-256-ctr"},
		"n 2^30":            {"16384", "1073741824"},
		"n 2^63":            {"16384", "9223372036854775808"},
		"n 2^64":            {"16384", "18446744073709551616"},
		"n 2^21":            {"16384", "2097152"},
		"n 2^13":            {"16384", "8192"},
		"n 2":               {"16384", "2"},
		"n 3":               {"16384", "3"},
		"n 0":               {"16384", "0"},
		"n negative":        {"16384", "-16384"},
		"n no power of two": {"16384", "16385"},
		"n as power":        {"16384", "16384e0"},
		"n null":            {"16384", "null"},
		"r 2^20":            {`"r": 8`, `"r": 1048576`},
		"r 7":               {`"r": 8`, `"r": 7`},
		"r 0":               {`"r": 8`, `"r": 0`},
		"p 2^30":            {`"p": 1`, `"p": 1073741824`},
		"p 5":               {`"p": 1`, `"p": 5`},
		"p 0":               {`"p": 1`, `"p": 0`},
		"salt short": {"+Lcc/+0510BFLTDL29y8hWXTMYZymz5bn95WIWVDmBI=",
			"+Lcc/+0510BFLTDL29y8hWXTMYZymz5bn95WIWVDmA=="},
		"salt long": {"+Lcc/+0510BFLTDL29y8hWXTMYZymz5bn95WIWVDmBI=",
			"+Lcc/+0510BFLTDL29y8hWXTMYZymz5bn95WIWVDmBIA"},
		"salt empty":           {"+Lcc/+0510BFLTDL29y8hWXTMYZymz5bn95WIWVDmBI=", ""},
		"salt loose bits":      {"VDmBI=", "VDmBJ="},
		"salt with a line end": {"+Lcc/+05", `+Lcc\n/+05`},
		"salt in base64url":    {"+Lcc/+05", "-Lcc_-05"},
		"salt unpadded":        {"VDmBI=", "VDmBI"},
		"nonce short":          {"oYP9Jq5U66k+TU6m", "oYP9Jq5U66k+TU4="},
		"nonce long":           {"oYP9Jq5U66k+TU6m", "oYP9Jq5U66k+TU6mAA=="},
		"nonce a number":       {`"oYP9Jq5U66k+TU6m"`, `12`},
		"commitment short": {"4c3q2DjMXx3mHoeJC8ccAHNK6hrzg0leS7WjRbffViU=",
			"4c3q2DjMXx3mHoeJC8ccAA=="},
		"ciphertext short":        {"iry+KoYe", "KoYe"},
		"ciphertext long":         {"iry+KoYe", "iry+KoYeKoYe"},
		"unknown field":           {`"version": 1,`, `"version": 1, "comment": "",`},
		"unknown field in kdf":    {`"r": 8,`, `"r": 8, "dklen": 64,`},
		"unknown field in cipher": {`"aes-256-gcm",`, `"aes-256-gcm", "tag": "",`},
		"unknown field in a key":  {`"chain": "evm",`, `"chain": "evm", "index": 0,`},
		"missing field":           {`"created": "2026-11-21T18:30:00Z",`, ``},
		"missing p":               {`"p": 1,`, ``},
		"twice":                   {`"version": 1,`, `"version": 1, "version": 1,`},
		"twice in kdf":            {`"n": 16384,`, `"n": 16384, "n": 16384,`},
		"twice, once escaped":     {`"n": 16384,`, `"n": 16384, "\u006e": 16384,`},
		"case twin":               {`"n": 16384,`, `"n": 16384, "N": 1073741824,`},
		"case twin at the top":    {`"version": 1,`, `"version": 1, "VERSION": 1,`},
		"name in capitals":        {`"salt"`, `"Salt"`},
		"kelvin sign for k":       {`"kdf"`, `"` + "\u212a" + `df"`},
		"three keys": {`"keys": [`,
			`"keys": [{"chain":"solana","address":"FVen3X669xLzsi6N2V91DoiyzHzg1uAgqiT8jZ9nS96Z"},`},
		"keys null":               {`"keys": [`, `"keys": null, "x": [`},
		"chains swapped":          {`"chain": "solana"`, `"chain": "evm"`},
		"unknown chain":           {`"chain": "evm"`, `"chain": "bitcoin"`},
		"evm address lower case":  {keytest.EVM, strings.ToLower(keytest.EVM)},
		"evm address short":       {keytest.EVM, keytest.EVM[:40]},
		"evm address empty":       {keytest.EVM, ""},
		"solana address with l":   {keytest.Solana, "l" + keytest.Solana[1:]},
		"solana address 33 bytes": {keytest.Solana, "1" + keytest.Solana},
		"solana address too big":  {keytest.Solana, strings.Repeat("z", 44)},
		"address with a newline":  {keytest.EVM, keytest.EVM[:41] + `\n`},
		"created local":           {"18:30:00Z", "18:30:00+01:00"},
		"created as +00:00":       {"18:30:00Z", "18:30:00+00:00"},
		"created fraction":        {"18:30:00Z", "18:30:00.5Z"},
		"created no date":         {"2026-11-21T18:30:00Z", "yesterday"},
		"created a number":        {`"2026-11-21T18:30:00Z"`, `1795285800`},
		"kdf a list":              {`"kdf": {`, `"kdf": [{`},
		"trailing comma":          {`bffViU="`, `bffViU=",`},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(string(data), e.old, e.new, 1)
			require.NotEqual(t, string(data), changed, "the edit does not apply")
			keytest.RequireRefused(t, []byte(changed))
		})
	}
}

func TestParseRefusesDocuments(t *testing.T) {
	data, _ := keytest.Golden(t)
	text := strings.TrimSpace(string(data))
	for name, doc := range map[string]string{
		"empty":              "",
		"null":               "null",
		"list":               "[" + text + "]",
		"number":             "1",
		"text":               `"x402-wallet-keystore"`,
		"empty object":       "{}",
		"two documents":      text + text,
		"trailing word":      text + "x",
		"trailing brace":     text + "}",
		"trailing NUL":       text + "\x00",
		"byte order mark":    "\ufeff" + text,
		"NULs":               strings.Repeat("\x00", 900),
		"a NUL inside":       strings.Replace(text, "scrypt", "scr\x00ypt", 1),
		"invalid UTF-8":      strings.Replace(text, "scrypt", "scrypt\xff", 1),
		"invalid UTF-8 name": strings.Replace(text, `"kdf"`, "\"kdf\xc0\"", 1),
		"comment":            text + " // mine",
		"64 KiB of [":        strings.Repeat("[", keystore.MaxSize),
		"64 KiB of objects":  strings.Repeat(`{"format":`, keystore.MaxSize/10),
		"65 KiB":             text + strings.Repeat(" ", keystore.MaxSize),
		"many fields":        "{" + strings.Repeat(`"kdf":{},`, 7000) + `"kdf":{}}`,
	} {
		t.Run(name, func(t *testing.T) { keytest.RequireRefused(t, []byte(doc)) })
	}
}

// The reader of JSON by itself, where the format above would hide it.
func TestJSONReader(t *testing.T) {
	for _, bad := range []string{"\"\xff\"", "", " ", "1 2", "{", "nul"} {
		t.Run(bad, func(t *testing.T) {
			var in strictjson.Reader
			in.Document([]byte(bad))
			require.Error(t, in.Err, "%q", bad)
		})
	}
	in := strictjson.Reader{Err: os.ErrClosed}
	require.Nil(t, in.Object([]byte("{}")))
	require.Nil(t, in.List([]byte("[]")))
	require.Empty(t, in.Text([]byte(`"x"`)))
	require.Zero(t, in.Number([]byte("1")))
	require.ErrorIs(t, in.Err, os.ErrClosed, "the first error stays")
}

// Every single flipped bit is seen, and none opens another key. Changes that the KDF would have to
// see meet a stand-in for scrypt, unless they leave its input alone; a sample meets scrypt itself
// below.
func TestEveryBitFlip(t *testing.T) {
	data, passphrase := keytest.Golden(t)
	ks := must.Get(keystore.Parse(data))(t)
	f := &keytest.KDF{}
	f.Remember(t, ks, passphrase)
	got := map[coded.Code]int{}
	for i := range data {
		for bit := range 8 {
			data[i] ^= 1 << bit
			k, err := openBytes(data, passphrase, f.Derive)
			require.Nil(t, k, "byte %d bit %d", i, bit)
			var e *coded.Error
			require.ErrorAs(t, err, &e, "byte %d bit %d opens", i, bit)
			got[e.As]++
			data[i] ^= 1 << bit
		}
	}
	require.Len(t, got, 2)
	require.Equal(t, 8*len(data), got[coded.KeystoreCorrupt]+got[coded.InvalidPassphrase])
	require.Greater(t, got[coded.InvalidPassphrase], 500, "the flips must also reach the cryptography")
	must.Get(openBytes(data, passphrase, f.Derive))(t)

	for _, at := range []string{"+Lcc", "IWVDmBI=", "oYP9", "iry+"} {
		i := bytes.Index(data, []byte(at)) + 1
		data[i] ^= 1
		_, err := openBytes(data, passphrase, keystore.Scrypt)
		keytest.RequireCode(t, err, coded.InvalidPassphrase)
		data[i] ^= 1
	}
}

func TestEveryTruncation(t *testing.T) {
	data, passphrase := keytest.Golden(t)
	none := func([]byte, []byte, uint64, uint64, uint64) ([]byte, error) {
		t.Error("a cut file reached the KDF")
		return make([]byte, keystore.KDFSize), nil
	}
	for n := range len(data) - 1 { // without the last line end it is whole
		keytest.RequireCode(t, must.Err(openBytes(data[:n], passphrase, none)), coded.KeystoreCorrupt)
	}
}

func openBytes(data, passphrase []byte, derive keystore.KDF) (*keystore.Keys, error) {
	ks, err := keystore.Parse(data)
	if err != nil {
		return nil, err
	}
	return ks.Decrypt(passphrase, derive)
}
