package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/tools/go/packages"
)

// check reads the whole program, dependencies and all, as each platform's compiler would, and says
// what that would reject. It generates no code: a tenth of what a build takes.
func check(ctx context.Context, list []target) error {
	var all []error
	for _, t := range list {
		loaded, err := packages.Load(&packages.Config{
			Context: ctx, Mode: packages.LoadAllSyntax,
			Env: append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch),
		}, "x402-wallet")
		if err != nil {
			return err
		}
		packages.Visit(loaded, nil, func(p *packages.Package) {
			for _, e := range p.Errors {
				all = append(all, fmt.Errorf("%s: %w", t, e))
			}
		})
		fmt.Println(t)
	}
	return errors.Join(all...)
}
