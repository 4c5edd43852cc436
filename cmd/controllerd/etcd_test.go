package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/controllerd/controllerd/internal/etcdserver"
	"github.com/controllerd/controllerd/internal/etcdtest"
)

const password = "correct horse"

// guarded is an etcd that lets in nobody without a password: root, and others
// that may do nothing, whose passwords are given.
func guarded(t *testing.T, others map[string]string, opts ...etcdtest.Option) *etcdtest.Cluster {
	t.Helper()
	opts = append(opts, etcdtest.DefaultTicks(), func(c *etcdserver.Config) { c.WeakHashes = true })
	etcd := etcdtest.Start(t, opts...)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := etcd.Client(t)
	if _, err := client.UserAdd(ctx, "root", password); err != nil {
		t.Fatal(err)
	}
	for name, secret := range others {
		if _, err := client.UserAdd(ctx, name, secret); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.UserGrantRole(ctx, "root", "root"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
	return etcd
}

// A daemon that logged in outlives a restart of etcd, which forgets its tokens.
func TestServeLogsIn(t *testing.T) {
	etcd := guarded(t, nil)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startServe(t, etcd.Endpoint(), "--id", "a", "--etcd-user", "root", "--etcd-password-file", file)
	p.says(`msg=active .*epoch=1\b`)
	server := "--server=" + p.address()
	cli("controller", "resign", server).want(t, exitOK)
	p.says(`msg=active .*epoch=2\b`)

	// debug gets in by the same means, here from the environment.
	t.Setenv("CONTROLLERD_ETCD_ENDPOINTS", etcd.Endpoint())
	t.Setenv("CONTROLLERD_ETCD_USER", "root")
	t.Setenv("CONTROLLERD_CLUSTER", "test")
	cli("debug", "dump").want(t, exitUsage)
	cli("debug", "dump", "cluster", "--etcd-password-file", file).want(t, exitOK)
	cli("debug", "put", "nodes/7", `{"node_uuid": "u"}`, "--etcd-password-file", file).want(t, exitOK)
	t.Setenv("CONTROLLERD_ETCD_PASSWORD", password)
	cli("debug", "dump", "nodes/7").want(t, exitOK)
	if r := cli("debug", "dump", "--etcd-endpoints", "127.0.0.1:1", "--timeout", "100ms").want(t, exitAway); r.stderr != "Error: no answer from etcd at 127.0.0.1:1 in time\n" {
		t.Error(r.stderr)
	}
	t.Setenv("CONTROLLERD_ETCD_PASSWORD", "wrong "+password)
	if r := cli("debug", "dump").want(t, exitFailed); !strings.Contains(r.stderr, "login refused") || strings.Contains(r.stderr, password) {
		t.Error(r.stderr)
	}

	etcd.Restart()
	eventually(t, "the daemon writes again", func() bool {
		return cli("controller", "resign", server, "--timeout", "1s").code == exitOK
	})
	if strings.Contains(p.logged(), password) {
		t.Error("the password is in the log")
	}
	p.stops(syscall.SIGTERM)
}

// A token ends after 3 s, however much it is used: the daemon gets itself
// another, again and again, and loses nothing by it.
func TestServeOutlivesItsToken(t *testing.T) {
	const lasts = 3 * time.Second
	ca := newAuthority(t)
	ca.issue("tokens", &x509.Certificate{}, nil)
	etcd := guarded(t, nil, func(c *etcdserver.Config) {
		c.AuthToken = fmt.Sprintf("jwt,pub-key=%s,priv-key=%s,sign-method=ES256,ttl=%v", ca.file("tokens.pem"), ca.file("tokens.key"), lasts)
	})
	t.Setenv("CONTROLLERD_ETCD_PASSWORD", password)
	p := startServe(t, etcd.Endpoint(), "--id", "a", "--etcd-user", "root", "--lease-ttl", "4s")
	p.says(`msg=active .*epoch=1\b`)
	begin := time.Now()
	eventually(t, "three tokens have ended", func() bool { return time.Since(begin) > 3*lasts })
	if log := p.logged(); strings.Contains(log, "not active any more") || strings.Contains(log, "token") {
		t.Error(log)
	}
	cli("controller", "resign", "--server="+p.address()).want(t, exitOK)
	p.says(`msg=active .*epoch=2\b`)
	p.stops(syscall.SIGTERM)
}

func TestServeIsNotLetIn(t *testing.T) {
	etcd := guarded(t, nil)
	t.Setenv("CONTROLLERD_ETCD_PASSWORD", "wrong "+password)
	p := startServe(t, etcd.Endpoint(), "--etcd-user", "root")
	if state := p.exits(patience); state.ExitCode() != exitFailed || !strings.Contains(p.logged(), "Error: dial etcd: login refused: ") {
		t.Errorf("exit code %d: %s", state.ExitCode(), p.logged())
	}
	if strings.Contains(p.logged(), password) {
		t.Error("the password is in the log")
	}

	etcd.Stop()
	p = startServe(t, etcd.Endpoint(), "--etcd-user", "root")
	p.says("etcd has not answered the login yet, still trying")
	p.signal(syscall.SIGTERM)
	if state := p.exits(10 * time.Second); state.ExitCode() != 0 {
		t.Errorf("stopped before it was let in: exit code %d", state.ExitCode())
	}
}

// authority signs certificates for loopback.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	return a
}

// issue signs a certificate and writes it and its key to files of that name.
func (a *authority) issue(name string, like *x509.Certificate, addresses []net.IP) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	like.SerialNumber, like.Subject, like.IPAddresses = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}, addresses
	like.NotBefore = time.Now().Add(-time.Hour)
	if like.NotAfter.IsZero() {
		like.NotAfter = time.Now().Add(time.Hour)
	}
	like.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = like, key
	}
	der, err := x509.CreateCertificate(rand.Reader, like, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "EC PRIVATE KEY", secret)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// Both sides show certificates; a new one of the daemon is read for the next
// connection.
func TestServeOverTLS(t *testing.T) {
	ca := newAuthority(t)
	ca.issue("etcd", &x509.Certificate{}, []net.IP{net.IPv4(127, 0, 0, 1)})
	ca.issue("daemon", &x509.Certificate{}, nil)
	etcd := etcdtest.Start(t, etcdtest.DefaultTicks(), func(c *etcdserver.Config) {
		c.ClientTLS = transport.TLSInfo{
			CertFile: ca.file("etcd.pem"), KeyFile: ca.file("etcd.key"), TrustedCAFile: ca.file("ca.pem"), ClientCertAuth: true,
		}
	})
	p := startServe(t, "https://"+etcd.Endpoint(), "--id", "a",
		"--etcd-cacert", ca.file("ca.pem"), "--etcd-cert", ca.file("daemon.pem"), "--etcd-key", ca.file("daemon.key"))
	p.says(`msg=active .*epoch=1\b`)
	cli("debug", "dump", "--cluster", "test", "--etcd-endpoints", "https://"+etcd.Endpoint(),
		"--etcd-cacert", ca.file("ca.pem"), "--etcd-cert", ca.file("daemon.pem"), "--etcd-key", ca.file("daemon.key")).want(t, exitOK)
	ca.issue("daemon", &x509.Certificate{}, nil)
	etcd.Restart()
	server := "--server=" + p.address()
	eventually(t, "the daemon writes again", func() bool {
		return cli("controller", "resign", server, "--timeout", "1s").code == exitOK
	})
	p.stops(syscall.SIGTERM)

	stranger := newAuthority(t)
	stranger.issue("daemon", &x509.Certificate{}, nil)
	for name, args := range map[string][]string{
		"no certificate":        {"--etcd-cacert", ca.file("ca.pem")},
		"a stranger's":          {"--etcd-cacert", ca.file("ca.pem"), "--etcd-cert", stranger.file("daemon.pem"), "--etcd-key", stranger.file("daemon.key")},
		"of unknown authority":  {"--etcd-cacert", stranger.file("ca.pem"), "--etcd-cert", ca.file("daemon.pem"), "--etcd-key", ca.file("daemon.key")},
		"plain text to a guard": nil,
	} {
		scheme := "https://"
		if args == nil {
			scheme = "http://"
		}
		p := startServe(t, scheme+etcd.Endpoint(), args...)
		p.says("etcd has not answered yet, still trying")
		p.signal(syscall.SIGTERM)
		if state := p.exits(10 * time.Second); state.ExitCode() != 0 || strings.Contains(p.logged(), "msg=active") {
			t.Errorf("%s: exit code %d: %s", name, state.ExitCode(), p.logged())
		}
	}
	r := cli("config", "check", "--etcd-cacert", ca.file("none.pem")).want(t, exitUsage)
	if !strings.Contains(r.stderr, "certificates for etcd: ") {
		t.Error(r.stderr)
	}
}
