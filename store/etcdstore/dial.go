package etcdstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	// keepAliveTime is how long a connection with an open stream may be quiet
	// before it is pinged: the least that grpc allows, and etcd closes the
	// connection of a client that pings more often than every 5 s or without a
	// stream.
	keepAliveTime = 10 * time.Second
	// keepAliveTimeout is how long an answer to the ping may take, and on Linux
	// how long data may stay unacknowledged (TCP_USER_TIMEOUT). The second
	// decides in practice, because a daemon sends something every second.
	keepAliveTimeout = 2 * time.Second
	// loginTimeout bounds the exchange of a password for a token.
	loginTimeout = 5 * time.Second
)

// reconnect is how a lost connection is dialled again: an etcd that is back
// should be noticed within about a second.
var reconnect = grpc.ConnectParams{
	Backoff: backoff.Config{
		BaseDelay:  50 * time.Millisecond,
		Multiplier: 1.6,
		Jitter:     0.2,
		MaxDelay:   time.Second,
	},
	MinConnectTimeout: 2 * time.Second,
}

// Config says how to reach an etcd cluster.
type Config struct {
	// Endpoints are the members, each as host:port or as a URL. One that
	// answers is enough; calls are spread over all of them. Without a scheme
	// TLS decides between plain and encrypted connections.
	Endpoints []string
	// TLS encrypts the connections; nil leaves them plain.
	TLS *tls.Config
	// Username and Password log in, if the cluster asks for it.
	Username, Password string
	// LoginTimeout bounds that; 0: 5 s.
	LoginTimeout time.Duration
	// DialOptions are added to the client's. An interceptor must be a chained
	// one, or it replaces the client's own.
	DialOptions []grpc.DialOption
}

// ErrLogin: etcd refuses the name or the password.
var ErrLogin = errors.New("login refused")

// CheckEndpoints reports what is wrong with addresses of members.
func CheckEndpoints(endpoints []string) error {
	if len(endpoints) == 0 {
		return errors.New("no endpoints of etcd given")
	}
	var faults []error
	for i, e := range endpoints {
		switch { // not named: there may be a password in it
		case strings.TrimSpace(e) == "":
			faults = append(faults, fmt.Errorf("endpoint %d of etcd is empty", i+1))
		case strings.Contains(e, "@"):
			faults = append(faults, fmt.Errorf("endpoint %d of etcd has a user name in it, which etcd ignores", i+1))
		case !isEndpoint(e):
			faults = append(faults, fmt.Errorf("endpoint %d of etcd is not host:port or http(s)://host:port", i+1))
		}
	}
	return errors.Join(faults...)
}

// isEndpoint reports whether a member could be dialed there.
func isEndpoint(e string) bool {
	if strings.HasPrefix(e, "unix://") || strings.HasPrefix(e, "unixs://") {
		return true
	}
	if _, rest, ok := strings.Cut(e, "://"); ok && (strings.HasPrefix(e, "http://") || strings.HasPrefix(e, "https://")) {
		e = strings.TrimSuffix(rest, "/")
	}
	host, port, err := net.SplitHostPort(e)
	n, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && bad == nil && n != 0 && host != "" && !strings.ContainsAny(host, " \t\r\n/")
}

// Dial makes a client. It does not wait for a connection: a cluster that is
// away shows in the calls, each of which ends with its own context. Only a
// login needs the cluster at once.
func Dial(cfg Config) (*clientv3.Client, error) {
	if err := CheckEndpoints(cfg.Endpoints); err != nil {
		return nil, fmt.Errorf("dial etcd: %w", err)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            cfg.Endpoints,
		TLS:                  cfg.TLS,
		Username:             cfg.Username,
		Password:             cfg.Password,
		DialTimeout:          cmp.Or(cfg.LoginTimeout, loginTimeout),
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		DialOptions:          append([]grpc.DialOption{grpc.WithConnectParams(reconnect)}, cfg.DialOptions...),
		Logger:               zap.NewNop(),
	})
	switch answer := rpctypes.Error(err); {
	case err == nil:
		return client, nil
	case answer == rpctypes.ErrAuthFailed || answer == rpctypes.ErrUserEmpty || answer == rpctypes.ErrUserNotFound || answer == rpctypes.ErrAuthNotEnabled:
		return nil, fmt.Errorf("dial etcd: %w: %v", ErrLogin, err)
	}
	return nil, fmt.Errorf("dial etcd: %w", err)
}

// Ping reads a key and drops what it holds. Other calls wait for a connection
// until their time is up, and then say no more than that; its error says what is
// wrong with the connections.
func Ping(ctx context.Context, client *clientv3.Client, key string) error {
	_, err := pb.NewKVClient(client.ActiveConnection()).Range(ctx, &pb.RangeRequest{Key: []byte(key), KeysOnly: true}, grpc.WaitForReady(false))
	return err
}
