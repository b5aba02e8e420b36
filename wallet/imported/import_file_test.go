package imported

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/scrypt"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore/keytest"
	"x402-wallet/wallet/internal/wallettest"
	"x402-wallet/wallet/owner"
)

// The vectors of the Web3 Secret Storage definition; go-ethereum's own tests use them. ozskr's were
// written by its SDK 0.1.2-beta (testdata/ozskr-*.json).
const (
	gethScrypt = `{"crypto":{"cipher":"aes-128-ctr","cipherparams":{"iv":"83dbcc02d8ccb40e466191a123791e0e"},
		"ciphertext":"d172bf743a674da9cdad04534d56926ef8358534d458fffccd4e6ad2fbde479c","kdf":"scrypt",
		"kdfparams":{"dklen":32,"n":262144,"r":1,"p":8,
			"salt":"ab0c7876052600dd703518d6fc3fe8984592145b591fc8fb5c6d43190334ba19"},
		"mac":"2103ac29920d71da29f15d75b4a16dbe95cfd7ff8faea1056c33131d846e3097"},"id":"3198bc9c-6672-5ab3-d995-4942343ae5b6","version":3}`
	gethPBKDF2 = `{"crypto":{"cipher":"aes-128-ctr","cipherparams":{"iv":"6087dab2f9fdbbfaddc31a909735c1e6"},
		"ciphertext":"5318b4d5bcd28de64ee5559e671353e16f075ecae9f99c7a79a38af5f869aa46","kdf":"pbkdf2",
		"kdfparams":{"c":262144,"dklen":32,"prf":"hmac-sha256",
			"salt":"ae3cd4e7013836a3df6bd7241b12db061dbe2c6785853cce422d148a624ce0bd"},
		"mac":"517ead924a9d0dc3124507e3393d175ce3ff7c1e96529c6c555ce9e51205e9b2"},"id":"3198bc9c-6672-5ab3-d995-4942343ae5b6","version":3}`
	gethPassword = "testpassword"
	gethAddress  = "0x008AeEda4D805471dF9b2A5B0f38A0C3bCBA786b"
	gethSecret   = "7a28b5ba57c53603b0b07b56bba752f7784bf506fa95edc395f5cf6c7514fe9d"

	ozskrPassphrase = "correct horse battery staple"
	ozskrAddress    = "BxaS9UV5eMBeFdWJZSNs5KETNosCrVszF4kwzVq8PPRL"
	ozskrSecret     = "0f67707df0e986c73593702f21af9e6889bc733334f13c034ee2efedae14441a"
)

func TestImportEVM(t *testing.T) {
	for name, text := range map[string]string{
		"scrypt": gethScrypt, "pbkdf2": gethPBKDF2,
		"with its address": strings.Replace(gethPBKDF2, `"id"`,
			`"address":"008aeeda4d805471df9b2a5b0f38a0c3bcba786b","id"`, 1),
		"ethers'": strings.Replace(strings.Replace(gethPBKDF2, `"crypto"`, `"Crypto"`, 1), `"id"`,
			`"address":"0x008aeeda4d805471df9b2a5b0f38a0c3bcba786b","x-ethers":{"client":"ethers"},"id"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			path := keytest.KeyFile(t, text)
			imported := must.Get(importEVM(t.Context(), path, wallet.FromValue(gethPassword)))(t)
			require.Equal(t, gethAddress, imported.Address)
			require.Equal(t, keytest.Unhex(t, gethSecret), guarded.SecretOf(imported.PrivateKey)[:])
			require.Equal(t, text, string(must.Get(os.ReadFile(path))(t)), "the file is not changed")

			w := must.Get(owner.Create(t.Context(), keytest.Home(t), wallet.FromValue(keytest.Passphrase),
				owner.Options{N: 1 << 14,
					Import: []guarded.PrivateKey{imported.PrivateKey}}))(t)
			_, evm := w.Addresses()
			require.Equal(t, gethAddress, evm)
		})
	}
	_, err := importEVM(t.Context(), keytest.KeyFile(t, gethPBKDF2), wallet.FromValue(gethPassword+" "))
	keytest.RequireCode(t, err, coded.InvalidPassphrase)
	_, err = importEVM(t.Context(),
		keytest.KeyFile(t, strings.Replace(gethPBKDF2, `"id"`,
			`"address":"118aeeda4d805471df9b2a5b0f38a0c3bcba786b","id"`, 1)), wallet.FromValue(gethPassword))
	require.Contains(t, keytest.RequireCode(t, err, coded.SetupFailed).Error(),
		"does not belong to the address it names")
	_, err = importEVM(t.Context(), keytest.KeyFile(t, gethPBKDF2), wallet.FromValue(""))
	require.Contains(t, keytest.RequireCode(t, err, coded.SetupFailed).Hint(), "--import-passphrase-file")
}

func TestImportOzskr(t *testing.T) {
	for _, version := range []string{"1", "2"} {
		path := "testdata/ozskr-keystore-v" + version + ".json"
		text := must.Get(os.ReadFile(path))(t)
		imported := must.Get(importOzskr(t.Context(), keytest.KeyFile(t, string(text)),
			wallet.FromValue(ozskrPassphrase)))(t)
		require.Equal(t, ozskrAddress, imported.Address)
		require.Equal(t, keytest.Unhex(t, ozskrSecret), guarded.SecretOf(imported.PrivateKey)[:])
		w := must.Get(owner.Create(t.Context(), keytest.Home(t), wallet.FromValue(keytest.Passphrase),
			owner.Options{N: 1 << 14,
				Import: []guarded.PrivateKey{imported.PrivateKey}}))(t)
		solana, _ := w.Addresses()
		require.Equal(t, ozskrAddress, solana)

		if version == "2" { // a wrong one for version 1 costs 1 GiB
			keytest.RequireCode(t, must.Err(importOzskr(t.Context(), keytest.KeyFile(t, string(text)),
				wallet.FromValue(ozskrPassphrase+"."))), coded.InvalidPassphrase)
		}
	}
}

// Whatever is wrong with a file is said before its passphrase is asked for or memory is taken, and
// nothing of it is shown.
func TestImportedFilesAreReadStrictly(t *testing.T) {
	ozskr := must.Get(os.ReadFile("testdata/ozskr-keystore-v2.json"))(t)
	change := func(text, old, new string) string {
		require.Contains(t, text, old)
		return strings.Replace(text, old, new, 1)
	}
	type file struct{ evm, ozskr string }
	for name, f := range map[string]file{
		"n = 2^30": {change(gethScrypt, "262144", "1073741824"), change(string(ozskr), "16384",
			"1073741824")},
		"n = 2^63": {change(gethScrypt, "262144", "9223372036854775808"),
			change(string(ozskr), "16384", "9223372036854775808")},
		"n = 3":          {change(gethScrypt, "262144", "3"), change(string(ozskr), "16384", "3")},
		"n = 0":          {change(gethScrypt, "262144", "0"), change(string(ozskr), "16384", "0")},
		"n = -2":         {change(gethScrypt, "262144", "-2"), change(string(ozskr), "16384", "-2")},
		"n in exponents": {change(gethScrypt, "262144", "1e5"), change(string(ozskr), "16384", "1e5")},
		"r = 2^20": {change(gethScrypt, `"r":1`, `"r":1048576`), change(string(ozskr), `"r": 8`,
			`"r": 1048576`)},
		"r = 0": {change(gethScrypt, `"r":1`, `"r":0`), change(string(ozskr), `"r": 8`,
			`"r": 0`)},
		"p = 2^30": {change(gethScrypt, `"p":8`, `"p":1073741824`), change(string(ozskr), `"p": 1`,
			`"p": 1073741824`)},
		"memory above 1 GiB": {change(change(gethScrypt, "262144", "1048576"), `"r":1`, `"r":16`),
			change(change(string(ozskr), "16384", "1048576"), `"r": 8`, `"r": 16`)},
		"work above 2^25": {change(change(gethScrypt, "262144", "1048576"), `"r":1`, `"r":8`),
			change(change(string(ozskr), "16384", "1048576"), `"p": 1`, `"p": 16`)},
		"dklen": {change(gethScrypt, `"dklen":32`, `"dklen":64`),
			change(string(ozskr), `"keyLen": 32`, `"keyLen": 64`)},
		"version": {change(gethScrypt, `"version":3`, `"version":1`),
			change(string(ozskr), `"version": 2`, `"version": 3`)},
		"version 1, with n": {change(gethScrypt, `"version":3`, `"version":"3"`),
			change(string(ozskr), `"version": 2`, `"version": 1`)},
		"unknown field": {change(gethScrypt, `"version"`, `"Version":3,"version"`),
			change(string(ozskr), `"version"`, `"extra": 1, "version"`)},
		"twice": {change(gethScrypt, `"version"`, `"version":3,"version"`),
			change(string(ozskr), `"version"`, `"version": 2, "version"`)},
		"two sections": {change(gethScrypt, `"id"`, `"Crypto":{},"id"`),
			change(string(ozskr), `"salt"`, `"Salt"`)},
		"another cipher": {change(gethScrypt, "aes-128-ctr", "aes-128-cbc"),
			change(string(ozskr), `"iv": "`, `"iv": "AA`)},
		"another kdf": {change(gethScrypt, `"kdf":"scrypt"`, `"kdf":"argon2id"`),
			change(string(ozskr), `"salt": "`, `"salt": "AA`)},
		"c = 0":              {change(gethPBKDF2, "262144", "0"), "{}"},
		"c = 2^40":           {change(gethPBKDF2, "262144", "1099511627776"), "[]"},
		"another prf":        {change(gethPBKDF2, "hmac-sha256", "hmac-md5"), "null"},
		"a short ciphertext": {change(gethPBKDF2, "5318b4d5", ""), change(string(ozskr), "BLu9", "")},
		"a short mac":        {change(gethPBKDF2, "517ead92", ""), change(string(ozskr), "2tgj", "")},
		"no salt": {change(gethPBKDF2, `"salt":"ae`, `"salt":"z`),
			change(string(ozskr), `"salt": "f2Eu`, `"salt": "`)},
		"two documents": {gethPBKDF2 + gethPBKDF2, string(ozskr) + string(ozskr)},
		"a Solana key":  {asJSON(t, solanaJSON(t)), asJSON(t, solanaJSON(t))},
		"nothing":       {"", ""},
		"too large": {gethPBKDF2 + strings.Repeat(" ", maxImport),
			string(ozskr) + strings.Repeat(" ", maxImport)},
		"each other's format": {string(ozskr), gethScrypt},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			_, err := importEVM(t.Context(), keytest.KeyFile(t, f.evm), wallettest.Never(t))
			keytest.RequireCode(t, err, coded.SetupFailed)
			_, err = importOzskr(t.Context(), keytest.KeyFile(t, f.ozskr), wallettest.Never(t))
			keytest.RequireCode(t, err, coded.SetupFailed)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(5<<20))
			require.Less(t, time.Since(began), 5*time.Second)
		})
	}
}

// Every bit and every length of an imported file: an error, quickly, or the very key (a bit in what
// is not authenticated, such as the case of a hex digit or the id).
func TestImportedFilesBitByBit(t *testing.T) {
	light := `{"version":3,"id":"x","crypto":{"ciphertext":"%s","cipherparams":{"iv":"%s"},"cipher":"aes-128-ctr","kdf":"scrypt",` +
		`"kdfparams":{"dklen":32,"salt":"01020304","n":2,"r":8,"p":1},"mac":"%s"}}`
	f := gethFile{salt: []byte{1, 2, 3, 4}, n: 2, r: 8, p: 1, iv: make([]byte, 16),
		ciphertext: make([]byte, 32), mac: make([]byte, 32)}
	require.ErrorIs(t, must.Err(f.decrypt([]byte("p"))), coded.InvalidPassphrase)
	f.seal(t, []byte("p"), keytest.Unhex(t, gethSecret))
	whole := fmt.Appendf(nil, light, fmt.Sprintf("%x", f.ciphertext), fmt.Sprintf("%x", f.iv),
		fmt.Sprintf("%x", f.mac))
	require.True(t, json.Valid(whole))

	try := func(data []byte) {
		file, err := parseGeth(data)
		if err != nil || file.n > 1<<10 || file.p > 8 || file.r > 16 {
			// costs time, and opens no more than the others
			return
		}
		secret, err := file.decrypt([]byte("p"))
		if err != nil {
			require.ErrorIs(t, err, coded.InvalidPassphrase)
			return
		}
		// The format authenticates neither iv nor cost: another iv makes another key, which only
		// the address can tell.
		if bytes.Equal(file.iv, f.iv) {
			require.Equal(t, keytest.Unhex(t, gethSecret), secret)
		}
	}
	for i := range whole {
		try(whole[:i])
		for bit := range 8 {
			flipped := bytes.Clone(whole)
			flipped[i] ^= 1 << bit
			try(flipped)
		}
	}
}

// seal encrypts as go-ethereum does.
func (f *gethFile) seal(t *testing.T, passphrase, secret []byte) {
	derived := must.Get(scrypt.Key(passphrase, f.salt, int(f.n), int(f.r), int(f.p), 32))(t)
	block := must.Get(aes.NewCipher(derived[:16]))(t)
	cipher.NewCTR(block, f.iv).XORKeyStream(f.ciphertext, secret)
	f.mac = curve.Keccak256(append(derived[16:], f.ciphertext...))
}
