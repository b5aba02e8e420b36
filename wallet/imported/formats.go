package imported

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"golang.org/x/crypto/scrypt"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/strictjson"
)

// importReader reads the file of another wallet.
type importReader struct{ strictjson.Reader }

// hex reads from least to most bytes in hexadecimal digits.
func (in *importReader) hex(raw json.RawMessage, least, most int) []byte {
	text := in.Text(raw)
	if in.Err != nil {
		return nil
	}
	out, err := hex.DecodeString(text)
	if err != nil || len(out) < least || len(out) > most {
		in.Fail("a value is not hexadecimal of %d to %d bytes", least, most)
	}
	return out
}

// gethFile is a Web3 Secret Storage file, version 3.
type gethFile struct {
	address             string // without 0x; "" where it names none
	ciphertext, iv, mac []byte
	salt                []byte
	n, r, p             uint64 // scrypt
	rounds              uint64 // PBKDF2-HMAC-SHA-256; 0 where it is scrypt
}

// parseGeth reads the file strictly. Fields of other programs that say nothing
// about the key (ethers' mnemonic above all) are passed over.
func parseGeth(data []byte) (f gethFile, err error) {
	var in importReader
	in.Document(data)
	others := []string{"crypto", "Crypto", "address", "id", "name", "meta", "x-ethers"}
	top := in.ObjectWith(data, others, "version")
	if v := in.Number(top["version"]); in.Err == nil && v != 3 {
		return f, fmt.Errorf("it has version %d", v)
	}
	if address, ok := top["address"]; ok {
		f.address = strings.TrimPrefix(in.Text(address), "0x")
	}
	section, small := top["crypto"]
	if other, large := top["Crypto"]; large && !small {
		section = other // older programs
	} else if in.Err == nil && small == large {
		return f, errors.New("it must have one section crypto")
	}
	crypto := in.Object(section, "cipher", "ciphertext", "cipherparams", "kdf", "kdfparams", "mac")
	in.Constant(crypto["cipher"], "aes-128-ctr")
	f.ciphertext = in.hex(crypto["ciphertext"], guarded.Size, guarded.Size)
	f.iv = in.hex(in.Object(crypto["cipherparams"], "iv")["iv"], aes.BlockSize, aes.BlockSize)
	f.mac = in.hex(crypto["mac"], sha256.Size, sha256.Size)
	in.gethKDF(in.Text(crypto["kdf"]), crypto["kdfparams"], &f)
	return f, in.Err
}

func (in *importReader) gethKDF(name string, raw json.RawMessage, f *gethFile) {
	var params map[string]json.RawMessage
	switch {
	case in.Err != nil:
		return
	case name == "scrypt":
		params = in.Object(raw, "n", "r", "p", "dklen", "salt")
		f.n, f.r, f.p = in.Number(params["n"]), in.Number(params["r"]), in.Number(params["p"])
		if in.Err == nil {
			in.Err = checkImportedScrypt(f.n, f.r, f.p)
		}
	case name == "pbkdf2":
		params = in.Object(raw, "c", "prf", "dklen", "salt")
		in.Constant(params["prf"], "hmac-sha256")
		f.rounds = in.Number(params["c"])
		if f.rounds < 1 || f.rounds > importMaxRounds {
			in.Fail("pbkdf2 c is %d, it must be 1 to %d", f.rounds, importMaxRounds)
		}
	default:
		in.Fail("its kdf is neither scrypt nor pbkdf2")
		return
	}
	if size := in.Number(params["dklen"]); in.Err == nil && size != 32 {
		in.Fail("dklen is %d, it must be 32", size)
	}
	f.salt = in.hex(params["salt"], 1, importMaxSalt)
}

// decrypt returns the 32 bytes of the key, or codeInvalidPassphrase.
func (f gethFile) decrypt(passphrase []byte) ([]byte, error) {
	var derived []byte
	var err error
	if f.rounds > 0 {
		// it takes a string: a copy that is not wiped
		derived, err = pbkdf2.Key(sha256.New, string(passphrase), f.salt, int(f.rounds), 32)
	} else {
		defer debug.FreeOSMemory()
		derived, err = scrypt.Key(passphrase, f.salt, int(f.n), int(f.r), int(f.p), 32)
	}
	if err != nil {
		return nil, err
	}
	defer clear(derived)
	authentic := append(append([]byte{}, derived[16:]...), f.ciphertext...)
	defer clear(authentic)
	if !hmac.Equal(curve.Keccak256(authentic), f.mac) {
		return nil, coded.InvalidPassphrase
	}
	block, err := aes.NewCipher(derived[:16])
	if err != nil {
		return nil, err
	}
	secret := make([]byte, len(f.ciphertext))
	cipher.NewCTR(block, f.iv).XORKeyStream(secret, f.ciphertext)
	return secret, nil
}

// The sizes in a file of the ozskr wallet.
const (
	ozskrSalt, ozskrNonce, ozskrTag = 32, 12, 16
	ozskrKey                        = 32
)

// ozskrFile is the ozskr wallet's keystore: AES-256-GCM under scrypt, no additional data.
type ozskrFile struct {
	salt, nonce, sealed []byte      // sealed is ciphertext ‖ tag
	costs               [][3]uint64 // n, r, p, to be tried in this order
}

func parseOzskr(data []byte) (f ozskrFile, err error) {
	var in importReader
	in.Document(data)
	top := in.ObjectWith(data, []string{"scryptParams"}, "version", "salt", "iv", "ciphertext", "authTag")
	version, params := in.Number(top["version"]), top["scryptParams"]
	switch {
	case in.Err != nil:
	case version == 1 && params == nil:
		// It does not say its cost: the SDK wrote 2^14 and, for production, 2^20.
		f.costs = [][3]uint64{{1 << 14, 8, 1}, {1 << 20, 8, 1}}
	case version == 2 && params != nil:
		scrypt := in.Object(params, "N", "r", "p", "keyLen")
		n, r, p := in.Number(scrypt["N"]), in.Number(scrypt["r"]), in.Number(scrypt["p"])
		if size := in.Number(scrypt["keyLen"]); in.Err == nil && size != ozskrKey {
			in.Fail("keyLen is %d, it must be %d", size, ozskrKey)
		}
		if in.Err == nil {
			in.Err = checkImportedScrypt(n, r, p)
		}
		f.costs = [][3]uint64{{n, r, p}}
	default:
		in.Fail("version %d is neither 1 without nor 2 with scryptParams", version)
	}
	f.salt = in.Binary(top["salt"], ozskrSalt)
	f.nonce = in.Binary(top["iv"], ozskrNonce)
	f.sealed = append(in.Binary(top["ciphertext"], ed25519.PrivateKeySize),
		in.Binary(top["authTag"], ozskrTag)...)
	return f, in.Err
}

// decrypt returns seed ‖ public key, or codeInvalidPassphrase.
func (f ozskrFile) decrypt(passphrase []byte) ([]byte, error) {
	defer debug.FreeOSMemory()
	for _, cost := range f.costs {
		derived, err := scrypt.Key(passphrase, f.salt, int(cost[0]), int(cost[1]), int(cost[2]), ozskrKey)
		if err != nil {
			return nil, err
		}
		aead, err := ozskrGCM(derived)
		clear(derived)
		if err != nil {
			return nil, err
		}
		if pair, err := aead.Open(nil, f.nonce, f.sealed, nil); err == nil {
			return pair, nil
		}
	}
	return nil, coded.InvalidPassphrase
}

func ozskrGCM(derived []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
