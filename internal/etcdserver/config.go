package etcdserver

import (
	"cmp"
	"crypto/rand"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// Defaults of Config.
const (
	DefaultTick                = 100 * time.Millisecond
	DefaultElection            = time.Second
	DefaultQuota         int64 = 8 << 30
	DefaultKeepRevisions       = 10_000
	compactionBatch            = 5_000 // revisions; etcd's own 1,000 is slower than the write path
	compactionBatchPause       = 10 * time.Millisecond
	bindAttempts               = 10
	bindRetryInterval          = 50 * time.Millisecond
	handOverTimeout            = time.Second
	weakHashCost               = 4 // the least there is
)

// What a snapshot has to be restored with for a single member.
const (
	SingleName = "controllerd" // the member's
	SinglePeer = "127.0.0.1:1" // where others would reach it; it never dials itself
	DataDir    = "member.etcd" // below Config.Dir; also of one of several members
)

// Config says how to run the server.
type Config struct {
	// Dir is the data directory; it is made if it does not exist.
	Dir string
	// Addr is the client listen address, an IP and a port. Port 0 picks a free one.
	Addr string
	// Advertise is where others reach that, if not there: a host and a port.
	Advertise string
	// Tick is the heartbeat interval and Election the election timeout, at
	// least five ticks. No lease is shorter than 1.5 election timeouts,
	// rounded up to a second. 0 means the defaults: 2 s leases.
	Tick, Election time.Duration
	// Quota is the size in bytes at which the server refuses writes. 0 means
	// DefaultQuota.
	Quota int64
	// KeepRevisions is how many revisions automatic compaction leaves. 0 means
	// DefaultKeepRevisions; below 0 turns compaction off.
	KeepRevisions int
	// Members are the addresses of all members for each other, by name, if there
	// are several; Name is this one's. A directory keeps the members with which
	// it began, and those that have joined since: if this one is not at its
	// address by then, Start fails with ErrOther.
	Name    string
	Members map[string]string
	// Token tells the clusters of several members apart that begin with the
	// same Members; it must be the same for all of them.
	Token string
	// Join makes a member whose directory is new one of a running cluster that
	// was told to add it, instead of one that begins with all others.
	Join bool
	// PeerAddr is the listen address for other members, an IP and a port.
	// Default: the member's own in Members.
	PeerAddr string
	// ClientTLS and PeerTLS secure what clients and other members say; empty:
	// they speak plain text.
	ClientTLS, PeerTLS transport.TLSInfo
	// AuthToken is what tokens a login gets, in etcd's words. Empty: simple ones,
	// which a client keeps as long as it uses them.
	AuthToken string
	// NoFsync trades durability for speed, WeakHashes the safety of stored
	// passwords; for tests.
	NoFsync, WeakHashes bool
	// Logger gets the server's log. Nil drops all but the reason for which etcd
	// ends the process, which goes to stderr.
	Logger *zap.Logger
}

func (c Config) withDefaults() Config {
	if c.Tick == 0 {
		c.Tick = DefaultTick
	}
	if c.Election == 0 {
		c.Election = DefaultElection
	}
	if c.Quota == 0 {
		c.Quota = DefaultQuota
	}
	if c.KeepRevisions == 0 {
		c.KeepRevisions = DefaultKeepRevisions
	}
	if c.Logger == nil {
		c.Logger = lastWords()
	}
	return c
}

func embedConfig(cfg Config, st *streams) *embed.Config {
	e := embed.NewConfig()
	e.Dir = filepath.Join(cfg.Dir, DataDir)
	e.ListenClientUrls = urls(cfg.ClientTLS, cfg.Addr)
	e.AdvertiseClientUrls = urls(cfg.ClientTLS, cmp.Or(cfg.Advertise, cfg.Addr))
	e.ClientTLSInfo, e.PeerTLSInfo = cfg.ClientTLS, cfg.PeerTLS
	e.EnableGRPCGateway = false
	if len(cfg.Members) > 0 {
		joinMembers(e, cfg)
	} else {
		e.Name = SingleName
		e.ListenPeerUrls = nil
		e.AdvertisePeerUrls = urls(transport.TLSInfo{}, SinglePeer)
		e.InitialCluster = e.InitialClusterFromName(e.Name)
		e.InitialClusterToken = rand.Text() // or all of them would have the same cluster id
	}

	e.TickMs = uint(cfg.Tick.Milliseconds())
	e.ElectionMs = uint(cfg.Election.Milliseconds())
	e.QuotaBackendBytes = cfg.Quota
	e.UnsafeNoFsync = cfg.NoFsync
	e.AuthToken = cmp.Or(cfg.AuthToken, e.AuthToken)
	if cfg.WeakHashes {
		e.BcryptCost = weakHashCost
	}
	e.AutoCompactionMode = embed.CompactorModeRevision
	e.AutoCompactionRetention = strconv.Itoa(max(cfg.KeepRevisions, 0))
	e.CompactionBatchLimit = compactionBatch
	e.CompactionSleepInterval = compactionBatchPause

	e.ZapLoggerBuilder = embed.NewZapLoggerBuilder(cfg.Logger)
	e.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.ChainStreamInterceptor(st.intercept)}
	return e
}

// joinMembers makes the server one of several.
func joinMembers(e *embed.Config, cfg Config) {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(cfg.Members)) {
		all = append(all, name+"="+urls(cfg.PeerTLS, cfg.Members[name])[0].String())
	}
	if cfg.Join {
		e.ClusterState = embed.ClusterStateFlagExisting
	}
	own := cfg.Members[cfg.Name]
	e.Name, e.InitialCluster = cfg.Name, strings.Join(all, ",")
	e.InitialClusterToken = cmp.Or(cfg.Token, e.InitialClusterToken)
	e.AdvertisePeerUrls = urls(cfg.PeerTLS, own)
	e.ListenPeerUrls = urls(cfg.PeerTLS, cmp.Or(cfg.PeerAddr, own))
}

// urls is an address as etcd wants it.
func urls(security transport.TLSInfo, addr string) []url.URL {
	if security.Empty() {
		return []url.URL{{Scheme: "http", Host: addr}}
	}
	return []url.URL{{Scheme: "https", Host: addr}}
}
