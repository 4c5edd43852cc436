package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// format is how a command shows its result.
type format string

var formats = []string{"table", "json", "yaml"}

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return strings.Join(formats, "|") }

func (f *format) Set(s string) error {
	if !slices.Contains(formats, s) {
		return fmt.Errorf("want one of %s", strings.Join(formats, ", "))
	}
	*f = format(s)
	return nil
}

// output shows results.
type output struct {
	format    format
	noHeaders bool
}

func (o *output) addFlags(f *pflag.FlagSet) {
	o.format = "table"
	f.VarP(&o.format, "output", "o", "how to show the result")
}

// view is a result. Its JSON is an interface to scripts: names are those of
// the API, every field is always there, and fields are only ever added.
type view interface {
	table() table
}

// table is a result as people read it.
type table struct {
	title []string // lines above, part of the headers
	head  []string
	rows  [][]string
}

func (o *output) show(w io.Writer, v view) error {
	switch o.format {
	case "json":
		return writeJSON(w, v)
	case "yaml":
		return writeYAML(w, v)
	}
	return v.table().write(w, !o.noHeaders)
}

// line shows one of many results, unless people read them.
func (o *output) line(w io.Writer, v any) error {
	if o.format == "json" {
		return writeJSONLine(w, v)
	}
	if _, err := fmt.Fprintln(w, "---"); err != nil {
		return err
	}
	return writeYAML(w, v)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func writeJSONLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func writeYAML(w io.Writer, v any) error {
	b, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func (t table) write(w io.Writer, headers bool) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows := t.rows
	if headers {
		for _, line := range t.title {
			if _, err := fmt.Fprintln(w, printable(line)); err != nil {
				return err
			}
		}
		if t.head != nil {
			rows = append([][]string{t.head}, rows...)
		}
	}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = printable(orDash(c))
		}
		if _, err := fmt.Fprintln(tw, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// printable escapes what would break a line, or command a terminal.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		quoted := strconv.Quote(s)
		return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	}
	return s
}
