package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/rpc"
)

// usageError is a command line that can not be understood.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// errInterrupted ends a command that a signal has cut short.
var errInterrupted = errors.New("interrupted")

// unreachable says why there is no connection to a daemon: it was asked
// nothing.
type unreachable struct {
	server string
	cause  error
}

func (e unreachable) Error() string { return fmt.Sprintf("cannot reach %s: %v", e.server, e.cause) }

// refusal is what a daemon answered instead of doing what it was asked, or
// what gRPC says if it did not answer.
type refusal struct {
	server string
	status *status.Status
}

func (e refusal) Error() string {
	reason := rpc.ReasonOf(e.status.Err())
	switch {
	case reason != "":
		return fmt.Sprintf("%s: %s", reason, e.status.Message())
	case e.status.Code() == codes.DeadlineExceeded:
		return fmt.Sprintf("no answer from %s in time", e.server)
	}
	return fmt.Sprintf("%s: %s", e.server, e.status.Message())
}

// report writes an error to the user, a line for each that was joined into it,
// and returns the exit code.
func report(w io.Writer, cmd *cobra.Command, err error) int {
	for _, e := range flatten(err) {
		fmt.Fprintln(w, "Error:", printable(abridged(rpc.Words(e))))
	}
	code := exitCode(err)
	if code == exitUsage {
		fmt.Fprintf(w, "Run '%s --help' for usage.\n", cmd.CommandPath())
	}
	return code
}

// longest is how many bytes of an error are shown: it may quote what was given.
const longest = 1000

func abridged(s string) string {
	if len(s) <= longest {
		return s
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(s[:longest], ""), len(s))
}

// flatten takes joined errors apart.
func flatten(err error) []error {
	var joined interface{ Unwrap() []error }
	switch e := err.(type) {
	case nil:
		return nil
	case usageError:
		return flatten(e.error)
	case interface{ Unwrap() []error }:
		joined = e
	default:
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, flatten(e)...)
	}
	return all
}

// flagError says what is wrong with a flag; of an unknown command that it is
// unknown, since its flags can only be unknown too.
func flagError(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasAvailableSubCommands() && len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	return usageError{err}
}

func unknownCommand(cmd *cobra.Command, name string) error {
	hint := ""
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		hint = fmt.Sprintf(", did you mean %s?", strings.Join(near, " or "))
	}
	return usagef("unknown command %q for %q%s", name, cmd.CommandPath(), hint)
}
