package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/controllerd/controllerd/internal/etcdserver"
)

// embeddedKey and the keys that begin like it are those of the daemon's own
// member of etcd.
const embeddedKey = "embedded-etcd"

// minQuota is less than what a database takes that holds nothing of use.
const minQuota = 16 << 20

// embeddedConfig is the daemon's own member of etcd.
type embeddedConfig struct {
	dir             string // empty: there is none
	peers           []string
	join            bool
	listenClient    string
	advertiseClient string
	listenPeer      string
	quota           byteSize
}

func (cfg *embeddedConfig) addFlags(f *pflag.FlagSet) {
	cfg.quota = byteSize(etcdserver.DefaultQuota)
	f.StringVar(&cfg.dir, embeddedKey, "", "run a member of etcd in this process, with its data in this `folder`, and use it instead of --etcd-endpoints; with --etcd-cacert, --etcd-cert and --etcd-key it speaks TLS, and asks for certificates")
	f.StringSliceVar(&cfg.peers, embeddedKey+"-peers", nil, "all members as `id=URL`, among them the one of this daemon's --id, the same at all daemons, as they reach each other (default: a single member)")
	f.BoolVar(&cfg.join, embeddedKey+"-join", false, "this member was added to a running cluster (etcdctl member add) and begins with an empty folder; of no effect later")
	f.StringVar(&cfg.listenClient, embeddedKey+"-listen-client", "127.0.0.1:2379", "`address` for clients of the member")
	f.StringVar(&cfg.advertiseClient, embeddedKey+"-advertise-client", "", "`address` at which other daemons reach it (default: the listen address, with the host's name for all addresses)")
	f.StringVar(&cfg.listenPeer, embeddedKey+"-listen-peer", "", "`address` for other members (default: that of this daemon's URL in --embedded-etcd-peers)")
	f.Var(&cfg.quota, embeddedKey+"-quota", "size of the member's database above which it takes no writes")
}

// embeddedFaults is all that is wrong with the daemon's own member of etcd.
func (cfg *serveConfig) embeddedFaults(settings []setting) error {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	m := cfg.embedded
	given := func(key string) bool {
		return slices.ContainsFunc(settings, func(s setting) bool { return s.Key == key && s.Origin != defaultOrigin })
	}
	if m.dir == "" {
		for _, s := range settings {
			fault(strings.HasPrefix(s.Key, embeddedKey+"-") && given(s.Key), "--%s is of no use without --%s", s.Key, embeddedKey)
		}
		return errors.Join(faults...)
	}
	fault(given("etcd-endpoints"), "--etcd-endpoints and --%s: the daemon uses one etcd or the other", embeddedKey)
	fault(cfg.secured() && (cfg.caFile == "" || cfg.certFile == "" || cfg.keyFile == ""),
		"--%s needs all of --etcd-cacert, --etcd-cert and --etcd-key, or none", embeddedKey)
	fault(m.quota < minQuota, "--%s-quota %s is below %s", embeddedKey, m.quota, byteSize(minQuota))
	fault(!isListenAddress(m.listenClient), "--%s-listen-client %q is not an IP address and a port", embeddedKey, m.listenClient)
	fault(m.listenPeer != "" && !isListenAddress(m.listenPeer), "--%s-listen-peer %q is not an IP address and a port", embeddedKey, m.listenPeer)
	fault(m.advertiseClient != "" && !isAddress(m.advertiseClient), "--%s-advertise-client %q is not host:port", embeddedKey, m.advertiseClient)
	fault(m.listenPeer != "" && len(m.peers) == 0, "--%s-listen-peer is of no use without --%s-peers", embeddedKey, embeddedKey)
	fault(m.join && len(m.peers) == 0, "--%s-join is of no use without --%s-peers", embeddedKey, embeddedKey)
	if len(m.peers) > 0 {
		members, err := cfg.members()
		own := members[cfg.memberName()]
		faults = append(faults, err)
		fault(err == nil && own == "", "--%s-peers does not name this daemon, whose id is %q", embeddedKey, cfg.memberName())
		fault(own != "" && m.listenPeer == "" && !isListenAddress(own), "--%s-peers: %q is not an IP address and a port, so --%s-listen-peer must be given", embeddedKey, own, embeddedKey)
	}
	return errors.Join(faults...)
}

// memberName is the daemon's id.
func (cfg *serveConfig) memberName() string { return cfg.controller(nil, cfg.listen).ID }

// members are the addresses of all members by the daemon's id.
func (cfg *serveConfig) members() (map[string]string, error) {
	scheme, with := "http", "without"
	if cfg.secured() {
		scheme, with = "https", "with"
	}
	members := map[string]string{}
	var faults []error
	for i, peer := range cfg.embedded.peers { // not shown: there may be a password in it
		id, text, ok := strings.Cut(peer, "=")
		u, err := url.Parse(text)
		switch _, twice := members[id]; {
		case !ok || id == "" || err != nil || !isAddress(u.Host) || u.User != nil || strings.TrimSuffix(u.Path, "/") != "":
			faults = append(faults, fmt.Errorf("--%s-peers: peer %d is not id=%s://host:port", embeddedKey, i+1, scheme))
		case u.Scheme != scheme:
			faults = append(faults, fmt.Errorf("--%s-peers: peer %d does not begin with %s://, as %s certificates", embeddedKey, i+1, scheme, with))
		case twice:
			faults = append(faults, fmt.Errorf("--%s-peers names %q twice", embeddedKey, id))
		case slices.Contains(slices.Collect(maps.Values(members)), u.Host):
			faults = append(faults, fmt.Errorf("--%s-peers names %s twice", embeddedKey, u.Host))
		default:
			members[id] = u.Host
		}
	}
	return members, errors.Join(faults...)
}

// isListenAddress reports whether etcd can listen there. What any free port of
// all addresses would be, nobody could be told.
func isListenAddress(s string) bool {
	a, err := netip.ParseAddrPort(s)
	return err == nil && !(a.Addr().IsUnspecified() && a.Port() == 0)
}

// startMember starts the daemon's own member of etcd, which need not answer
// yet, and makes it the one that the daemon uses.
func (cfg *serveConfig) startMember(ctx context.Context, log *slog.Logger) (*etcdserver.Server, error) {
	members, err := cfg.members()
	if err != nil {
		return nil, err
	}
	m := cfg.embedded
	config := etcdserver.Config{
		Dir: m.dir, Addr: m.listenClient, Advertise: m.advertiseClient,
		Name: cfg.memberName(), Members: members, Token: cfg.cluster, Join: m.join, PeerAddr: m.listenPeer,
		Quota: int64(m.quota), Logger: etcdserver.LogTo(log),
	}
	own := netip.MustParseAddrPort(m.listenClient)
	if own.Addr().IsUnspecified() {
		config.Advertise = advertised(m.listenClient, m.advertiseClient)
	}
	if cfg.secured() {
		config.ClientTLS = transport.TLSInfo{CertFile: cfg.certFile, KeyFile: cfg.keyFile, TrustedCAFile: cfg.caFile, ClientCertAuth: true}
		config.PeerTLS = config.ClientTLS
	}
	server, err := etcdserver.Launch(ctx, config)
	if err != nil {
		return nil, err
	}
	log.Info("etcd member started", "dir", m.dir, "clients", server.Addr(), "members", strings.Join(m.peers, ","), "quota", m.quota.String())
	switch {
	case cfg.secured(): // the name by which its certificate calls it
		cfg.endpoints = []string{"https://" + cmp.Or(config.Advertise, server.Addr())}
	case own.Addr().IsUnspecified():
		cfg.endpoints = []string{net.JoinHostPort("localhost", fmt.Sprint(own.Port()))}
	default:
		cfg.endpoints = []string{server.Addr()}
	}
	if !cfg.secured() {
		warnOfMember(log, server.Addr(), cmp.Or(m.listenPeer, members[config.Name]))
	}
	return server, nil
}

// warnOfMember speaks up when anybody on the network may write what the cluster
// is.
func warnOfMember(log *slog.Logger, listens ...string) {
	for _, l := range listens {
		if addr, err := netip.ParseAddrPort(l); err == nil {
			warnIfExposed(log, net.TCPAddrFromAddrPort(addr))
		}
	}
}

// byteSize is a number of bytes as a flag.
type byteSize int64

var byteUnits = []struct {
	name string
	size byteSize
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// String is exact, with the largest unit that fits.
func (b byteSize) String() string {
	for _, u := range byteUnits {
		if b != 0 && b%u.size == 0 {
			return fmt.Sprint(int64(b/u.size), u.name)
		}
	}
	return fmt.Sprint(int64(b))
}

// Set takes a number, or one with a unit: 8GiB, 500MB.
func (b *byteSize) Set(s string) error {
	n, err := humanize.ParseBytes(s)
	if err != nil || n > math.MaxInt64 {
		return fmt.Errorf("%q is not a size like 8GiB", s)
	}
	*b = byteSize(n)
	return nil
}

// Type is the name in the help.
func (b *byteSize) Type() string { return "size" }
