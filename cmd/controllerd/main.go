// Command controllerd runs the controller of a partitioned system on etcd, and
// talks to running ones.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals) // before anything stops: the next one ends the process at once
		cancel()
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs one command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	started := false
	root := newRoot()
	noteStart(root, &started)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	initCompletion(root)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !started { // cobra did not come as far as the command
		err = usageError{err}
	}
	return report(stderr, cmd, err)
}

// noteStart sets *started when any of the commands begins to run.
func noteStart(cmd *cobra.Command, started *bool) {
	if runE := cmd.RunE; runE != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return runE(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		noteStart(sub, started)
	}
}

func newRoot() *cobra.Command {
	root := newGroup("controllerd", "Kafka's controller as a service, on etcd",
		newServe(), newConfig(), newDev(), newTopic(), newElect(), newReassign(), newBroker(), newSettings(), newFreeze(true), newFreeze(false), newMetadata(), newController(), newEvents(), newMonitor(), newDoctor(time.Now), newDebug(), newRecover(), newVersion())
	root.Version = buildVersion().Version
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetHelpTemplate(root.HelpTemplate() + "{{if not .HasParent}}\n" + exitCodeTable() + "{{end}}")
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(newHelp())
	root.AddCommand(newExitCodes())
	addChoices(root)
	return root
}

// newGroup is a command that only holds others. Alone it shows its help; an
// unknown command is an error.
func newGroup(name, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{Use: name, Short: short}
	group.AddCommand(commands...)
	return asGroup(group)
}

func asGroup(group *cobra.Command) *cobra.Command {
	group.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		return nil
	}
	group.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return group
}

// initCompletion adds cobra's own completion command, which writes to where
// the root writes by then.
func initCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil {
		return
	}
	asGroup(cmd)
	for _, shell := range cmd.Commands() {
		shell.Example = completionExamples[shell.Name()]
	}
}

// completionExamples are how each shell takes in what it is given.
var completionExamples = map[string]string{
	"bash":       "  source <(controllerd completion bash)",
	"zsh":        "  source <(controllerd completion zsh)",
	"fish":       "  controllerd completion fish | source",
	"powershell": "  controllerd completion powershell | Out-String | Invoke-Expression",
}

// newHelp differs from cobra's own in that an unknown command is an error.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) > 0 {
				err = unknownCommand(about, rest[0])
			}
			if err != nil {
				return usageError{err}
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		},
	}
}
