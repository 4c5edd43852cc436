package main

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	o := &output{}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Example: `  controllerd version
  controllerd version -o json | jq -r .version`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.show(cmd.OutOrStdout(), buildVersion()) },
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// version describes the build.
type version struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Date     string `json:"date"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// What "make build" stamps into the program: the version by git describe, and
// hash and date of the commit.
var stampedVersion, stampedCommit, stampedDate string

// buildVersion is what was stamped, or else what the Go tool wrote into the
// program, as it does for "go install" at a version.
func buildVersion() *version {
	v := &version{
		Version: stampedVersion, Commit: stampedCommit, Date: stampedDate,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if ok && info.Main.Version != "(devel)" {
		v.Version = cmp.Or(v.Version, info.Main.Version)
	}
	v.Version = cmp.Or(v.Version, "devel")
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = cmp.Or(v.Commit, s.Value)
		case "vcs.time":
			v.Date = cmp.Or(v.Date, s.Value)
		}
	}
	return v
}

func (v *version) table() table {
	return table{rows: [][]string{
		{"Version:", v.Version}, {"Commit:", v.Commit}, {"Date:", v.Date}, {"Go:", v.Go}, {"Platform:", v.Platform},
	}}
}
