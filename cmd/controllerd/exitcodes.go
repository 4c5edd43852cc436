package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
)

// Exit codes of every command.
const (
	exitOK         = 0
	exitFailed     = 1
	exitUsage      = 2
	exitAway       = 3
	exitUnfinished = 4
	exitWarn       = 5
	exitBad        = 6
)

// exitCodes is the table of docs/COMMANDS.md.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "done"},
	{exitFailed, "refused, failed or interrupted"},
	{exitUsage, "wrong usage: unknown command or flag, bad argument or configuration, nobody there to confirm; nothing was asked"},
	{exitAway, "no daemon (for debug and recover: no etcd) was reached, none is active, or no answer came in time"},
	{exitUnfinished, "done, but what --wait waits for has not come true in time"},
	{exitWarn, "doctor: something deserves a look"},
	{exitBad, "doctor: something is bad"},
}

// exitCodeTable is that table as text.
func exitCodeTable() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, row := range exitCodes {
		fmt.Fprintf(&b, "  %d  %s\n", row.code, row.meaning)
	}
	return b.String()
}

// newExitCodes is a topic of the help, no command.
func newExitCodes() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes of all commands mean", Long: strings.TrimSpace(exitCodeTable())}
}

// exitCode is the code that goes with an error: of several that are joined the
// worst.
func exitCode(err error) int {
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	found := map[int]bool{}
	for _, e := range flatten(err) {
		found[codeOf(e)] = true
	}
	for _, code := range []int{exitFailed, exitAway, exitUnfinished, exitBad, exitWarn} {
		if found[code] {
			return code
		}
	}
	return exitOK
}

// codeOf is the code of a single error.
func codeOf(err error) int {
	var refused refusal
	var judged verdict
	switch {
	case errors.As(err, &judged):
		return judged.code()
	case errors.As(err, new(unfinished)):
		return exitUnfinished
	case errors.As(err, new(unreachable)), errors.As(err, new(noAnswer)):
		return exitAway
	case errors.As(err, &refused):
		if slices.Contains([]codes.Code{codes.Unavailable, codes.DeadlineExceeded}, refused.status.Code()) {
			return exitAway
		}
	}
	return exitFailed
}
