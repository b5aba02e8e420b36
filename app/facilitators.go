package app

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/internal/child"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
)

// facilitators puts the configured services in their order, with their credentials. Secrets are read when
// they are needed, and programs are started as long as mayRun says nothing against it.
func (a *app) facilitators(rules *config.Config, list []config.Facilitator, client *http.Client,
	mayRun func(context.Context) error) *facilitator.Client {
	var made []facilitator.Facilitator
	for _, f := range list {
		entry := facilitator.Facilitator{Name: f.Name, URL: f.URL, Networks: f.Networks, Auth: f.Auth,
			Limits: facilitator.Limits{Assets: f.Assets, MinPrice: f.MinPrice, MaxPrice: f.MaxPrice}}
		switch {
		case len(f.Command) > 0:
			entry.Command = &facilitator.Command{Argv: f.Command, Env: environ.Child(f.Env...),
				Sandbox: a.sandbox(f.Sandbox, rules), MayRun: mayRun}
		case f.Auth == "cdp":
			entry.KeyID, entry.Secret = a.env.CDPKeyID, secret(a.env.CDPKeySecret)
		case f.Auth == "payai":
			entry.KeyID, entry.Secret = a.env.PayAIKeyID, secret(a.env.PayAIKeySecret)
		case len(f.HeaderCommand) > 0:
			program := child.Program{Argv: f.HeaderCommand, Env: environ.Child(),
				Sandbox: a.sandbox(f.Sandbox, rules)}
			entry.Secret, entry.SecretLife = headerFrom(program, mayRun), headerLife
		case f.Auth == "header":
			entry.Secret = func() (string, error) {
				line, err := config.ReadSecretFile(f.HeaderFile)
				return line.Reveal(), err
			}
		}
		made = append(made, entry)
	}
	return facilitator.New(facilitator.Options{HTTP: client, List: made, Log: a.log,
		Directories: rules.Discovery.Directories, Hosted: rules.Policy.KnownFacilitators,
		Observe: a.parties.Facilitator})
}

func secret(s config.Secret) func() (string, error) {
	return func() (string, error) { return s.Reveal(), nil }
}

const (
	// headerLife is how long what a program printed is used: tokens of services live for minutes.
	headerLife = 30 * time.Second
	// headerProgramTime is how long it may take: within what a facilitator has to say what it supports.
	headerProgramTime = 4 * time.Second
	maxHeaderLine     = 16 << 10
)

// headerFrom runs the program of header_command. What it says when it fails might repeat the secret, and is
// dropped.
func headerFrom(program child.Program, mayRun func(context.Context) error) func() (string, error) {
	return func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), headerProgramTime)
		defer cancel()
		if mayRun != nil {
			if err := mayRun(ctx); err != nil {
				return "", err
			}
		}
		line, _, err := program.Ask(ctx, nil, child.Limits{Time: headerProgramTime, Answer: maxHeaderLine})
		if err != nil {
			return "", fmt.Errorf("%s: %w", program.Argv[0], err)
		}
		return strings.TrimSpace(string(line)), nil
	}
}
