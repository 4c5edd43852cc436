package rpc

import (
	"context"
	"time"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/epoch"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// View is what the services may look at, inside a call of Core.Await only.
type View struct {
	Image *cluster.Image
	Feed  *Feed  // of the image
	Self  string // the daemon's id
	Nonce string // of its process
	// ClusterUUID is that of the cluster that the daemon serves, "" until it
	// has seen one. The image may show another by now.
	ClusterUUID string
	Claim       epoch.Claim // zero: standby
	Active      bool
	// Healthy: it campaigns, and the store takes its writes, as far as is known.
	Healthy bool
	// Current: what the image shows is not old, as far as is known.
	Current bool
	// Problems are sentences about what is wrong, in a stable order.
	Problems func() []string
	Counters map[string]int64 // since the process began
	Lease    *Lease           // nil: it holds none
	Session  string           // one of election.States
	Version  string
	Pending  int // partition states that brokers have yet to confirm
	// Contacts are the streams to brokers; nil on a standby.
	Contacts func() map[cluster.BrokerID]Contact
	// Moving are at most so many partitions, in order from one on, of which a
	// reassignment is under way, waits, or leaves something; WaitsFor says what one
	// waits for, for people.
	Moving   func(from cluster.PartitionID, limit int) []cluster.PartitionID
	WaitsFor func(cluster.PartitionID) (pb.ReassignmentState, string)
	// Pusher knows what brokers say of their replicas. nil: a standby.
	Pusher *Pusher
}

// Lease is what hangs on a daemon's lease, and by how much.
type Lease struct {
	TTL time.Duration
	// Margin is the least that was left, in the last minutes, until the holder
	// would have had to give up; Usual is what is left at least if the store
	// answers at once.
	Margin, Usual time.Duration
}

// Core is the daemon behind the services.
type Core interface {
	// Await waits until cond holds; see controller.Controller.
	Await(ctx context.Context, cond func(View) bool) error
	// Submit hands a request to the active controller and waits for the
	// answer. NOT_CONTROLLER if this daemon is not the active one.
	Submit(ctx context.Context, r Request) (any, error)
	// Leading is the epoch under which this daemon may act at this very moment,
	// if it may. It does not wait.
	Leading() (cluster.Epoch, bool)
	// Store is where sessions of brokers are kept.
	Store() store.Store
}

// SessionTTL bounds what a broker may ask for.
const (
	DefaultSessionTTL = 10 * time.Second
	MinSessionTTL     = 4 * time.Second
	MaxSessionTTL     = 60 * time.Second
)
