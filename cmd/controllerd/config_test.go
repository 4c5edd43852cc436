package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// configFile writes a configuration file.
func configFile(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "controllerd.yaml")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// settingOf is what "config show" says of one key.
func settingOf(t *testing.T, key string, args ...string) setting {
	t.Helper()
	v := decode[configView](t, cli(append([]string{"config", "show", "--effective", "-o", "json"}, args...)...))
	i := slices.IndexFunc(v.Settings, func(s setting) bool { return s.Key == key })
	if i < 0 {
		t.Fatalf("%s is not shown", key)
	}
	return v.Settings[i]
}

// One key is in all four layers, which are taken away one by one.
func TestConfigLayers(t *testing.T) {
	path := configFile(t, "# a comment", "lease-ttl: 7s", "etcd-endpoints: [10.0.0.1:2379, 10.0.0.2:2379]", "max-partitions: 12")
	t.Setenv("CONTROLLERD_LEASE_TTL", "6s")
	for _, tt := range []struct {
		clear string
		args  []string
		want  setting
	}{
		{"", []string{"--config", path, "--lease-ttl", "4s"}, setting{"lease-ttl", "4s", "flag --lease-ttl"}},
		{"", []string{"--config", path}, setting{"lease-ttl", "6s", "environment CONTROLLERD_LEASE_TTL"}},
		{"CONTROLLERD_LEASE_TTL", []string{"--config", path}, setting{"lease-ttl", "7s", "file " + path + ":2"}},
		{"", nil, setting{"lease-ttl", "5s", "default"}},
	} {
		if tt.clear != "" {
			t.Setenv(tt.clear, "")
		}
		if got := settingOf(t, "lease-ttl", tt.args...); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.args, got, tt.want)
		}
	}
	t.Setenv("CONTROLLERD_CONFIG", path)
	t.Setenv("CONTROLLERD_SERVICE_HOST", "10.0.0.9") // of Kubernetes
	t.Setenv("CONTROLLERD_PORT_7070_TCP_ADDR", "10.0.0.9")
	for _, want := range []setting{
		{"etcd-endpoints", "[10.0.0.1:2379,10.0.0.2:2379]", "file " + path + ":3"},
		{"max-partitions", "12", "file " + path + ":4"},
		{"config", path, "environment CONTROLLERD_CONFIG"},
		{"election", "race", "default"},
	} {
		if got := settingOf(t, want.Key); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	lines := cli("config", "show").want(t, exitOK).lines()
	wantLines(t, lines, "KEY VALUE ORIGIN", "config .*", "etcd-endpoints .*", "lease-ttl 7s file .*:2", "max-partitions 12 file .*:4")
}

func TestConfigRepeatedFlag(t *testing.T) {
	got := settingOf(t, "etcd-endpoints", "--etcd-endpoints", "a:1", "--etcd-endpoints", "b:1,c:1")
	if want := (setting{"etcd-endpoints", "[a:1,b:1,c:1]", "flag --etcd-endpoints"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Everything that is wrong, in whichever layer, is said at once.
func TestConfigFaults(t *testing.T) {
	path := configFile(t, "lease-ttl: soon", "leases: 5s", "id:", "cluster: {name: x}", "listen: a:1", "listen: b:1", "election: dice", "etcd-endpoints: [[a]]", "max-partitions-per-topic: y")
	t.Setenv("CONTROLLERD_MAX_PARTITIONS", "many")
	t.Setenv("CONTROLLERD_UNHEARD_OF", "1")
	t.Setenv("CONTROLLERD_lease_ttl", "1")
	t.Setenv("CONTROLLERD_EFFECTIVE", "true")
	flags := []string{"--config", path, "--max-partitions-per-topic", "x", "--advertise", "me", "--etcd-cert", "c.pem", "--etcd-endpoints", "http://a:1", "--etcd-cacert", "ca.pem", "--etcd-user", "u"}
	says := []string{
		path + `:1: time: invalid duration "soon"`, path + `:2: unknown key "leases"`, path + ":3: key id has no value",
		path + ":4: key cluster has keys below it", path + ":6: key listen was there before", path + `:7: election strategy "dice" is neither`,
		path + ":8: key etcd-endpoints has something else than values", "environment CONTROLLERD_MAX_PARTITIONS: ",
		"CONTROLLERD_UNHEARD_OF names no key", "CONTROLLERD_lease_ttl names no key", "CONTROLLERD_EFFECTIVE names no key",
		"flag --max-partitions-per-topic: ", path + ":9: strconv.ParseInt", `advertised address "me" is not host:port`, "--etcd-cert and --etcd-key go together",
		"of no use to an endpoint that begins with http://", "--etcd-user without a password",
	}
	for _, command := range []string{"serve", "config show", "config check"} {
		r := cli(append(strings.Fields(command), flags...)...).want(t, exitUsage)
		for _, want := range says {
			if !strings.Contains(r.stderr, want) {
				t.Errorf("%s does not say %q:\n%s", command, want, r.stderr)
			}
		}
	}
}

func TestConfigFileFaults(t *testing.T) {
	for name, tt := range map[string]struct{ path, says string }{
		"missing":   {filepath.Join(t.TempDir(), "none.yaml"), "no such file"},
		"a folder":  {t.TempDir(), "is a directory"},
		"no YAML":   {configFile(t, "a: [b"), "yaml: line"},
		"a list":    {configFile(t, "- a"), ":1: want keys and values"},
		"a config":  {configFile(t, "config: x.yaml"), `:1: unknown key "config"`},
		"two files": {configFile(t, "help: true"), `:1: unknown key "help"`},
		"documents": {configFile(t, "lease-ttl: 7s", "---", "leases: 5s"), ":2: a second document, want one"},
		"a bad end": {configFile(t, "lease-ttl: 7s", "---", "a: [b"), "yaml: line"},
		"a blank":   {configFile(t, "etcd-endpoints: a:1, b:1"), "endpoint 2 of etcd is not host:port"},
	} {
		if r := cli("config", "check", "--config", tt.path).want(t, exitUsage); !strings.Contains(r.stderr, tt.says) {
			t.Errorf("%s: %q, want %q", name, r.stderr, tt.says)
		}
	}
	if r := cli("config", "check", "--config", configFile(t, "# nothing")).want(t, exitOK); r.stdout != "nothing is wrong with the configuration\n" {
		t.Errorf("an empty file: %q", r.stdout)
	}
}

// A secret is shown nowhere, right or wrong.
func TestConfigSecrets(t *testing.T) {
	const secret = "hunter2"
	path := configFile(t, "etcd-user: u", "etcd-password: "+secret)
	r := cli("config", "show", "--config", path).want(t, exitOK)
	if strings.Contains(r.stdout+r.stderr, secret) || !strings.Contains(r.stdout, "********") {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	r = cli("config", "show", "--etcd-user", "u", "--etcd-password", secret).want(t, exitUsage)
	if strings.Contains(r.stdout+r.stderr, secret) || !strings.Contains(r.stderr, "use $CONTROLLERD_ETCD_PASSWORD or the file") {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
	both := configFile(t, "etcd-user: u", "etcd-password: "+secret, "etcd-password-file: "+path)
	if r := cli("config", "check", "--config", both).want(t, exitUsage); !strings.Contains(r.stderr, "are both given") {
		t.Error(r.stderr)
	}
	t.Setenv("CONTROLLERD_ETCD_PASSWORD", secret)
	if got := settingOf(t, "etcd-password", "--etcd-user", "u"); got != (setting{"etcd-password", "********", "environment CONTROLLERD_ETCD_PASSWORD"}) {
		t.Errorf("%+v", got)
	}
}
