package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// isTerminal reports whether a stream of a command is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// assent makes sure that somebody wants what a command destroys.
type assent struct {
	yes bool
	in  *bufio.Scanner // of the answers
}

func (a *assent) addFlags(f *pflag.FlagSet) {
	f.BoolVarP(&a.yes, "yes", "y", false, "ask nothing; without a terminal it is refused to go on without this")
}

// possible refuses to go on if nobody can be asked. It comes before anything is
// asked of a daemon.
func (a *assent) possible(cmd *cobra.Command) error {
	if a.yes || isTerminal(cmd.InOrStdin()) {
		return nil
	}
	return usagef("%s asks before it destroys anything, and there is no terminal to ask at: give --yes", cmd.CommandPath())
}

// typed asks to type a word, unless --yes was given. It reports whether it was
// typed.
func (a *assent) typed(cmd *cobra.Command, question, word string) (bool, error) {
	if a.yes {
		return true, nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s, type %s: ", printable(question), printable(word))
	if a.in == nil {
		a.in = bufio.NewScanner(cmd.InOrStdin())
	}
	answer, err := readLine(cmd.Context(), a.in)
	return answer == word, err
}

// readLine reads a line, empty at the end of the input.
func readLine(ctx context.Context, in *bufio.Scanner) (string, error) {
	line := make(chan string, 1)
	go func() { // which a terminal may keep until the process ends
		in.Scan()
		line <- strings.TrimSpace(in.Text())
	}()
	select {
	case <-ctx.Done():
		return "", errInterrupted
	case s := <-line:
		return s, nil
	}
}

// widthOf is how many columns a terminal has.
func widthOf(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}
