package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/controllerd/controllerd/store/etcdstore"
)

// loginPause is how long a login that etcd did not answer is not tried again.
const loginPause = time.Second

// etcdConfig is how etcd is reached.
type etcdConfig struct {
	endpoints                    []string
	caFile, certFile, keyFile    string
	user, password, passwordFile string
}

// passwordKey is taken from the environment and, by serve, from the file.
const passwordKey = "etcd-password"

// addEtcdFlags gives a command the flags for etcd, all but the password.
func (cfg *etcdConfig) addEtcdFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&cfg.endpoints, "etcd-endpoints", []string{"127.0.0.1:2379"}, "members of the etcd cluster")
	f.StringVar(&cfg.caFile, "etcd-cacert", "", "certificates of the authorities that etcd's servers are trusted by, PEM; read anew for each connection")
	f.StringVar(&cfg.certFile, "etcd-cert", "", "certificate to show to etcd, PEM; read anew for each connection")
	f.StringVar(&cfg.keyFile, "etcd-key", "", "key of --etcd-cert, PEM")
	f.StringVar(&cfg.user, "etcd-user", "", "name to log in to etcd with")
	f.StringVar(&cfg.passwordFile, "etcd-password-file", "", "file that holds the password of --etcd-user")
}

// etcdFaults is all that is wrong with how etcd is to be reached.
func (cfg *etcdConfig) etcdFaults() error {
	var faults []error
	fault := func(wrong bool, text string) {
		if wrong {
			faults = append(faults, errors.New(text))
		}
	}
	plain := 0
	for _, e := range cfg.endpoints {
		if strings.HasPrefix(e, "http://") {
			plain++
		}
	}
	fault((cfg.certFile == "") != (cfg.keyFile == ""), "--etcd-cert and --etcd-key go together")
	fault(cfg.secured() && plain > 0, "--etcd-cacert, --etcd-cert and --etcd-key are of no use to an endpoint that begins with http://")
	fault(cfg.password != "" && cfg.passwordFile != "", "etcd-password and etcd-password-file are both given")
	fault(cfg.user == "" && (cfg.password != "" || cfg.passwordFile != ""), "a password for etcd, but no --etcd-user")
	fault(cfg.user != "" && cfg.password == "" && cfg.passwordFile == "", "--etcd-user without a password: set $"+envName(passwordKey)+" or --etcd-password-file")
	if (cfg.certFile == "") == (cfg.keyFile == "") {
		_, err := cfg.tls()
		faults = append(faults, err)
	}
	_, err := cfg.readPassword()
	faults = append(faults, err)
	return errors.Join(etcdstore.CheckEndpoints(cfg.endpoints), errors.Join(faults...))
}

// secured reports whether connections to etcd are to be encrypted.
func (cfg *etcdConfig) secured() bool {
	return cfg.caFile != "" || cfg.certFile != "" || cfg.keyFile != ""
}

// tls is nil for plain connections.
func (cfg *etcdConfig) tls() (*tls.Config, error) {
	if cfg.caFile == "" && cfg.certFile == "" {
		return nil, nil
	}
	info := transport.TLSInfo{TrustedCAFile: cfg.caFile, CertFile: cfg.certFile, KeyFile: cfg.keyFile}
	c, err := info.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("certificates for etcd: %w", err)
	}
	return c, nil
}

// freshTLS reads the authorities and certificates anew for each connection. As
// long as they cannot be read, those with which it began count.
type freshTLS struct {
	credentials.TransportCredentials
	read func() (*tls.Config, error)
}

// ClientHandshake secures a new connection.
func (f freshTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if c, err := f.read(); err == nil {
		return credentials.NewTLS(c).ClientHandshake(ctx, authority, conn)
	}
	return f.TransportCredentials.ClientHandshake(ctx, authority, conn)
}

// Clone is for gRPC, which clones what it was given.
func (f freshTLS) Clone() credentials.TransportCredentials {
	return freshTLS{f.TransportCredentials.Clone(), f.read}
}

func (cfg *etcdConfig) readPassword() (string, error) {
	if cfg.passwordFile == "" {
		return cfg.password, nil
	}
	text, err := os.ReadFile(cfg.passwordFile)
	if err != nil {
		return "", fmt.Errorf("password for etcd: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// dial makes the client of etcd. To log in etcd must be there: as long as it is
// not, it is tried again.
func (cfg *etcdConfig) dial(ctx context.Context, log *slog.Logger) (*clientv3.Client, error) {
	security, err := cfg.tls()
	if err != nil {
		return nil, err
	}
	password, err := cfg.readPassword()
	if err != nil {
		return nil, err
	}
	config := etcdstore.Config{Endpoints: cfg.endpoints, TLS: security, Username: cfg.user, Password: password}
	if security != nil {
		fresh := freshTLS{credentials.NewTLS(security), cfg.tls}
		config.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(fresh)}
	}
	for {
		if end, ok := ctx.Deadline(); ok {
			config.LoginTimeout = max(time.Until(end), time.Millisecond)
		}
		client, err := etcdstore.Dial(config)
		if err == nil || cfg.user == "" || errors.Is(err, etcdstore.ErrLogin) {
			return client, err
		}
		log.Warn("etcd has not answered the login yet, still trying", "error", err)
		select {
		case <-ctx.Done():
			return nil, errInterrupted
		case <-time.After(loginPause):
		}
	}
}
