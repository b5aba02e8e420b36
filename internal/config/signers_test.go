package config

import (
	"strings"
	"testing"
	"time"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

const (
	someEVM    = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
	someSolana = "FVen3X669xLzsi6N2V91DoiyzHzg1uAgqiT8jZ9nS96Z"
	commandOf  = "[signers.hsm]\nkind = \"command\"\nchain = \"evm\"\naddress = \"" + someEVM +
		"\"\ncommand = [\"/usr/bin/sign\"]\n"
)

func TestSigners(t *testing.T) {
	c := must.Get(Parse([]byte(commandOf + "timeout = \"2m\"\nenv = [\"PIN\"]\nsandbox = false\n" +
		"[signers.cloud]\nkind = \"aws-kms\"\nchain = \"solana\"\naddress = \"" + someSolana +
		"\"\nkey = \"alias/x402\"\nregion = \"eu-central-1\"\nsecret_file = \"/etc/x402/aws.json\"\n")))(t)
	isOff := false
	require.Equal(t, map[string]Signer{
		"hsm": {Kind: SignerCommand, Chain: "evm", Address: someEVM, Timeout: 2 * time.Minute,
			Command: []string{"/usr/bin/sign"}, Env: []string{"PIN"}, Sandbox: &isOff},
		"cloud": {Kind: SignerAWS, Chain: "solana", Address: someSolana, Timeout: 30 * time.Second,
			Key: "alias/x402", Region: "eu-central-1", SecretFile: "/etc/x402/aws.json"},
	}, c.Signers)
}

// What is missing, means nothing or is for nobody is refused, with what would be right.
func TestSignersThatAreWrong(t *testing.T) {
	service := func(more string) string {
		return "[signers.a]\nkind = \"turnkey\"\nchain = \"evm\"\naddress = \"" + someEVM +
			"\"\nkey = \"k\"\norganization = \"o\"\n" + more
	}
	for text, says := range map[string]string{
		strings.Replace(commandOf, `"command"`, `"hardware"`,
			1): `must be "command" or "aws-kms"`,
		strings.Replace(commandOf, `"evm"`, `"bitcoin"`, 1):                   `must be "evm" or "solana"`,
		strings.Replace(commandOf, someEVM, someSolana, 1):                    "not an EVM address",
		strings.Replace(commandOf, `"evm"`, `"solana"`, 1):                    "not a Solana address",
		strings.Replace(commandOf, "signers.hsm", "signers.keystore", 1):      "is not keystore",
		strings.Replace(commandOf, "signers.hsm", `signers."A B"`, 1):         "signer's name is",
		strings.Replace(commandOf, "/usr/bin/sign", "sign", 1):                "full path",
		strings.Replace(commandOf, `command = ["/usr/bin/sign"]`, "", 1):      "needs command",
		commandOf + "timeout = \"1h\"":                                        `a time from "1s" to "5m"`,
		commandOf + "env = [\"X402_WALLET_PASSPHRASE\"]":                      "the wallet's own",
		commandOf + "key = \"k\"":                                             "means nothing",
		commandOf + "url = \"https://a.example\"":                             "means nothing",
		commandOf + "secret_env = \"A\"":                                      "mean nothing",
		commandOf + strings.Replace(commandOf, "signers.hsm", "signers.b", 1): "one signs on a chain",
		service(""): "from one of",
		service("secret_file = \"/a\"\nsecret_env = \"B\""):                           "from one of",
		service("secret_file = \"a\""):                                                "full path",
		service("secret_file = \"/a\"\nsandbox = false"):                              "secret_command",
		service("secret_command = [\"a\"]"):                                           "full path",
		service("secret_env = \"A=secret\""):                                          "not the name of",
		service("secret_file = \"/a\"\nregion = \"r\""):                               "means nothing",
		service("secret_file = \"/a\"\ncommand = [\"/a\"]"):                           "are for kind",
		service("secret_file = \"/a\"\nurl = \"http://a.example\""):                   "http",
		service("secret_file = \"/a\"\nurl = \"https://u:p@a.example\""):              "are in secret_file",
		service("secret_file = \"/a\"\nurl = \"https://a.example/?key=1\""):           "are in secret_file",
		strings.Replace(service("secret_file = \"/a\""), `key = "k"`, `key = ""`, 1):  "needs key",
		strings.Replace(service("secret_file = \"/a\""), `"k"`, `"k\r\nX: y"`, 1):     "printable letters",
		strings.Replace(service("secret_file = \"/a\""), `organization = "o"`, "", 1): "needs organization",
	} {
		t.Run(says, func(t *testing.T) {
			require.ErrorContains(t, must.Err(Parse([]byte(text))), says, text)
		})
	}
}

// Who signs is the owner's to say: to add, change or take away a signer takes the passphrase.
func TestEveryChangeOfASignerLoosens(t *testing.T) {
	parse := func(text string) *Config {
		return must.Get(Parse([]byte(text)))(t)
	}
	with, without := parse(commandOf), parse("")
	for name, pair := range map[string][2]*Config{"added": {without, with}, "taken away": {with, without},
		"faster":          {with, parse(commandOf + "timeout = \"1s\"")},
		"another program": {with, parse(strings.Replace(commandOf, "/usr/bin/sign", "/tmp/sign", 1))}} {
		t.Run(name, func(t *testing.T) {
			changes := Compare(pair[0], pair[1])
			require.Len(t, changes, 1)
			require.Equal(t, "signers", changes[0].Key)
			require.True(t, changes[0].Loosens)
		})
	}
	require.Empty(t, Compare(with, parse(commandOf)))
}
