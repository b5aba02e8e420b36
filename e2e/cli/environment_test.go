package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The variables that other programs read from the environment keep the wallet from nothing: a library that
// it is built with took TRACE for a regular expression, and panicked before main.
func TestStarts_WhateverOtherProgramsVariablesSay(t *testing.T) {
	for _, variable := range []string{"TRACE=(", "TRACE=*,foo", "DEBUG=*", "DLOG=(", "ZAP_PRETTY=("} {
		out, problems := runs(t, 0, []string{variable, "X402_WALLET_HOME=" + t.TempDir()}, "version")
		require.Contains(t, out, "platform", variable)
		require.Empty(t, problems, variable)
	}
}
