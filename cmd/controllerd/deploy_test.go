package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestDeployedConfiguration: the command lines, variables and files in deploy
// and in the Dockerfile are ones that serve takes.
func TestDeployedConfiguration(t *testing.T) {
	k := manifestOf(t)
	for _, tt := range []struct {
		where string
		args  []string // with serve
		env   map[string]string
		file  string // in place of the one that --config names
	}{
		{"Dockerfile", dockerCommand(t, "CMD"), nil, ""},
		{"systemd", unitCommand(t), nil, read(t, "deploy/systemd/controllerd.yaml")},
		{"Kubernetes", k.args, k.env, k.file},
	} {
		t.Run(tt.where, func(t *testing.T) {
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			args := slices.Concat([]string{"config", "check"}, tt.args[1:])
			if tt.args[0] != "serve" {
				t.Fatalf("%q is not serve", tt.args)
			}
			if tt.file != "" {
				args = append(args, "--config", writeFile(t, tt.file))
			}
			cli(args...).want(t, exitOK)
			cli(append(args, "--no-such-flag")...).want(t, exitUsage)
			for name := range tt.env {
				if strings.HasPrefix(name, envPrefix) {
					t.Setenv(name+"_X", "1")
					cli(args...).want(t, exitUsage)
				}
			}
		})
	}
}

func TestHealthCheckOfImage(t *testing.T) {
	args := dockerCommand(t, "HEALTHCHECK .* CMD")[1:]
	cli(append(args, "--server", deaf(t))...).want(t, exitAway)
	w := newWorld(t, 1, 0)
	w.cli(args...).want(t, exitOK)
}

// read is a file of this repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "controllerd.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// dockerCommand is the list of words behind an instruction of the Dockerfile.
func dockerCommand(t *testing.T, instruction string) (words []string) {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + instruction + ` (\[.*\])$`).FindStringSubmatch(read(t, "Dockerfile"))
	if found == nil || json.Unmarshal([]byte(found[1]), &words) != nil {
		t.Fatalf("no %s in the Dockerfile: %q", instruction, found)
	}
	return words
}

func unitCommand(t *testing.T) []string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^ExecStart=\S*/controllerd (.*)$`).FindStringSubmatch(read(t, "deploy/systemd/controllerd.service"))
	if found == nil {
		t.Fatal("no ExecStart in the unit")
	}
	return strings.Fields(found[1])
}

// manifest is what the container of the manifests is started with.
type manifest struct {
	args []string
	env  map[string]string
	file string
}

func manifestOf(t *testing.T) manifest {
	t.Helper()
	m := manifest{env: map[string]string{}}
	for _, text := range strings.Split(read(t, "deploy/kubernetes/controllerd.yaml"), "\n---\n") {
		var object struct {
			Data map[string]string
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Args []string
							Env  []struct{ Name, Value string }
						}
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		if object.Data != nil {
			m.file = object.Data["controllerd.yaml"]
		}
		for _, c := range object.Spec.Template.Spec.Containers {
			m.args = c.Args
			for _, e := range c.Env {
				value := e.Value
				if value == "" { // of a field
					value = "controllerd-0"
				}
				m.env[e.Name] = value
			}
		}
	}
	if m.file == "" || len(m.env) == 0 {
		t.Fatalf("%+v", m)
	}
	for name, value := range m.env { // as the kubelet does
		m.env[name] = regexp.MustCompile(`\$\((\w+)\)`).ReplaceAllStringFunc(value, func(ref string) string { return m.env[ref[2:len(ref)-1]] })
	}
	return m
}
