package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOP5Secrets: secrets from the environment, files and URLs, some of them
// wrong or of no use. None is in a log, on a page, in the list of processes or
// in what a command shows.
func TestOP5Secrets(t *testing.T) {
	const wrong, limited, hooked, inURL = "mark-of-a-wrong-one", "mark-of-a-limited-user", "mark-of-a-hook", "mark-of-an-endpoint"
	shown := map[string]string{}
	etcd := guarded(t, map[string]string{"limited": limited})
	file := func(secret string) string {
		path := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}

	t.Setenv("CONTROLLERD_ON_CONTROLLER_CHANGE", "http://me:"+hooked+"@"+freeAddresses(t, 1)[0]+"/"+hooked)
	r := cli("serve", "--etcd-endpoints", "http://me:"+inURL+"@127.0.0.1:1").want(t, exitUsage)
	shown["a refused endpoint"] = r.stdout + r.stderr
	refused := startServe(t, etcd.Endpoint(), "--etcd-user", "root", "--etcd-password-file", file(wrong))
	refused.says("login refused")
	refused.exits(patience)
	shown["the log of who is not let in"] = refused.logged()
	helpless := startServe(t, etcd.Endpoint(), "--etcd-user", "limited", "--etcd-password-file", file(limited))
	helpless.says("etcd has not answered yet, still trying.* permission denied")

	t.Setenv("CONTROLLERD_ETCD_PASSWORD", password)
	a := startServe(t, etcd.Endpoint(), "--id", "a", "--etcd-user", "root", "--metrics-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	a.says(`msg=active`)
	a.says(`msg="hook failed"`)
	for _, p := range []*process{a, helpless} {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		shown[fmt.Sprint("the arguments of ", p.cmd.Args)] = string(line)
	}
	for _, path := range []string{"/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2"} {
		_, shown[path] = a.page("profiles", path)
	}
	_, shown["/metrics"] = a.page("metrics", "/metrics")
	for _, args := range [][]string{{"controller", "status"}, {"controller", "list"}, {"controller", "history"}} {
		shown[strings.Join(args, " ")] = cli(append(args, "-o", "json", "--server", a.address())...).want(t, exitOK).stdout
	}
	shown["config show"] = cli("config", "show", "--effective", "--etcd-user", "root").want(t, exitOK).stdout
	helpless.signal(syscall.SIGTERM)
	helpless.exits(patience)
	a.stops(syscall.SIGTERM)
	shown["the log"], shown["the log of who may do nothing"] = a.logged(), helpless.logged()

	for what, text := range shown {
		if text == "" {
			t.Errorf("%s is empty", what)
		}
		for _, secret := range []string{password, wrong, limited, hooked, inURL} {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows %q:\n%s", what, secret, text)
			}
		}
	}
	// What shows more than everybody needs is not there unless it is asked for.
	for _, key := range []string{"admin-listen", "metrics-listen"} {
		if s := settingOf(t, key, "--etcd-user", "root"); s.Value != "" {
			t.Errorf("by default there is %+v", s)
		}
	}
	if s := settingOf(t, "listen", "--etcd-user", "root"); !strings.HasPrefix(s.Value, "127.0.0.1:") {
		t.Errorf("by default there is %+v", s)
	}
}
