package main

import (
	"bytes"
	"crypto/x509"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/controllerd/controllerd/internal/etcdserver"
	"github.com/controllerd/controllerd/internal/etcdtest"
	"github.com/controllerd/controllerd/internal/netproxy"
)

var loopback = []net.IP{net.IPv4(127, 0, 0, 1)}

// bundle writes the certificates of authorities to a file.
func bundle(t *testing.T, path string, authorities ...*authority) {
	t.Helper()
	var all [][]byte
	for _, a := range authorities {
		text, err := os.ReadFile(a.file("ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	if err := os.WriteFile(path, bytes.Join(all, nil), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestOP4CertificatesReplaced: a daemon's certificate for etcd is replaced
// before it expires, then the authority by which it trusts etcd. Connections
// break after each, and the daemon keeps its seat without a restart.
func TestOP4CertificatesReplaced(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	trusted := first.file("trusted.pem")
	bundle(t, trusted, first)
	bundle(t, first.file("clients.pem"), first, second)
	first.issue("etcd", &x509.Certificate{}, loopback)
	expires := time.Now().Add(5 * time.Second)
	first.issue("daemon", &x509.Certificate{NotAfter: expires}, nil)
	etcd := etcdtest.Start(t, etcdtest.DefaultTicks(), func(c *etcdserver.Config) {
		c.ClientTLS = transport.TLSInfo{
			CertFile: first.file("etcd.pem"), KeyFile: first.file("etcd.key"), TrustedCAFile: first.file("clients.pem"), ClientCertAuth: true,
		}
	})
	proxy, err := netproxy.Start(etcd.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	const ttl = 4 * time.Second
	p := startServe(t, "https://"+proxy.Addr(), "--etcd-endpoints-only", "--id", "a", "--lease-ttl", ttl.String(),
		"--etcd-cacert", trusted, "--etcd-cert", first.file("daemon.pem"), "--etcd-key", first.file("daemon.key"))
	p.says(`msg=active .*epoch=1\b`)
	first.issue("daemon", &x509.Certificate{}, nil)
	eventually(t, "the first certificate has expired", func() bool { return time.Now().After(expires) })
	// outlives breaks the connections; had the daemon not come back, its lease
	// would have ended.
	outlives := func(what string) {
		t.Helper()
		dials, begin := proxy.Dials(), time.Now()
		proxy.Reset()
		eventually(t, "the daemon comes back after "+what, func() bool { return proxy.Dials() > dials && time.Since(begin) > 3*ttl/2 })
		status := decode[statusView](t, cli("controller", "status", "-o", "json", "--server", p.address()).want(t, exitOK))
		if status.Role != "active" || status.Epoch != 1 || len(status.Problems) > 0 || strings.Contains(p.logged(), "not active any more") {
			t.Errorf("after %s: %+v\n%s", what, status, p.logged())
		}
	}
	outlives("its certificate was replaced")

	bundle(t, trusted, first, second)
	second.issue("etcd", &x509.Certificate{}, loopback)
	for _, file := range []string{"etcd.pem", "etcd.key"} { // etcd reads it anew too
		if err := os.Rename(second.file(file), first.file(file)); err != nil {
			t.Fatal(err)
		}
	}
	outlives("the authority was replaced")
	p.stops(syscall.SIGTERM)
}

// TestOP4WrongName: etcd shows a certificate of the right authority for
// somebody else. The daemon does not speak to it, and says why.
func TestOP4WrongName(t *testing.T) {
	ca := newAuthority(t)
	ca.issue("etcd", &x509.Certificate{}, []net.IP{net.IPv4(10, 9, 9, 9)})
	ca.issue("daemon", &x509.Certificate{}, nil)
	etcd := etcdtest.Start(t, etcdtest.DefaultTicks(), func(c *etcdserver.Config) {
		c.ClientTLS = transport.TLSInfo{CertFile: ca.file("etcd.pem"), KeyFile: ca.file("etcd.key")}
	})
	p := startServe(t, "https://"+etcd.Endpoint(), "--etcd-cacert", ca.file("ca.pem"))
	p.says(`msg="etcd has not answered yet, still trying" error=.*x509: certificate is valid for 10.9.9.9, not 127.0.0.1`)
	p.signal(syscall.SIGTERM)
	if state := p.exits(patience); state.ExitCode() != 0 || strings.Contains(p.logged(), "msg=active") {
		t.Errorf("exit code %d: %s", state.ExitCode(), p.logged())
	}
	if r := cli("serve", "--etcd-cacert", ca.file("ca.pem"), "--etcd-cert", ca.file("daemon.pem"), "--etcd-key", ca.file("none.key")).want(t, exitUsage); !strings.Contains(r.stderr, "certificates for etcd: open "+ca.file("none.key")+": no such file") {
		t.Error(r.stderr)
	}
}
