package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"strings"

	"x402-wallet/internal/config"
	"x402-wallet/x402"
)

// Join is join.json: what a machine joins a fleet by. It is the trust anchor, so it lies where the agent
// cannot write: whoever can exchange it chooses the owner.
type Join struct {
	Format int        `json:"format"` // 1
	Ledger JoinLedger `json:"ledger"`
	Owner  Key        `json:"owner"`
	// Agent is its name; "" where the enrolment is for a pattern and each machine has a name of its own.
	Agent     string            `json:"agent,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Signer    string            `json:"signer,omitempty"` // as IsSigner says; "": the keys are here
	Enrolment Signed            `json:"enrolment"`
	// Seal is that of the keystore that pays, over the anchor (PurposeAnchor); none where it has another than
	// the owner's, which its own owner ties to the fleet (policy seal).
	Seal []byte `json:"seal,omitempty"`
}

// JoinLedger is where the ledger is, and how its password is had. There is none in it.
type JoinLedger struct {
	URL             string   `json:"url"`
	ID              string   `json:"id"`
	RootCert        string   `json:"root_cert,omitempty"`
	PasswordFile    string   `json:"password_file,omitempty"`
	PasswordCommand []string `json:"password_command,omitempty"`
}

const maxSeal = 32 // bytes

// MaxJoin bounds a join.json: an enrolment of 16 KiB, and the rest.
const MaxJoin = 48 << 10

// Anchor is what the machine believes by its join.json.
func (j Join) Anchor() Anchor { return Anchor{Owner: j.Owner, Ledger: j.Ledger.ID} }

// ReadJoin reads a join.json that nobody but this user or root can have written, or put there. Errors:
// SETUP_FAILED. None repeats a value of the file.
func ReadJoin(path string) (Join, error) {
	data, err := config.ReadTrusted(path, MaxJoin)
	if err != nil {
		return Join{}, x402.Errorf(x402.SetupFailed, "join the fleet: %w", err)
	}
	return ParseJoin(data)
}

// ParseJoin reads a join.json. It refuses unknown members, and names in another letter case.
func ParseJoin(data []byte) (Join, error) {
	var j Join
	if err := x402.DecodeExact(data, MaxJoin, &j); err != nil {
		return Join{}, joinFault(errors.New(x402.AsError(err).Message))
	}
	if err := j.check(); err != nil {
		return Join{}, joinFault(err)
	}
	return j, nil
}

func joinFault(err error) error {
	return x402.Errorf(x402.SetupFailed, "join.json cannot be used: %w", err).
		WithHint("the owner makes another, on their own machine: x402-wallet agents enroll").
		WithCommand(x402.Command("help", "agents", "enroll"), "")
}

func (j Join) check() error {
	if j.Format != format {
		return fmt.Errorf("it is of format %d; this program reads format %d", j.Format, format)
	}
	if j.Owner == (Key{}) {
		return errors.New("it has no owner's key")
	}
	if err := j.Ledger.Check(); err != nil {
		return err
	}
	if j.Signer != "" && !IsSigner(j.Signer) {
		return errors.New("its signer is neither unix:/path nor https://host:port")
	}
	if len(j.Seal) > maxSeal {
		return errors.New("its seal is too long")
	}
	if err := checkLabels(j.Labels); err != nil {
		return err
	}
	e, err := j.Read()
	switch {
	case err != nil:
		return errors.New("its enrolment cannot be read")
	case e.Ledger != j.Ledger.ID:
		return errors.New("its enrolment is for another ledger")
	case e.By == j.Owner && !isSignedBy(j.Owner, j.Enrolment):
		return errors.New("its enrolment is not what its owner signed")
	case j.Agent != "" && !e.Covers(j.Agent):
		return errors.New("its enrolment is for another agent")
	case j.Agent == "" && !IsPattern(e.Agent):
		return errors.New("it has no agent, and its enrolment is for one")
	case !maps.Equal(e.Labels, j.Labels):
		return errors.New("its labels are not those of its enrolment")
	}
	return nil
}

// Check says what is wrong with where the ledger is.
func (l JoinLedger) Check() error {
	u, err := config.ParseLedgerURL(l.URL)
	if err != nil {
		return fmt.Errorf("its ledger's url %w", err)
	}
	for name, path := range map[string]string{"root_cert": l.RootCert, "password_file": l.PasswordFile} {
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("its %s is not a full path", name)
		}
	}
	switch {
	case l.RootCert != "" && u.Params.Has("sslrootcert"):
		return errors.New("it has root_cert, and sslrootcert in its ledger's url")
	case len(l.PasswordCommand) > 0 && !filepath.IsAbs(l.PasswordCommand[0]):
		return errors.New("its password_command does not begin with a full path")
	case len(l.PasswordCommand) > 0 && l.PasswordFile != "":
		return errors.New("it has password_file and password_command")
	}
	return checkText("ledger's id", l.ID, maxName)
}

// IsSigner reports whether a text says where a signer is: unix:/path or https://host:port.
func IsSigner(text string) bool {
	if path, found := strings.CutPrefix(text, "unix:"); found {
		return filepath.IsAbs(path) && checkText("path", path, maxName) == nil
	}
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && text == "https://"+u.Host
}

// Read is the enrolment as it is written; that it holds, VerifyEnrolment says. Of a Join that was read it is
// no error.
func (j Join) Read() (Enrolment, error) { return read[Enrolment](kindEnrolment, j.Enrolment.Statement) }

// Name is the agent's name: the file's, or for a pattern the one that the machine has.
func (j Join) Name(machine string) (string, error) {
	if j.Agent != "" {
		return j.Agent, nil
	}
	e, err := j.Read()
	if err != nil || !e.Covers(machine) {
		return "", joinFault(fmt.Errorf("this machine is called %s, and the enrolment is for %s",
			x402.Quote(machine), x402.Quote(e.Agent)))
	}
	return machine, nil
}

// Encode is the file's text.
func (j Join) Encode() ([]byte, error) {
	if err := j.check(); err != nil {
		return nil, joinFault(err)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(j)
	return out.Bytes(), err
}
