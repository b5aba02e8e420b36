package cli

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/wallet"
	"x402-wallet/wallet/fleet"
	"x402-wallet/x402"
)

// enrolling is agents enroll.
type enrolling struct {
	agent, team, until string
	labels             []string
	url, passwordFile  string
	signer, out        string
	keystore           string
}

// agentsEnrollCommand makes an enrolment, and the join.json of the machines that pay by it. More may spend
// then, so it takes the owner's key.
func (p *Program) agentsEnrollCommand(ui *ui) *cobra.Command {
	var e enrolling
	cmd := ui.loosens(&cobra.Command{
		Use: "enroll NAME", Short: "Let an agent, or a pattern of names, pay as a part of a team of a fleet",
		Args: wants("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.agent = args[0]
			return p.enroll(cmd.Context(), ui, e)
		},
	})
	cmd.Flags().StringVar(&e.team, "team", "", "the `TEAM` that it is in")
	cmd.Flags().StringVar(&e.until, "until", "", "the `DATE` up to which it may pay")
	cmd.Flags().StringArrayVar(&e.labels, "label", nil, "`NAME=VALUE` in your books; once for each")
	cmd.Flags().StringVar(&e.url, "url", "", "the ledger's `URL` for this agent's login; without it, yours")
	cmd.Flags().StringVar(&e.passwordFile, "password-file", "", "the `FILE` on its machine with the "+
		"password of that login")
	cmd.Flags().StringVar(&e.signer, "signer", "", "the `ADDRESS` of what signs for it: unix:/path or "+
		"https://host:port")
	cmd.Flags().StringVar(&e.out, "out", "", "write join.json to this `FILE`")
	cmd.Flags().StringVar(
		&e.keystore,
		"keystore",
		"",
		"write the keystore for its machine, without the owner's key, to "+
			"this `FILE`; the passphrase is the same",
	)
	return cmd
}

// keystoreFor writes the keystore of the agent's machine.
func (e enrolling) keystoreFor(ctx context.Context) func(*wallet.Wallet, wallet.Passphrase) error {
	if e.keystore == "" {
		return nil
	}
	return func(keys *wallet.Wallet, typed wallet.Passphrase) error {
		data, err := keys.WithoutOwnerKey(ctx, typed)
		if err != nil {
			return err
		}
		return writeTo(e.keystore, func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		})
	}
}

// check reads what was given, before anybody is asked for anything.
func (e enrolling) check() (labels map[string]string, until time.Time, err error) {
	switch {
	case !fleet.IsName(e.agent) && !fleet.IsPattern(e.agent):
		return nil, until, usagef("%q is neither an agent's name (1 to 40 of a-z, 0-9, - and _, beginning "+
			"with a letter) nor a pattern like research-*", e.agent)
	case !fleet.IsName(e.team):
		return nil, until, usagef("--team NAME says which team it is in")
	case e.signer != "" && !fleet.IsSigner(e.signer):
		return nil, until, usagef("--signer %q is neither unix:/path nor https://host:port", e.signer)
	case e.until == "":
		return nil, until, usagef("--until DATE says up to when it may pay")
	}
	for _, given := range e.labels {
		name, value, ok := strings.Cut(given, "=")
		if _, twice := labels[name]; !ok || twice {
			return nil, until, usagef("--label %s is not like env=prod, or is there twice", given)
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[name] = value
	}
	until, err = dateOf("until", e.until)
	return labels, until, err
}

func (p *Program) enroll(ctx context.Context, ui *ui, e enrolling) error {
	labels, until, err := e.check()
	if err != nil {
		return err
	}
	f, err := p.openFleet(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if f.last.Version == 0 {
		return x402.Errorf(x402.PolicyUnsealed, "no rules were sealed for this fleet yet").
			WithHint("first: x402-wallet policy seal --fleet").
			WithCommand(x402.Command("policy", "seal", "--fleet"), "")
	}
	if e.url == "" {
		e.url = f.rules.Ledger.URL
	}
	now := time.Now()
	made := fleet.Anchor{Ledger: f.ledger}.NewEnrolment(fleet.Key{}, e.agent, e.team, labels, now, until)
	if err := made.Check(); err != nil {
		return x402.Errorf(x402.InvalidArgument, "this cannot be enrolled: %w", err)
	}
	rules, err := f.last.Rules()
	if err != nil {
		return err
	}
	if _, has := rules.Budget.Teams[e.team]; !has {
		return x402.Errorf(x402.InvalidArgument, "the rules of this fleet have no team %s",
			x402.Quote(e.team)).
			WithHint("name it in config.toml, [budget.teams.%s] with agents = [%q], and sign that: "+
				"x402-wallet policy seal --fleet", e.team, e.agent)
	}
	join := fleet.Join{Format: made.Format, Labels: labels, Signer: e.signer,
		Ledger: fleet.JoinLedger{URL: e.url, ID: f.ledger, RootCert: f.rules.Ledger.RootCert,
			PasswordFile: e.passwordFile}}
	if err := join.Ledger.Check(); err != nil {
		return x402.Errorf(x402.InvalidArgument, "no join.json can be made: %w", err).
			WithHint("--url URL names the ledger, without a password, as this agent logs in to it")
	}
	if fleet.IsName(e.agent) {
		join.Agent = e.agent
	}
	lines := []string{"agents: " + e.agent, "in the team: " + e.team,
		"until: " + moment(until.Format(time.RFC3339)) + " UTC"}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		lines = append(lines, "label: "+name+"="+safe(labels[name]))
	}
	for _, line := range lines {
		ui.note("  %s", line)
	}
	key, a, err := p.ownerKey(ctx, ui, f, loosening{prompt: "Passphrase, to enrol this agent: ",
		title: "Enrol an agent into the fleet " + f.ledger, lines: lines}, false, e.keystoreFor(ctx))
	if err != nil {
		return err
	}
	defer key.Close()
	made.By, join.Owner = a.Owner, a.Owner
	join.Enrolment, err = made.Sign(key)
	if err != nil {
		return err
	}
	if _, err := a.VerifyEnrolment(join.Enrolment, f.last, nil, now); err != nil { // as every machine will
		return err
	}
	join.Seal, err = key.Seal(fleet.PurposeAnchor, a.Bytes())
	if err != nil {
		return err
	}
	return ui.enrolled(join, made, e.out)
}

// enrolled prints join.json, or writes it and says so.
func (u *ui) enrolled(join fleet.Join, e fleet.Enrolment, file string) error {
	text, err := join.Encode()
	if err != nil {
		return err
	}
	write := func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}
	if file == "" {
		return write(u.out)
	}
	if err := writeTo(file, write); err != nil {
		return err
	}
	out := map[string]string{"agent": e.Agent, "team": e.Team, "until": e.Until.Format(time.RFC3339),
		"number": e.Number, "file": file}
	return u.answerLine(out, "done: %s is enrolled until %s UTC; its machine joins by %s", e.Agent,
		moment(out["until"]), safe(file))
}

// encodeTo writes JSON, indented.
func encodeTo(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
