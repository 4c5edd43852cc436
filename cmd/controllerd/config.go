package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// envPrefix is what the variables of the configuration begin with: the key
// lease-ttl is CONTROLLERD_LEASE_TTL.
const envPrefix = "CONTROLLERD_"

// configKey names the configuration file. It is no key of that file.
const configKey = "config"

// serviceLink are the variables that Kubernetes sets, without the prefix, if
// there is a service named controllerd.
var serviceLink = regexp.MustCompile(`^(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// secretKeys are never shown, and not taken from the command line, which
// everybody on the host can read.
var secretKeys = []string{passwordKey}

// defaultOrigin is where a value comes from that nobody has given.
const defaultOrigin = "default"

// setting is one key of the configuration, with what decides it.
type setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// layered is a flag whose value is decided later, by the first of these layers
// that has it: the command line, the environment, the file, the default.
type layered struct {
	pflag.Value
	given []string // on the command line
}

// Set notes what was given, right or wrong: all faults are reported at once.
func (v *layered) Set(s string) error {
	v.given = append(v.given, s)
	return nil
}

// layer prepares the flags of a command for settle.
func layer(f *pflag.FlagSet) {
	f.String(configKey, "", "configuration file in YAML, with the names of these flags as keys; also $"+envName(configKey))
	f.VisitAll(func(fl *pflag.Flag) { fl.Value = &layered{Value: fl.Value} })
}

func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}

// isKey reports whether a flag is a key of the configuration file.
func isKey(f *pflag.FlagSet, name string) bool {
	fl := f.Lookup(name)
	if fl == nil || name == configKey {
		return false
	}
	_, ok := fl.Value.(*layered)
	return ok
}

// settle gives every flag its value and says where each comes from. The error
// has all that is wrong in any layer, also of values that another layer hides.
func settle(f *pflag.FlagSet, environ []string) ([]setting, error) {
	env, faults := environment(f, environ)
	s := settler{env: env, faults: faults}
	if fl := f.Lookup(configKey); fl != nil {
		s.apply(fl)
		s.file, faults = readConfig(f, fl.Value.String())
		s.faults = append(s.faults, faults...)
	}
	f.VisitAll(func(fl *pflag.Flag) {
		if isKey(f, fl.Name) {
			s.apply(fl)
		}
	})
	return s.settings, errors.Join(s.faults...)
}

// value is what one layer holds under a key.
type value struct {
	texts  []string // more than one only on the command line
	origin string
}

type settler struct {
	env, file map[string]value
	settings  []setting
	faults    []error
}

func (s *settler) apply(fl *pflag.Flag) {
	v := fl.Value.(*layered)
	secret := slices.Contains(secretKeys, fl.Name)
	if v.given != nil && secret {
		s.faults = append(s.faults, fmt.Errorf("--%s: everybody can read a command line; use $%s or the file", fl.Name, envName(fl.Name)))
	}
	chosen := value{origin: defaultOrigin}
	layers := []value{s.file[fl.Name], s.env[fl.Name], {v.given, "flag --" + fl.Name}} // the last one that has it counts
	for i, layer := range layers {
		_, many := v.Value.(pflag.SliceValue) // which would keep what a layer below has
		if layer.texts == nil || many && slices.ContainsFunc(layers[i+1:], func(l value) bool { return l.texts != nil }) {
			continue
		}
		chosen = layer
		for _, text := range layer.texts {
			if err := v.Value.Set(text); err != nil {
				if secret {
					err = errors.New("not a value of this key")
				}
				s.faults = append(s.faults, fmt.Errorf("%s: %w", layer.origin, err))
				_ = v.Value.Set(fl.DefValue) // or a number would be 0, and that a second fault
			}
		}
	}
	shown := v.String()
	if secret && shown != "" {
		shown = "********"
	}
	s.settings = append(s.settings, setting{fl.Name, shown, chosen.origin})
}

// environment are the values in the environment by key. An empty variable
// counts as not set.
func environment(f *pflag.FlagSet, environ []string) (map[string]value, []error) {
	found := map[string]value{}
	var faults []error
	for _, e := range environ {
		name, text, _ := strings.Cut(e, "=")
		rest, ours := strings.CutPrefix(name, envPrefix)
		if !ours || text == "" || name == serverEnv || serviceLink.MatchString(rest) {
			continue
		}
		key := strings.ToLower(strings.ReplaceAll(rest, "_", "-"))
		if !isKey(f, key) && key != configKey || envName(key) != name {
			faults = append(faults, fmt.Errorf("environment: %s names no key of the configuration", name))
			continue
		}
		found[key] = value{[]string{text}, "environment " + name}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return found, faults
}

// readConfig are the values in a file by key.
func readConfig(f *pflag.FlagSet, path string) (map[string]value, []error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, []error{fmt.Errorf("configuration file: %w", err)}
	}
	var doc, more yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	if err := documents.Decode(&doc); errors.Is(err, io.EOF) { // empty
		return nil, nil
	} else if err != nil {
		return nil, []error{fmt.Errorf("%s: %w", path, err)}
	}
	if err := documents.Decode(&more); err == nil {
		return nil, []error{fmt.Errorf("%s:%d: a second document, want one", path, more.Line)}
	} else if !errors.Is(err, io.EOF) {
		return nil, []error{fmt.Errorf("%s: %w", path, err)}
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, []error{fmt.Errorf("%s:%d: want keys and values", path, root.Line)}
	}
	found := map[string]value{}
	var faults []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, node := root.Content[i], root.Content[i+1]
		at := fmt.Sprintf("%s:%d", path, key.Line)
		text, err := textOf(node)
		switch _, twice := found[key.Value]; {
		case !isKey(f, key.Value):
			faults = append(faults, fmt.Errorf("%s: unknown key %q", at, key.Value))
		case twice:
			faults = append(faults, fmt.Errorf("%s: key %s was there before", at, key.Value))
		case err != nil:
			faults = append(faults, fmt.Errorf("%s: key %s %w", at, key.Value, err))
		default:
			found[key.Value] = value{[]string{text}, "file " + at}
		}
	}
	return found, faults
}

// textOf is a value as it would be on the command line.
func textOf(n *yaml.Node) (string, error) {
	switch {
	case n.Kind == yaml.AliasNode:
		return textOf(n.Alias)
	case n.Kind == yaml.ScalarNode && n.Tag != "!!null":
		return n.Value, nil
	case n.Kind == yaml.ScalarNode:
		return "", errors.New("has no value")
	case n.Kind == yaml.MappingNode:
		return "", errors.New("has keys below it, want a value or a list")
	}
	var items []string
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
			return "", errors.New("has something else than values in its list")
		}
		items = append(items, item.Value)
	}
	var line strings.Builder
	w := csv.NewWriter(&line)
	if err := w.Write(items); err != nil {
		return "", err
	}
	w.Flush()
	return strings.TrimSuffix(line.String(), "\n"), nil
}

// newConfig looks at the configuration of serve without running it.
func newConfig() *cobra.Command {
	return newGroup("config", "Look at the configuration of serve", newConfigShow(), newConfigCheck())
}

func newConfigShow() *cobra.Command {
	var effective bool
	var out output
	cfg := serveConfig{}
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the configuration of serve, and where each value comes from",
		Long: `Show what serve would run with, given the same flags, environment and file, and
where each value comes from: a flag, a variable of the environment, a line of the
file or the default. Secrets are masked. All faults are reported, with exit code 2.`,
		Example: `  controllerd config show --config /etc/controllerd.yaml
  CONTROLLERD_LEASE_TTL=3s controllerd config show --effective -o json`,
		Args: noArgs,
	}
	cfg.addFlags(cmd.Flags())
	layer(cmd.Flags())
	cmd.Flags().BoolVar(&effective, "effective", false, "the defaults too")
	out.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&out.noHeaders, "no-headers", false, "tables without headers")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		settings, err := settle(cmd.Flags(), os.Environ())
		shown := slices.DeleteFunc(slices.Clone(settings), func(s setting) bool { return !effective && s.Origin == defaultOrigin })
		if shown := out.show(cmd.OutOrStdout(), &configView{Settings: append([]setting{}, shown...)}); shown != nil {
			return shown
		}
		return cfg.faults(settings, err)
	}
	return cmd
}

func newConfigCheck() *cobra.Command {
	cfg := serveConfig{}
	var out output
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Report all that is wrong with the configuration of serve",
		Long: `Report all that serve would refuse, given the same flags, environment and file.
Nothing is reached over the network.`,
		Example: `  controllerd config check --config /etc/controllerd.yaml
  controllerd config check --config /etc/controllerd.yaml -o json | jq -r '.faults[]'`,
		Args: noArgs,
	}
	cfg.addFlags(cmd.Flags())
	layer(cmd.Flags())
	out.addFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		settings, err := settle(cmd.Flags(), os.Environ())
		err = cfg.faults(settings, err)
		v := &checkView{Faults: []string{}}
		for _, fault := range flatten(err) {
			v.Faults = append(v.Faults, fault.Error())
		}
		if err != nil && out.format == "table" {
			return err
		}
		return errors.Join(err, out.show(cmd.OutOrStdout(), v))
	}
	return cmd
}

// checkView is all that is wrong with a configuration.
type checkView struct {
	Faults []string `json:"faults"`
}

func (v *checkView) table() table {
	return table{rows: [][]string{{"nothing is wrong with the configuration"}}}
}

// configView is the configuration of a daemon.
type configView struct {
	Settings []setting `json:"settings"`
}

func (v *configView) table() table {
	t := table{head: []string{"KEY", "VALUE", "ORIGIN"}}
	for _, s := range v.Settings {
		t.rows = append(t.rows, []string{s.Key, s.Value, s.Origin})
	}
	return t
}
