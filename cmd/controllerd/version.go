package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	o := &output{}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.show(cmd.OutOrStdout(), buildVersion()) },
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

// buildVersion reads what the Go tool wrote into the binary.
func buildVersion() *version {
	v := &version{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Date = s.Value
		}
	}
	return v
}

func (v *version) table() table {
	return table{rows: [][]string{
		{"Version:", v.Version}, {"Commit:", v.Commit}, {"Date:", v.Date}, {"Go:", v.Go}, {"Platform:", v.Platform},
	}}
}
