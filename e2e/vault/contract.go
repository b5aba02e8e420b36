package vault

import (
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
)

// Build is what the vault's source compiles to (e2e/lab/contracts/compile.mjs).
type Build struct {
	Compiler string
	Settings struct {
		EvmVersion string
		Metadata   struct{ BytecodeHash string }
	}
	Methods    map[string]string
	Immutables map[string][]int // where the runtime code has zeros for them, 32 bytes each
	Bytecode   hexutil.Bytes
	Runtime    hexutil.Bytes
}

// Committed is the way from the root of the project to the build that the wallet deploys.
const Committed = "chain/evm/vault/AgentVault.json"

// ReadBuild reads the committed build. root is the way to the project.
func ReadBuild(root string) (Build, error) {
	var b Build
	return b, readJSON(filepath.Join(root, Committed), &b)
}

func CompileAll(lab string, sources []string) (all []Build, err error) {
	list, err := json.Marshal(sources)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("node", filepath.Join(lab, "contracts/compile.mjs"), "vaults")
	cmd.Stdin = strings.NewReader(string(list))
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return nil, fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(out, &all)
}

// Rule is an allowance, as allow() and the constructor take it.
type Rule struct {
	Agent                                    common.Address
	PerPeriod, Period, PerPayment, MaxWindow *big.Int
}

func (r Rule) words() []any { return []any{r.Agent, r.PerPeriod, r.Period, r.PerPayment, r.MaxWindow} }

// Allow is the call of that name.
func (r Rule) Allow() []byte {
	return Data("allow(address,uint256,uint256,uint256,uint256)", r.words()...)
}

// deployer makes contracts by CREATE2, of salt ‖ creation code; it is at this address on anvil as
// on public chains.
var deployer = common.HexToAddress("0x4e59b44847b379578588920cA78FbF26c0B4956C")

// Create is the call that makes a vault, by anybody, and the address that it will have.
func (b Build) Create(from, owner, token common.Address, r Rule) (Call, common.Address) {
	code := append(append([]byte{}, b.Bytecode...), Words(append([]any{owner, token}, r.words()...)...)...)
	at := crypto.CreateAddress2(deployer, [32]byte{}, crypto.Keccak256(code))
	return Call{From: from, To: &deployer, Data: append(make([]byte, 32), code...)}, at
}

// Cheque is an EIP-3009 authorization of a vault.
type Cheque struct {
	To                             common.Address
	Value, ValidAfter, ValidBefore *big.Int
	Nonce                          [32]byte
}

const transferType = "TransferWithAuthorization(address from,address to,uint256 value,uint256 " +
	"validAfter,uint256 validBefore,bytes32 nonce)"

func (c Cheque) Digest(domain [32]byte, from common.Address) [32]byte {
	return Digest712(domain, transferType, Words(from, c.To, c.Value, c.ValidAfter, c.ValidBefore, c.Nonce))
}

// Digest712 is the EIP-712 digest of a message of that type, in words.
func Digest712(domain [32]byte, kind string, words []byte) [32]byte {
	message := crypto.Keccak256(crypto.Keccak256([]byte(kind)), words)
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain[:], message)
}

// Sign gives 65 bytes as tokens take them.
func Sign(digest [32]byte, key *ecdsa.PrivateKey) []byte {
	signature, err := crypto.Sign(digest[:], key)
	if err != nil {
		panic(err) // only for a digest of another length
	}
	signature[64] += 27
	return signature
}

// Wrap is what the vault takes as the signature: abi.encode(to, value, validAfter, validBefore,
// nonce, bytes).
func (c Cheque) Wrap(signature []byte) []byte {
	return Words(c.To, c.Value, c.ValidAfter, c.ValidBefore, c.Nonce, 6*32, signature)
}

// Cash is the data of the token's transferWithAuthorization with `bytes`.
func (c Cheque) Cash(from common.Address, signature []byte) []byte {
	return Data("transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)",
		from, c.To, c.Value, c.ValidAfter, c.ValidBefore, c.Nonce, 7*32, signature)
}

// IsValid is the data of the vault's isValidSignature.
func IsValid(digest [32]byte, signature []byte) []byte {
	return Data("isValidSignature(bytes32,bytes)", digest, 2*32, signature)
}

// Data is a call: the method's selector and its arguments.
func Data(method string, args ...any) []byte {
	return append(crypto.Keccak256([]byte(method))[:4:4], Words(args...)...)
}

// Words writes values in ABI's words of 32 bytes. A slice is written with its length before it and
// zeros behind, and stands last.
func Words(values ...any) (out []byte) {
	for _, value := range values {
		switch value := value.(type) {
		case common.Address:
			out = append(out, common.LeftPadBytes(value[:], 32)...)
		case int:
			out = append(out, common.LeftPadBytes(big.NewInt(int64(value)).Bytes(), 32)...)
		case *big.Int:
			out = append(out, value.FillBytes(make([]byte, 32))...)
		case [32]byte:
			out = append(out, value[:]...)
		case []byte:
			out = append(out, Words(len(value))...)
			out = append(out, common.RightPadBytes(value, (len(value)+31)/32*32)...)
		default:
			panic(fmt.Sprintf("no word for %T", value))
		}
	}
	return out
}

func readJSON(file string, out any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}
