// Package logging stands in for github.com/streamingfast/logging, which solana-go registers its tracing with.
// The original compiles the environment variable TRACE as a regular expression before main, and panics if it
// is none: a wallet must start whatever other programs' variables say. Here nothing is traced.
package logging

import "go.uber.org/zap"

// Tracer says whether a package traces.
type Tracer interface{ Enabled() bool }

type noTracer struct{}

func (noTracer) Enabled() bool { return false }

// PackageLogger gives a package a logger that writes nothing.
func PackageLogger(string, string) (*zap.Logger, Tracer) { return zap.NewNop(), noTracer{} }

// Register takes a logger that would be switched on by the environment, and leaves it as it is.
func Register(string, any) {}

// IsTraceEnabled reports whether a package traces: none does.
func IsTraceEnabled(string, string) bool { return false }
