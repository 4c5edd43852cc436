package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/controllerd/controllerd/internal/etcdtest"
)

// page reads a page of a daemon that serves what over HTTP.
func (p *process) page(what, path string) (int, string) {
	p.t.Helper()
	client := &http.Client{Timeout: patience}
	resp, err := client.Get("http://" + p.says(`msg="serving `+what+`" address=(\S+)`) + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestServePages: the pages of an active daemon and of a standby, and what
// becomes of them at a hand-over.
func TestServePages(t *testing.T) {
	etcd := etcdtest.Start(t)
	flags := []string{"--metrics-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--lease-ttl", "20s", "--id"}
	a := startServe(t, etcd.Endpoint(), append(flags, "a")...)
	a.says(`msg=active`)
	b := startServe(t, etcd.Endpoint(), append(flags, "b")...)
	eventually(t, "b is ready", func() bool { code, _ := b.page("metrics", "/readyz"); return code == http.StatusOK })
	for _, tt := range []struct {
		p          *process
		what, path string
		code       int
		says       string
	}{
		{a, "metrics", "/leader", 200, `^active under epoch 1\n$`},
		{b, "metrics", "/leader", 503, `^not the active controller\n$`},
		{a, "metrics", "/livez", 200, `^alive\n$`},
		{a, "metrics", "/metrics", 200, `(?s)\ncontrollerd_active 1\n.*\ncontrollerd_candidates 2\n.*\ncontrollerd_etcd_request_seconds_count{op="grant"} 1\n.*\ngo_goroutines [0-9]`},
		{b, "metrics", "/metrics", 200, `(?s)\ncontrollerd_active 0\n.*\ncontrollerd_candidates 0\n.*\ncontrollerd_session_state{state="standby"} 1\n`},
		{a, "metrics", "/debug/pprof/", 404, ``},
		{a, "profiles", "/debug/pprof/goroutine?debug=1", 200, `controller\.\(\*Controller\)\.own`},
		{a, "profiles", "/metrics", 404, ``},
	} {
		eventually(t, tt.path+" says "+tt.says, func() bool {
			code, body := tt.p.page(tt.what, tt.path)
			return code == tt.code && regexp.MustCompile(tt.says).MatchString(body)
		})
	}
	a.stops(syscall.SIGTERM)
	eventually(t, "b is the leader", func() bool {
		code, body := b.page("metrics", "/leader")
		return code == http.StatusOK && body == "active under epoch 2\n"
	})
	b.stops(syscall.SIGTERM)
}

// TestServePagesFaults: addresses that are none, or taken.
func TestServePagesFaults(t *testing.T) {
	r := cli("config", "check", "--metrics-listen", "9100", "--admin-listen", "nowhere", "--listen", "127.0.0.1:7070").want(t, exitUsage)
	for _, want := range []string{`--metrics-listen "9100" is not host:port`, `--admin-listen "nowhere" is not host:port`} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("does not say %q: %s", want, r.stderr)
		}
	}
	for _, args := range [][]string{
		{"--metrics-listen", "127.0.0.1:7070"}, {"--metrics-listen", "127.0.0.1:9100", "--admin-listen", "127.0.0.1:9100"},
	} {
		if r := cli(append([]string{"config", "check"}, args...)...).want(t, exitUsage); !strings.Contains(r.stderr, "are both 127.0.0.1:") {
			t.Errorf("%v: %s", args, r.stderr)
		}
	}
	cli("config", "check", "--metrics-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--listen", "127.0.0.1:0").want(t, exitOK)
	taken := listening(t, silent)
	r = cli("serve", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--admin-listen", taken, "--etcd-endpoints", deaf(t)).want(t, exitFailed)
	if !strings.Contains(r.stderr, "Error: listen on "+taken+": ") {
		t.Error(r.stderr)
	}
}

// TestServePagesSettings: the flags are keys like all others.
func TestServePagesSettings(t *testing.T) {
	path := configFile(t, "metrics-listen: 127.0.0.1:9170")
	t.Setenv("CONTROLLERD_ADMIN_LISTEN", "127.0.0.1:9171")
	for _, want := range []setting{
		{"metrics-listen", "127.0.0.1:9170", "file " + path + ":1"},
		{"admin-listen", "127.0.0.1:9171", "environment CONTROLLERD_ADMIN_LISTEN"},
	} {
		if got := settingOf(t, want.Key, "--config", path); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// TestServePagesWithoutEtcd: a daemon that has never read the cluster is alive
// and not ready, and profiles beyond loopback are warned of.
func TestServePagesWithoutEtcd(t *testing.T) {
	a := startServe(t, deaf(t), "--metrics-listen", "127.0.0.1:0", "--admin-listen", "0.0.0.0:0")
	a.says(`msg="PROFILES BEYOND LOOPBACK`)
	eventually(t, "it is alive and not ready", func() bool {
		live, _ := a.page("metrics", "/livez")
		ready, why := a.page("metrics", "/readyz")
		leader, _ := a.page("metrics", "/leader")
		return live == 200 && ready == 503 && leader == 503 && strings.Contains(why, "nothing read from etcd yet")
	})
	told := time.Now()
	a.stops(syscall.SIGTERM)
	if took := time.Since(told); took > 8*time.Second {
		t.Errorf("stopping took %v", took)
	}
}
