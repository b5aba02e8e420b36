package attest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Statement says where files come from: an in-toto Statement v1 with SLSA's provenance v1
// (https://slsa.dev/spec/v1.1/provenance). It is believed because SHA256SUMS covers it, which is
// signed. It carries no time, so that the same commit has the same one.
type Statement struct {
	Type          string     `json:"_type"`
	Subject       []Resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     Provenance `json:"predicate"`
}

// Resource is a file, or what a file was made of.
type Resource struct {
	Name        string            `json:"name"`
	Digest      map[string]string `json:"digest,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Provenance is how the subjects were made.
type Provenance struct {
	BuildDefinition Definition `json:"buildDefinition"`
	RunDetails      Run        `json:"runDetails"`
}

// Definition is what was asked for and what it was made of. Whoever runs the same commit with the
// same parameters and the same Go gets the same bytes.
type Definition struct {
	BuildType    string            `json:"buildType"`
	Parameters   map[string]string `json:"externalParameters"` // of `make release`
	Internal     map[string]string `json:"internalParameters"` // flags and environment of go build
	Dependencies []Resource        `json:"resolvedDependencies"`
}

// Run is who did it.
type Run struct {
	Builder struct {
		ID string `json:"id"`
	} `json:"builder"`
}

// The names that the statement goes by. The builder is the machine of a person who ran `make release`:
// SLSA Build level 1. No service vouches for it; that the build can be repeated does.
const (
	statementType  = "https://in-toto.io/Statement/v1"
	provenanceType = "https://slsa.dev/provenance/v1"
	buildType      = "urn:x402-wallet:make-release:v1"
	builderID      = "urn:x402-wallet:builder:maintainer-machine"
	sourceName     = "source"
	commitDigest   = "gitCommit"
)

// NewStatement is a statement about files that were made from a commit.
func NewStatement(files Sums, commit string, parameters, flags map[string]string,
	others ...Resource) Statement {
	s := Statement{Type: statementType, PredicateType: provenanceType, Subject: []Resource{}}
	for _, name := range files.names() {
		s.Subject = append(s.Subject, Resource{Name: name, Digest: map[string]string{"sha256": files[name]}})
	}
	source := Resource{Name: sourceName, Digest: map[string]string{commitDigest: commit}}
	s.Predicate.BuildDefinition = Definition{BuildType: buildType, Parameters: parameters, Internal: flags,
		Dependencies: append([]Resource{source}, others...)}
	s.Predicate.RunDetails.Builder.ID = builderID
	return s
}

// commit is the one that the subjects were made from; "" if it says none, or several.
func (s Statement) commit() (commit string) {
	for _, d := range s.Predicate.BuildDefinition.Dependencies {
		if d.Name != sourceName {
			continue
		}
		if commit != "" {
			return ""
		}
		commit = d.Digest[commitDigest]
	}
	return commit
}

var errStatement = errors.New("it is not the provenance of these files")

// readStatement reads the statement of files, the subjects of which must be exactly those.
func readStatement(text []byte, files Sums) (s Statement, err error) {
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	err = in.Decode(&s)
	if _, more := in.Token(); err != nil || more != io.EOF { //nolint:errorlint // as it is documented
		return s, errStatement
	}
	named := Sums{}
	for _, f := range s.Subject {
		named[f.Name] = f.Digest["sha256"]
	}
	def := s.Predicate.BuildDefinition
	if s.Type != statementType || s.PredicateType != provenanceType || def.BuildType != buildType ||
		s.commit() == "" || len(named) != len(s.Subject) || string(named.Text()) != string(files.Text()) {
		return s, errStatement
	}
	return s, nil
}
