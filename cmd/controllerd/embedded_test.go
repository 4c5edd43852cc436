package main

import (
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/controllerd/controllerd/internal/etcdtest"
)

// A daemon with a single member of its own goes on where it was, after it was
// stopped and after it was killed. Nobody else uses its directory meanwhile.
func TestServeEmbedded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etcd")
	args := []string{"--embedded-etcd", dir, "--embedded-etcd-listen-client", "127.0.0.1:0", "--embedded-etcd-quota", "64MiB", "--id", "a"}
	a := start(t, args...)
	a.says(`msg=active controller=a epoch=1`)
	endpoint := "--etcd-endpoints=" + a.says(`msg="etcd member started" .* clients=(\S+) .* quota=64MiB`)
	cli("debug", "put", "nodes/7", `{"node_uuid": "u"}`, "--cluster", "test", endpoint).want(t, exitOK)

	second := start(t, args...)
	if state := second.exits(patience); state.ExitCode() != exitFailed || !strings.Contains(second.logged(), "Error: lock "+dir+": data directory is in use") {
		t.Errorf("a second one on the directory: exit code %d: %s", state.ExitCode(), second.logged())
	}
	a.stops(syscall.SIGTERM) // it gives up the seat, so etcd outlives that
	if log := a.logged(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "etcd: ") {
		t.Errorf("there is noise:\n%s", log)
	}

	a = start(t, args...)
	a.says(`msg=active controller=a epoch=2`)
	a.signal(os.Kill)
	a.exits(patience)
	a = start(t, args...)
	a.says(`msg=active controller=a epoch=3`)
	r := cli("controller", "history", "--no-headers", "--server", a.address()).want(t, exitOK)
	wantLines(t, r.lines(), `3 a `+timePattern+` - \S+ current - -`, `2 a `+timePattern+` .* lost a -`,
		`1 a `+timePattern+` `+timePattern+` \S+ shutdown a the daemon was told to stop`)
	endpoint = "--etcd-endpoints=" + a.says(`msg="etcd member started" .* clients=(\S+)`)
	cli("debug", "dump", "nodes/7", "--cluster", "test", endpoint).want(t, exitOK)
	a.stops(syscall.SIGTERM)

	other := start(t, append(args, "--embedded-etcd-peers", "a=http://"+freeAddresses(t, 1)[0])...)
	if state := other.exits(patience); state.ExitCode() != exitFailed || !strings.Contains(other.logged(), "data directory belongs to another member") {
		t.Errorf("as one of several: exit code %d: %s", state.ExitCode(), other.logged())
	}
}

// Members that show each other certificates, and ask their clients for one.
func TestServeEmbeddedOverTLS(t *testing.T) {
	ca := newAuthority(t)
	ca.issue("member", &x509.Certificate{}, []net.IP{net.IPv4(127, 0, 0, 1)})
	certs := []string{"--etcd-cacert", ca.file("ca.pem"), "--etcd-cert", ca.file("member.pem"), "--etcd-key", ca.file("member.key")}
	peers := freeAddresses(t, 2)
	var daemons []*process
	for i, id := range []string{"a", "b"} {
		daemons = append(daemons, start(t, append([]string{
			"--id", id, "--embedded-etcd", filepath.Join(t.TempDir(), id), "--embedded-etcd-listen-client", "127.0.0.1:0",
			"--embedded-etcd-peers", fmt.Sprintf("a=https://%s,b=https://%s", peers[0], peers[1]),
		}, certs...)...))
		if i == 0 {
			daemons[0].says("etcd has not answered yet, still trying") // alone it is no majority
		}
	}
	eventually(t, "one is active", func() bool {
		return strings.Contains(daemons[0].logged(), "msg=active") || strings.Contains(daemons[1].logged(), "msg=active")
	})
	clients := daemons[0].says(`msg="etcd member started" .* clients=(\S+)`)
	cli(append([]string{"debug", "dump", "--cluster", "test", "--etcd-endpoints", "https://" + clients}, certs...)...).want(t, exitOK)
	cli("debug", "dump", "--cluster", "test", "--etcd-endpoints", "https://"+clients, "--etcd-cacert", ca.file("ca.pem"), "--timeout", "1s").want(t, exitAway)
	for _, d := range daemons {
		if strings.Contains(d.logged(), "LISTENING BEYOND") {
			t.Error(d.logged())
		}
		d.signal(syscall.SIGTERM)
	}
	for _, d := range daemons { // one of them has no majority any more
		if state := d.exits(patience); state.ExitCode() != 0 {
			t.Errorf("exit code %d", state.ExitCode())
		}
	}
}

func freeAddresses(t *testing.T, n int) []string {
	t.Helper()
	free, err := etcdtest.FreeAddresses(n)
	if err != nil {
		t.Fatal(err)
	}
	return free
}
