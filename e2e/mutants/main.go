// mutants breaks one invariant of the money after the other in a copy of the sources and runs the
// tests that should notice. Each must turn a test red: what survives is an invariant that no test holds.
//
//	go run ./e2e/mutants [-only TEXT]
//
// The mutants are in mutants.txt: a line "## the invariant", a line "file: … test: …", then the
// original text and its replacement, separated by a line "=>"; blank lines end them.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed mutants.txt
var list string

type mutant struct{ name, file, test, from, to string }

func main() {
	only := flag.String("only", "", "run only those whose name contains this")
	flag.Parse()
	if err := run(*only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(only string) error {
	mutants, err := parse(list)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := copySources(dir); err != nil {
		return err
	}
	killed, tried := 0, 0
	for _, m := range mutants {
		if !strings.Contains(m.name, only) {
			continue
		}
		tried++
		verdict, took := m.try(dir)
		fmt.Printf("%-9s %5.1f s  %s\n", verdict, took.Seconds(), m.name)
		if verdict == "killed" {
			killed++
		}
	}
	fmt.Printf("%d of %d killed\n", killed, tried)
	if killed < tried {
		return fmt.Errorf("%d survived", tried-killed)
	}
	return nil
}

func parse(text string) (all []mutant, err error) {
	for _, part := range strings.Split("\n"+text, "\n## ")[1:] { // what is before the first is for readers
		lines := strings.SplitN(part, "\n", 3)
		if len(lines) < 3 {
			return nil, fmt.Errorf("mutants.txt: %q has no text", lines[0])
		}
		m := mutant{name: lines[0]}
		rest, ok := strings.CutPrefix(lines[1], "file: ")
		m.file, m.test, _ = strings.Cut(rest, " test: ")
		from, to, separated := strings.Cut(lines[2]+"\n", "\n=>\n")
		m.from, m.to = strings.Trim(from, "\n"), strings.Trim(to, "\n")
		if !ok || !separated || m.test == "" {
			return nil, fmt.Errorf("mutants.txt: %q is not written as it should be", m.name)
		}
		all = append(all, m)
	}
	return all, nil
}

func copySources(dir string) error {
	files, err := exec.Command("git", "ls-files", ".", ":!docs").Output()
	if err != nil {
		return err
	}
	for file := range strings.Lines(string(files)) {
		file = strings.TrimSpace(file)
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// try plants the fault, runs the tests, and takes it out again.
func (m mutant) try(dir string) (verdict string, took time.Duration) {
	path := filepath.Join(dir, m.file)
	original, err := os.ReadFile(path)
	if err != nil || strings.Count(string(original), m.from) != 1 {
		return "misplaced", 0 // the code has moved on: so must the mutant
	}
	defer os.WriteFile(path, original, 0o600)
	if err := os.WriteFile(path, []byte(strings.Replace(string(original), m.from, m.to, 1)),
		0o600); err != nil {
		return "misplaced", 0
	}
	begin := time.Now()
	// The first test that fails is enough. Under the user's GOFLAGS=-trimpath what is not changed
	// is compiled once for all mutants.
	test := exec.Command("go", append([]string{"test", "-count=1", "-short", "-failfast", "-vet=off",
		"-timeout", "10m"}, strings.Fields(m.test)...)...)
	test.Dir = dir
	out, err := test.CombinedOutput()
	switch {
	case err == nil:
		verdict = "SURVIVED"
	case strings.Contains(string(out), "[build failed]"):
		fmt.Fprintf(os.Stderr, "%s\n", out)
		verdict = "no build"
	case strings.Contains(string(out), "panic: test timed out"):
		verdict = "no end" // the machine may have been slow: it says nothing
	default:
		verdict = "killed"
	}
	return verdict, time.Since(begin)
}
